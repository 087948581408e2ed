"""Questions put together bit by bit: a sum at a step or a tie of the result, moved by a term about as small as alignment keeps.

A lost bit shows only where the rest of the sum is at a step or a tie of the rounding. So each term has one purpose (head, last place, half
of it, tail), and may be a product, c, bits of one product with others, or lie under a block scale of its own. Two terms that cancel may lift
the alignment above the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hwkernels.identification.codes import code, most
from hwkernels.identification.machine import Array, Batch, Machine
from tcsim.core.samples import repeatable
from tcsim.numbers.formats import FORMATS

Rng = np.random.Generator
_ALIKE = 16  # questions of one plan
_EXACT = 64  # stands for the gap of a product that has no tail
_KEPT = 40  # factors of each gap
_USUAL = 24


def fill(rng: Rng, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
    """Put questions into an empty batch, in place; products lie in the columns `within`."""
    for start in range(0, len(batch), _ALIKE):
        if hint is not None and len(hint.step) > 1 and rng.random() < 0.1:
            _heaps(rng, batch[start : start + _ALIKE], hint)
        else:
            _Plan(rng, batch[start : start + _ALIKE], hint).fill(_places(rng, within, hint))


def _heaps(rng: Rng, batch: Batch, hint: Machine) -> None:
    """Equal products of one step, as many of the other sign in a later one, and a small product: the sum between lifts the alignment.

    Where c is added last, nothing else is larger than the largest product.
    """
    sig, n = batch.signature, len(batch)
    formats = FORMATS[sig.a], FORMATS[sig.b]
    first, later = sorted(rng.choice(len(hint.step), 2, replace=False).tolist())
    one, other = (rng.permutation(hint.step[number]) for number in (first, later))
    count = int(rng.integers(1, max(1, min(len(one), len(other) - 1)) + 1))
    sign, minus = rng.integers(0, 2, n), rng.integers(0, 2, n)
    none = np.zeros(n, int)
    for codes, format_, signs in ((batch.a, formats[0], (sign, 1 - sign)), (batch.b, formats[1], (none, none))):
        exponent = most(format_) - (rng.random(n) ** 3 * (most(format_) - format_.minimum_exponent + 1)).astype(int)
        significand = rng.choice([1.0, 1.25, 1.5, 1.75], n)
        for columns, turned in zip((one, other), signs, strict=True):
            codes[:, columns[:count]] = code(format_, exponent, significand, turned)[:, None]
    for codes, format_, turned in ((batch.a, formats[0], minus), (batch.b, formats[1], none)):
        low = format_.minimum_exponent - format_.fraction_bits
        exponent = low + (rng.random(n) ** 2 * (most(format_) - low)).astype(int)
        codes[:, other[-1]] = code(format_, exponent, np.ones(n), turned)


def _places(rng: Rng, within: Sequence[int], hint: Machine | None) -> Array:
    """Columns in a random order, sometimes of one step, or one of a step and the others of a later one."""
    columns = rng.permutation(list(within))
    if hint is None or len(hint.step) == 1 or rng.random() < 0.3:
        return columns
    first, later = sorted(rng.integers(0, len(hint.step), 2).tolist())
    one, other = (columns[np.isin(columns, hint.step[number])] for number in (first, later))
    return np.concatenate([one[:1], other[~np.isin(other, one[:1])]])


class _Plan:
    """Questions whose terms have the same purposes; their exponents differ."""

    def __init__(self, rng: Rng, batch: Batch, hint: Machine | None) -> None:
        sig, n = batch.signature, len(batch)
        self.rng, self.batch = rng, batch
        self.formats, self.c = (FORMATS[sig.a], FORMATS[sig.b]), FORMATS[sig.c]
        target = FORMATS[sig.d]
        self.low = sum(f.minimum_exponent - f.fraction_bits for f in self.formats)
        self.high = sum(most(f) for f in self.formats)
        p = hint.significand if hint else target.fraction_bits + 1
        bits = hint.fraction_bits if hint and hint.fraction_bits is not None else _USUAL
        floor, least = hint.floor if hint else None, target.minimum_exponent
        low, high = self.low, self.high
        if sig.scale is not None:
            scale = FORMATS[sig.scale[0]]
            low, high = low + 2 * (scale.minimum_exponent - scale.fraction_bits), high + 2 * most(scale)
        reach = high  # of terms that cancel, which may be larger than results
        low, high = max(low, least - p - 4), min(high, most(target))
        opposed = hint is not None and hint.zero == "ieee" and rng.random() < 0.1  # nothing but tails of both signs
        self.lifted = rng.random() < 0.4 or (opposed and floor is None)
        self.shared = 0  # binary logarithm of the number of products that the head is shared among
        if not self.lifted and sig.k >= 4 and rng.random() < 0.3:
            self.shared = int(rng.integers(1, (sig.k // 2).bit_length()))
        self.above = int(rng.integers(0, 2)) if self.shared else 0  # 1: they are 2.25 * 2**exponent
        self.parted = (
            sig.scale is not None and rng.random() < 0.3
        )  # the tail is two products, whose sum may be kept though neither is
        self.reached = rng.random() < 0.5  # whether products lower than any are left out
        self.deep = float(rng.choice([0.1, 0.1, 0.7]))  # the share of products that have a subnormal factor
        where = rng.random()
        if floor is not None and where < 0.35:
            head = np.maximum(floor + self.shared + rng.integers(-12, 4, n), least + 1 - p)
        elif where < 0.6:
            head = least + rng.integers(-p - 5, 4, n)
        else:
            head = rng.integers(min(low, high), high + 1, n)
        c_low, c_high = self.c.minimum_exponent - self.c.fraction_bits, most(self.c)
        if rng.random() < 0.2:
            low, high = min(low, c_low), min(max(high, c_high), most(target))
        head = np.clip(head, min(low, high), high)
        quantum = np.maximum(head - p + 1, least + 1 - p)
        top = (
            np.minimum(head + rng.integers(1, 46, n), max(reach, low))
            if self.lifted
            else head - self.shared - self.above
        )
        cut = (top if floor is None else floor if opposed and not self.lifted else np.maximum(top, floor)) - bits
        tail = cut + rng.choice([-3, -2, -1, -1, 0, 0, 1, 2], n)
        if rng.random() < 0.15:
            tail = rng.integers(np.minimum(cut, quantum) - 6, np.maximum(cut, quantum) + 1)
        self.exponents = {"head": head, "place": quantum, "half": quantum - 1, "tail": tail, "lift": top}
        self.exponents["other"] = tail + rng.choice([-2, -1, -1, 0, 1], n)
        sign = rng.integers(0, 2, n)
        flip = rng.integers(0, 2, n) * (rng.random() < 0.5)
        self.signs = {name: sign ^ flip if name == "half" else sign for name in self.exponents}
        nearest = hint is None or hint.rounding == "rne"
        self.signs["tail"] = rng.integers(0, 2, n) if nearest else sign ^ (rng.random(n) < 0.8)
        self.signs["other"] = 1 - self.signs["tail"]
        given = {"head": 0.85, "place": 0.4, "half": 0.65 if nearest else 0.2, "tail": 0.93}
        self.terms = [name for name, share in given.items() if rng.random() < share]
        in_c = rng.choice(
            [0, 0, 1, 1, 4, 8, 8, 12, 6, 3, 9, 14] if not hint or hint.addend == "first" else [0, 0, 0, 1, 8]
        )
        if self.parted and rng.random() < 0.5:
            self.terms = ["head", *(["place"] if rng.random() < 0.3 else []), "half", "tail"]
            in_c = 7
        if opposed:  # where the result vanishes, its sign still tells which of them was kept
            self.terms, in_c = ["tail", "other"], 0
        self.in_c = [name for place, name in enumerate(given) if in_c >> place & 1 and name in self.terms]

    def fill(self, columns: Array) -> None:
        """Terms in c, in products that hold several, and in products of their own."""
        left = [name for name in self.terms if name not in self.in_c]
        self._addend()
        joint: tuple[str, Array, Array, Array] | None = None
        if "half" in left and self.rng.random() < 0.5:
            joint = self._joint(left)
        if joint is not None:
            inside = ("half",) if joint[0] == "half" else ("head", "place", "half")
            left = [name for name in left if name not in inside and (name != "tail" or self.rng.random() < 0.5)]
        names = [*((joint[0],) if joint else ()), *left]
        pair = len(names)
        if self.lifted and len(columns) > pair + 1:
            names += ["lift", "lift"]
        if names[:1] == ["head"] and joint is None and len(names) - 1 + (1 << self.shared) <= len(columns):
            names += ["head"] * ((1 << self.shared) - 1)
        else:
            self.shared = self.above = 0
        if self.parted and "tail" in names and len(names) < len(columns):
            names.insert(names.index("tail"), "tail")
        else:
            self.parted = False
        names = names[: len(columns)]
        if not names:
            return
        offset = self._scaled(names, columns)
        for place, name in enumerate(names):
            sign = self.signs[name]
            above = name == "head" and self.above
            significands = (np.full(len(sign), 1.5 if above else 1.0),) * 2
            exponent = self._exponent(name) - offset[place]
            if joint is not None and place == 0:
                exponent, significands = exponent - joint[1], joint[2:]
            elif name == "lift":  # a product may be as much as twice what its exponents say
                significands = tuple(self.rng.choice([1.0, 1.0, 1.5, 1.75], (2, len(sign))))
            if place == pair + 1 and name == "lift":
                for codes, format_ in zip((self.batch.a, self.batch.b), self.formats, strict=True):
                    codes[:, columns[place]] = codes[:, columns[pair]]
                    if format_ is self.formats[0]:
                        codes[:, columns[place]] ^= codes.dtype.type(
                            1 << (format_.sign_shift + format_.ignored_low_bits)
                        )
                continue
            self._product(int(columns[place]), exponent, significands, sign)

    def _exponent(self, name: str) -> Array:
        """Of one product of a term."""
        less = {"head": self.shared + self.above, "tail": int(self.parted)}
        exponent: Array = self.exponents[name] - less.get(name, 0)
        return exponent

    def _addend(self) -> None:
        value = np.zeros(len(self.batch))
        base = self.exponents["head"] if "head" in self.in_c else self.exponents[self.in_c[0]] if self.in_c else 0
        for name in self.in_c:
            away = np.clip(self.exponents[name] - base, -50, 50)
            value += np.where(self.signs[name], -1.0, 1.0) * np.ldexp(1.0, away)
        fraction, exponent = np.frexp(value)
        exponent = exponent - 1 + base
        codes = code(self.c, np.minimum(exponent, most(self.c)), 2 * np.abs(fraction), value < 0)
        gone = (value == 0) | (exponent < self.c.minimum_exponent - self.c.fraction_bits)
        zeros = (self.rng.integers(0, 2, len(value)) << self.c.sign_shift).astype(codes.dtype)
        self.batch.c[:] = np.where(gone, zeros, codes)

    def _joint(self, left: list[str]) -> tuple[str, Array, Array, Array] | None:
        """A product that holds the half of the last place and a tail below it, perhaps the head too: its leading bit and significands."""
        whole = "head" in left and self.rng.random() < 0.5
        name = "head" if whole else "half"
        leading = (self.exponents["head"] - self.exponents["half"]).clip(0) if whole else np.zeros(len(self.batch), int)
        gap = self.exponents[name] - self.exponents["tail"]
        if self.rng.random() < 0.4:
            gap = np.full(len(gap), _EXACT)
        found = np.zeros((3, len(gap)))
        for bits in np.unique(leading):
            gaps, factors = ties(self.formats[0].fraction_bits, self.formats[1].fraction_bits, int(bits))
            if not len(gaps):
                return None
            rows = np.flatnonzero(leading == bits)
            near = gaps[np.minimum(np.searchsorted(gaps, gap[rows]), len(gaps) - 1)]
            first, end = np.searchsorted(gaps, near), np.searchsorted(gaps, near, "right")
            found[:, rows] = factors[:, self.rng.integers(first, end)]
        return name, found[0].astype(int), found[1], found[2]

    def _product(self, column: int, exponent: Array, significands: tuple[Array, ...], sign: Array) -> None:
        a, b = self.formats
        gone = (exponent < self.low) & self.reached  # beside c, the smallest product may be far too large
        exponent = np.clip(exponent, self.low, self.high)
        deep = (exponent < a.minimum_exponent + b.minimum_exponent) | (self.rng.random(len(exponent)) < self.deep)
        least = [np.where(deep, f.minimum_exponent - f.fraction_bits, f.minimum_exponent) for f in (a, b)]
        start = np.maximum(least[0], exponent - most(b))
        of_a = self.rng.integers(start, np.maximum(np.minimum(most(a), exponent - least[1]), start) + 1)
        self.batch.a[:, column] = np.where(gone, 0, code(a, of_a, significands[0], sign))
        self.batch.b[:, column] = code(b, exponent - of_a, significands[1], np.zeros_like(sign))

    def _scaled(self, names: list[str], columns: Array) -> list[Array | int]:
        """What block scales add to the exponent of each term; the scales are chosen so that its products can have it."""
        sig, rng, n = self.batch.signature, self.rng, len(self.batch)
        if sig.scale is None or self.batch.scale_a is None or self.batch.scale_b is None:
            return [0] * len(names)
        format_, width = FORMATS[sig.scale[0]], sig.scale[1]
        if not self.parted and rng.random() < 0.6:  # terms in different blocks, as far as there are any
            blocks = columns // width
            order = np.concatenate([np.flatnonzero(blocks == b)[:1] for b in rng.permutation(np.unique(blocks))])
            rest = np.delete(columns, order)
            rest = rest[np.argsort(rest // width != columns[order[0]] // width, kind="stable")]
            columns[:] = np.concatenate([columns[order], rest])  # the first block is filled first
        totals: dict[int, Array] = {}
        for block in dict.fromkeys((columns[: len(names)] // width).tolist()):
            own = [
                self.exponents[x] - (self.shared if x == "head" else 0)
                for x, c in zip(names, columns, strict=False)
                if c // width == block
            ]
            if rng.random() < 0.5:
                total = np.min(own, axis=0) - self.low - rng.integers(0, 3, n)
            else:
                total = own[0] - rng.integers(self.low, self.high + 1, n)
            of_a = total // 2 + rng.integers(-2, 3, n)
            totals[block] = np.zeros(n, int)
            for scale, exponent in ((self.batch.scale_a, of_a), (self.batch.scale_b, total - of_a)):
                exponent = np.clip(exponent, format_.minimum_exponent - format_.fraction_bits, most(format_))
                scale[:, block] = code(format_, exponent, np.ones(n), np.zeros(n, int))
                totals[block] += exponent
        return [totals[int(column) // width] for column in columns[: len(names)]]


@lru_cache
def ties(a_bits: int, b_bits: int, leading: int) -> tuple[Array, Array]:
    """Significands whose product is `leading` bits, a one, zeros or ones, and a tail: sorted gaps from the leading bit to the tail, factors.

    The factors are (whether the product is 2 or more, of a, of b). A product without a tail has the gap 64.

    >>> gaps, factors = ties(7, 7, 0)
    >>> gaps[-1], 14 in gaps  # a power of two; 145 * 113 = 2**14 + 1
    (np.int64(64), True)
    """
    one, other = (np.arange(1 << bits, 2 << bits) for bits in (a_bits, b_bits))
    product = one[:, None] * other
    length = a_bits + b_bits + (product >> (a_bits + b_bits + 1))
    below = length - leading + 1  # bits below those that lead
    residue = product & ((np.int64(1) << np.maximum(below, 0)) - 1)
    tail = np.abs(residue - (np.int64(1) << np.maximum(below - 1, 0)))
    gap = np.where(tail == 0, _EXACT, length + 1 - np.frexp(tail.astype(float))[1])
    rows, columns = np.nonzero((below > 0) & (gap > leading + 1))
    gaps = gap[rows, columns]
    order = repeatable().permutation(len(gaps))
    order = order[np.argsort(gaps[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(gaps[order], gaps[order])
    order = order[rank < _KEPT]
    rows, columns = rows[order], columns[order]
    carry = product[rows, columns] >> (a_bits + b_bits + 1)
    return gaps[order], np.array([carry, np.ldexp(one[rows], -a_bits), np.ldexp(other[columns], -b_bits)], float)
