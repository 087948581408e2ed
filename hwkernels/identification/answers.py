"""What hypotheses answer: many of them at once, each row of an array with constants of its own.

A sum is held as a float64: exactly, or rounded to odd, which rounds to fewer bits as the sum itself would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from hwkernels.identification.machine import NONE, Array, Batch, Machine, exponents_of
from tcsim.numbers.formats import FORMATS, Format

_ROWS = 1 << 13  # questions times hypotheses that are computed together
_LIMB = 32
_DIGIT = 48
_LEAST = -1022
_POWERS = np.ldexp(1.0, np.arange(_LEAST, 1024))


def answer(machine: Machine, batch: Batch) -> Array:
    """The codes that a hypothesis gives to a batch of questions."""
    codes: Array = predicted([machine], batch)[0]
    return codes


def predicted(machines: Sequence[Machine], batch: Batch) -> Array:
    """The codes (machines, batch) that hypotheses give: those whose steps are as long together, as a call costs more than its numbers."""
    found = np.empty((len(machines), len(batch)), FORMATS[batch.signature.d].dtype)
    alike: dict[Any, list[int]] = {}
    for place, own in enumerate(machines):
        settles = own.fraction_bits is None or own.fraction_bits >= own.significand - 1
        lengths = tuple(map(len, _columns(own.step, _group(own))))
        alike.setdefault((lengths, own.addend, _group(own), own.fraction_bits is None, settles), []).append(place)
    together = max(1, _ROWS // max(1, len(batch)))
    for (*_, settles), places in alike.items():
        for start in range(0, len(places), together):
            some = places[start : start + together]
            found[some] = _together([machines[place] for place in some], batch, settles)
    return found


def _group(machine: Machine) -> int:
    return int(machine.scaled[1]) if isinstance(machine.scaled, tuple) else 0


@lru_cache(maxsize=4096)
def _columns(steps: tuple[tuple[int, ...], ...], group: int) -> list[list[int]]:
    """The terms of each step: products, or groups of them."""
    return [list(dict.fromkeys(k // max(group, 1) for k in step)) for step in steps]


@dataclass(frozen=True)
class _Rules:
    """Constants of hypotheses: of all, or an array of each row's."""

    bits: Any
    down: Any
    floor: Any
    significand: Any
    nearest: Any
    saturates: Any
    flushes: Any
    signs: Any  # whether a zero may be -0

    @classmethod
    def of(cls, machines: Sequence[Machine], count: int) -> _Rules:
        """`count` rows of each machine."""
        each = [
            (
                own.fraction_bits or 0,
                own.truncation == "down",
                NONE if own.floor is None else own.floor,
                own.significand,
                own.rounding == "rne",
                own.overflow == "largest",
                own.subnormal_out == "zero",
                own.zero == "ieee",
            )
            for own in machines
        ]
        return cls(*(np.repeat(x, count) if len(set(x)) > 1 else x[0] for x in zip(*each, strict=True)))

    def __getitem__(self, rows: Any) -> _Rules:
        every = (getattr(self, own.name) for own in fields(self))
        return _Rules(*(x[rows] if isinstance(x, np.ndarray) else x for x in every))


def _either(which: Any, yes: Callable[[], Array], no: Callable[[], Array]) -> Array:
    """What one of two rules gives to each row; a rule that no row follows is not computed."""
    return np.where(which, yes(), no()) if isinstance(which, np.ndarray) else yes() if which else no()


def _together(machines: Sequence[Machine], batch: Batch, settles: bool) -> Array:
    """Codes (machines, batch) of hypotheses of the same lengths of steps, place of c, groups and kind of alignment."""
    first, target, count = machines[0], FORMATS[batch.signature.d], len(machines) * len(batch)
    rules, group = _Rules.of(machines, len(batch)), _group(first)
    c, exponent_c = _side_by_side([batch.addend(own) for own in machines])
    value, exponent = _side_by_side([_in_order(own, batch) for own in machines])
    live = (value != 0) | (exponent > NONE // 2)  # a group of products may cancel and still have an exponent
    result, end = np.zeros(count), 0
    last = (c, exponent_c) if first.addend == "first" else (result, np.full(count, NONE))
    for number, columns in enumerate(_columns(first.step, group)):
        start, end = end, end + len(columns)
        rows: Any = slice(None)
        if number:
            if settles:  # a result to which only zeros are added stays, once it has been rounded
                some = np.flatnonzero((result == 0) | live[start:end].any(axis=0))
                rows = some if len(some) < count else rows
            last = result[rows], _exponents_of_results(result[rows], target)
        values = np.concatenate([value[start:end, rows], last[0][None]])
        exponents = None
        if first.fraction_bits is not None:
            exponents = np.concatenate([exponent[start:end, rows], last[1][None]])
        result[rows] = _step(rules[rows], values, exponents, group > 0, target)
    kind = np.float16 if target.name == "f16" else np.float32
    if first.addend == "last":  # an ordinary IEEE addition
        with np.errstate(invalid="ignore", over="ignore"):
            rounded = result.astype(kind) + c.astype(kind)
    else:
        rounded = result.astype(kind)
    codes: Array = rounded.view(target.dtype).reshape(len(machines), -1)
    nan = np.isnan(rounded).reshape(codes.shape)
    if nan.any():
        codes = np.where(nan, np.array([[own.nan] for own in machines], target.dtype), codes)
    return codes


def _in_order(machine: Machine, batch: Batch) -> tuple[Array, Array]:
    """Values and exponents of the terms, one step after the other."""
    value, exponent = batch.terms(machine)
    order = [column for columns in _columns(machine.step, _group(machine)) for column in columns]
    return (value, exponent) if order == list(range(len(value))) else (value[order], exponent[order])


def _side_by_side(pairs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The rows of several hypotheses beside one another."""
    if len(pairs) == 1:
        return pairs[0]
    value, exponent = (np.concatenate(arrays, axis=-1) for arrays in zip(*pairs, strict=True))
    return value, exponent


def _exponents_of_results(result: Array, target: Format) -> Array:
    exponent = np.maximum(exponents_of(result), target.minimum_exponent)
    return np.where((result == 0) | ~np.isfinite(result), NONE, exponent)


def _power(exponent: Any) -> Array:
    """2**exponent. An exponent without a meaning, of what is not finite, gives any number."""
    found: Array = _POWERS.take(exponent - _LEAST, mode="clip")
    return found


def _step(rules: _Rules, value: Array, exponent: Array | None, grouped: bool, target: Format) -> Array:
    """The results of one step: its terms (terms, batch) added, of all bits if no exponents are given, and rounded."""
    plain = np.isfinite(value).all()
    finite = value if plain else np.where(np.isfinite(value), value, 0.0)
    if exponent is None:
        total = _exact(finite)
    else:
        total = (_aligned_groups if grouped else _aligned)(rules, finite, exponent)
    result = np.copysign(_rounded(rules, np.abs(total), target), total)
    if np.any(rules.signs):
        minus = np.signbit(value).all(axis=0) & (value.min(axis=0) == 0)
        signed = np.where(minus, -0.0, result)
        result = _either(rules.signs, lambda: signed, lambda: result + 0.0)
    else:
        result = result + 0.0
    if not plain:
        positive, negative = (value == np.inf).any(axis=0), (value == -np.inf).any(axis=0)
        result = np.where(positive, np.inf, np.where(negative, -np.inf, result))
        result = np.where(np.isnan(value).any(axis=0) | (positive & negative), np.nan, result)
    return result


def _cut(rules: _Rules, value: Array, exponent: Array) -> tuple[Array, Array]:
    """Terms as whole numbers of units of 2**low, and low."""
    largest = np.maximum(exponent.max(axis=0), rules.floor)
    low = np.where(largest == NONE, 0, largest) - rules.bits
    shifted = value * _power(-low)
    return _either(rules.down, lambda: np.floor(shifted), lambda: np.trunc(shifted)), low


def _aligned(rules: _Rules, value: Array, exponent: Array) -> Array:
    """Sums of aligned terms: fewer than 64, each of fewer than 44 bits, so that a float64 holds them."""
    cut, low = _cut(rules, value, exponent)
    total: Array = (cut.sum(axis=0) + 0.0) * _power(low)
    return total


def _aligned_groups(rules: _Rules, value: Array, exponent: Array) -> Array:
    """The same of groups, whose sums may have more bits than an int64."""
    cut, low = _cut(rules, value, exponent)
    high = np.floor(cut * 2.0**-_LIMB)
    rest = (cut - high * 2.0**_LIMB).astype(np.int64).sum(axis=0)
    upper = high.astype(np.int64).sum(axis=0) + (rest >> _LIMB)
    rest &= (1 << _LIMB) - 1
    minus = upper < 0
    upper, rest = np.where(minus, -upper - (rest != 0), upper), np.where(minus, -rest & ((1 << _LIMB) - 1), rest)
    wide = upper >> (62 - _LIMB) > 0
    total = np.where(wide, upper, (np.where(wide, 0, upper) << _LIMB) | rest)
    return _odd(minus, total, np.where(wide, low + _LIMB, low), wide & (rest != 0))


def _odd(negative: Array, total: Array, low: Array, more: Array) -> Array:
    """Numbers of an int64 total in units of 2**low, rounded to odd; `more`: there is a remainder below."""
    wide = total >> 53 > 0
    kept = np.where(wide, total >> 10, total)
    kept |= more | (wide & (total & 1023 != 0))
    magnitude = kept.astype(np.float64) * _power(np.where(wide, low + 10, low))
    result: Array = np.where(negative, -magnitude, magnitude)
    return result


def _exact(value: Array) -> Array:
    """Sums (batch,) of all bits of terms (terms, batch): of what each addition loses, as far as one float64 holds that, or digit by digit."""
    total, lost, far = value[0], np.zeros(value.shape[1]), np.zeros(value.shape[1], bool)
    for term in value[1:]:
        total, own = _two_sum(total, term)
        lost, less = _two_sum(lost, own)
        far |= less != 0
    total, lost = _two_sum(total, lost)
    codes = (total + 0.0).view(np.int64)
    even = (lost != 0) & (codes & 1 == 0)
    codes += np.where(even, np.where(np.signbit(lost) == np.signbit(total), 1, -1), 0)
    result: Array = codes.view(np.float64)
    if far.any():
        result[far] = _digits(np.ascontiguousarray(value[:, far].T))
    return result


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and what it lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _digits(value: Array) -> Array:
    """`_exact` of sums (batch, terms) of any reach: their leading 39 bits or more, and whether there are others."""
    exponent = np.where(value != 0, np.frexp(value)[1], NONE).max(axis=1).astype(np.int64)
    unit = np.where(exponent == NONE, 0, exponent)
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
    return _odd(negative, total, low, below | others.any(axis=0))


def _carry(number: Array) -> None:
    """Bring digits (digits, batch), highest first, into [0, 2**48), in place; the first one takes what is left."""
    for place in range(len(number) - 1, 0, -1):
        number[place - 1] += number[place] >> _DIGIT
        number[place] &= (1 << _DIGIT) - 1


def _rounded(rules: _Rules, total: Array, target: Format) -> Array:
    """Magnitudes, rounded."""
    p, least = rules.significand, target.minimum_exponent
    quantum = np.maximum(exponents_of(total), least) + 1 - p
    steps = total * _power(-quantum)
    result = _either(rules.nearest, lambda: np.rint(steps), lambda: np.floor(steps)) * _power(quantum)
    top = math.frexp(target.largest)[1]
    largest = math.ldexp(1.0, top) - _power(top - p)
    over = result > largest
    if over.any():
        result = np.where(over, np.where(rules.saturates, largest, np.inf), result)
    if np.any(rules.flushes):
        result = np.where(rules.flushes & (result < math.ldexp(1.0, least)), 0.0, result)
    return result
