"""Gradients of elementwise operations: grad, then the input (of tanh and sigmoid the output), then numbers by keyword.

As in `tcsim.aten.elementwise`: in f32, one rounding, an `fma` where nvcc contracts. Those of tanh and sigmoid are computed in the operands' type.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from tcsim import libdevice as cuda
from tcsim.aten.elementwise import Operation
from tcsim.aten.formats import F32, rounded
from tcsim.libdevice.operations import fma

_ZERO, _HALF, _ONE, _THREE = (np.float32(x) for x in (0, 0.5, 1, 3))
_rows: dict[str, Operation] = {}


def _operation(typed: bool = False) -> Callable[[Callable[..., Any]], Operation]:
    def made(function: Callable[..., Any]) -> Operation:
        name = function.__name__
        count = cast("FunctionType", function).__code__.co_argcount
        _rows[name] = Operation(name, count, function, "exact", typed)
        return _rows[name]

    return made


def _logistic(x: F32) -> Any:
    return cuda.divide(_ONE, _ONE + cuda.exp(-x))


_ALPHA = np.float32(np.sqrt(0.5))
_BETA = np.float32(np.sqrt(2) * (2 / np.sqrt(np.pi)) * 0.5)
_DENSITY = np.float32(2 / np.sqrt(np.pi) * np.sqrt(0.5)) * _HALF
_CUBE = np.float32(0.044715)


@_operation()
def gelu(grad: F32, x: F32, *, approximate: Literal["none", "tanh"] = "none") -> Any:
    """Of gelu: grad times distribution + x * density, or what the approximation by tanh makes of them."""
    if approximate == "none":
        density = cuda.exp(np.float32(-0.5) * x * x) * _DENSITY
        return grad * (_HALF * (_ONE + cuda.erf(x * _ALPHA)) + x * density)
    square = x * x
    t = cuda.tanh(_BETA * fma(_CUBE, square * x, x))
    slope = _BETA * fma(_THREE * _CUBE, square, _ONE)
    return grad * (_HALF * (_ONE + t) + _HALF * x * fma(-t, t, _ONE) * slope)


@_operation()
def silu(grad: F32, x: F32) -> Any:
    """Of silu."""
    s = _logistic(x)
    return grad * s * fma(x, _ONE - s, _ONE)


@_operation(typed=True)
def tanh(grad: F32, y: F32, *, dtype: Any) -> Any:
    """Of tanh, from its output: grad * (1 - y * y), of 16-bit types rounded after every operation."""
    if dtype.itemsize == 4:
        return grad * fma(-y, y, _ONE)
    return grad * _as(_ONE - _as(y * y, dtype), dtype)


@_operation(typed=True)
def sigmoid(grad: F32, y: F32, *, dtype: Any) -> Any:
    """Of sigmoid, from its output: grad * (1 - y) * y, rounded after every operation."""
    return _as(grad * _as(_ONE - y, dtype), dtype) * y


def _as(x: Any, dtype: Any) -> Any:
    return rounded(x, dtype).astype(np.float32)


@_operation(typed=True)
def threshold(grad: F32, x: F32, *, threshold: float = 0.0, dtype: Any) -> Any:
    """Of relu and threshold: grad where x is larger."""
    return np.where(x <= _as(np.array([threshold], np.float32), dtype)[0], _ZERO, grad)


@_operation()
def mish(grad: F32, x: F32) -> Any:
    """Of mish."""
    t = cuda.tanh(cuda.log1p(cuda.exp(x)))
    return grad * fma(x * _logistic(x), fma(-t, t, _ONE), t)


@_operation()
def softplus(grad: F32, x: F32, *, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Of softplus."""
    scaled = x * np.float32(beta)
    e = cuda.exp(scaled)
    return np.where(scaled > np.float32(threshold), grad, cuda.divide(grad * e, e + _ONE))


@_operation()
def leaky_relu(grad: F32, x: F32, *, slope: float = 0.01) -> Any:
    """Of leaky_relu."""
    return np.where(x > 0, grad, grad * np.float32(slope))


@_operation()
def elu(grad: F32, x: F32, *, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """Of elu, from its input."""
    inner, outer = np.float32(input_scale), np.float32(alpha) * np.float32(scale)
    return np.where(x <= 0, grad * inner * outer * cuda.exp(x * inner), grad * np.float32(scale))


@_operation()
def hardswish(grad: F32, x: F32) -> Any:
    """Of hardswish."""
    middle = grad * (cuda.divide(x, _THREE) + _HALF)
    return np.where(x <= -_THREE, _ZERO, np.where(x < _THREE, middle, grad))


@_operation()
def hardsigmoid(grad: F32, x: F32) -> Any:
    """Of hardsigmoid."""
    return np.where((x > -_THREE) & (x < _THREE), grad * np.float32(1 / 6), _ZERO)


@_operation()
def log_sigmoid(grad: F32, x: F32) -> Any:
    """Of logsigmoid."""
    e = cuda.exp(-np.abs(x))
    share = cuda.divide(e, _ONE + e)
    return grad * np.where(x < 0, _ONE - share, share)


OPERATIONS = MappingProxyType(_rows)
"""Every gradient by the operation's name: torch calls them name_backward."""
