"""The reader: the text of a PTX module to its syntax. What it does not know is an error with line and column, never skipped."""

from __future__ import annotations

import re

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import TARGETS
from tcsim.ptx.body import BodyReader
from tcsim.ptx.scanner import (
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
    SPACES,
    TARGET,
    VERSION,
    WORD,
    Scanner,
    parameters,
)
from tcsim.ptx.syntax import (
    Function,
    Module,
    PtxError,
)

OLD_TARGET = re.compile(r"sm_[2356]\d")  # before sm_70: their code runs on every later arch


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
    while reader.skip():
        _module_directive(reader, module)
    if not module.version:
        raise PtxError("no .version: is this PTX?")
    if not module.target:
        raise PtxError("no .target")
    return module


def _module_directive(reader: Scanner, module: Module) -> None:
    start = reader.at
    word = reader.take(WORD, "a directive")[1]
    reader.at = start
    if word == "version":
        module.version = reader.take(VERSION, "a version")[1]
    elif word == "target":
        module.target, *options = (part.strip() for part in reader.take(TARGET, "a target")[1].split(","))
        module.target_options = tuple(options)
        if module.target not in TARGETS and not OLD_TARGET.fullmatch(module.target):
            raise reader.error(
                f"no target {module.target[:60]}; nearest: {listing(nearest(module.target, TARGETS))}", start
            )
    elif word == "address_size":
        module.address_size = int(reader.take(ADDRESS_SIZE, "a size")[1])
        if module.address_size != 64:
            raise reader.error(f".address_size {module.address_size}; valid: 64", start)
    elif word == "file":
        match = reader.take(FILE, "a file")
        module.files[int(match[1])] = match[2]
    elif word == "section":
        reader.take(SECTION, "a section")
    elif word == "pragma":
        reader.take(PRAGMA, "a pragma")
    elif word == "alias":
        match = reader.take(ALIAS, "an alias")
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
            if earlier is None or linkage != "extern":
                module.variables[variable.name] = variable
    else:
        close = listing(nearest(word, MODULE_DIRECTIVES))
        raise reader.error(f"no directive .{word[:60]}; nearest: {close}", start)


def _function(reader: Scanner, module: Module, linkage: str) -> None:
    line = reader.place(reader.at)[0]
    entry = reader.take(FUNCTION, "a function")[1] == "entry"
    directives: dict[str, tuple[int, ...]] = {}
    reader.skip()
    while not entry and reader.text[reader.at] == ".":
        word = reader.take(WORD, "a directive")[1]
        if word not in ("noreturn", "attribute"):
            raise reader.error(f"no directive .{word[:60]} before a function's name")
        if word == "attribute":
            reader.take(re.compile(r"\([^()]*\)"), "an attribute")
        reader.skip()
    returns = parameters(reader) if not entry and reader.text[reader.at : reader.at + 1] == "(" else ()
    name = reader.take(IDENTIFIER, "a name")[0]
    reader.skip()
    params = parameters(reader) if reader.text[reader.at : reader.at + 1] == "(" else ()
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
        numbers = reader.take(NUMBERS, "numbers")[1] if FUNCTION_DIRECTIVES[word] else None
        directives[word] = tuple(int(part) for part in numbers.split(",")) if numbers else ()
        if len(directives[word]) > FUNCTION_DIRECTIVES[word]:
            raise reader.error(f".{word} takes {FUNCTION_DIRECTIVES[word]} numbers", at)
    made = Function(name, entry, params, returns, directives, linkage=linkage, line=line)
    earlier = module.functions.get(name)
    if reader.took(";"):
        module.functions.setdefault(name, made)
        return
    if earlier is not None and earlier.defined:
        raise reader.error(f"{shortened(name)} has two bodies")
    if name in module.variables:
        raise reader.error(f"{shortened(name)} is a variable")
    reader.expect("{")
    made.defined = True
    BodyReader(reader, module, made).read()
    module.functions[name] = made
