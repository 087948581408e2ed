"""The reader: the text of a PTX module to its syntax. What it does not know is an error with line and column, never skipped."""

from __future__ import annotations

import re
from operator import attrgetter

from tcsim.core.errors import shortened
from tcsim.core.targets import OLDER, TARGETS
from tcsim.core.versions import PTX_ISA, number
from tcsim.ptx.text.body import BodyReader
from tcsim.ptx.text.scanner import LINKAGES, NAME, NUMBERS, PRAGMA, SINCE, SPACES, WORD, Scanner, parameters
from tcsim.ptx.text.syntax import Function, Module, PtxError, Variable

MOST_CHARACTERS = 64 << 20
DEEPEST_SCOPE = 64
TARGET_OPTIONS = ("texmode_unified", "texmode_independent", "debug")
MODULE_DIRECTIVES = (
    "version", "target", "address_size", "file", "section", "entry", "func", "alias", "pragma", *LINKAGES, "global", "const", "shared",
)  # fmt: skip
FUNCTION_DIRECTIVES = {
    "maxntid": 3, "reqntid": 3, "minnctapersm": 1, "maxnctapersm": 1, "maxnreg": 1, "reqnctapercluster": 3, "maxclusterrank": 1,
    "explicitcluster": 0, "blocksareclusters": 0, "noreturn": 0, "abi_preserve": 1, "abi_preserve_control": 1, "unified": 2,
    "language": 1,
}  # fmt: skip
"""Directives between a function's parameters and its body, and how many numbers each takes at most."""
FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"\n]*)"(?:\s*,\s*\d+\s*,\s*\d+)?', re.ASCII)
VERSION = re.compile(r"\.version\s+(\d{1,3}\.\d{1,3})", re.ASCII)
TARGET = re.compile(r"\.target\s+(\w+(?:\s*,\s*\w+)*)", re.ASCII)
ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d{1,3})", re.ASCII)
SECTION = re.compile(r"\.section\s+\.?[\w.]+\s*\{[^{}]*\}", re.ASCII)
ALIAS = re.compile(rf"\.alias\s+({NAME})\s*,\s*({NAME})\s*;", re.ASCII)
FUNCTION = re.compile(r"\.(entry|func)\b", re.ASCII)
IDENTIFIER = re.compile(NAME, re.ASCII)
_SIGNATURE = attrgetter("space", "type", "shape", "align")


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
        raise reader.unknown(f"no target {module.target[:60]}", module.target, TARGETS, start)
    for option in options:
        if option not in TARGET_OPTIONS and option not in known:
            raise reader.unknown(f"no target or option {option[:60]}", option, TARGET_OPTIONS, start)
    reader.require(f".target {module.target}", known[module.target], start)
    reader.skip()
    start = reader.at
    if ADDRESS_SIZE.match(reader.text, reader.at):
        size = int(reader.take(ADDRESS_SIZE, "a size")[1])
        if size != 64:
            raise reader.error(f".address_size {size}; valid: 64", start)


def _module_directive(reader: Scanner, module: Module) -> None:
    start, word = reader.at, reader.word()
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
            word = reader.word("a declaration")
        if word in ("entry", "func"):
            _function(reader, module, linkage)
        else:
            variable = reader.initial(reader.declaration(linkage))
            earlier = module.variables.get(variable.name)
            twice = earlier is not None and earlier.linkage != "extern" and linkage != "extern"
            if twice or variable.name in module.functions:
                raise reader.error(f"{shortened(variable.name)} is declared twice", start)
            if variable.space in ("local", "param", "reg"):
                raise reader.error(f".{variable.space} outside a function", start)
            if earlier is not None and not _agree(earlier, variable):
                raise reader.error(f"{shortened(variable.name)} is declared with another type or size", start)
            if earlier is None or linkage != "extern":
                module.variables[variable.name] = variable
    else:
        raise reader.unknown(f"no directive .{word[:60]}", word, MODULE_DIRECTIVES, start)


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
        at, word = reader.at, reader.word()
        if word == "pragma":
            reader.take(PRAGMA, "a pragma")
            continue
        if word not in FUNCTION_DIRECTIVES:
            raise reader.unknown(f"no directive .{word[:60]} of a function", word, FUNCTION_DIRECTIVES, at)
        reader.require(f".{word}", SINCE.get(word), at)
        reader.at += len(word) + 1
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
    for what, one, other in (("parameters", earlier.params, made.params), ("results", earlier.returns, made.returns)):
        if list(map(_SIGNATURE, one)) != list(map(_SIGNATURE, other)):
            raise reader.error(f"{name} has other {what} than on line {earlier.line}", start)
