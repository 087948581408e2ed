"""The operands of one PTX instruction, read from their text, and constant expressions: integers of 64 bits with C's operators (PTX ISA, Constant Expressions)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from tcsim.core.errors import shortened
from tcsim.isa.ordinary.special_registers import SPECIAL_REGISTERS
from tcsim.model.statement import (
    Address,
    Group,
    Immediate,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Tensor,
    Vector,
)
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


_NAME = r"(?:[A-Za-z][\w$]*+|[_$%][\w$]++)"
_REGISTER = re.compile(rf"({_NAME})(?:\.(x|y|z|w|r|g|b|a))?", re.ASCII)
_WORDS = re.compile(r"[%\w$.]+", re.ASCII)
_FLOAT = re.compile(r"([+-]?)0([fFdD])([0-9a-fA-F]++)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)", re.ASCII)
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", re.ASCII)
_BASE_OFFSET = re.compile(rf"({_NAME}(?:\.[xyzwrgba])?)\s*(?:([+-])\s*(.+))?", re.DOTALL | re.ASCII)
_COORDINATES = re.compile(r"([^,]+),\s*(\{.*\})", re.DOTALL)
_AXES = str.maketrans("rgba", "xyzw")
MOST_BRACKETS = 4
"""Brackets of an operand that may stand in each other."""

Resolve = Callable[[str], str | None]
"""The unique name of a declared register, or None."""


def integer(text: str) -> int:
    """An integer of at most 64 bits as PTX writes it: decimal, 0x, 0b, or octal after a zero; U behind it means nothing here.

    >>> integer("0x10U"), integer("-017"), integer("0b101")
    (16, -15, 5)
    """
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    digits = digits.removesuffix("U")
    if len(digits) > _LONGEST_INTEGER:
        raise PtxError(f"the integer {shortened(text)} has more than 64 bits")
    try:
        found = unsigned(digits)
    except ValueError:
        raise PtxError(f"{shortened(text)} is not an octal integer") from None
    if found >> 64:
        raise PtxError(f"the integer {shortened(text)} has more than 64 bits")
    return sign * found


_LONGEST_INTEGER = 80  # characters: zeros in front of 64 binary digits


def number(text: str) -> Immediate | None:
    """A number: 0f and 0d with its bits, a decimal fraction as an f64, or an integer; None if the text is something else.

    >>> number("0f3F800000"), number("-5"), number("%r1")
    (Immediate(value=1065353216, kind='f32'), Immediate(value=-5, kind='int'), None)
    """
    if text[:1].isalpha() or text[:1] in "%$_":
        return None
    if _INTEGER.fullmatch(text):
        return Immediate(integer(text))
    if match := _FLOAT.fullmatch(text):
        bits = 32 if match[2] in "fF" else 64
        if len(match[3]) * 4 != bits:
            raise PtxError(f"{text} has {len(match[3])} hexadecimal digits; valid: {bits // 4}")
        return Immediate(int(match[3], 16) ^ (bool(match[1] == "-") << (bits - 1)), f"f{bits}")
    if _DECIMAL.fullmatch(text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
    return None


def split(text: str) -> list[str]:
    """The operands of a list, at the commas outside brackets.

    >>> split("{%r1, %r2}, [%rd1+4], 7")
    ['{%r1, %r2}', '[%rd1+4]', '7']
    """
    if not any(bracket in text for bracket in "{[("):
        return [part.strip() for part in text.split(",")]
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        if letter in "{[(":
            depth += 1
            if depth > MOST_BRACKETS:
                raise PtxError(f"brackets of {text[:60]!r} nest deeper than {MOST_BRACKETS}")
        elif letter in "}])":
            depth -= 1
            if depth < 0:
                break
        elif letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    if depth:
        raise PtxError(f"brackets of {text[:60]!r} do not match")
    return parts


def read_operand(text: str, resolve: Resolve) -> Operand:
    """One operand.

    Raises PtxError for text that is none, or for a special register that does not exist.

    >>> read_operand("[%rd1+16]", lambda name: name)
    Address(base=Register(name='%rd1'), offset=16)
    >>> read_operand("%tid.x", lambda name: None)
    Special(name='tid.x')
    """
    first = text[:1]
    if first == "{":
        if text[-1] != "}":
            raise PtxError(f"{text[:60]!r} is not an operand")
        return Vector(tuple(read_operand(part, resolve) for part in split(text[1:-1].strip())))
    if first == "[":
        return _memory(text, resolve)
    if first == "(" and text[-1] == ")":
        inner = text[1:-1].strip()
        return Group(tuple(read_operand(part, resolve) for part in split(inner)) if inner else ())
    if first == "!" and text.count("!") == 1:
        inner_register = read_operand(text[1:].strip(), resolve)
        if not isinstance(inner_register, Register):
            raise PtxError(f"{text!r}: only a predicate can be negated")
        return Negated(inner_register)
    if text == "_":
        return Sink()
    if text.count("|") == 1 and "(" not in text:
        left, _, right = text.partition("|")
        return Pair(read_operand(left.strip(), resolve), read_operand(right.strip(), resolve))
    if match := _REGISTER.fullmatch(text):
        own = resolve(text if not match[2] else f"{match[1]}.{match[2].translate(_AXES)}")
        if own is not None:
            return Register(own)
        if text[1:] in SPECIAL_REGISTERS and first == "%":
            return Special(text[1:])
        if text in CONSTANTS:
            return Immediate(CONSTANTS[text])
        if first != "%" and not match[2]:
            return Symbol(text)
    if first == "%" and _WORDS.fullmatch(text):
        raise PtxError(f"no register {shortened(text)[1:-1]}: it is not declared, and it is not a special register")
    found = number(text)
    if found is not None:
        return found
    match = _BASE_OFFSET.fullmatch(text)
    if match and match[2] and not text[0].isdigit():
        base = read_operand(match[1], resolve)
        if isinstance(base, Symbol):
            return Symbol(base.name, _offset(match))
    return Immediate(constant(text))


def _offset(match: re.Match[str]) -> int:
    """The bytes behind a base: "+16", "+-16", "-(4*8)", or nothing."""
    if not match[2]:
        return 0
    text = match[3]
    offset = int(text) if text.isdecimal() and text.isascii() and text[0] != "0" and len(text) < 20 else constant(text)
    return offset if match[2] == "+" else -offset


def _memory(text: str, resolve: Resolve) -> Operand:
    text = text.removesuffix(".unified").rstrip()
    if text[-1] != "]" or not text[1:-1].strip():
        raise PtxError(f"{text[:60]!r} is not an operand")
    inner = text[1:-1].strip()
    match = _COORDINATES.fullmatch(inner)
    if match:
        base, coordinates = read_operand(match[1], resolve), read_operand(match[2], resolve)
        if not isinstance(coordinates, Vector):
            raise PtxError(f"{text[:60]!r}: coordinates stand in braces")
        return Tensor(base, coordinates.items)
    found = _BASE_OFFSET.fullmatch(inner)
    if found and not inner[0].isdigit():
        return Address(read_operand(found[1], resolve), _offset(found))
    return Address(Immediate(constant(inner)))
