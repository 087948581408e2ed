"""PyTorch's elementwise operations on f32, f16 and bf16 arrays, as its CUDA kernels compute them.

A 16-bit operand is widened to f32, the operation computed in f32 with CUDA's mathematics (`tcsim.libdevice`), and the result
rounded once to the operand's type. Python numbers are rounded to f32, or, where PyTorch does so, to the type first. Whatever
nvcc contracts is one `fma` here. NaN results are the type's canonical NaN, 0x7fffffff or 0x7fff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tcsim import libdevice as cuda
from tcsim.aten.formats import F32, FORMATS, rounded
from tcsim.core.errors import OperandError, listing
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]
Known = Literal["exact", "assumed"]

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


def _widened(x: Array) -> F32:
    """As f32; a NaN of f16 becomes the canonical one."""
    wide = x.astype(np.float32)
    if x.dtype == np.float16:
        wide[np.isnan(wide)] = np.float32(np.nan)
    return wide


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation: called with arrays of one float type (they broadcast) and its numbers by name.

    Raises OperandError where the arrays are too few, too many, or not of one of the types.

    >>> gelu(np.array([1, -1], np.float16), approximate="tanh")
    array([ 0.8413, -0.1588], dtype=float16)
    >>> print(gelu.known)
    exact
    """

    name: str
    arrays: int
    compute: Callable[..., Any]  # of f32 arrays; what is not f32 is returned as it is
    known: Known  # exact: every result that a GPU returned is equal
    typed: bool = False  # whether it is told the type, as `dtype`

    def __call__(self, *operands: Array, **numbers: Any) -> Array:
        """The result, of the operands' type (of comparisons bool)."""
        arrays = np.broadcast_arrays(*operands)
        dtype = arrays[0].dtype if arrays else None
        if len(arrays) != self.arrays or dtype not in FORMATS.values() or any(array.dtype != dtype for array in arrays):
            given = ", ".join(str(array.dtype) for array in arrays)
            raise OperandError(f"aten.{self.name}({given}); valid: {self.arrays} arrays of one of {listing(FORMATS)}")
        if self.typed:
            numbers["dtype"] = dtype
        with np.errstate(all="ignore"):
            found = np.asarray(self.compute(*(_widened(array).reshape(-1) for array in arrays), **numbers))
        if found.dtype == np.float32:
            found = rounded(found, arrays[0].dtype)
        return found.reshape(arrays[0].shape)


_rows: dict[str, Operation] = {}


def _operation(known: Known = "exact", typed: bool = False) -> Callable[[Callable[..., Any]], Operation]:
    """Makes a function of f32 arrays, positional, and numbers, by keyword, an operation of the table."""

    def made(function: Callable[..., Any]) -> Operation:
        name = function.__name__.rstrip("_")
        _rows[name] = Operation(name, cast("FunctionType", function).__code__.co_argcount, function, known, typed)
        return _rows[name]

    return made


def _plain(name: str, function: Callable[..., Any], arrays: int = 1) -> Operation:
    _rows[name] = Operation(name, arrays, function, "exact")
    return _rows[name]


def _as(x: F32, dtype: Any) -> F32:
    """f32 values rounded to a type."""
    return rounded(x, dtype).astype(np.float32)


def _typed(number: float, dtype: Any) -> np.float32:
    """A Python number rounded to a type."""
    return _as(np.array([number], np.float32), dtype)[0]


# --- functions of CUDA's mathematics

exp, exp2, expm1 = (_plain(name, cuda.FUNCTIONS[name]) for name in ("exp", "exp2", "expm1"))
log, log2, log10, log1p = (_plain(name, cuda.FUNCTIONS[name]) for name in ("log", "log2", "log10", "log1p"))
sin, cos, tan, asin, acos, atan = (
    _plain(name, cuda.FUNCTIONS[name]) for name in ("sin", "cos", "tan", "asin", "acos", "atan")
)
sinh, cosh, tanh, asinh, acosh, atanh = (
    _plain(name, cuda.FUNCTIONS[name]) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)
erf, erfc, erfinv, lgamma = (_plain(name, cuda.FUNCTIONS[name]) for name in ("erf", "erfc", "erfinv", "lgamma"))
sqrt, rsqrt, reciprocal = (_plain(name, cuda.FUNCTIONS[name]) for name in ("sqrt", "rsqrt", "reciprocal"))
atan2, hypot, fmod = (_plain(name, cuda.FUNCTIONS[name], 2) for name in ("atan2", "hypot", "fmod"))

# --- signs, limits, comparisons

neg, abs_, floor, ceil, trunc = (
    _plain(name, function) for name, function in
    (("neg", np.negative), ("abs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc))
)  # fmt: skip
round_, frac = _plain("round", np.rint), _plain("frac", lambda x: x - np.trunc(x))
sign = _plain("sign", lambda x: (x > 0).astype(np.float32) - (x < 0).astype(np.float32))
isnan = _plain("isnan", np.isnan)
maximum, minimum, fmax, fmin, copysign = (
    _plain(function.__name__, function, 2) for function in (np.maximum, np.minimum, np.fmax, np.fmin, np.copysign)
)  # fmt: skip
eq, ne, lt, le, gt, ge = (
    _plain(name, function, 2) for name, function in
    (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal))
)  # fmt: skip
mul, div = _plain("mul", np.multiply, 2), _plain("div", cuda.divide, 2)


@_operation()
def clamp(x: F32, *, min: float | None = None, max: float | None = None) -> Any:
    """x between limits; NaN stays, and +0 is larger than -0."""
    if min is not None:
        low = np.float32(min)
        x = np.where((x > low) | np.isnan(x) | (x == low) & np.signbit(low), x, low)
    if max is not None:
        high = np.float32(max)
        x = np.where((x > high) | (x == high) & np.signbit(high), high, x)
    return x


@_operation()
def relu(x: F32) -> Any:
    """x, or 0 if it is negative; NaN stays."""
    return np.where(x <= 0, _ZERO, x)


@_operation(typed=True)
def nan_to_num(x: F32, *, dtype: Any) -> Any:
    """Finite numbers: 0 for NaN, the type's largest for infinity."""
    largest = {4: 0x7F7FFFFF, 2: 0x7BFF if dtype == np.float16 else 0x7F7F}[dtype.itemsize]
    limit = np.array([largest]).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float32)
    return np.nan_to_num(np.clip(x, -limit, limit))


def where(condition: npt.NDArray[np.bool_], a: Array, b: Array) -> Array:
    """a where the condition holds, else b: no arithmetic.

    >>> where(np.array([True, False]), np.array([1, 2], np.float16), np.array([3, 4], np.float16))
    array([1., 4.], dtype=float16)
    """
    return np.where(condition, a, b)


def masked_fill(x: Array, mask: npt.NDArray[np.bool_], value: float) -> Array:
    """x with a number, rounded to its type, where the mask is set."""
    return np.where(mask, rounded(np.array([value], np.float32), x.dtype), x)


def to(x: Array, dtype: npt.DTypeLike) -> Array:
    """Another float type: one rounding, to nearest even.

    >>> to(np.array([1.001], np.float32), np.float16)
    array([1.001], dtype=float16)
    """
    return rounded(x.astype(np.float32), dtype)


# --- arithmetic with numbers


@_operation()
def add(a: F32, b: F32, *, alpha: float = 1.0) -> Any:
    """a + alpha * b, one rounding in f32."""
    return fma(np.float32(alpha), b, a)


@_operation()
def sub(a: F32, b: F32, *, alpha: float = 1.0) -> Any:
    """a - alpha * b, one rounding in f32."""
    return fma(np.float32(-alpha), b, a)


@_operation()
def add_number(x: F32, *, number: float) -> Any:
    """x + number."""
    return x + np.float32(number)


@_operation()
def mul_number(x: F32, *, number: float) -> Any:
    """x * number."""
    return x * np.float32(number)


@_operation()
def div_number(x: F32, *, number: float) -> Any:
    """x times 1 / number, two roundings: the inverse is that of the number in f64."""
    return x * np.float32(_ONE.astype(np.float64) / np.float64(number))


@_operation(typed=True)
def number_div(x: F32, *, number: float, dtype: Any) -> Any:
    """number / x as torch writes it: the reciprocal, rounded to the type, times the number."""
    return _as(cuda.reciprocal(x), dtype) * np.float32(number)


@_operation()
def addcmul(a: F32, b: F32, c: F32, *, value: float = 1.0) -> Any:
    """a + value * (b * c); a + b * c in one FMA where the value is 1."""
    return fma(b, c, a) if value == 1 else fma(np.float32(value), b * c, a)


@_operation()
def addcdiv(a: F32, b: F32, c: F32, *, value: float = 1.0) -> Any:
    """a + value * (b / c)."""
    return fma(np.float32(value), cuda.divide(b, c), a)


@_operation()
def lerp(a: F32, b: F32, *, weight: float) -> Any:
    """a + weight * (b - a), from the nearer end."""
    w = np.float32(weight)
    return fma(w, b - a, a) if np.abs(w) < _HALF else fma(-(b - a), _ONE - w, b)


@_operation()
def remainder(a: F32, b: F32) -> Any:
    """Python's a % b."""
    rest = cuda.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@_operation(typed=True)
def floor_divide(a: F32, b: F32, *, dtype: Any) -> Any:
    """Python's a // b; the whole number is rounded to the type before it is corrected."""
    rest = cuda.fmod(a, b)
    quotient = cuda.divide(a - rest, b)
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - _ONE, quotient)
    whole = _as(np.floor(quotient), dtype)
    whole = np.where(quotient - whole > _HALF, whole + _ONE, whole)
    whole = np.where(quotient != 0, whole, np.copysign(_ZERO, cuda.divide(a, b)))
    return np.where(b == 0, cuda.divide(a, b), whole)


@_operation(typed=True)
def trunc_divide(a: F32, b: F32, *, dtype: Any) -> Any:
    """a / b, rounded to the type, cut to an integer."""
    return np.trunc(_as(cuda.divide(a, b), dtype))


# --- powers


_POWERS: dict[float, Callable[[F32, Any], Any]] = {
    0.0: lambda x, dtype: np.ones_like(x),
    1.0: lambda x, dtype: x,
    0.5: lambda x, dtype: cuda.sqrt(x),
    2.0: lambda x, dtype: x * x,
    3.0: lambda x, dtype: _as(x * x, dtype) * x,
    -0.5: lambda x, dtype: cuda.rsqrt(x),
    -1.0: lambda x, dtype: cuda.reciprocal(x),
    -2.0: lambda x, dtype: (1.0 / _as(x * x, dtype).astype(np.float64)).astype(np.float32),
}
"""Exponents that have a rule of their own. Products of 16-bit types are rounded one by one."""


@_operation(typed=True)
def pow_number(x: F32, *, exponent: float, dtype: Any) -> Any:
    """x ** exponent of a Python number, which is rounded to the type."""
    rule = _POWERS.get(exponent)
    return rule(x, dtype) if rule else cuda.pow(x, _typed(exponent, dtype))


@_operation(typed=True)
def number_pow(x: F32, *, base: float, dtype: Any) -> Any:
    """base ** x of a Python number, which is rounded to the type."""
    return cuda.pow(_typed(base, dtype), x)


pow_ = _plain("pow", cuda.pow, 2)

# --- activations


@_operation()
def sigmoid(x: F32) -> Any:
    """1 / (1 + exp(-x))."""
    return cuda.divide(_ONE, _ONE + cuda.exp(-x))


@_operation()
def silu(x: F32) -> Any:
    """x / (1 + exp(-x))."""
    return cuda.divide(x, _ONE + cuda.exp(-x))


_ROOT_HALF = np.float32(np.sqrt(0.5))
_GELU_BETA, _GELU_CUBE = np.float32(np.sqrt(2) * (2 / np.sqrt(np.pi)) * 0.5), np.float32(0.044715)


@_operation()
def gelu(x: F32, *, approximate: Literal["none", "tanh"] = "none") -> Any:
    """x times the normal distribution, or its approximation by tanh, whose inner sum is one FMA."""
    if approximate == "none":
        return x * _HALF * (_ONE + cuda.erf(x * _ROOT_HALF))
    inner = _GELU_BETA * fma(_GELU_CUBE, x * x * x, x)
    return _HALF * x * (_ONE + cuda.tanh(inner))


@_operation()
def softplus(x: F32, *, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log1p(exp(beta * x)) / beta, or x above a threshold."""
    b = np.float32(beta)
    return np.where(x * b > np.float32(threshold), x, cuda.divide(cuda.log1p(cuda.exp(x * b)), b))


@_operation()
def mish(x: F32) -> Any:
    """x * tanh(log1p(exp(x)))."""
    return x * cuda.tanh(cuda.log1p(cuda.exp(x)))


@_operation()
def logsigmoid(x: F32) -> Any:
    """min(x, 0) - log1p(exp(-|x|))."""
    return np.minimum(_ZERO, x) - cuda.log1p(cuda.exp(-np.abs(x)))


@_operation()
def leaky_relu(x: F32, *, slope: float = 0.01) -> Any:
    """x, or slope * x if it is not positive."""
    return np.where(x > 0, x, x * np.float32(slope))


@_operation()
def elu(x: F32, *, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """scale * x, or alpha * scale * expm1(input_scale * x) if it is not positive."""
    low = cuda.expm1(x * np.float32(input_scale)) * (np.float32(alpha) * np.float32(scale))
    return np.where(x > 0, x * np.float32(scale), low)


@_operation()
def hardsigmoid(x: F32) -> Any:
    """x + 3 between 0 and 6, times 1/6."""
    return _to_six(x) * np.float32(1 / 6)


@_operation()
def hardswish(x: F32) -> Any:
    """x times x + 3 between 0 and 6, times 1/6."""
    return x * _to_six(x) * np.float32(1 / 6)


def _to_six(x: F32) -> F32:
    return np.minimum(np.maximum(x + np.float32(3), _ZERO), np.float32(6))


OPERATIONS = MappingProxyType(_rows)
"""Every operation by its name."""
