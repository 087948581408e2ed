"""The functions compiled by numba, one number at a time: the code of their modules over scalar operations of the same names.

It needs numba: `pip install 'tcsim[fast]'`. Bits do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.arithmetic import mufu
from tcsim.engines import threads
from tcsim.engines.vectors import bits32, bits64, f32_of
from tcsim.libdevice import operations

_njit = numba.njit(nogil=True, error_model="numpy")

_TABLES = {name: np.ascontiguousarray(table) for name, table in mufu.tables().items()}
_SQUARES = mufu.squares().astype(np.uint16)
_RCP, _RSQ, _EX2, _LG2 = (_TABLES[name] for name in ("rcp", "rsq", "ex2", "lg2"))
_NAN, _INFINITY, _ZERO, _ONE = np.float32(np.nan), np.float32(np.inf), np.float32(0), np.float32(1)
_LEAST = 1 << 15  # elements of a thread's part


def _llvm(name: str, arguments: int) -> Any:
    """An intrinsic of LLVM on f32."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FloatType()
        function = builder.module.declare_intrinsic(name, (kind,), ir.FunctionType(kind, (kind,) * arguments))
        return builder.call(function, values)

    f32 = types.float32
    if arguments == 3:

        @intrinsic
        def ternary(context: Any, a: Any, b: Any, c: Any) -> Any:
            return f32(f32, f32, f32), build

        return ternary

    @intrinsic
    def unary(context: Any, a: Any) -> Any:
        return f32(f32), build

    return unary


_fma, _rint, _trunc, _floor = (
    _llvm("llvm.fma", 3),
    _llvm("llvm.rint", 1),
    _llvm("llvm.trunc", 1),
    _llvm("llvm.floor", 1),
)


@_njit
def fma(a: Any, b: Any, c: Any) -> Any:
    """As `operations.fma`."""
    return _fma(a, b, c)


@_njit
def bits(x: Any) -> Any:
    """As `operations.bits`."""
    return np.int64(bits32(x))


@_njit
def number(code: Any) -> Any:
    """As `operations.number`."""
    return f32_of(np.int32(code))


@_njit
def select(condition: Any, a: Any, b: Any) -> Any:
    """As `operations.select`."""
    return a if condition else b


@_njit
def _directed(a: Any, b: Any, toward_zero: Any) -> Any:
    total = a + b
    near = np.float32(total)
    part = total - a
    rest = (total - np.float64(near)) + ((a - (total - part)) + (b - part))
    code = bits32(near)
    if near > 0:
        return f32_of(np.int32(code - (rest < 0)))
    if near < 0:
        return f32_of(np.int32(code - (rest > 0))) if toward_zero else f32_of(np.int32(code + (rest < 0)))
    return near


@_njit
def fma_down(a: Any, b: Any, c: Any) -> Any:
    """As `operations.fma_down`."""
    return _directed(np.float64(a) * np.float64(b), np.float64(c), False)


@_njit
def fma_to_zero(a: Any, b: Any, c: Any) -> Any:
    """As `operations.fma_to_zero`."""
    return _directed(np.float64(a) * np.float64(b), np.float64(c), True)


@_njit
def add_to_zero(a: Any, b: Any) -> Any:
    """As `operations.add_to_zero`."""
    return _directed(np.float64(a), np.float64(b), True)


@_njit
def clipped(x: Any) -> Any:
    """As `operations.clipped`."""
    return (x if x < _ONE else _ONE) if x > _ZERO else _ZERO


@_njit
def nearest(x: Any) -> Any:
    """As `operations.nearest`."""
    return _rint(x)


@_njit
def whole(x: Any) -> Any:
    """As `operations.whole`."""
    return _trunc(x)


@_njit
def below(x: Any) -> Any:
    """As `operations.below`."""
    return _floor(x)


@_njit
def integer(x: Any) -> Any:
    """As `operations.integer`."""
    if x != x:
        return np.int64(0)
    return np.int64(max(min(np.float64(x), 2147483647.0), -2147483648.0))


@_njit
def single(x: Any) -> Any:
    """As `operations.single`."""
    return np.float32(x)


@_njit
def scaled_double(x: Any, scale: Any) -> Any:
    """As `operations.scaled_double`."""
    return np.float32(np.float64(x) * scale)


@_njit
def magnitude(x: Any) -> Any:
    """As `operations.magnitude`."""
    return abs(x)


@_njit
def with_sign(size: Any, sign: Any) -> Any:
    """As `operations.with_sign`."""
    return f32_of(np.int32(bits32(size) & np.int32(0x7FFFFFFF) | bits32(sign) & np.int32(-0x80000000)))


@_njit
def root(x: Any) -> Any:
    """As `operations.root`."""
    return np.sqrt(x)


@_njit
def quotient(a: Any, b: Any) -> Any:
    """As `operations.quotient`."""
    return np.float32(a / b)


@_njit
def remainder_of_whole(x: Any, y: Any) -> Any:
    """As `operations.remainder_of_whole`."""
    return np.float32(np.fmod(np.float64(x), np.float64(y)))


@_njit
def remainder_of_nearest(x: Any, y: Any) -> Any:
    """As `operations.remainder_of_nearest`."""
    size = abs(np.float64(y))
    rest = np.fmod(abs(np.float64(x)), size + size)
    if rest + rest > size:
        rest = rest - size
        if rest + rest >= size:
            rest = rest - size
    return np.float32(-rest if bits32(x) < 0 else rest)


@_njit
def _sum(table: Any, row: Any, x: Any, a0: Any, a1: Any, a2: Any, bias: Any) -> Any:
    return (table[row, 0] << a0) + (table[row, 1] * x << a1) + (np.int64(_SQUARES[x]) << a2) * table[row, 2] + bias


@_njit
def _packed(significand: Any, exponent: Any) -> Any:
    """As `tcsim.arithmetic.mufu` packs: below 2**-126 zero."""
    carried = significand >> 24
    biased = exponent + 127 + carried
    if biased <= 0:
        return np.int64(0)
    if biased >= 255:
        return np.int64(0x7F800000)
    return (np.int64(0) if carried else significand & 0x7FFFFF) + (biased << 23)


@_njit
def ex2(x: Any) -> Any:
    """As `operations.ex2`."""
    code = bits(x)
    exponent, mantissa = code >> 23 & 255, code & 0x7FFFFF
    if exponent == 0:
        return _ONE
    if x != x:
        return _NAN
    if x >= np.float32(128):
        return _INFINITY
    if x < np.float32(-126):
        return _ZERO
    shift = exponent - 127
    significand = mantissa | 1 << 23
    cut = significand << shift if shift >= 0 else significand >> min(-shift, 63)
    if code < 0:
        cut = -cut if cut & 0x7FFFFF == 0 else ~cut
    fraction = cut & 0x7FFFFF
    total = _sum(_EX2, fraction >> 17, fraction & 0x1FFFF, 15, 2, 2, 24456)
    return number(_packed(total >> 17, cut >> 23))


@_njit
def rcp(x: Any) -> Any:
    """As `operations.rcp`."""
    code = bits(x)
    sign = code & 0x80000000
    exponent, mantissa = code >> 23 & 255, code & 0x7FFFFF
    if exponent == 0:
        return number(sign | 0x7F800000)
    if exponent == 255:
        return number(sign) if mantissa == 0 else _NAN
    total = _sum(_RCP, mantissa >> 16, (mantissa & 0xFFFF) << 1, 14, 0, 1, 4046)
    return number(_packed(total >> 16, 126 - exponent) | sign)


@_njit
def rsqrt(x: Any) -> Any:
    """As `operations.rsqrt`."""
    code = bits(x)
    exponent, mantissa = code >> 23 & 255, code & 0x7FFFFF
    if exponent == 0:
        return number(code & 0x80000000 | 0x7F800000)
    if x != x or code < 0:
        return _NAN
    if exponent == 255:
        return _ZERO
    half = exponent - 127 >> 1
    if exponent & 1 and mantissa == 0:
        return number(127 - half << 23)
    total = _sum(_RSQ, 64 * (exponent + 1 & 1) + (mantissa >> 17), mantissa & 0x1FFFF, 14, 0, 2, -1)
    return number(_packed(total >> 16, -half - 1))


@_njit
def lg2(x: Any) -> Any:
    """As `operations.lg2`."""
    code = bits(x)
    exponent, mantissa = code >> 23 & 255, code & 0x7FFFFF
    if exponent == 0:
        return -_INFINITY
    if x != x or code < 0:
        return _NAN
    if exponent == 255:
        return _INFINITY
    if x == _ONE:
        return _ZERO
    total = (exponent - 127 << 36) + (_sum(_LG2, mantissa >> 17, mantissa & 0x1FFFF, 14, 2, 3, 3348) >> 4)
    sign = 0
    if total < 0:
        total, sign = ~total, 0x80000000
    if total == 0:
        return number(sign)
    length = (bits64(np.float64(total)) >> 52) - 1023  # exact: below 2**44
    shift = length - 23
    significand = total >> shift if shift >= 0 else total << -shift
    return number((length - 36 + 127 << 23) + (significand & 0x7FFFFF) | sign)


@_njit
def horner(x: Any, coefficients: Any) -> Any:
    """As `operations.horner`."""
    total = _fma(coefficients[0], x, coefficients[1])
    for i in range(2, len(coefficients)):
        total = _fma(total, x, coefficients[i])
    return total


@_njit
def seldom(condition: Any, function: Any, otherwise: Any, *operands: Any) -> Any:
    """As `operations.seldom`."""
    return function(*operands) if condition else otherwise


_OPERATIONS = {function.__name__: function for function in (
    fma, bits, number, select, fma_down, fma_to_zero, add_to_zero, clipped, nearest, whole, below, integer,
    single, scaled_double, magnitude, with_sign, root, quotient, ex2, rcp, rsqrt, lg2, remainder_of_whole, remainder_of_nearest, horner, seldom,
)}  # fmt: skip


@cache
def scalar(function: FunctionType) -> Any:
    """A function of arrays as one of single numbers: the same code, whose operations are those of this module."""
    if function.__module__ == operations.__name__:
        return _OPERATIONS[function.__name__]
    scope: dict[str, Any] = {}
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if value is not None:
            scope[name] = scalar(value) if isinstance(value, FunctionType) else value
    return _njit(FunctionType(function.__code__, scope, function.__name__, function.__defaults__))


@cache
def loop(function: FunctionType, operands: int) -> Callable[..., None]:
    """The loop of a function over arrays, compiled at its first call; its arguments: out, first, last, operands."""
    one = scalar(function)
    if operands == 1:

        @numba.njit(nogil=True, error_model="numpy")
        def unary(out: Any, first: Any, last: Any, x: Any) -> None:
            for i in range(first, last):
                y = one(x[i])
                out[i] = np.int32(0x7FFFFFFF) if y != y else bits32(y)

        return unary

    @numba.njit(nogil=True, error_model="numpy")
    def binary(out: Any, first: Any, last: Any, x: Any, y: Any) -> None:
        for i in range(first, last):
            z = one(x[i], y[i])
            out[i] = np.int32(0x7FFFFFFF) if z != z else bits32(z)

    return binary


def run(function: FunctionType, out: Any, *operands: Any) -> None:
    """A function of whole one-dimensional arrays, by all threads."""
    compiled, out = loop(function, len(operands)), out.view(np.int32)
    threads.share(lambda first, last: compiled(out, first, last, *operands), out.size, _LEAST)
