"""The recorded cases of elementwise operations: inputs by format and set, fixed before any comparison, and the digest of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten import elementwise as aten

Codes = npt.NDArray[Any]
Call = Callable[..., Any]

SEGMENTS = 16


@dataclass(frozen=True)
class Set:
    """Seeds and numbers of a recording."""

    unary: int
    binary: int
    powers: tuple[float, ...]
    scalars: tuple[float, ...]
    alphas: tuple[float, ...]
    limits: tuple[tuple[float, float], ...] = ()


SETS: Mapping[str, Set] = MappingProxyType({
    "1": Set(11, 21, (0.5, 2.0, 3.0, -0.5, -1.0, -2.0, 0.0, 1.0, 1.5, -3.0, 2.5, 0.333, 4.0, -0.1, 10.0), (0.1, -1.5, 3.0, 1e-3, 77.7),
             (1.0, 0.3, -2.0, 1e-3, 7.7)),
    "2": Set(31, 41, (0.5, 2.0, 3.0, -0.5, -1.0, -2.0, 0.0, 1.0, 0.25, -4.0, 7.0, 1.1, 100.0, -0.75), (0.7, -0.25, 1.1, 5e-5, 1234.5),
             (1.0, 0.7, -1.0, 5e-3, 123.4), ((0.0, 6.0), (-0.0, 0.0), (0.0, -0.0), (-3.3, 7.7), (0.1, 0.1))),
})  # fmt: skip


def mix(z: Any) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.asarray(z, np.uint64)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return z ^ z >> np.uint64(31)


def digest(codes: Codes, segments: Sequence[int] = range(SEGMENTS)) -> npt.NDArray[np.uint64]:
    """One number for each of 16 equal segments, or of those that the codes are."""
    rows = codes.astype(np.uint64).reshape(len(segments), -1)
    index = np.array(segments, np.uint64)[:, None] * np.uint64(rows.shape[1]) + np.arange(
        rows.shape[1], dtype=np.uint64
    )
    return mix(index << np.uint64(32) | rows).sum(1, dtype=np.uint64)


def codes_of(result: npt.NDArray[Any]) -> Codes:
    """The codes of a result, NaN as one; of bool 0 and 1."""
    if result.dtype == np.bool_:
        return result.astype(np.uint64)
    codes = np.ascontiguousarray(result).view(np.uint32 if result.itemsize == 4 else np.uint16)
    return np.where(np.isnan(result), codes.dtype.type(0x7FFFFFFF if result.itemsize == 4 else 0x7FFF), codes)


def random_codes(count: int, format: str, seed: int) -> Codes:
    """Even segments: any code; odd segments: exponents near that of one."""
    h = mix(np.arange(count, dtype=np.uint64) + (np.uint64(seed) << np.uint64(32)))
    plain = np.arange(count) // (count // SEGMENTS) % 2 == 1
    width, mantissa, kind = {"f32": (32, 23, np.uint32), "bf16": (16, 7, np.uint16), "f16": (16, 10, np.uint16)}[format]
    codes = h >> np.uint64(64 - width)
    low = h & np.uint64(0xF)
    exponent = np.uint64(6) + low if format == "f16" else np.uint64(113) + low + (h >> np.uint64(4) & np.uint64(7))
    keep = np.uint64(1 << width - 1 | (1 << mantissa) - 1)
    return np.where(plain, codes & keep | exponent << np.uint64(mantissa), codes).astype(kind)


def operands(format: str, of: Set) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The array of the unary operations, all codes of a 16-bit type, and the two of the others."""
    one = random_codes(1 << 20, format, of.unary) if format == "f32" else np.arange(1 << 16).astype(np.uint16)
    dtype = aten.FORMATS[format]
    return (one.view(dtype),), tuple(random_codes(1 << 18, format, of.binary + k).view(dtype) for k in (0, 1))


def _number(x: Any, number: float) -> Any:
    return np.array([number], np.float32).astype(x.dtype)


def unary(of: Set) -> dict[str, Call]:
    """The operations of one array, by the names of the recording."""
    same = (
        "exp exp2 log log2 log10 log1p expm1 sqrt rsqrt reciprocal tanh sigmoid relu erf erfc erfinv lgamma sin cos tan sinh cosh asin acos atan asinh acosh atanh"
        " neg abs floor ceil round trunc frac sign silu gelu softplus mish leaky_relu elu hardswish hardsigmoid logsigmoid isnan nan_to_num"
    )
    calls: dict[str, Call] = {name: aten.OPERATIONS[name] for name in same.split()}
    calls |= {
        "square": lambda x: aten.pow_number(x, exponent=2.0),
        "gelu_tanh": lambda x: aten.gelu(x, approximate="tanh"),
        "selu": lambda x: aten.elu(x, alpha=1.6732632423543772848170429916717, scale=1.0507009873554804934193349852946),
        "celu": aten.elu,
        "hardtanh": lambda x: aten.clamp(x, min=-1.0, max=1.0),
        "relu6": lambda x: aten.clamp(x, min=0.0, max=6.0),
        "softsign": lambda x: aten.div(x, aten.add_number(aten.abs_(x), number=1.0)),
        "tanhshrink": lambda x: aten.sub(x, aten.tanh(x)),
    }
    for low, high in (*of.limits, (-1.0, 2.5)):
        calls[f"clamp({low},{high})"] = lambda x, low=low, high=high: aten.clamp(x, min=low, max=high)
    for power in of.powers:
        calls[f"pow({power})"] = lambda x, power=power: aten.pow_number(x, exponent=power)
    for name, call in _WITH_NUMBER.items():
        for number in of.scalars:
            calls[f"{name}({number})"] = lambda x, call=call, number=number: call(x, number)
    for format, dtype in aten.FORMATS.items():
        calls[f"to({format})"] = lambda x, dtype=dtype: aten.to(x, dtype)
    return calls


_WITH_NUMBER: dict[str, Call] = {
    "leaky_relu": lambda x, s: aten.leaky_relu(x, slope=s),
    "elu": lambda x, s: aten.elu(x, alpha=s),
    "add": lambda x, s: aten.add_number(x, number=s),
    "sub": lambda x, s: aten.add_number(x, number=-s),
    "rsub": lambda x, s: aten.add_number(aten.neg(x), number=s),
    "mul": lambda x, s: aten.mul_number(x, number=s),
    "div": lambda x, s: aten.div_number(x, number=s),
    "rdiv": lambda x, s: aten.number_div(x, number=s),
    "clamp_min": lambda x, s: aten.clamp(x, min=s),
    "clamp_max": lambda x, s: aten.clamp(x, max=s),
    "fmod": lambda x, s: aten.fmod(x, _number(x, s)),
    "remainder": lambda x, s: aten.remainder(x, _number(x, s)),
    "eq": lambda x, s: aten.eq(x, _number(x, s)),
    "lt": lambda x, s: aten.lt(x, _number(x, s)),
    "ge": lambda x, s: aten.ge(x, _number(x, s)),
    "rpow": lambda x, s: aten.number_pow(x, base=s),
    "softplus": lambda x, s: aten.softplus(x, beta=s, threshold=5.0),
}


def binary(of: Set) -> dict[str, Call]:
    """The operations of two arrays, by the names of the recording; a third operand is the first turned round."""
    same = "add sub mul div maximum minimum fmod remainder atan2 hypot pow eq ne lt le gt ge fmax fmin copysign floor_divide trunc_divide"
    calls: dict[str, Call] = {name: aten.OPERATIONS[name] for name in same.split()}
    calls["where"] = lambda a, b: aten.where(a > b, a, b)
    calls["mul_add"] = lambda a, b: aten.add(aten.mul(a, b), aten.mul(a[::-1], b[::-1]))
    for s in of.alphas:
        calls[f"add(alpha={s})"] = lambda a, b, s=s: aten.add(a, b, alpha=s)
        calls[f"sub(alpha={s})"] = lambda a, b, s=s: aten.sub(a, b, alpha=s)
        calls[f"addcmul({s})"] = lambda a, b, s=s: aten.addcmul(a, a[::-1], b, value=s)
        calls[f"addcdiv({s})"] = lambda a, b, s=s: aten.addcdiv(a, a[::-1], b, value=s)
        calls[f"lerp({s})"] = lambda a, b, s=s: aten.lerp(a, b, weight=s)
        calls[f"masked_fill({s})"] = lambda a, b, s=s: aten.masked_fill(a, b > 0, s)
    return calls
