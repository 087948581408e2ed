"""The operands of one PTX instruction, read from their text."""

from __future__ import annotations

import ast
import operator
import re
import struct
from collections.abc import Callable

from tcsim.ptx.syntax import (
    Address,
    Group,
    Immediate,
    Negated,
    Operand,
    Pair,
    PtxError,
    Register,
    Sink,
    Special,
    Symbol,
    Tensor,
    Vector,
)

DIMENSIONED = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
SPECIAL_REGISTERS = frozenset(
    [
        *(f"{name}{axis}" for name in DIMENSIONED for axis in ("", ".x", ".y", ".z")),
        "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "is_explicit_cluster", "cluster_ctarank", "cluster_nctarank",
        "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
        "clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi",
        "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "current_graph_exec", "reserved_smem_offset_begin",
        "reserved_smem_offset_end", "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
        *(f"pm{index}" for index in range(8)), *(f"pm{index}_64" for index in range(8)), *(f"envreg{index}" for index in range(32)),
    ]
)  # fmt: skip
"""Special registers, without the percent sign (PTX ISA 9.4, section Special Registers)."""

CONSTANTS = {"WARP_SZ": 32}

_NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
_REGISTER = re.compile(rf"({_NAME})(?:\.(x|y|z|w|r|g|b|a))?")
_FLOAT = re.compile(r"([+-]?)0([fFdD])([0-9a-fA-F]+)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)")
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_INTEGERS = re.compile(r"\b(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]+|\d+)U?\b")
_BASE_OFFSET = re.compile(rf"({_NAME}(?:\.[xyzwrgba])?)\s*(?:([+-])\s*(.+))?", re.DOTALL)
_COORDINATES = re.compile(r"(.+?)\s*,\s*(\{.*\})", re.DOTALL)
_AXES = str.maketrans("rgba", "xyzw")

Resolve = Callable[[str], str | None]
"""The unique name of a declared register, or None."""


def integer(text: str) -> int:
    """An integer as PTX writes it: decimal, 0x, 0b, or octal after a zero; U behind it means nothing here.

    >>> integer("0x10U"), integer("-017"), integer("0b101")
    (16, -15, 5)
    """
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    digits = digits.removesuffix("U")
    if digits[:2] in ("0x", "0X"):
        return sign * int(digits[2:], 16)
    if digits[:2] in ("0b", "0B"):
        return sign * int(digits[2:], 2)
    return sign * int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10)


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}  # fmt: skip
_LONGEST_EXPRESSION = 200


def constant(text: str) -> int:
    """An integer constant, or an expression of some: sums, products, shifts, bits, parentheses.

    Raises PtxError for anything else.

    >>> constant("64*(2+0x1)-1")
    191
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return integer(text)
    if len(text) > _LONGEST_EXPRESSION:
        raise PtxError(f"a constant expression of {len(text)} characters; valid: up to {_LONGEST_EXPRESSION}")
    plain = _INTEGERS.sub(lambda match: str(integer(match[1])), text.replace("WARP_SZ", str(CONSTANTS["WARP_SZ"])))
    try:
        return _value(ast.parse(plain.replace("/", "//"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        raise PtxError(f"{text[:60]!r} is not an integer constant") from None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd, ast.Invert)):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else ~inner if isinstance(node.op, ast.Invert) else inner
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
        if isinstance(node.op, (ast.LShift, ast.RShift)) and 0 <= right < 64:
            return left << right if isinstance(node.op, ast.LShift) else left >> right
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # truncated, as in C
            return quotient if isinstance(node.op, ast.FloorDiv) else left - quotient * right
    raise ValueError


def number(text: str) -> Immediate | None:
    """A number: 0f and 0d with its bits, a decimal fraction as an f64, or an integer; None if the text is something else.

    >>> number("0f3F800000"), number("-5"), number("%r1")
    (Immediate(value=1065353216, kind='f32'), Immediate(value=-5, kind='int'), None)
    """
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
        elif letter in "}])":
            depth -= 1
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
    Address(base=Register(name='%rd1', component=''), offset=16)
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
    if first == "!":
        inner_register = read_operand(text[1:].strip(), resolve)
        if not isinstance(inner_register, Register):
            raise PtxError(f"{text!r}: only a predicate can be negated")
        return Negated(inner_register)
    if text == "_":
        return Sink()
    if "|" in text:
        left, _, right = text.partition("|")
        return Pair(read_operand(left.strip(), resolve), read_operand(right.strip(), resolve))
    if match := _REGISTER.fullmatch(text):
        own = resolve(match[1])
        if own is not None:
            return Register(own, (match[2] or "").translate(_AXES))
        if text[1:] in SPECIAL_REGISTERS and first == "%":
            return Special(text[1:])
        if text in CONSTANTS:
            return Immediate(CONSTANTS[text])
        if first == "%":
            raise PtxError(f"no register {text}: it is not declared, and it is not a special register")
        return Symbol(match[1])
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
    return constant(match[3]) if match[2] == "+" else -constant(match[3])


def _memory(text: str, resolve: Resolve) -> Operand:
    if text[-1] != "]":
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
