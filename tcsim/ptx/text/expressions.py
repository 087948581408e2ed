"""Constant expressions of PTX: integers of 64 bits with C's operators (PTX ISA, Constant Expressions)."""

from __future__ import annotations

import re
from collections.abc import Callable

from tcsim.core.errors import shortened
from tcsim.ptx.text.syntax import PtxError

CONSTANTS = {"WARP_SZ": 32}
LONGEST = 200  # characters of an expression
DEEPEST = 16  # parentheses and unary operators in each other

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)|(?P<name>[A-Za-z_]\w*)|(?P<cast>\(\s*\.[su]64\s*\))"
    r"|(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&^|?:~!()]))",
    re.ASCII,
)
_LEVELS = tuple(own.split() for own in ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"))
"""The binary operators, those that bind least first."""
Value = tuple[int, bool]
"""An integer of 64 bits, and whether it is unsigned."""


def _wrapped(value: int, unsigned: bool) -> Value:
    value &= (1 << 64) - 1
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


def _divided(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # truncated, as in C


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divided,
    "%": lambda a, b: a - b * _divided(a, b), "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
}  # fmt: skip
_UNARY: dict[str, Callable[[int], int]] = {"-": lambda a: -a, "+": lambda a: a, "~": lambda a: ~a}
_LOGIC: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "&&": lambda a, b: bool(a and b), "||": lambda a, b: bool(a or b),
}  # fmt: skip


def constant(text: str) -> int:
    """The value of a constant expression.

    Raises PtxError for anything else, and for an expression that is too long or nests too deeply.

    >>> constant("64*(2+0x1)-1"), constant("-7/2"), constant("1 ? WARP_SZ : 0"), constant("(.u64)-1 >> 60")
    (191, -3, 32, 15)
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise PtxError(f"a constant expression of {len(text)} characters; valid: up to {LONGEST}")
    try:
        return _Parser(text).whole()
    except (ValueError, ZeroDivisionError, LookupError):
        raise PtxError(f"{shortened(text)} is not an integer constant") from None


def unsigned(digits: str) -> int:
    """An integer as PTX writes it: decimal, 0x, 0b, or octal after a zero. Raises ValueError for an octal one with other digits."""
    base = {"0x": 16, "0b": 2}.get(digits[:2].lower(), 8 if len(digits) > 1 and digits[0] == "0" else 10)
    return int(digits[2:] if base in (16, 2) else digits, base)


class _Parser:
    def __init__(self, text: str) -> None:
        self.at = self.depth = 0
        found = list(_TOKEN.finditer(text))
        if "".join(own[0] for own in found) != text:
            raise ValueError
        self.tokens = [(own.lastgroup or "", own[own.lastgroup or 0]) for own in found]

    def whole(self) -> int:
        value, _ = self.choice()
        if self.at != len(self.tokens):
            raise ValueError
        return value

    def took(self, *operators: str) -> str:
        """The operator that stands here, if it is one of these."""
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind != "operator" or text not in operators:
            return ""
        self.at += 1
        return text

    def choice(self) -> Value:
        condition = self.binary(0)
        if not self.took("?"):
            return condition
        self.deeper()
        first = self.choice()
        if not self.took(":"):
            raise ValueError
        second = self.choice()
        self.depth -= 1
        return _wrapped((first if condition[0] else second)[0], first[1] or second[1])

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError

    def binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.took(*_LEVELS[level]):
            right = self.binary(level + 1)
            left = self.apply(operator, left, right)
        return left

    @staticmethod
    def apply(operator: str, left: Value, right: Value) -> Value:
        if operator in ("<<", ">>"):
            if not 0 <= right[0] < 64:
                raise ValueError
            return _wrapped(left[0] << right[0] if operator == "<<" else left[0] >> right[0], left[1])
        unsigned = left[1] or right[1]
        a, b = _wrapped(left[0], unsigned)[0], _wrapped(right[0], unsigned)[0]
        if operator in _LOGIC:
            return int(_LOGIC[operator](a, b)), False
        return _wrapped(_ARITHMETIC[operator](a, b), unsigned)

    def unary(self) -> Value:
        kind, text = self.tokens[self.at]
        self.at += 1
        self.deeper()
        if kind == "number":
            value = unsigned(text.removesuffix("U"))
            if value >> 64:
                raise ValueError
            found = value, text[-1] == "U" or value >> 63 != 0
        elif kind == "name":
            found = CONSTANTS[text], False
        elif kind == "cast":
            found = _wrapped(self.unary()[0], "u" in text)
        elif text == "(":
            found = self.choice()
            if not self.took(")"):
                raise ValueError
        elif text == "!":
            found = int(not self.unary()[0]), False
        else:
            value, without_sign = self.unary()
            found = _wrapped(_UNARY[text](value), without_sign)
        self.depth -= 1
        return found
