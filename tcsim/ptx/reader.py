"""The reader: the text of a PTX module to its syntax. What it does not know is an error with line and column, never skipped."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from tcsim.core.errors import listing, nearest
from tcsim.ptx.operands import constant, number, read_operand, split
from tcsim.ptx.syntax import (
    TYPE_BYTES,
    Address,
    Function,
    Group,
    Initial,
    Instruction,
    Location,
    Module,
    Operand,
    PtxError,
    Register,
    Symbol,
    Tensor,
    Variable,
    Vector,
)

MOST_CHARACTERS = 64 << 20
DEEPEST_SCOPE = 64
MOST_REGISTERS = 1 << 20  # of one declaration
MOST_BYTES = 1 << 30  # of one variable

LINKAGES = ("extern", "visible", "weak", "common")
SPACES = ("global", "const", "shared", "local", "param")
MODULE_DIRECTIVES = (
    "version", "target", "address_size", "file", "section", "entry", "func", "alias", "pragma", *LINKAGES, "global", "const", "shared",
)  # fmt: skip
FUNCTION_DIRECTIVES = {
    "maxntid": 3, "reqntid": 3, "minnctapersm": 1, "maxnctapersm": 1, "maxnreg": 1, "reqnctapercluster": 3, "maxclusterrank": 1,
    "explicitcluster": 0, "blocksareclusters": 0, "noreturn": 0, "abi_preserve": 1, "abi_preserve_control": 1, "unified": 2,
    "language": 1,
}  # fmt: skip
"""Directives between a function's parameters and its body, and how many numbers each takes at most."""
BODY_DIRECTIVES = (
    "reg",
    "local",
    "shared",
    "param",
    "global",
    "const",
    "loc",
    "pragma",
    "branchtargets",
    "calltargets",
    "callprototype",
)

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SPACE = re.compile(r"\s*")
_NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
_WORD = re.compile(r"\.([A-Za-z_]\w*)")
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_INSTRUCTION = re.compile(rf"(?:@(!?)\s*({_NAME})\s+)?([a-z]\w*(?:(?:\.|::)[\w]+)*)\s*([^;]*);")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?([^\n]*)")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"\n]*)"[^\n]*')
_VERSION = re.compile(r"\.version\s+(\d+\.\d+)")
_TARGET = re.compile(r"\.target\s+(\w+(?:\s*,\s*\w+)*)")
_ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d+)")
_SECTION = re.compile(r"\.section\s+\.?[\w.]+\s*\{[^{}]*\}")
_PRAGMA = re.compile(r'\.pragma\s+"[^"\n]*"(?:\s*,\s*"[^"\n]*")*\s*;')
_ALIAS = re.compile(rf"\.alias\s+({_NAME})\s*,\s*({_NAME})\s*;")
_FUNCTION = re.compile(r"\.(entry|func)\b")
_IDENTIFIER = re.compile(_NAME)
_NUMBERS = re.compile(r"\s*(\d+(?:\s*,\s*\d+)*)?")
_DECLARATION = re.compile(
    rf"""(?P<words>(?:\.\w+(?:::\w+)?\s*(?:\(\s*[^()]*\))?\s*(?:\b\d+\s*)?)+)   # .space .align 16 .v4 .b32 .ptr .global .attribute(..)
         (?P<name>{_NAME})\s*
         (?P<extents>(?:\[\s*[^\]]*\]\s*)*)""",
    re.VERBOSE,
)
_REGISTERS = re.compile(rf"({_NAME})(?:<\s*(\d+)\s*>)?")
_EXTENT = re.compile(r"\[\s*([^\]]*?)\s*\]")
_DECLARED_WORD = re.compile(r"\.(\w+(?:::\w+)?)\s*(\([^()]*\))?\s*(\b\d+)?")
_TARGETS = re.compile(r"\.(branchtargets|calltargets)\s+([^;]*);")
_GENERIC = re.compile(r"generic\(\s*(.+?)\s*\)")
_MASKED = re.compile(r"(0xFF(?:00)*)\((.+)\)")


@dataclass
class _Scope:
    """A block in braces: what is declared in it, and where it stands."""

    number: int
    parent: _Scope | None
    function: _FunctionReader
    names: dict[str, str] = field(default_factory=dict)  # of registers: unique names
    families: dict[str, tuple[str, int]] = field(default_factory=dict)  # %r<100>: by prefix the type and the count
    symbols: dict[str, str] = field(default_factory=dict)  # of labels and variables: unique names
    operands: dict[str, tuple[Operand, ...]] = field(default_factory=dict)  # lists that were read already

    def unique(self, name: str) -> str:
        """The name of something declared here: as it is in the outermost block of a function, with the block's number elsewhere."""
        return name if self.parent is None else f"{name}#{self.number}"

    def register(self, name: str) -> str | None:
        """The unique name of a register that is visible here, or None."""
        own = self.names.get(name)
        if own is not None:
            return own
        digits = len(name)
        while digits and name[digits - 1].isdigit():
            digits -= 1
        found = self.families.get(name[:digits])
        if found is not None and digits < len(name):
            type, count = found
            index = name[digits:]
            if int(index) < count and (index == "0" or index[0] != "0"):
                own = self.unique(name)
                self.names[name] = own
                self.function.made.registers[own] = (type, 1)
                return own
        own = self.parent.register(name) if self.parent else None
        if own is not None:
            self.names[name] = own
        return own

    def symbol(self, name: str) -> str:
        """The unique name of a label or variable of the function that is visible here; of anything else the name itself."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name]
            scope = scope.parent
        return name


class _Reader:
    """A text and a place in it."""

    def __init__(self, text: str) -> None:
        self.text = _COMMENT.sub(_blank, text)
        self.at = 0

    @cached_property
    def newlines(self) -> list[int]:
        """Where lines end."""
        return [match.start() for match in re.finditer("\n", self.text)]

    def place(self, at: int) -> tuple[int, int]:
        """Line and column, from 1."""
        line = bisect_right(self.newlines, at - 1)
        return line + 1, at - (self.newlines[line - 1] if line else -1)

    def error(self, message: str, at: int | None = None) -> PtxError:
        """An error here, or elsewhere."""
        return PtxError(message, *self.place(self.at if at is None else at))

    def skip(self) -> bool:
        """Go on to the next word; whether there is one."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Read something that must be here."""
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(f"{self._shown()} where {what} should be")
        self.at = match.end()
        return match

    def took(self, literal: str) -> bool:
        """Read a piece of text if it is here."""
        self.skip()
        found = self.text.startswith(literal, self.at)
        self.at += len(literal) * found
        return found

    def expect(self, literal: str) -> None:
        """Read a piece of text that must be here."""
        if not self.took(literal):
            raise self.error(f"{self._shown()} where {literal!r} should be")

    def _shown(self) -> str:
        rest = self.text[self.at : self.at + 40].split("\n")[0].strip()
        return repr(rest) if rest else "the end of the text"

    def declaration(self, linkage: str = "") -> Variable:
        """A variable or parameter with its type and extents, without what follows."""
        self.skip()
        start = self.at
        match = self.take(_DECLARATION, "a declaration")
        space, type, align, vector = "", "", 0, 1
        pointer = False
        for word, _, value in _DECLARED_WORD.findall(match["words"]):
            if word == "ptr":
                pointer = True  # what follows tells what it points to: .ptr .global .align 16
            elif word == "align":
                align = align if pointer else int(value or 0)
            elif pointer and word in SPACES:
                continue
            elif word.split("::")[0] in SPACES and not space:
                space = word.split("::")[0]
            elif word in ("v2", "v4", "v8"):
                vector = int(word[1:])
            elif word in TYPE_BYTES and not type:
                type = word
            elif word not in ("attribute", "surfref", "texref", "samplerref"):
                raise self.error(
                    f".{word} in a declaration; nearest: {listing(nearest(word, (*TYPE_BYTES, *SPACES, 'align', 'ptr')))}",
                    start,
                )
        if not type:
            raise self.error(f"{match['name']} has no type; valid: {listing(TYPE_BYTES)}", start)
        count: int | None = vector
        for extent in _EXTENT.findall(match["extents"]):
            count = None if not extent else None if count is None else count * self._constant(extent, start)
        if count is not None and not 0 <= count * TYPE_BYTES[type] <= MOST_BYTES:
            raise self.error(f"{match['name']} has {count} elements; valid: up to {MOST_BYTES} bytes", start)
        natural = TYPE_BYTES[type] * vector
        if align & (align - 1):
            raise self.error(f".align {align}; valid: powers of two", start)
        return Variable(match["name"], space, type, count, align or natural, None, linkage, self.place(start)[0])

    def _constant(self, text: str, at: int) -> int:
        try:
            return constant(text)
        except PtxError as error:
            raise self.error(str(error), at) from None

    def initial(self, variable: Variable) -> Variable:
        """The variable with the value behind its "=", if there is one; reads the semicolon too."""
        if self.took(";"):
            return variable
        self.expect("=")
        start = self.at
        end = self.text.find(";", start)
        if end < 0:
            raise self.error("no ';' after the value")
        self.at = end + 1
        values = [
            part for part in re.sub(r"[{}]", " ", self.text[start:end]).replace("\n", " ").split(",") if part.strip()
        ]
        width = variable.element_bytes
        count = len(values) if variable.count is None else variable.count
        if len(values) > max(count, 1):
            raise self.error(f"{variable.name} has {count} elements and {len(values)} values", start)
        data, addresses = bytearray(width * count), []
        for index, value in enumerate(values):
            place, text = index * width, value.strip()
            try:
                found = number(text)
                if found is None:
                    addresses.append(_address(text, place, width))
                else:
                    data[place : place + width] = _bytes_of(found.value, found.kind, variable.type)
            except PtxError as error:
                raise self.error(str(error), start) from None
        return Variable(
            variable.name, variable.space, variable.type, count, variable.align, Initial(bytes(data), tuple(addresses)), variable.linkage,
            variable.line,
        )  # fmt: skip


def _blank(match: re.Match[str]) -> str:
    """A comment as spaces, so that places stay; a string as it is."""
    found = match[0]
    return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)


def _bytes_of(value: int, kind: str, type: str) -> bytes:
    width = TYPE_BYTES[type]
    if kind == "f64" and type == "f32":
        return struct.pack("<f", struct.unpack("<d", struct.pack("<Q", value))[0])
    if kind == "f32" and type == "f64":
        return struct.pack("<d", struct.unpack("<f", struct.pack("<I", value))[0])
    if kind == "int" and type in ("f32", "f64"):
        return struct.pack("<f" if type == "f32" else "<d", float(value))
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _address(text: str, place: int, width: int) -> tuple[int, str, int, bool]:
    if _MASKED.fullmatch(text):
        raise PtxError(f"{text}: one byte of an address as a value is not known here")
    inner = _GENERIC.fullmatch(text)
    operand = read_operand(inner[1] if inner else text, lambda _: None)
    if not isinstance(operand, Symbol) or width != 8:
        raise PtxError(f"{text!r} is not a value of {width} bytes")
    return place, operand.name, operand.offset, bool(inner)


class _FunctionReader:
    """The body of one function."""

    def __init__(self, reader: _Reader, module: Module, made: Function) -> None:
        self.reader, self.module, self.made = reader, module, made
        self.scopes = 0
        self.scope = self._inner(None)
        for parameter in (*made.params, *made.returns):
            self.scope.symbols[parameter.name] = parameter.name
        self.pending: list[
            tuple[int, _Scope]
        ] = []  # instructions that name symbols, to be looked up when all are known
        self.source: Location | None = None

    def _inner(self, parent: _Scope | None) -> _Scope:
        self.scopes += 1
        return _Scope(self.scopes, parent, self)

    def read(self) -> None:
        """Everything up to the closing brace."""
        reader, depth = self.reader, 1
        text = reader.text
        while reader.skip():
            letter = text[reader.at]
            if letter == "{":
                depth += 1
                if depth > DEEPEST_SCOPE:
                    raise reader.error(f"blocks nest deeper than {DEEPEST_SCOPE}")
                reader.at += 1
                self.scope = self._inner(self.scope)
            elif letter == "}":
                reader.at += 1
                depth -= 1
                if depth == 0:
                    self._finish()
                    return
                self.scope = self.scope.parent or self.scope
            elif letter == ".":
                self._directive()
            elif letter == ";":
                reader.at += 1  # an empty statement
            elif (label := _LABEL.match(text, reader.at)) is not None:
                self._label(label)
            else:
                self._instruction()
        raise reader.error(f"the body of {self.made.name} does not end")

    def _label(self, match: re.Match[str]) -> None:
        name, reader = match[1], self.reader
        start, reader.at = reader.at, match.end()
        reader.skip()
        targets = _TARGETS.match(reader.text, reader.at)
        own = self.scope.unique(name)
        if name in self.scope.symbols:
            raise reader.error(f"{name} is declared twice in one block", start)
        self.scope.symbols[name] = own
        if targets:
            reader.at = targets.end()
            self.made.targets[own] = tuple(part.strip() for part in targets[2].split(","))
            self.pending.append((-1 - len(self.made.targets), self.scope))
        elif reader.text.startswith(".callprototype", reader.at):
            reader.at += len(".callprototype")
            returns = _parameters(reader) if reader.text[reader.at :].lstrip()[:1] == "(" else ()
            reader.take(re.compile(r"_"), "the underscore of a prototype")
            params = _parameters(reader)
            while not reader.took(";"):
                reader.take(_WORD, "a directive")
                reader.take(_NUMBERS, "numbers")
            self.made.prototypes[own] = (returns, params)
        else:
            self.made.labels[own] = len(self.made.body)

    def _directive(self) -> None:
        reader = self.reader
        match = _LOC.match(reader.text, reader.at)
        if match:
            reader.at = match.end()
            file = self.module.files.get(int(match[1]), match[1])
            self.source = Location(file, int(match[2]), int(match[3] or 0)) if int(match[2]) else None
            return
        word = reader.take(_WORD, "a directive")[1]
        reader.at -= len(word) + 1
        if word == "reg":
            self._registers()
        elif word in SPACES:
            variable = reader.declaration()
            own = self.scope.unique(variable.name)
            self.scope.symbols[variable.name] = own
            self.made.variables[own] = reader.initial(variable)
        elif word == "pragma":
            reader.take(_PRAGMA, "a pragma")
        else:
            close = listing(nearest(word, BODY_DIRECTIVES))
            raise reader.error(f"no directive .{word} in a function; nearest: {close}")

    def _registers(self) -> None:
        reader = self.reader
        start = reader.at
        reader.at += len(".reg")
        vector, type = 1, ""
        while reader.skip() and reader.text[reader.at] == ".":
            word = reader.take(_WORD, "a type")[1]
            if word in ("v2", "v4", "v8"):
                vector = int(word[1:])
            elif word in TYPE_BYTES:
                type = word
            else:
                raise reader.error(f"no type .{word}; nearest: {listing(nearest(word, TYPE_BYTES))}", start)
        if not type:
            raise reader.error(f"registers without a type; valid: {listing(TYPE_BYTES)}", start)
        while True:
            match = reader.take(_REGISTERS, "the name of a register")
            name, count = match[1], match[2]
            if count is not None:
                if int(count) > MOST_REGISTERS:
                    raise reader.error(f"{count} registers; valid: up to {MOST_REGISTERS}", start)
                self.scope.families[name] = (type, int(count))
            else:
                own = self.scope.unique(name)
                if name in self.scope.names and self.scope.names[name] == own:
                    raise reader.error(f"{name} is declared twice in one block", start)
                self.scope.names[name] = own
                self.made.registers[own] = (type, vector)
            if not reader.took(","):
                break
        reader.expect(";")
        self.scope.operands.clear()

    def _instruction(self) -> None:
        reader = self.reader
        start = reader.at
        match = _INSTRUCTION.match(reader.text, start)
        if match is None:
            raise reader.error(f"{reader._shown()} is not an instruction, a label or a directive")
        reader.at = match.end()
        negated, guard, opcode, rest = match.groups()
        scope = self.scope
        operands = scope.operands.get(rest)
        try:
            if operands is None:
                listed = split(rest.strip()) if rest.strip() else []
                operands = tuple(read_operand(part, scope.register) for part in listed)
                scope.operands[rest] = operands
            predicate = None
            if guard is not None:
                own = scope.register(guard)
                if own is None:
                    raise PtxError(f"no predicate {guard}")
                predicate = Register(own)
        except PtxError as error:
            raise reader.error(f"{opcode}: {error}", start) from None
        body = self.made.body
        if any(_names_symbol(operand) for operand in operands):
            self.pending.append((len(body), scope))
        body.append(Instruction(opcode, operands, *reader.place(start), predicate, bool(negated), self.source))

    def _finish(self) -> None:
        """Give symbols their unique names, now that all labels are known."""
        listed = list(self.made.targets)
        tables = 0
        for index, scope in self.pending:
            if index < 0:
                name = listed[tables]
                tables += 1
                self.made.targets[name] = tuple(scope.symbol(label) for label in self.made.targets[name])
                continue
            found = self.made.body[index]
            if scope.parent is not None or self.made.labels:
                operands = tuple(_resolved(operand, scope) for operand in found.operands)
                self.made.body[index] = found._replace(operands=operands)


def _names_symbol(operand: Operand) -> bool:
    if isinstance(operand, (Address, Tensor)):
        return isinstance(operand.base, Symbol)
    if isinstance(operand, (Vector, Group)):
        return any(_names_symbol(item) for item in operand.items)
    return isinstance(operand, Symbol)


def _resolved(operand: Operand, scope: _Scope) -> Operand:
    if isinstance(operand, Symbol):
        return operand._replace(name=scope.symbol(operand.name))
    if isinstance(operand, Vector):
        return Vector(tuple(_resolved(item, scope) for item in operand.items))
    if isinstance(operand, Group):
        return Group(tuple(_resolved(item, scope) for item in operand.items))
    if isinstance(operand, Address):
        return Address(_resolved(operand.base, scope), operand.offset)
    if isinstance(operand, Tensor):
        return Tensor(_resolved(operand.base, scope), operand.coordinates)
    return operand


def _parameters(reader: _Reader) -> tuple[Variable, ...]:
    """A list of parameters in parentheses."""
    reader.expect("(")
    found: list[Variable] = []
    while not reader.took(")"):
        if reader.took("_"):  # the parameter of a prototype, or an empty list
            continue
        reader.skip()
        if reader.text.startswith(".reg", reader.at):
            raise reader.error(".reg parameters are not known here; compilers pass .param")
        found.append(reader.declaration())
        if not reader.took(","):
            reader.expect(")")
            break
    return tuple(found)


def parse(text: str | bytes) -> Module:
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
    if len(text) > MOST_CHARACTERS:
        raise PtxError(f"{len(text)} characters; valid: up to {MOST_CHARACTERS}")
    reader, module = _Reader(text), Module()
    while reader.skip():
        _module_directive(reader, module)
    if not module.version:
        raise PtxError("no .version: is this PTX?")
    if not module.target:
        raise PtxError("no .target")
    return module


def _module_directive(reader: _Reader, module: Module) -> None:
    start = reader.at
    word = reader.take(_WORD, "a directive")[1]
    reader.at = start
    if word == "version":
        module.version = reader.take(_VERSION, "a version")[1]
    elif word == "target":
        module.target, *options = (part.strip() for part in reader.take(_TARGET, "a target")[1].split(","))
        module.target_options = tuple(options)
    elif word == "address_size":
        module.address_size = int(reader.take(_ADDRESS_SIZE, "a size")[1])
        if module.address_size != 64:
            raise reader.error(f".address_size {module.address_size}; valid: 64", start)
    elif word == "file":
        match = reader.take(_FILE, "a file")
        module.files[int(match[1])] = match[2]
    elif word == "section":
        reader.take(_SECTION, "a section")
    elif word == "pragma":
        reader.take(_PRAGMA, "a pragma")
    elif word == "alias":
        match = reader.take(_ALIAS, "an alias")
        module.aliases[match[1]] = match[2]
    elif word in (*LINKAGES, "entry", "func", *SPACES):
        linkage = ""
        while word in LINKAGES:
            linkage = word
            reader.at += len(word) + 1
            reader.skip()
            word = reader.take(_WORD, "a declaration")[1]
            reader.at -= len(word) + 1
        if word in ("entry", "func"):
            _function(reader, module, linkage)
        else:
            variable = reader.initial(reader.declaration(linkage))
            module.variables[variable.name] = variable
    else:
        close = listing(nearest(word, MODULE_DIRECTIVES))
        raise reader.error(f"no directive .{word}; nearest: {close}", start)


def _function(reader: _Reader, module: Module, linkage: str) -> None:
    line = reader.place(reader.at)[0]
    entry = reader.take(_FUNCTION, "a function")[1] == "entry"
    directives: dict[str, tuple[int, ...]] = {}
    reader.skip()
    while not entry and reader.text[reader.at] == ".":
        word = reader.take(_WORD, "a directive")[1]
        if word not in ("noreturn", "attribute"):
            raise reader.error(f"no directive .{word} before a function's name")
        if word == "attribute":
            reader.take(re.compile(r"\([^()]*\)"), "an attribute")
        reader.skip()
    returns = _parameters(reader) if not entry and reader.text[reader.at : reader.at + 1] == "(" else ()
    name = reader.take(_IDENTIFIER, "a name")[0]
    reader.skip()
    params = _parameters(reader) if reader.text[reader.at : reader.at + 1] == "(" else ()
    while reader.skip() and reader.text[reader.at] == ".":
        at = reader.at
        word = reader.take(_WORD, "a directive")[1]
        if word == "pragma":
            reader.at = at
            reader.take(_PRAGMA, "a pragma")
            continue
        if word not in FUNCTION_DIRECTIVES:
            raise reader.error(
                f"no directive .{word} of a function; nearest: {listing(nearest(word, FUNCTION_DIRECTIVES))}", at
            )
        numbers = reader.take(_NUMBERS, "numbers")[1] if FUNCTION_DIRECTIVES[word] else None
        directives[word] = tuple(int(part) for part in numbers.split(",")) if numbers else ()
        if len(directives[word]) > FUNCTION_DIRECTIVES[word]:
            raise reader.error(f".{word} takes {FUNCTION_DIRECTIVES[word]} numbers", at)
    made = Function(name, entry, params, returns, directives, linkage=linkage, line=line)
    earlier = module.functions.get(name)
    if reader.took(";"):
        module.functions.setdefault(name, made)
        return
    if earlier is not None and earlier.defined:
        raise reader.error(f"{name} has two bodies")
    reader.expect("{")
    made.defined = True
    _FunctionReader(reader, module, made).read()
    module.functions[name] = made
