"""The functions that an epilogue applies to its outputs: activations, casts, clamps and scales, and those whose numbers are read off the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tcsim.diagnosis.reals import Mask, Numbers
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS

_SAMPLES, _NEAR = 64, 5e-3  # outputs that functions with numbers are tried on first, and how near they must come
_SCALES = tuple(sign * 2.0**power for sign in (1, -1) for power in range(-6, 4) if (sign, power) != (1, 0))
NARROWER = ("e4m3", "e5m2", "bf16", "f16")
"""Formats of outputs narrower than f32, the narrowest first."""
_MANY = 8  # outputs at a bound
Function = Callable[[Numbers], Numbers]


@dataclass(frozen=True)
class Named:
    """One function. mistake: the name of the class of mistakes."""

    mistake: str
    said: str
    advice: str
    run: Function
    rank: int = 2
    along: bool = False  # of a row, not of each output
    simple: bool = False  # every way to compute it gives the same bits


def _erf(x: Numbers) -> Numbers:
    """The error function, to 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    found: Numbers = np.sign(x) * (1 - series * np.exp(-x * x))
    return found


def _sigmoid(x: Numbers) -> Numbers:
    found: Numbers = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    return found


def _capped(x: Numbers, cap: float) -> Numbers:
    found: Numbers = cap * np.tanh(x / cap)
    return found


def _softmax(x: Numbers, axis: int = -1) -> Numbers:
    power = np.exp(x - np.fmax.reduce(x, axis=axis, keepdims=True))
    found: Numbers = power / np.nansum(power, axis=axis, keepdims=True)
    return found


def _normed(x: Numbers, centred: bool) -> Numbers:
    count = np.isfinite(x).sum(axis=-1, keepdims=True)
    x = x - np.nansum(x, axis=-1, keepdims=True) / count if centred else x
    found: Numbers = x / np.sqrt(np.nansum(x**2, axis=-1, keepdims=True) / count + 1e-5)
    return found


_ACTIVATED = "activation applied"
_ACTIVATION = "look at the activation in the epilogue"
_BY_NAME: dict[str, Function] = {
    "GELU": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "GELU (its tanh form)": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "GELU (its sigmoid form)": lambda x: x * _sigmoid(1.702 * x),
    "SiLU": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "exp": lambda x: np.exp(np.minimum(x, 700)),
    "exp2": lambda x: np.exp2(np.minimum(x, 1000)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "hard swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "squared ReLU": lambda x: np.maximum(x, 0) ** 2,
    "square": np.square,
}
ACTIVATIONS = (
    Named(
        "ReLU applied", "negative results are 0", "the epilogue clamps at zero", lambda x: np.maximum(x, 0), simple=True
    ),
    Named(_ACTIVATED, "absolute value", _ACTIVATION, np.abs, simple=True),
    Named(_ACTIVATED, "softmax of each row", _ACTIVATION, _softmax, along=True),
    Named(_ACTIVATED, "softmax of each column", _ACTIVATION, partial(_softmax, axis=-2), along=True),
    Named(_ACTIVATED, "layer normalization of each row", _ACTIVATION, partial(_normed, centred=True), along=True),
    Named(_ACTIVATED, "RMS normalization of each row", _ACTIVATION, partial(_normed, centred=False), along=True),
    *(Named(_ACTIVATED, said, _ACTIVATION, run) for said, run in _BY_NAME.items()),
    *(
        Named(_ACTIVATED, f"{cap} tanh(x / {cap})", _ACTIVATION, partial(_capped, cap=cap))
        for cap in (10, 15, 20, 30, 50, 100)
    ),
)
"""Of floating-point results."""


def wrapped(x: Numbers, low: int, bits: int) -> Numbers:
    """The lower bits of whole numbers, as an integer from `low` on."""
    found: Numbers = (np.rint(x) - low) % (1 << bits) + low
    return found


_INTEGERS = (("s8", -128, 8), ("u8", 0, 8), ("s16", -(1 << 15), 16), ("u16", 0, 16), ("s32", -(1 << 31), 32))
_CLAMP = "result clamped"
_WRAP = "result wraps around"
_CLAMP_ADVICE = (
    "look at the conversion in the epilogue: saturation (cvt.sat, __vmin, pack.sat), and the type that it goes to"
)
_WRAP_ADVICE = "the conversion in the epilogue drops the upper bits: saturate (cvt.sat), or store a wider type"


def _clamped(x: Numbers, low: float, high: float) -> Numbers:
    found: Numbers = np.clip(x, low, high)
    return found


def _through(x: Numbers, name: str) -> Numbers:
    """Through a floating-point type; what is beyond f16 is its largest number."""
    found: Numbers = decode(encode(x, name, saturate=True), name).astype(np.float64)
    return found


def casts() -> Iterator[Named]:
    """Of integer results: clamped or wrapped to a type, or through a floating-point type."""
    for name, low, bits in _INTEGERS:
        high = low + (1 << bits) - 1
        said = f"to {name}, from {low} to {high}"
        yield Named(_CLAMP, said, _CLAMP_ADVICE, partial(_clamped, low=low, high=high))
        yield Named(_WRAP, f"{said}: its lower {bits} bits", _WRAP_ADVICE, partial(wrapped, low=low, bits=bits))
    for name, size in (("f32", 24), ("f16", 11), ("bf16", 8)):
        yield Named(
            "result passed through a narrower format",
            f"{name}: {size} bits are kept of each sum",
            f"convert the sum to {name} only after it is scaled",
            partial(_through, name=name),
        )


def conversions(coarse: float) -> Iterator[Named]:
    """Of floating-point results: through a narrower format, or to whole numbers. coarse: their relative precision."""
    for name in (name for name in NARROWER[::-1] if 2.0 ** -FORMATS[name].fraction_bits > coarse):
        advice = f"the epilogue or the output tensor is {name} there, or the accumulator was moved as {name}"
        yield Named("result passed through a narrower format", name, advice, partial(_through, name=name), simple=True)
    for said, run, *_ in _WHOLE:
        yield Named("result converted to integers", said, _CLAMP_ADVICE, run, simple=True)


def solved_functions(x: Numbers, seen: Numbers, open_: Mask, finite: Mask, whole: bool) -> Iterator[Named]:
    """Functions with numbers that are read off the outputs."""
    low, high = float(seen[finite].min()), float(seen[finite].max())
    far = 1e-5 * max(abs(low), abs(high))
    at_low, at_high = ((np.abs(seen - bound) <= far)[open_].sum() >= _MANY for bound in (low, high))
    if (at_low or at_high) and high - low > 10 * far:  # else they are one number
        low, high = float(f"{low:.5g}"), float(f"{high:.5g}")
        bounds = low if at_low else -np.inf, high if at_high else np.inf
        one = f"to {low:g} and more" if at_low else f"to {high:g} and less"
        said = f"from {low:g} to {high:g}" if at_low and at_high else one
        yield Named(_CLAMP, said, _CLAMP_ADVICE, lambda x: _clamped(x, *bounds), simple=True)
    if whole:
        yield from _requantized(x, seen, open_, low if at_low else -np.inf, high if at_high else np.inf)
    own, given = x[open_ & (x < 0)], seen[open_ & (x < 0)]
    if not whole:
        yield from _around(x[open_], seen[open_])
    if own.size and not whole:
        slope = _ratio(own, given)
        if 0.0005 < abs(slope) < 0.9995:
            said = f"leaky ReLU: negative results times {slope:.4g}"
            yield Named(_ACTIVATED, said, _ACTIVATION, lambda x: np.where(x < 0, slope * x, x))


def _around(x: Numbers, seen: Numbers) -> Iterator[Named]:
    """Activations of the outputs times a number, or times one themselves, or applied twice."""
    few = np.linspace(0, len(x) - 1, min(len(x), _SAMPLES)).astype(np.int64)
    some, wanted = x[few], seen[few]
    far = _NEAR * np.maximum(np.abs(wanted), 0.1 * float(np.sqrt((wanted**2).mean())))
    if len(x) < _MANY or (np.abs(_ratio(some, wanted) * some - wanted) <= far).all():
        return  # a factor, or none of them, says the same more simply
    for one in ACTIVATIONS:
        if one.along or one.simple:
            continue
        with np.errstate(all="ignore"):
            times = _ratio(one.run(some), wanted)
            ways = [(f"{one.said}, the result times {times:.4g}", partial(_scaled_by, one.run, 1.0, times))]
            ways += [(f"{one.said} of {by:g} times the sum", partial(_scaled_by, one.run, by, 1.0)) for by in _SCALES]
            ways += [(f"{one.said}, applied twice", partial(_twice, one.run))]
            for said, run in ways:
                if (np.abs(run(some) - wanted) <= far).all():
                    yield Named(one.mistake, said, one.advice, run, one.rank + 1)


def _scaled_by(run: Function, inside: float, outside: float, x: Numbers) -> Numbers:
    return outside * run(inside * x)


def _twice(run: Function, x: Numbers) -> Numbers:
    return run(run(x))


_WHOLE: tuple[tuple[str, Function, tuple[float, float], tuple[float, float]], ...] = (
    ("rounded to the nearest", np.rint, (-0.5, 0.5), (-0.5, 0.5)),
    ("rounded down", np.floor, (0.0, 1.0), (0.0, 1.0)),
    ("cut toward zero", np.trunc, (0.0, 1.0), (-1.0, 0.0)),
)
"""(how numbers are made whole, from and to how far beside the whole one they were if they were positive, and if they were negative)."""


def _requantized(x: Numbers, seen: Numbers, open_: Mask, low: float, high: float) -> Iterator[Named]:
    """Integers times a factor, made whole again, from low to high."""
    inside = open_ & (seen > low) & (seen < high) & (x != 0)
    x, seen = x[inside], seen[inside]
    if len(np.unique(seen)) < _MANY:
        return
    for how, run, positive, negative in _WHOLE:
        ends = [
            np.where(x > 0, (seen + up) / x, (seen + down) / x)
            for up, down in zip(positive, negative[::-1], strict=True)
        ]
        least, most = float(ends[0].max()), float(ends[1].min())
        power = 2.0 ** np.floor(np.log2(most)) if most > 0 else 0.0
        factor = power if least <= power else (least + most) / 2
        if least <= most:
            shift = f", as of a shift right by {-np.log2(factor):g}" if factor == power < 1 and run is np.floor else ""
            bounds = f"; from {low:g} to {high:g}" if np.isfinite([low, high]).any() else ""
            said = f"every sum times {factor:.6g}, {how}{shift}{bounds}"
            advice = (
                "look at the requantization in the epilogue: its multiplier, its shift, and whether it belongs here"
            )
            yield Named("result scaled", said, advice, partial(_scaled, factor, run, low, high))


def _scaled(factor: float, whole: Function, low: float, high: float, x: Numbers) -> Numbers:
    return _clamped(whole(factor * x), low, high)


def _ratio(own: Numbers, given: Numbers) -> float:
    size = float((own**2).sum())
    return float((own * given).sum()) / size if size else 0.0
