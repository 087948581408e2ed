"""The hypotheses: a general fused dot-add machine, any of whose constants may differ.

This is a model of its own, written for the search: it shares the number formats with the rest of tcsim, and no arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import FORMATS, Format

Array = npt.NDArray[Any]
_NONE = -100_000  # the exponent of a term that is zero
_LIMB = 32
_DIGIT = 48
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

    def ask(self, unknown: Unknown) -> Array:
        """What the unknown machine answers."""
        if self.scale_a is None:
            return np.asarray(unknown.dot(self.a, self.b, self.c))
        return np.asarray(unknown.dot(self.a, self.b, self.c, self.scale_a, self.scale_b))

    def terms(self, machine: Machine) -> tuple[Array, Array]:
        """Values and exponents (batch, terms) of the products, or of the scaled groups of them."""
        key = machine.widened, machine.subnormal_in, machine.products, machine.scaled
        if key not in self._terms:
            self._terms[key] = self._products(machine)
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
            exponent = _exponent_of(value)
        if machine.scaled is not None and sig.scale is not None:
            assert self.scale_a is not None and self.scale_b is not None
            format_, width = FORMATS[sig.scale[0]], sig.scale[1]
            sa, xa = read(self.scale_a, format_, "kept", None)
            sb, xb = read(self.scale_b, format_, "kept", None)
            with np.errstate(invalid="ignore"):
                scale, scale_exponent = sa * sb, np.maximum(xa + xb, _NONE)
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
                exponent = np.where((runs != 0).any(axis=2), scale_exponent[:, every], _NONE)
                return value, np.where(scale[:, every] == 0, _NONE, exponent)
        return value, np.where(value == 0, _NONE, exponent)


def read(codes: Array, format_: Format, subnormal: str, widened: str | None) -> tuple[Array, Array]:
    """Values and exponents of codes as a hypothesis takes them."""
    value, exponent = format_.values(codes), format_.exponents(codes).astype(np.int32)
    least = format_.minimum_exponent
    if widened is not None:
        least = FORMATS[widened].minimum_exponent
        exponent = np.maximum(_exponent_of(value), least)
    if subnormal == "zero":
        value = np.where(np.abs(value) < math.ldexp(1.0, least), np.copysign(0.0, value), value)
    return value, np.where((value == 0) | ~np.isfinite(value), _NONE, exponent)


def _exponent_of(value: Array) -> Array:
    exponent: Array = np.frexp(value)[1].astype(np.int32) - 1
    return exponent


def answer(machine: Machine, batch: Batch) -> Array:
    """The codes that a hypothesis gives to a batch of questions."""
    value, exponent = batch.terms(machine)
    target = FORMATS[batch.signature.d]
    if machine.addend == "first":
        last = batch.addend(machine)
    else:
        last = np.zeros(len(batch)), np.full(len(batch), _NONE)
    d: Array = np.zeros(len(batch), target.dtype)
    group = machine.scaled[1] if isinstance(machine.scaled, tuple) else 1
    settles = machine.fraction_bits is None or machine.fraction_bits >= machine.significand - 1
    live = (value != 0) | (exponent > _NONE // 2)  # a group of products may cancel and still have an exponent
    for number, step in enumerate(machine.step):
        columns = list(dict.fromkeys(k // group for k in step))
        rows: Any = slice(None)
        if number:
            result = target.values(d)
            last = result, np.where(np.isfinite(result) & (result != 0), target.exponents(d).astype(np.int32), _NONE)
            if settles:  # a result to which only zeros are added stays, once it has been rounded
                rows = np.flatnonzero((result == 0) | live[:, columns].any(axis=1))
        values = np.concatenate([value[rows][:, columns], last[0][rows, None]], axis=1)
        exponents = np.concatenate([exponent[rows][:, columns], last[1][rows, None]], axis=1)
        d[rows] = _step(machine, values, exponents, target)
    return _added(d, batch.addend(machine)[0], target, machine.nan) if machine.addend == "last" else d


def _added(d: Array, c: Array, target: Format, nan: int) -> Array:
    """An ordinary IEEE addition of codes d and values c."""
    kind = np.float16 if target.name == "f16" else np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        total = d.view(kind) + c.astype(kind)
    codes: Array = total.view(target.dtype).copy()
    codes[np.isnan(total)] = nan
    return codes


def _step(machine: Machine, value: Array, exponent: Array, target: Format) -> Array:
    plain = np.isfinite(value).all()
    finite = value if plain else np.where(np.isfinite(value), value, 0.0)
    if machine.fraction_bits is None:
        sign, total, low, more = _exact(finite)
    else:
        sign, total, low, more = _aligned(machine, finite, exponent)
    result = _rounded(machine, total, low, more, target)
    if machine.zero == "+0":
        minus = sign & (result != 0)
    else:
        minus = np.where((total != 0) | more, sign, (np.signbit(value) & (value == 0)).all(axis=1))
    result = np.where(minus, -result, result)
    kind = np.float16 if target.name == "f16" else np.float32
    if plain:
        return result.astype(kind).view(target.dtype)
    positive, negative = (value == np.inf).any(axis=1), (value == -np.inf).any(axis=1)
    nan = np.isnan(value).any(axis=1) | (positive & negative)
    result = np.where(positive, np.inf, np.where(negative, -np.inf, result))
    codes: Array = result.astype(kind).view(target.dtype)
    codes[nan] = machine.nan
    return codes


def _aligned(machine: Machine, value: Array, exponent: Array) -> tuple[Array, Array, Array, Array]:
    """Sign, magnitude in units of 2**low, low, and whether there is a remainder below."""
    bits = machine.fraction_bits or 0
    largest = exponent.max(axis=1)
    if machine.floor is not None:
        largest = np.maximum(largest, machine.floor)
    largest = np.where(largest == _NONE, 0, largest)
    low = largest - bits
    shifted = np.ldexp(value, -low[:, None])
    cut = np.trunc(shifted) if machine.truncation == "zero" else np.floor(shifted)
    if not isinstance(machine.scaled, tuple):
        total = cut.astype(np.int64).sum(axis=1)
        return total < 0, np.abs(total), low, np.zeros(len(total), bool)
    high = np.floor(cut * 2.0**-_LIMB)  # sums of groups may have more bits than an int64
    rest = (cut - high * 2.0**_LIMB).astype(np.int64).sum(axis=1)
    upper = high.astype(np.int64).sum(axis=1) + (rest >> _LIMB)
    rest &= (1 << _LIMB) - 1
    minus = upper < 0
    upper, rest = np.where(minus, -upper - (rest != 0), upper), np.where(minus, -rest & ((1 << _LIMB) - 1), rest)
    wide = upper >> (62 - _LIMB) > 0
    total = np.where(wide, upper, (np.where(wide, 0, upper) << _LIMB) | rest)
    return minus, total, np.where(wide, low + _LIMB, low), wide & (rest != 0)


def _exact(value: Array) -> tuple[Array, Array, Array, Array]:
    """As `_aligned`, of a sum that loses nothing: its leading 39 bits or more, and whether there are others."""
    exponent = np.where(value != 0, np.frexp(value)[1], _NONE).max(axis=1).astype(np.int64)
    unit = np.where(exponent == _NONE, 0, exponent)
    digits: list[Array] = []  # of base 2**48, the highest first: most sums have one or two
    rest, rows = value, np.arange(len(value))
    while len(rows) or len(digits) < 2:
        unit = unit - _DIGIT
        whole = np.trunc(np.ldexp(rest, -unit[rows, None]))
        rest = rest - np.ldexp(whole, unit[rows, None])
        digits.append(np.zeros(len(value), np.int64))
        digits[-1][rows] = whole.astype(np.int64).sum(axis=1)
        more = (rest != 0).any(axis=1)
        rest, rows = rest[more], rows[more]
    number = np.array(digits)
    _carry(number)
    negative = number[0] < 0
    number = np.where(negative, -number, number)
    _carry(number)
    number = np.concatenate([number, np.zeros((1, len(value)), np.int64)])
    column = np.arange(len(value))
    top = np.minimum(np.argmax(number != 0, axis=0), len(digits) - 1)
    first, second = number[top, column], number[top + 1, column]
    shift = np.where(first < 1 << 14, _DIGIT, np.where(first < 1 << 38, _DIGIT // 2, 0))
    total = (first << shift) | (second >> (_DIGIT - shift))
    below = (second & ((np.int64(1) << (_DIGIT - shift)) - 1)) != 0
    others = (number != 0) & (np.arange(len(number))[:, None] > top + 1)
    low = unit + _DIGIT * (len(digits) - 1 - top) - shift
    return negative, total, low, below | others.any(axis=0)


def _carry(number: Array) -> None:
    """Bring digits (digits, batch), highest first, into [0, 2**48), in place; the first one takes what is left."""
    for place in range(len(number) - 1, 0, -1):
        number[place - 1] += number[place] >> _DIGIT
        number[place] &= (1 << _DIGIT) - 1


def _rounded(machine: Machine, total: Array, low: Array, more: Array, target: Format) -> Array:
    """Magnitudes, rounded: float64."""
    p, least = machine.significand, target.minimum_exponent
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    bits -= (total >> np.maximum(bits - 1, 0) == 0) & (total > 0)
    quantum = np.maximum(low + bits - p, least + 1 - p)
    shift = np.maximum(quantum - low, 0)
    quantum = low + shift
    small = np.minimum(shift, 62)
    kept = total >> small
    if machine.rounding == "rne":
        rest, half = total & ((np.int64(1) << small) - 1), np.int64(1) << np.maximum(small - 1, 0)
        up = (rest > half) | ((rest == half) & (more | (kept & 1 == 1)))
        kept = kept + (up & (shift > 0) & (shift <= 62))
    result = np.ldexp(kept.astype(np.float64), quantum)
    emax = math.frexp(target.largest)[1]
    largest = math.ldexp(1.0, emax) - math.ldexp(1.0, emax - p)
    result = np.where(result > largest, np.inf if machine.overflow == "infinity" else largest, result)
    if machine.subnormal_out == "zero":
        result = np.where(result < math.ldexp(1.0, least), 0.0, result)
    return result
