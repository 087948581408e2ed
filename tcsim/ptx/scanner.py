"""The text of PTX and a place in it: words, declarations, initial values, errors that say where."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from functools import cached_property

from tcsim.core.errors import listing, nearest
from tcsim.ptx.operands import constant, number, read_operand
from tcsim.ptx.syntax import (
    TYPE_BYTES,
    Initial,
    PtxError,
    Symbol,
    Variable,
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

COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
SPACE = re.compile(r"\s*")
NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
WORD = re.compile(r"\.([A-Za-z_]\w*)")
LABEL = re.compile(rf"({NAME})\s*:(?!:)")
INSTRUCTION = re.compile(rf"(?:@(!?)\s*({NAME})\s+)?([a-z]\w*(?:(?:\.|::)[\w]+)*)\s*([^;]*);")
LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?([^\n]*)")
FILE = re.compile(r'\.file\s+(\d+)\s+"([^"\n]*)"[^\n]*')
VERSION = re.compile(r"\.version\s+(\d+\.\d+)")
TARGET = re.compile(r"\.target\s+(\w+(?:\s*,\s*\w+)*)")
ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d+)")
SECTION = re.compile(r"\.section\s+\.?[\w.]+\s*\{[^{}]*\}")
PRAGMA = re.compile(r'\.pragma\s+"[^"\n]*"(?:\s*,\s*"[^"\n]*")*\s*;')
ALIAS = re.compile(rf"\.alias\s+({NAME})\s*,\s*({NAME})\s*;")
FUNCTION = re.compile(r"\.(entry|func)\b")
IDENTIFIER = re.compile(NAME)
NUMBERS = re.compile(r"\s*(\d+(?:\s*,\s*\d+)*)?")
DECLARATION = re.compile(
    rf"""(?P<words>(?:\.\w+(?:::\w+)?\s*(?:\(\s*[^()]*\))?\s*(?:\b\d+\s*)?)+)   # .space .align 16 .v4 .b32 .ptr .global .attribute(..)
         (?P<name>{NAME})\s*
         (?P<extents>(?:\[\s*[^\]]*\]\s*)*)""",
    re.VERBOSE,
)
REGISTERS = re.compile(rf"({NAME})(?:<\s*(\d+)\s*>)?")
EXTENT = re.compile(r"\[\s*([^\]]*?)\s*\]")
DECLARED_WORD = re.compile(r"\.(\w+(?:::\w+)?)\s*(\([^()]*\))?\s*(\b\d+)?")
TARGETS = re.compile(r"\.(branchtargets|calltargets)\s+([^;]*);")
GENERIC = re.compile(r"generic\(\s*(.+?)\s*\)")
MASKED = re.compile(r"(0xFF(?:00)*)\((.+)\)")


class Scanner:
    """A text and a place in it."""

    def __init__(self, text: str) -> None:
        self.text = COMMENT.sub(_blank, text)
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
        match = SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Read something that must be here."""
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(f"{self.shown()} where {what} should be")
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
            raise self.error(f"{self.shown()} where {literal!r} should be")

    def shown(self) -> str:
        """What stands here, for an error."""
        rest = self.text[self.at : self.at + 40].split("\n")[0].strip()
        return repr(rest) if rest else "the end of the text"

    def declaration(self, linkage: str = "") -> Variable:
        """A variable or parameter with its type and extents, without what follows."""
        self.skip()
        start = self.at
        match = self.take(DECLARATION, "a declaration")
        space, type, align, vector = "", "", 0, 1
        pointer = False
        for word, _, value in DECLARED_WORD.findall(match["words"]):
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
        for extent in EXTENT.findall(match["extents"]):
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
    if MASKED.fullmatch(text):
        raise PtxError(f"{text}: one byte of an address as a value is not known here")
    inner = GENERIC.fullmatch(text)
    operand = read_operand(inner[1] if inner else text, lambda _: None)
    if not isinstance(operand, Symbol) or width != 8:
        raise PtxError(f"{text!r} is not a value of {width} bytes")
    return place, operand.name, operand.offset, bool(inner)


def parameters(reader: Scanner) -> tuple[Variable, ...]:
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
