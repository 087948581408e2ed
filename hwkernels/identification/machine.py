"""The hypotheses: a general fused dot-add machine, any of whose constants may differ.

Their answers are computed in `answers.py`: a model of its own that shares the number formats with the rest of tcsim, and no arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import FORMATS, Format

Array = npt.NDArray[Any]
NONE = -100_000
"""The exponent of a term that is zero."""
NOT_OBSERVABLE = "not observable"
"""The value of a key whose values give the same answer to every question."""
OPEN = "open"
"""The value of a key of which neither a question nor a proof said whether it can be observed."""


@dataclass(frozen=True)
class Signature:
    """What is known of an instruction before the first question: its length and formats."""

    k: int  # products of one instruction
    a: str
    b: str
    c: str  # container of the addend: f32 or f16
    d: str  # container of the result
    scale: tuple[str, int] | None = None  # format of block scales, and products that share one


class Unknown(Protocol):
    """What can be asked: dot products. Codes are unsigned arrays with a leading batch."""

    signature: Signature

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """The codes d (batch,) of a, b (batch, k), c (batch,), scales (batch, k // width)."""


class Spent(Exception):
    """The next batch of questions would exceed what may be asked."""


@dataclass(eq=False)
class Counted:
    """An unknown machine whose dot products are counted, and refused with `Spent` above a number of them."""

    unknown: Unknown
    allowed: int
    asked: int = 0
    spent: bool = False  # whether anything was refused

    def __post_init__(self) -> None:
        self.signature = self.unknown.signature

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """Its answers."""
        if self.asked + len(c) > self.allowed:
            self.spent = True
            raise Spent
        self.asked += len(c)
        return self.unknown.dot(a, b, c) if scale_a is None else self.unknown.dot(a, b, c, scale_a, scale_b)


@dataclass(frozen=True)
class Machine:
    """One hypothesis. `docs/identify.md` explains the keys; `widened` is written `as` in `to_dict`."""

    step: tuple[tuple[int, ...], ...]
    addend: str = "first"
    fraction_bits: int | None = 24
    truncation: str = "zero"
    products: str = "raw"
    floor: int | None = None
    significand: int = 24
    rounding: str = "rz"
    overflow: str = "infinity"
    subnormal_in: str = "kept"
    subnormal_c: str = "kept"
    subnormal_out: str = "kept"
    zero: str = "+0"
    nan: int = 0x7FFFFFFF
    scaled: Literal["product"] | tuple[str, int] | None = None
    widened: str | None = None


@dataclass(eq=False)
class Batch:
    """Questions: codes, and what has been computed of them for some hypothesis."""

    signature: Signature
    a: Array
    b: Array
    c: Array
    scale_a: Array | None = None
    scale_b: Array | None = None
    _terms: dict[Any, tuple[Array, Array]] = field(default_factory=dict, repr=False)
    _addends: dict[str, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.c)

    def __getitem__(self, rows: Any) -> Batch:
        scale_a, scale_b = (None if s is None else s[rows] for s in (self.scale_a, self.scale_b))
        return Batch(self.signature, self.a[rows], self.b[rows], self.c[rows], scale_a, scale_b)

    def part(self, rows: Array) -> Batch:
        """The same, with what has been computed of these questions; they may not be changed."""
        found = self[rows]
        found._terms = {key: (value[:, rows], exponent[:, rows]) for key, (value, exponent) in self._terms.items()}
        found._addends = {key: (value[rows], exponent[rows]) for key, (value, exponent) in self._addends.items()}
        return found

    def ask(self, unknown: Unknown) -> Array:
        """What the unknown machine answers."""
        if self.scale_a is None:
            return np.asarray(unknown.dot(self.a, self.b, self.c))
        return np.asarray(unknown.dot(self.a, self.b, self.c, self.scale_a, self.scale_b))

    def terms(self, machine: Machine) -> tuple[Array, Array]:
        """Values and exponents (terms, batch) of the products, or of the scaled groups of them."""
        key = machine.widened, machine.subnormal_in, machine.products, machine.scaled
        if key not in self._terms:
            value, exponent = self._products(machine)
            self._terms[key] = np.ascontiguousarray(value.T), np.ascontiguousarray(exponent.T)
        return self._terms[key]

    def addend(self, machine: Machine) -> tuple[Array, Array]:
        """Value and exponent (batch,) of c."""
        if machine.subnormal_c not in self._addends:
            self._addends[machine.subnormal_c] = read(self.c, FORMATS[self.signature.c], machine.subnormal_c, None)
        return self._addends[machine.subnormal_c]

    def _products(self, machine: Machine) -> tuple[Array, Array]:
        sig, flush = self.signature, machine.subnormal_in
        va, ea = read(self.a, FORMATS[sig.a], flush, machine.widened)
        vb, eb = read(self.b, FORMATS[sig.b], flush, machine.widened)
        with np.errstate(invalid="ignore"):
            value, exponent = va * vb, ea + eb
        if machine.products == "normalised":
            exponent = exponents_of(value)
        if machine.scaled is not None and sig.scale is not None:
            assert self.scale_a is not None and self.scale_b is not None
            format_, width = FORMATS[sig.scale[0]], sig.scale[1]
            sa, xa = read(self.scale_a, format_, "kept", None)
            sb, xb = read(self.scale_b, format_, "kept", None)
            with np.errstate(invalid="ignore"):
                scale, scale_exponent = sa * sb, np.maximum(xa + xb, NONE)
            if machine.scaled == "product":
                scale, scale_exponent = (x.repeat(width, axis=1) for x in (scale, scale_exponent))
                with np.errstate(invalid="ignore"):
                    value, exponent = value * scale, exponent + scale_exponent
            else:
                group = int(machine.scaled[1])
                runs = value.reshape(len(self), -1, group)
                every = np.repeat(np.arange(scale.shape[1]), max(1, width // group))[: runs.shape[1]]
                with np.errstate(invalid="ignore"):
                    value = runs.sum(axis=2, initial=-0.0) * scale[:, every]  # -0 where all products are
                exponent = np.where((runs != 0).any(axis=2), scale_exponent[:, every], NONE)
                return value, np.where(scale[:, every] == 0, NONE, exponent)
        return value, np.where((value == 0) | ~np.isfinite(value), NONE, exponent)


def read(codes: Array, format_: Format, subnormal: str, widened: str | None) -> tuple[Array, Array]:
    """Values and exponents of codes as a hypothesis takes them."""
    value, exponent = format_.values(codes), format_.exponents(codes).astype(np.int32)
    least = format_.minimum_exponent
    if widened is not None:
        least = FORMATS[widened].minimum_exponent
        exponent = np.maximum(exponents_of(value), least)
    if subnormal == "zero":
        value = np.where(np.abs(value) < math.ldexp(1.0, least), np.copysign(0.0, value), value)
    return value, np.where((value == 0) | ~np.isfinite(value), NONE, exponent)


def exponents_of(value: Array) -> Array:
    """Of the leading bits of finite numbers; that of a zero is lower than any."""
    exponent: Array = (np.ascontiguousarray(value).view(np.int64) >> 52 & 0x7FF).astype(np.int32) - 1023
    return exponent
