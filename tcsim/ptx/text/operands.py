"""The operands of one PTX instruction, read from their text."""

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
from tcsim.ptx.text.expressions import CONSTANTS, constant, unsigned
from tcsim.ptx.text.syntax import PtxError

_NAME = r"(?:[A-Za-z][\w$]*+|[_$%][\w$]++)"
_REGISTER = re.compile(rf"({_NAME})(?:\.(x|y|z|w|r|g|b|a))?", re.ASCII)
_WORDS = re.compile(r"[%\w$.]+", re.ASCII)
_FLOAT = re.compile(r"([+-]?)0([fFdD])([0-9a-fA-F]++)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)", re.ASCII)
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", re.ASCII)
_BASE_OFFSET = re.compile(rf"({_NAME}(?:\.[xyzwrgba])?)\s*(?:([+-])\s*(.+))?", re.DOTALL | re.ASCII)
_COORDINATES = re.compile(r"([^,]+),\s*(\{.*\})", re.DOTALL)
_AXES = str.maketrans("rgba", "xyzw")
DEEPEST = 4
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
            if depth > DEEPEST:
                raise PtxError(f"brackets of {text[:60]!r} nest deeper than {DEEPEST}")
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
