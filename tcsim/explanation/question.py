"""What is asked: operands and the output of a library as codes of their formats, and chosen outputs with what makes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.core.samples import repeatable
from tcsim.explanation.arithmetic import Codes
from tcsim.explanation.epilogue import Extras
from tcsim.numbers.codec import FLOAT_DTYPES
from tcsim.numbers.foreign import on_host
from tcsim.numbers.formats import FORMATS

CALL = "tcsim.explain"
INPUTS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2", "s8")
OUTPUTS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2", "s32")
_INTEGERS = {np.dtype(np.int8): "s8", np.dtype(np.int32): "s32"}
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def codes_of(x: Any, what: str, valid: tuple[str, ...]) -> tuple[Codes, str]:
    """Codes and the format that an array's dtype is.

    Raises OperandError for another dtype.
    """
    array = on_host(x, f"{CALL}: {what}", OperandError)
    format = FLOAT_DTYPES.get(array.dtype) or _INTEGERS.get(array.dtype)
    if format not in valid:
        raise OperandError(f"{CALL}: {what} is {array.dtype}; valid: the dtype is the format: {listing(valid)}")
    return np.ascontiguousarray(array).view(FORMATS[format].dtype).reshape(array.shape), format


@dataclass(frozen=True)
class Question:
    """A product with a leading batch, as codes."""

    a: Codes  # (batch, M, K)
    b: Codes  # (batch, K, N)
    observed: Codes  # (batch, M, N)
    formats: tuple[str, str, str]
    extras: Extras  # whose arrays are (batch, M, N)

    @property
    def k(self) -> int:
        """K."""
        return self.a.shape[2]

    @cached_property
    def values(self) -> tuple[Floats, Floats, Floats]:
        """a, b and observed in f64."""
        a, b, d = (
            _values(codes, format) for codes, format in zip((self.a, self.b, self.observed), self.formats, strict=True)
        )
        return a, b, d

    @cached_property
    def product(self) -> Floats:
        """The product in f64: (batch, M, N)."""
        a, b, _ = self.values
        with np.errstate(all="ignore"):
            return np.matmul(a, b)

    def at(self, chosen: Places) -> tuple[Codes, Codes, Codes, Extras]:
        """Of some outputs, by their flat places: rows of a (P, K), columns of b (P, K), what was observed, the extras."""
        batch, row, column = np.unravel_index(chosen, self.observed.shape)
        return (
            self.a[batch, row],
            self.b[batch, :, column],
            self.observed.reshape(-1)[chosen],
            self.extras.at((batch, row, column)),
        )

    def telling(self, activation: str, count: int) -> Places:
        """Outputs that tell most: those nearest to where rounding turns, and as many spread at random; of f32 and f64 the latter alone."""
        size = self.observed.size
        spread = repeatable().permutation(size)[:count]
        output = FORMATS[self.formats[2]]
        if output.container_bits > 16 or size <= count:
            return np.sort(spread)
        values = self.extras.reference(self.product, activation).reshape(-1)
        with np.errstate(all="ignore"):
            spacing = np.ldexp(1.0, np.maximum(np.frexp(values)[1] - 1, output.minimum_exponent) - output.fraction_bits)
            distance = np.abs(np.abs(values / spacing) % 1 - 0.5)
        distance[~np.isfinite(distance) | (values == 0)] = 1
        nearest = np.argsort(distance, kind="stable")[: count - count // 4]
        return np.unique(np.concatenate([nearest, spread[: count // 4]]))


def _values(codes: Codes, format: str) -> Floats:
    target = FORMATS[format]
    if target.kind == "float":
        return target.values(np.ascontiguousarray(codes)).reshape(codes.shape)
    return codes.view(f"i{target.container_bits // 8}").astype(np.float64)


def ask(a: Any, b: Any, observed: Any, c: Any, scales: tuple[Any, Any], alpha: float, beta: float) -> Question:
    """The question behind the arguments of `tcsim.explain`.

    Raises OperandError for other shapes or dtypes.
    """
    (left, format_a), (right, format_b) = codes_of(a, "a", INPUTS), codes_of(b, "b", INPUTS)
    seen, format_d = codes_of(observed, "observed", OUTPUTS)
    shapes = f"a is {left.shape}, b {right.shape}, observed {seen.shape}"
    if left.ndim < 2 or right.ndim < 2 or left.shape[-1] != right.shape[-2] or not min(left.shape + right.shape):
        raise OperandError(f"{CALL}: {shapes}; valid: (..., M, K), (..., K, N), (..., M, N)")
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    size = (*batch, left.shape[-2], right.shape[-1])
    if seen.shape != size:
        raise OperandError(f"{CALL}: {shapes}; valid: observed {size}")
    if (FORMATS[format_a].kind, FORMATS[format_d].kind) not in (("float", "float"), ("integer", "integer")):
        raise OperandError(f"{CALL}: {format_a} and {format_d}; valid: floats with floats, s8 with s32")
    extras = {}
    for name, given in (("c", c), ("scale_a", scales[0]), ("scale_b", scales[1])):
        if given is None:
            continue
        array = on_host(given, f"{CALL}: {name}", OperandError)
        values = array.astype(np.float64) if name == "c" else array.astype(np.float32)
        if name == "scale_b" and values.ndim == 1:
            values = values[None]
        if name == "scale_a" and values.ndim == 1:
            values = values[:, None]
        try:
            extras[name] = np.broadcast_to(values, size).reshape(-1, *size[-2:])
        except ValueError:
            raise OperandError(f"{CALL}: {name} is {array.shape}; valid: what broadcasts to {size}") from None
    if len(extras.keys() & {"scale_a", "scale_b"}) == 1:
        raise OperandError(f"{CALL}: scale_a and scale_b go together; a factor of 1 changes nothing")
    flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (left, right, seen)]
    return Question(flat[0], flat[1], flat[2], (format_a, format_b, format_d), Extras(alpha, beta, **extras))
