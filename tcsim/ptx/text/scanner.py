"""The text of PTX and a place in it: words, declarations, initial values, errors that say where."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from math import prod

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.versions import PTX_ISA
from tcsim.model.statement import TYPE_BYTES
from tcsim.ptx.text.initial import initialised
from tcsim.ptx.text.operands import constant
from tcsim.ptx.text.syntax import PtxError, Variable

MOST_BYTES = 1 << 30  # of one variable
MOST_DIMENSIONS = 8
MOST_ALIGNMENT = 1 << 16
MOST_PARAMETERS = 4096

LINKAGES = ("extern", "visible", "weak", "common")
SPACES = ("global", "const", "shared", "local", "param")
SINCE = {
    "abi_preserve": "9.0", "abi_preserve_control": "9.0", "alias": "6.3", "blocksareclusters": "9.0", "branchtargets": "5.1", "common": "5.0",
    "explicitcluster": "7.8", "maxclusterrank": "7.8", "noreturn": "6.4", "reqnctapercluster": "7.8", "f16x2": "5.0", "b128": "8.3",
}  # fmt: skip
"""Directives, and types of variables, that came after version 4.0 of PTX ISA (read off with ptxas 13.5.37)."""
DECLARED = tuple(type for type in TYPE_BYTES if type not in ("bf16", "bf16x2", "f32x2"))
"""The types of registers and variables; the others are types of instructions alone."""

COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*(?:.*?\*/|.*\Z)', re.DOTALL)
SPACE = re.compile(r"\s*")
NAME = r"(?:[A-Za-z][\w$]*+|[_$%][\w$]++)"
WORD = re.compile(r"\.([A-Za-z_]\w*)", re.ASCII)
PRAGMA = re.compile(r'\.pragma\s+"[^"\n]*"(?:\s*,\s*"[^"\n]*")*\s*;')
NUMBERS = re.compile(r"\s*(\d{1,10}(?:\s*,\s*\d{1,10})*+)?", re.ASCII)
DECLARATION = re.compile(
    rf"""(?P<words>(?:\.\w++(?:::\w++)?\s*+(?:\(\s*+[^()]*+\)\s*+)?(?:\b\d++\s*+)?)++)   # .space .align 16 .v4 .b32 .ptr .global .attribute(..)
         (?P<name>{NAME}|_\b)\s*+
         (?P<extents>(?:\[[^\]\[]*+\]\s*+)*+)""",
    re.VERBOSE | re.ASCII,
)
EXTENT = re.compile(r"\[\s*([^\]]*?)\s*\]")
DECLARED_WORD = re.compile(r"\.(\w+(?:::\w+)?)\s*(\([^()]*\))?\s*(\b\d{1,10})?", re.ASCII)
_INLINE = re.compile(r"//\s*(?:begin|end) inline asm\b")
UNCLOSED = "\0/*"
PARAMETER_WORDS = ("ptr", "align", "attribute", "reg")


class Scanner:
    """A text and a place in it."""

    def __init__(self, text: str, nesting: int) -> None:
        self.nesting = nesting  # blocks in braces that may stand in each other
        self.inline = [match.start() for match in _INLINE.finditer(text)]
        self.text = COMMENT.sub(_blank, text)
        self.at = 0
        self.version, self.versions = "", frozenset(PTX_ISA)  # the module's, and those up to it
        if self.text.endswith(UNCLOSED):
            self.at = len(self.text) - 1
            raise self.error("a comment /* does not end")

    @property
    def inlined(self) -> bool:
        """Whether this is between the comments that compilers put around inline assembly."""
        return bisect_right(self.inline, self.at) % 2 == 1

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

    def require(self, what: str, version: str | None, at: int) -> None:
        """An error if something needs a later version of PTX ISA than the module has."""
        if version is not None and version not in self.versions:
            raise self.error(f"{what} needs .version {version} or later; the module has {self.version}", at)

    def unknown(self, said: str, word: str, choices: Iterable[str], at: int | None = None) -> PtxError:
        """An error about a word that is none of the choices."""
        return self.error(f"{said}; nearest: {listing(nearest(word, choices))}", at)

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

    def word(self, what: str = "a directive") -> str:
        """The directive that must be here, without its dot; it is not read yet."""
        word = self.take(WORD, what)[1]
        self.at -= len(word) + 1
        return word

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
        name, space, type, align, vector, pointer = shortened(match["name"]), "", "", 0, 1, False
        for word, _, value in DECLARED_WORD.findall(match["words"]):
            if word == "ptr":
                pointer = True  # what follows tells what it points to: .ptr .global .align 16
            elif word == "align":
                align = align if pointer else int(value or 0)
            elif pointer and word in SPACES:
                continue
            elif word.split("::")[0] in (*SPACES, "reg") and not space:
                space = word.split("::")[0]
            elif word in ("v2", "v4"):
                vector = int(word[1:])
            elif word in DECLARED and not type:
                type = word
                self.require(f".{word}", SINCE.get(word), start)
            elif word != "attribute":
                choices = (*DECLARED, *SPACES, *PARAMETER_WORDS)
                raise self.unknown(f".{word[:60]} in a declaration", word, choices, start)
        if not type or (type == "pred" and space != "reg"):
            raise self.error(f"{name} has no type; valid: {listing(DECLARED)}", start)
        extents = [None if not extent else self._constant(extent, start) for extent in EXTENT.findall(match["extents"])]
        if any(extent is None for extent in extents[1:]) or len(extents) > MOST_DIMENSIONS:
            raise self.error(f"{name}: only the first of up to {MOST_DIMENSIONS} extents may be empty", start)
        if any(extent is not None and not 0 < extent <= MOST_BYTES for extent in extents):
            raise self.error(f"{name} has an extent out of range; valid: 1 to {MOST_BYTES}", start)
        shape = (*extents, *([vector] if vector > 1 else []))
        count = None if None in shape else prod(extent or 1 for extent in shape)
        if count is not None and count * TYPE_BYTES[type] > MOST_BYTES:
            raise self.error(f"{name} has {count} elements; valid: up to {MOST_BYTES} bytes", start)
        natural = TYPE_BYTES[type] * vector
        if align & (align - 1) or align > MOST_ALIGNMENT:
            raise self.error(f".align {align}; valid: powers of two up to {MOST_ALIGNMENT}", start)
        return Variable(match["name"], space, type, count, align or natural, None, linkage, self.place(start)[0], shape)

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
        try:
            return initialised(variable, self.text[start:end])
        except PtxError as error:
            raise self.error(f"{shortened(variable.name)[1:-1]}: {error}", start) from None


def _blank(match: re.Match[str]) -> str:
    """A comment as spaces, so that places stay; a string as it is."""
    found = match[0]
    if found[:2] == "/*" and (len(found) < 4 or found[-2:] != "*/"):
        return UNCLOSED
    return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)


def parameters(reader: Scanner, others: tuple[Variable, ...] = ()) -> tuple[Variable, ...]:
    """A list of parameters in parentheses; others: those whose names are taken."""
    reader.expect("(")
    found: list[Variable] = []
    taken = {own.name for own in others}
    while not reader.took(")"):
        if len(found) == MOST_PARAMETERS:
            raise reader.error(f"more than {MOST_PARAMETERS} parameters")
        if reader.took("_"):  # an empty list
            continue
        reader.skip()
        start = reader.at
        found.append(reader.declaration())
        name = found[-1].name
        if name in taken:
            raise reader.error(f"{shortened(name)} is declared twice", start)
        taken |= {name} - {"_"}  # the underscore of a prototype names nothing
        if not reader.took(","):
            reader.expect(")")
            break
    return tuple(found)
