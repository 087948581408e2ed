"""The reader: the text of a PTX module to its syntax. What it does not know is an error with line and column, never skipped."""

from __future__ import annotations

import re

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import OLDER, TARGETS
from tcsim.core.versions import PTX_ISA, number
from tcsim.ptx.text.body import BodyReader
from tcsim.ptx.text.scanner import (
    ADDRESS_SIZE,
    ALIAS,
    DEEPEST_SCOPE,
    FILE,
    FUNCTION,
    FUNCTION_DIRECTIVES,
    IDENTIFIER,
    LINKAGES,
    MODULE_DIRECTIVES,
    MOST_CHARACTERS,
    NUMBERS,
    PRAGMA,
    SECTION,
    SINCE,
    SPACES,
    TARGET,
    VERSION,
    WORD,
    Scanner,
    parameters,
)
from tcsim.ptx.text.syntax import (
    Function,
    Module,
    PtxError,
    Variable,
)

TARGET_OPTIONS = ("texmode_unified", "texmode_independent", "debug")


def parse(text: str | bytes, characters: int = MOST_CHARACTERS, nesting: int = DEEPEST_SCOPE) -> Module:
    """The syntax of a module's text; bytes are UTF-8 and may end in NUL.

    Raises PtxError with line and column for what is not known, and for a text beyond the limits.
    """
    if isinstance(text, (bytes, bytearray, memoryview)):
        try:
            text = bytes(text).rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise PtxError(f"not PTX text: byte {error.start} is not UTF-8") from None
    if not isinstance(text, str):
        raise PtxError(f"PTX is a {type(text).__name__}; valid: str or bytes")
    if len(text) > characters:
        raise PtxError(f"{len(text)} characters; valid: up to {characters}")
    reader, module = Scanner(text, nesting), Module()
    _head(reader, module)
    while reader.skip():
        _module_directive(reader, module)
    return module


def _head(reader: Scanner, module: Module) -> None:
    """The directives with which every module begins: .version, .target and, if it is there, .address_size."""
    if not reader.skip():
        raise PtxError("no .version: is this PTX?")
    start = reader.at
    version = reader.take(VERSION, "a .version")[1]
    module.version = ".".join(str(part) for part in number(version))
    if module.version not in PTX_ISA:
        raise reader.error(f"no .version {version}; valid: versions of PTX ISA up to {PTX_ISA[-1]}", start)
    reader.version, reader.versions = module.version, frozenset(PTX_ISA[: PTX_ISA.index(module.version) + 1])
    if not reader.skip():
        raise reader.error("no .target")
    start = reader.at
    module.target, *options = (part.strip() for part in reader.take(TARGET, "a .target")[1].split(","))
    module.target_options = tuple(options)
    known = {**OLDER, **{name: target.ptx_version for name, target in TARGETS.items()}}
    if module.target not in known:
        raise reader.error(
            f"no target {module.target[:60]}; nearest: {listing(nearest(module.target, TARGETS))}", start
        )
    for option in options:
        if option not in TARGET_OPTIONS and option not in known:
            raise reader.error(
                f"no target or option {option[:60]}; nearest: {listing(nearest(option, TARGET_OPTIONS))}", start
            )
    if number(module.version) < number(known[module.target]):
        raise reader.error(
            f".target {module.target} needs .version {known[module.target]} or later; the module has {module.version}",
            start,
        )
    reader.skip()
    start = reader.at
    if ADDRESS_SIZE.match(reader.text, reader.at):
        module.address_size = int(reader.take(ADDRESS_SIZE, "a size")[1])
        if module.address_size != 64:
            raise reader.error(f".address_size {module.address_size}; valid: 64", start)


def _module_directive(reader: Scanner, module: Module) -> None:
    start = reader.at
    word = reader.take(WORD, "a directive")[1]
    reader.at = start
    if word in ("version", "target", "address_size"):
        raise reader.error(f".{word} stands once, at the beginning: .version, .target, .address_size", start)
    reader.require(f".{word}", SINCE.get(word), start)
    if word == "file":
        match = reader.take(FILE, "a file")
        module.files[int(match[1])] = match[2]
    elif word == "section":
        reader.take(SECTION, "a section")
    elif word == "pragma":
        reader.take(PRAGMA, "a pragma")
    elif word == "alias":
        match = reader.take(ALIAS, "an alias")
        if match[1] in module.aliases:
            raise reader.error(f"{shortened(match[1])} is an alias already", start)
        module.aliases[match[1]] = match[2]
    elif word in (*LINKAGES, "entry", "func", *SPACES):
        linkage = ""
        while word in LINKAGES:
            linkage = word
            reader.at += len(word) + 1
            reader.skip()
            word = reader.take(WORD, "a declaration")[1]
            reader.at -= len(word) + 1
        if word in ("entry", "func"):
            _function(reader, module, linkage)
        else:
            variable = reader.initial(reader.declaration(linkage))
            earlier = module.variables.get(variable.name)
            if variable.name in module.functions or (
                earlier is not None and earlier.linkage != "extern" and linkage != "extern"
            ):
                raise reader.error(f"{shortened(variable.name)} is declared twice", start)
            if variable.space in ("local", "param", "reg"):
                raise reader.error(f".{variable.space} outside a function", start)
            if earlier is not None and not _agree(earlier, variable):
                raise reader.error(f"{shortened(variable.name)} is declared with another type or size", start)
            if earlier is None or linkage != "extern":
                module.variables[variable.name] = variable
    else:
        close = listing(nearest(word, MODULE_DIRECTIVES))
        raise reader.error(f"no directive .{word[:60]}; nearest: {close}", start)


def _function(reader: Scanner, module: Module, linkage: str) -> None:
    start = reader.at
    line = reader.place(start)[0]
    entry = reader.take(FUNCTION, "a function")[1] == "entry"
    directives: dict[str, tuple[int, ...]] = {}
    reader.skip()
    while not entry and reader.text[reader.at] == ".":
        word = reader.take(WORD, "a directive")[1]
        reader.require(f".{word}", SINCE.get(word), start)
        if word not in ("noreturn", "attribute"):
            raise reader.error(f"no directive .{word[:60]} before a function's name")
        if word == "attribute":
            reader.take(re.compile(r"\([^()]*\)"), "an attribute")
        reader.skip()
    returns = parameters(reader) if not entry and reader.text[reader.at : reader.at + 1] == "(" else ()
    name = reader.take(IDENTIFIER, "a name")[0]
    reader.skip()
    params = parameters(reader, returns) if reader.text[reader.at : reader.at + 1] == "(" else ()
    while reader.skip() and reader.text[reader.at] == ".":
        at = reader.at
        word = reader.take(WORD, "a directive")[1]
        if word == "pragma":
            reader.at = at
            reader.take(PRAGMA, "a pragma")
            continue
        if word not in FUNCTION_DIRECTIVES:
            raise reader.error(
                f"no directive .{word[:60]} of a function; nearest: {listing(nearest(word, FUNCTION_DIRECTIVES))}", at
            )
        reader.require(f".{word}", SINCE.get(word), at)
        numbers = reader.take(NUMBERS, "numbers")[1] if FUNCTION_DIRECTIVES[word] else None
        directives[word] = tuple(int(part) for part in numbers.split(",")) if numbers else ()
        if len(directives[word]) > FUNCTION_DIRECTIVES[word]:
            raise reader.error(f".{word} takes {FUNCTION_DIRECTIVES[word]} numbers", at)
    if "maxntid" in directives and "reqntid" in directives:
        raise reader.error(".maxntid and .reqntid exclude each other")
    made = Function(name, entry, params, returns, directives, linkage=linkage, line=line)
    _consistent(reader, module.functions.get(name), made, start)
    if reader.took(";"):
        module.functions.setdefault(name, made)
        return
    if name in module.variables:
        raise reader.error(f"{shortened(name)} is a variable")
    reader.expect("{")
    made.defined = True
    BodyReader(reader, module, made).read()
    module.functions[name] = made


def _agree(one: Variable, other: Variable) -> bool:
    """Whether two declarations of a variable say the same: its type and, where both give them, its extents."""
    return one.type == other.type and (None in (one.count, other.count) or one.shape == other.shape)


def _consistent(reader: Scanner, earlier: Function | None, made: Function, start: int) -> None:
    """A function is declared as often as one likes before it is defined, each time alike."""
    if earlier is None:
        return
    name = shortened(made.name)
    if earlier.entry != made.entry:
        raise reader.error(f"{name} is an entry and a function", start)
    if earlier.defined:
        raise reader.error(f"{name} has two bodies, the first on line {earlier.line}", start)
    for one, other, what in (
        (earlier.params, made.params, "parameters"),
        (earlier.returns, made.returns, "results"),
    ):
        if [(own.space, own.type, own.shape, own.align) for own in one] != [
            (own.space, own.type, own.shape, own.align) for own in other
        ]:
            raise reader.error(f"{name} has other {what} than on line {earlier.line}", start)
