"""What may happen between the accumulator and the output: factors, C, an activation, one rounding; in which order and in which format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product as every
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import floating, mufu
from tcsim.core.errors import OperandError
from tcsim.explanation.arithmetic import Codes
from tcsim.explanation.orders import FLOATS
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import FORMATS

Floats = npt.NDArray[Any]
QUICK: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


@dataclass(frozen=True)
class Extras:
    """What a product takes besides a and b, for the outputs at hand."""

    alpha: float = 1.0
    beta: float = 1.0
    c: Floats | None = None  # f64 values, of each output
    scale_a: Floats | None = None  # f32, of each output
    scale_b: Floats | None = None

    def at(self, chosen: Any) -> Extras:
        """Those of some outputs."""
        part = {name: None if x is None else x[chosen] for name, x in self._arrays()}
        return Extras(self.alpha, self.beta, **part)

    def like(self, size: tuple[int, ...], c: Any) -> Extras:
        """Those of a product of another size, with another C; of a size that the arrays here do not have, none of them."""
        shape = (-1, *size[-2:])
        if c is not None:
            return Extras(self.alpha, self.beta, np.broadcast_to(np.asarray(c, np.float64), size).reshape(shape))
        fitting = {name: x for name, x in self._arrays() if x is not None}
        if any(x.reshape(-1).size != int(np.prod(size)) for x in fitting.values()):
            raise OperandError(
                f"predict: C or scale factors were given for another size than {size}; valid: c=, or the size of before"
            )
        return Extras(self.alpha, self.beta, **{name: x.reshape(shape) for name, x in fitting.items()})

    def _arrays(self) -> tuple[tuple[str, Floats | None], ...]:
        return (("c", self.c), ("scale_a", self.scale_a), ("scale_b", self.scale_b))

    def reference(self, exact: Floats, activation: str = "") -> Floats:
        """The output in f64."""
        total = exact * self.alpha
        for scale in (self.scale_a, self.scale_b):
            total = total if scale is None else total * scale
        total = total if self.c is None else total + self.beta * self.c
        if activation == "relu":
            return np.maximum(total, 0)
        if activation:
            with np.errstate(all="ignore"):
                return 0.5 * total * (1 + np.tanh(0.7978845608028654 * (total + 0.044715 * total**3)))
        return total


@dataclass(frozen=True)
class Epilogue:
    """One way from accumulators to outputs."""

    name: str  # for readers
    apply: Callable[[Floats, Extras], Floats] = field(repr=False, compare=False)
    activation: str = ""
    rounding: str = "rne"

    def outputs(self, accumulators: Codes, accumulator: str, extras: Extras, output: str) -> Codes:
        """Codes of the output's format."""
        if accumulator not in FLOATS:
            return accumulators.astype(FORMATS[output].dtype)
        with np.errstate(all="ignore"):
            values = self.apply(accumulators.view(FLOATS[accumulator]), extras)
            values = ACTIVATIONS[self.activation](values)
        return rounded(values, output, self.rounding)


def rounded(values: Floats, output: str, rounding: str = "rne") -> Codes:
    """Values in a format, fp8 saturated."""
    target = FORMATS[output]
    if rounding == "rne" and output in QUICK and values.dtype != np.float64:
        with np.errstate(all="ignore"):
            return values.astype(QUICK[output]).view(target.dtype)
    if rounding == "rz" and output in QUICK:
        nearest = rounded(values, output)
        beyond = np.abs(target.values(nearest)) > np.abs(values.astype(np.float64))
        return nearest - beyond.astype(target.dtype)
    return encode(values, output, rounding, saturate=target.bits == 8)  # type: ignore[arg-type]


def through(output: str, accumulator: str) -> Callable[[Floats], Floats]:
    """Values rounded to the output's format and back."""

    def round_trip(values: Floats) -> Floats:
        if output not in QUICK or accumulator not in FLOATS:
            return values
        return values.astype(QUICK[output]).astype(FLOATS[accumulator])

    return round_trip


def _relu(values: Floats) -> Floats:
    return np.where(values > 0, values, np.zeros((), values.dtype))


def _fma(a: Any, b: Any, c: Any) -> Floats:
    """In f32, rounded once."""
    x, y, z = (np.asarray(item, np.float32).view(np.uint32) for item in np.broadcast_arrays(a, b, c))
    return floating.fma(x, y, z, "f32").view(np.float32)


GELU = np.float32(0.79788458), np.float32(0.035677426)
"""sqrt(2 / pi), and 0.044715 times it: the factors of cuBLASLt's GELU, whose f32 outputs on an H200 no neighbours reproduce."""


def _gelu(values: Floats) -> Floats:
    """x / 2 + x / 2 tanh(x (A + B x x)) with the special function unit's tanh, in f32."""
    x = np.ascontiguousarray(values, np.float32)
    inner = x * _fma(GELU[1] * x, x, GELU[0])
    half = np.float32(0.5) * x
    return _fma(half, mufu.unit().tanh(inner.view(np.uint32)).view(np.float32), half)


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {"": lambda values: values, "relu": _relu, "gelu": _gelu}
NAMES = {"": "", "relu": "ReLU", "gelu": "GELU by tanh.approx"}


def epilogues(
    extras: Extras, output: str, accumulator: str, activation: str = "", rounding: str = "rne"
) -> Iterator[Epilogue]:
    """Those that fit what was given, plainest first, with one rounding to the output's format."""
    if accumulator not in FLOATS:
        yield Epilogue("", lambda values, _: values)
        return
    scales = list(_scales(extras, accumulator))
    adds = list(_additions(extras, output, accumulator))
    for (scale_name, scale), (add_name, add) in every(scales, adds):

        def apply(x: Floats, more: Extras, scale: Any = scale, add: Any = add) -> Floats:
            return add(scale(x, more), more)

        said = [text for text in (scale_name, add_name, NAMES[activation]) if text]
        if output != accumulator:
            said.append(f"rounded to {output}" if rounding == "rne" else f"truncated to {output}")
        yield Epilogue(", ".join(said), apply, activation, rounding)


def _scales(extras: Extras, accumulator: str) -> Iterator[tuple[str, Any]]:
    single = np.float64 if accumulator == "f64" else np.float32
    if extras.scale_a is not None and extras.scale_b is not None:
        yield "times scale_a scale_b", lambda x, e: x.astype(single) * (e.scale_a * e.scale_b)
        yield "times scale_a, times scale_b", lambda x, e: x.astype(single) * e.scale_a * e.scale_b
        yield "times scale_b, times scale_a", lambda x, e: x.astype(single) * e.scale_b * e.scale_a
    else:
        yield "", lambda x, e: x


def _additions(extras: Extras, output: str, accumulator: str) -> Iterator[tuple[str, Any]]:
    kind = np.float64 if accumulator == "f64" else np.float32
    alpha, beta = kind(extras.alpha), kind(extras.beta)
    if extras.c is None:
        if extras.alpha == 1:
            yield "", lambda x, e: x
        else:
            yield f"times {extras.alpha:g}", lambda x, e: x.astype(kind) * alpha
        return
    if extras.alpha == 1 and extras.beta == 1:
        yield "C added", lambda x, e: x.astype(kind) + e.c.astype(kind)
    else:
        said = f"{extras.alpha:g} times it plus {extras.beta:g} C"
        if accumulator != "f64":
            yield f"{said}, the last by FMA", lambda x, e: _fma(beta, e.c.astype(kind), x.astype(kind) * alpha)
            yield f"{said}, the first by FMA", lambda x, e: _fma(alpha, x.astype(kind), e.c.astype(kind) * beta)
        yield said, lambda x, e: x.astype(kind) * alpha + e.c.astype(kind) * beta
    if output in QUICK and output != accumulator:
        there = through(output, accumulator)
        yield f"rounded to {output}, then C added", lambda x, e: there(x * alpha) + e.c.astype(kind) * beta
