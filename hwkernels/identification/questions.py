"""Questions: batches of operands whose answers tell hypotheses apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwkernels.identification import aimed
from hwkernels.identification.codes import code, most
from hwkernels.identification.machine import Array, Batch, Machine, Signature
from tcsim.numbers.formats import FORMATS

Rng = np.random.Generator
KINDS = (
    "bits", "dense", "long", "cancel", "addend", "edge", "low", "high",
    "subnormal", "zeros", "special", "floor", "cut", "tie", "below", "aimed", "heaped",
)  # fmt: skip


class Questions:
    """A source of questions for one signature, the same for the same seed."""

    def __init__(self, signature: Signature, seed: int) -> None:
        self.signature, self.rng = signature, np.random.default_rng(seed)
        self.formats = FORMATS[signature.a], FORMATS[signature.b]
        self.c, self.d = FORMATS[signature.c], FORMATS[signature.d]
        self.lift = 0  # what the block scales of a batch add to every product's exponent, about

    @property
    def lowest(self) -> int:
        """The exponent of the smallest product of normal numbers."""
        return sum(f.minimum_exponent for f in self.formats) + self.lift

    @property
    def deepest(self) -> int:
        """The same of subnormal numbers."""
        return sum(f.minimum_exponent - f.fraction_bits for f in self.formats) + self.lift

    @property
    def highest(self) -> int:
        """The exponent of the largest product."""
        return sum(most(f) for f in self.formats) + self.lift

    def empty(self, count: int) -> Batch:
        """Every operand +0, every scale 1."""
        k, (a, b) = self.signature.k, self.formats
        scales: tuple[Array | None, Array | None] = (None, None)
        if self.signature.scale is not None:
            format_ = FORMATS[self.signature.scale[0]]
            one = np.full((count, k // self.signature.scale[1]), format_.bias << format_.fraction_bits, np.uint8)
            scales = one, one.copy()
        zeros = np.zeros((count, k), a.dtype), np.zeros((count, k), b.dtype)
        return Batch(self.signature, *zeros, np.zeros(count, self.c.dtype), *scales)

    def like(self, batch: Batch, count: int) -> Batch:
        """Questions near some others: some of the products left out, one or two codes a little larger or smaller, c negative or nothing."""
        rng, k = self.rng, self.signature.k
        found = batch[rng.integers(len(batch), size=count)]
        gone = rng.random((count, k)) < rng.choice([0, 0.1, 0.5, 0.9], (count, 1))
        found.a[gone] = 0
        for codes in (found.a, found.b):
            rows = np.flatnonzero(rng.random(count) < 0.5)
            codes[rows, rng.integers(k, size=len(rows))] ^= rng.integers(1, 4, len(rows)).astype(codes.dtype)
        how = rng.random(count)
        found.c[how < 0.2] ^= found.c.dtype.type(1 << self.c.sign_shift)
        found.c[how > 0.8] = 0
        return found

    def products(self, exponent: Array, style: Array, sign: Array) -> tuple[Array, Array]:
        """Codes of a and b (n, t) whose product's exponent is as given, as far as the formats reach.

        Style: 0 powers of two, 1 significands 1.5, 2 random ones, 3 all ones.
        """
        rng, (a, b) = self.rng, self.formats
        exponent = np.clip(exponent, self.deepest, self.highest) - self.lift
        deep = (rng.random(exponent.shape) < 0.15) | (exponent < self.lowest - self.lift)
        least = [np.where(deep, f.minimum_exponent - f.fraction_bits, f.minimum_exponent) for f in (a, b)]
        start = np.maximum(least[0], exponent - most(b))
        end = np.maximum(np.minimum(most(a), exponent - least[1]), start)
        of_a = rng.integers(start, end + 1)
        found = []
        for format_, own in ((a, of_a), (b, exponent - of_a)):
            random = 1 + rng.random(exponent.shape)
            significand = np.choose(
                style, [np.ones(exponent.shape), np.full(exponent.shape, 1.5), random, 2 - 2.0**-30]
            )
            found.append(code(format_, own, significand, np.zeros_like(own)))
        negative = sign.astype(found[0].dtype) << found[0].dtype.type(a.sign_shift + a.ignored_low_bits)
        return found[0] | negative, found[1]

    def addends(self, exponent: Array, style: Array, sign: Array) -> Array:
        """Codes of c; style as in `products`, 4: a little below a power of two."""
        rng, bits = self.rng, self.c.fraction_bits
        low = self.c.minimum_exponent - bits
        near = 2 - rng.integers(1, 40, exponent.shape) * 2.0**-bits
        random = 1 + rng.random(exponent.shape)
        significand = np.choose(
            style, [np.ones(exponent.shape), np.full(exponent.shape, 1.5), random, 2 - 2.0**-30, near]
        )
        return code(self.c, np.clip(exponent, low, most(self.c)), significand, sign)

    def scales(self, batch: Batch, spread: bool) -> None:
        """Random block scales, in place: all the same in a question, or a few binades apart; sometimes far from 1."""
        self.lift = 0
        if self.signature.scale is None or batch.scale_a is None or batch.scale_b is None:
            return
        format_, rng = FORMATS[self.signature.scale[0]], self.rng
        wide = format_.fraction_bits == 0
        far = int(rng.choice([0, 0, 0, -30, -60, -66, -70, 30, 60] if wide else [0, 0, 0, -3, 3]))
        self.lift = 2 * far
        for scale in (batch.scale_a, batch.scale_b):
            shape = scale.shape if spread else (len(batch), 1)
            reach = np.array([0, 2, 8, 20] if wide else [0, 1, 2, 3])[rng.integers(0, 4, (len(batch), 1))]
            exponent = rng.integers(-reach, reach + 1, shape)
            fraction = rng.integers(0, 1 << format_.fraction_bits, shape) * (rng.random((len(batch), 1)) < 0.7)
            scale[...] = ((exponent + far + format_.bias) << format_.fraction_bits) + fraction

    def scales_near(self, batch: Batch, hint: Machine) -> None:
        """Scales, in place: one block's about as low as the floor, the others' about as low as alignment keeps beside it."""
        sig, rng = self.signature, self.rng
        if sig.scale is None or FORMATS[sig.scale[0]].fraction_bits or sig.k == sig.scale[1] or rng.random() < 0.7:
            return
        scale_a, scale_b, format_ = batch.scale_a, batch.scale_b, FORMATS[sig.scale[0]]
        if scale_a is None or scale_b is None or hint.floor is None:
            return
        below = (hint.fraction_bits or 24) + rng.integers(-4, 6, scale_a.shape)
        below[:, 0] = 0
        total = hint.floor + rng.integers(-4, 3, (len(batch), 1)) - rng.permuted(below, axis=1)
        for scale, exponent in ((scale_a, total // 2), (scale_b, total - total // 2)):
            scale[...] = np.clip(exponent + format_.bias, 0, format_.largest_code)
        self.lift = hint.floor

    def put(self, batch: Batch, columns: Array, a: Array, b: Array) -> None:
        """Products at columns (n, t)."""
        rows = np.arange(len(batch))[:, None]
        batch.a[rows, columns], batch.b[rows, columns] = a, b

    def columns(self, count: int, terms: int, within: Sequence[int]) -> Array:
        """Random distinct columns (count, terms) of `within`."""
        order = self.rng.random((count, len(within))).argsort(axis=1)[:, :terms]
        return np.asarray(within)[order]

    def ask(self, kind: str, count: int, within: Sequence[int], hint: Machine | None = None) -> Batch:
        """`count` questions of a kind; products lie in the columns `within`, the others are +0."""
        batch = self.empty(count)
        self.scales(batch, spread=bool(self.rng.integers(2)))
        if hint is not None and hint.floor is not None:
            self.scales_near(batch, hint)
        getattr(self, f"_{kind}")(batch, list(within), hint)
        return batch

    def _signs(self, shape: tuple[int, ...]) -> Array:
        return self.rng.integers(0, 2, shape)

    def _bits(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        rng, n = self.rng, len(batch)
        for codes, format_ in ((batch.a, self.formats[0]), (batch.b, self.formats[1])):
            codes[:, within] = rng.integers(0, format_.code_mask + 1, (n, len(within)), np.uint64).astype(codes.dtype)
        batch.c[:] = rng.integers(0, 1 << self.c.bits, n, np.uint64).astype(batch.c.dtype)
        if self.signature.scale is not None:
            for scale in (batch.scale_a, batch.scale_b):
                assert scale is not None
                some = rng.random(n) < 0.3
                scale[some] = rng.integers(0, 256, scale[some].shape)

    def _spread(self, batch: Batch, within: Sequence[int], centre: Array, window: Array, addend: Array) -> None:
        """Products at centre - [0, window], the addend at an exponent of its own; some products absent."""
        rng, n, t = self.rng, len(batch), len(within)
        exponent = centre[:, None] - (rng.random((n, t)) * (window[:, None] + 1)).astype(np.int64)
        style = np.where(rng.random((n, 1)) < 0.5, 2, rng.integers(0, 4, (n, t)))
        a, b = self.products(exponent, style, self._signs((n, t)))
        absent = rng.random((n, t)) < rng.choice([0.0, 0.5, 0.9], (n, 1))
        batch.a[:, within] = np.where(absent, 0, a)
        batch.b[:, within] = b
        batch.c[:] = self.addends(addend, rng.integers(0, 5, n), self._signs((n,)))
        batch.c[rng.random(n) < 0.25] = 0

    def _dense(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        n, rng = len(batch), self.rng
        centre = rng.integers(self.lowest, self.highest + 1, n)
        gentle = rng.random(n) < 0.7
        centre = np.where(gentle, rng.integers(-3, 6, n).clip(self.lowest, self.highest), centre)
        addend = centre + rng.integers(-12, 32, n)
        self._spread(batch, within, centre, rng.choice([1, 4, 10, 30], n), addend)

    def _long(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Many products of about one size, often of one sign, under scales of full length: sums of as many bits as there can be."""
        self.scales(batch, spread=True)
        n, rng, t = len(batch), self.rng, len(within)
        exponent = rng.integers(max(self.highest - 24, self.lowest), self.highest + 1, (n, 1)) - rng.integers(
            0, 5, (n, t)
        )
        sign = self._signs((n, t)) * (rng.random((n, 1)) < 0.5) ^ self._signs((n, 1))
        batch.a[:, within], batch.b[:, within] = self.products(exponent, rng.choice([2, 2, 3], (n, t)), sign)
        batch.c[:] = self.addends(exponent[:, 0] - rng.integers(-4, 20, n), np.full(n, 2), self._signs((n,)))
        batch.c[rng.random(n) < 0.7] = 0
        if self.signature.scale is not None and FORMATS[self.signature.scale[0]].fraction_bits:
            for scale in (batch.scale_a, batch.scale_b):
                assert scale is not None
                scale |= 1

    def _wide(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """A few products, or all, over all exponents of narrow formats, over more than a significand's of others."""
        n, rng, t = len(batch), self.rng, len(within)
        reach = self.highest - self.deepest
        window = np.minimum(rng.integers(20, 46, (n, 1)), reach)
        top = self.highest - (rng.random((n, 1)) * (reach - window + 1)).astype(np.int64)
        top = np.where(rng.random((n, 1)) < 0.5, np.clip(rng.integers(0, 20, (n, 1)), top - 8, self.highest), top)
        exponent = top - (rng.random((n, t)) * (window + 1)).astype(np.int64)
        a, b = self.products(exponent, rng.choice([0, 2, 2, 3], (n, t)), self._signs((n, t)))
        few = rng.random((n, t)) < rng.choice([0.0, max(0.0, 1 - 4 / t)], (n, 1))
        batch.a[:, within], batch.b[:, within] = np.where(few, 0, a), b
        batch.c[:] = self.addends(top[:, 0] - rng.integers(-8, 30, n), rng.choice([0, 2], n), self._signs((n,)))
        batch.c[rng.random(n) < 0.6] = 0

    def _heaped(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Many large products, mostly of one sign, and small ones, perhaps beside c: what was added before a small one decides which bits of it are left."""
        n, rng, t = len(batch), self.rng, len(within)
        large = rng.random((n, t)) < rng.choice([0.3, 0.6, 0.9], (n, 1))
        least = np.where(rng.random((n, 1)) < 0.5, self.lowest, self.deepest)
        small = np.maximum(self.highest - rng.integers(4, 44, (n, 1)) - rng.integers(0, 4, (n, t)), least)
        exponent = np.where(large, self.highest, small)
        sign = self._signs((n, t)) & (~large | (rng.random((n, 1)) < 0.3)) ^ self._signs((n, 1))
        a, b = self.products(exponent, rng.choice([0, 2, 3], (n, t)), sign)
        batch.a[:, within] = np.where(~large & (rng.random((n, t)) < 0.5), 0, a)
        batch.b[:, within] = b
        batch.c[:] = self.addends(self.highest - rng.integers(-8, 30, n), rng.integers(0, 5, n), self._signs((n,)))
        batch.c[rng.random(n) < 0.5] = 0

    def _cancel(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Two terms that cancel, perhaps one of them c, and others far below."""
        n, rng, t = len(batch), self.rng, min(4, len(within))
        centre = rng.integers(self.lowest, self.highest + 1, n)
        gap = rng.integers(0, min(60, self.highest - self.deepest) + 1, (n, t))
        exponent = centre[:, None] - gap
        style, sign = rng.choice([0, 0, 1, 2], (n, t)), self._signs((n, t))
        a, b = self.products(exponent, style, sign)
        large, b_large = self.products(centre[:, None], rng.integers(0, 3, (n, 1)), sign[:, :1])
        a[:, :1], b[:, :1] = large, b_large
        with_c = (rng.random(n) < 0.4) | (t < 2)
        flip = a.dtype.type(1 << (self.formats[0].sign_shift + self.formats[0].ignored_low_bits))
        if t > 1:
            paired = ~with_c
            a[paired, 1], b[paired, 1] = a[paired, 0] ^ flip, b[paired, 0]
        if t > 3:
            lone = rng.random(n) < 0.6
            a[lone, 3] = 0
        self.put(batch, self.columns(n, t, within), a, b)
        with np.errstate(over="ignore"):
            value = -(self.formats[0].values(a[:, 0]) * self.formats[1].values(b[:, 0]))
        exponent_c = np.frexp(value)[1] - 1
        significand = np.abs(np.ldexp(value, -exponent_c))
        with np.errstate(invalid="ignore"):
            opposite = code(self.c, exponent_c.clip(-140, 127), np.where(value == 0, 1.0, significand), value < 0)
        batch.c[with_c] = opposite[with_c]
        with_small = ~with_c & (rng.random(n) < 0.3)
        batch.c[with_small] = self.addends(centre - gap[:, -1], rng.choice([0, 2], n), self._signs((n,)))[with_small]

    def _addend(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """c and one or two products at every distance."""
        n, rng, t = len(batch), self.rng, min(2, len(within))
        top = self.highest + 45
        bottom = max(self.deepest - 3, self.c.minimum_exponent)
        exponent_c = rng.integers(bottom, max(bottom, min(top, most(self.c))) + 1, n)
        lowest = self.c.minimum_exponent - self.c.fraction_bits
        exponent_c = np.where(rng.random(n) < 0.3, rng.integers(lowest, most(self.c) + 1, n), exponent_c)
        exponent = exponent_c[:, None] - rng.integers(-3, 50, (n, t))
        lost = exponent < self.deepest
        exponent = np.where(lost, rng.integers(self.deepest, self.highest + 1, (n, t)), exponent)
        a, b = self.products(exponent, rng.integers(0, 4, (n, t)), self._signs((n, t)))
        if t > 1:
            a[rng.random(n) < 0.5, 1] = 0
        a[rng.random(n) < 0.15] = 0
        self.put(batch, self.columns(n, t, within), a, b)
        batch.c[:] = self.addends(exponent_c, rng.integers(0, 5, n), self._signs((n,)))

    def _edge(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Sums at a representable number or a tie, and one term that moves them a little to either side."""
        n, rng, t = len(batch), self.rng, min(4, len(within))
        p = hint.significand if hint else self.d.fraction_bits + 1
        least = self.d.minimum_exponent
        low, high = max(self.deepest, least - p - 26), min(self.highest, most(self.d))
        centre = rng.integers(min(low, high), high + 1, n)
        under = rng.random(n) < 0.5  # results that are subnormal, or nearly
        centre = np.where(under, least + rng.integers(-p - 2, 3, n), centre)
        quantum = np.maximum(centre - p + 1, least + 1 - p)
        exponent = np.empty((n, t), np.int64)
        exponent[:, 0] = np.where(rng.random(n) < 0.8, centre, quantum - 1)
        for i in range(1, t):
            ties = quantum - rng.integers(0, 3, n)
            exponent[:, i] = np.where(rng.random(n) < 0.35, ties, centre - rng.integers(0, 65, n))
        a, b = self.products(exponent, rng.choice([0, 0, 0, 1, 2], (n, t)), self._signs((n, t)))
        for i in range(1, t):
            a[rng.random(n) < 0.4, i] = 0
        self.put(batch, self.columns(n, t, within), a, b)
        as_c = rng.random(n) < 0.4
        batch.c[as_c] = self.addends(centre, rng.choice([0, 0, 2, 4], n), self._signs((n,)))[as_c]
        tiny = ~as_c & (rng.random(n) < 0.4)
        below = centre - rng.integers(0, 65, n)
        batch.c[tiny] = self.addends(below, rng.choice([0, 2], n), self._signs((n,)))[tiny]

    def _cut(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Two products that cancel, often of a subnormal number, and a term about as small as is still counted beside them."""
        n, rng, t = len(batch), self.rng, min(3, len(within))
        bits = hint.fraction_bits if hint and hint.fraction_bits is not None else 24
        own, other = (0, 1) if rng.random() < 0.5 else (1, 0)  # whose number may be subnormal
        first, second = self.formats[own], self.formats[other]
        of_first = np.where(
            rng.random(n) < 0.6,
            first.minimum_exponent - rng.integers(1, first.fraction_bits + 1, n),
            rng.integers(first.minimum_exponent, most(first) + 1, n),
        )
        reach = most(second) - second.minimum_exponent
        of_second = most(second) - (rng.random(n) ** 2 * reach).astype(np.int64)
        one = code(first, of_first, rng.choice([1.0, 1.5, 1.75], n), self._signs((n,)))
        two = code(second, of_second, rng.choice([1.0, 1.5], n), np.zeros(n, np.int64))
        pair = [np.zeros((n, t), format_.dtype) for format_ in self.formats]
        pair[own][:, 0], pair[other][:, 0] = one, two
        if t > 1:
            flip = first.dtype.type(1 << (first.sign_shift + first.ignored_low_bits))
            pair[own][:, 1], pair[other][:, 1] = one ^ flip, two
        tiny = of_first + of_second + self.lift - bits + rng.integers(-5, 4, n)
        if t > 2:
            pair[0][:, 2:], pair[1][:, 2:] = self.products(
                tiny[:, None], rng.choice([0, 0, 2], (n, 1)), self._signs((n, 1))
            )
        as_c = (rng.random(n) < 0.4) | (t < 3)
        pair[0][as_c & (tiny < self.deepest), 2:] = 0  # no product is as small as that
        self.put(batch, self.columns(n, t, within), *pair)
        higher = tiny + np.where(rng.random(n) < 0.5, rng.integers(0, self.c.fraction_bits + 1, n), 0)
        batch.c[as_c] = self.addends(higher, rng.choice([0, 2], n), self._signs((n,)))[as_c]

    def _floor(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Lone small products; and sums at a tie or a step of the result's smallest numbers, moved by one far below."""
        n, rng, t = len(batch), self.rng, min(3, len(within))
        p = hint.significand if hint else self.d.fraction_bits + 1
        bits = hint.fraction_bits if hint and hint.fraction_bits else 24
        least = self.d.minimum_exponent
        own = hint.floor if hint and hint.floor is not None and rng.random() < 0.5 else least - 6
        quantum = least + 1 - p
        exponent = np.empty((n, t), np.int64)
        exponent[:, 0] = rng.choice([quantum - 1, quantum, quantum + 1], n)
        free = rng.random(n) < 0.3
        exponent[free, 0] = rng.integers(self.deepest, max(self.deepest, own + 3) + 1, free.sum())
        tiny = own + rng.integers(-9, 10, n) - bits
        for i in range(1, t):
            exponent[:, i] = np.where(
                rng.random(n) < 0.7,
                tiny,
                rng.integers(self.deepest, quantum + 2, n) if self.deepest < quantum + 2 else tiny,
            )
        a, b = self.products(exponent, rng.choice([0, 0, 2], (n, t)), self._signs((n, t)))
        if t > 2:
            a[rng.random(n) < 0.5, 2] = 0
        if t > 1:
            a[rng.random(n) < 0.2, 1] = 0
        self.put(batch, self.columns(n, t, within), a, b)
        of_c = np.where(rng.random(n) < 0.5, exponent[:, 0], tiny)
        some = rng.random(n) < 0.4
        batch.c[some] = self.addends(of_c, rng.choice([0, 2], n), self._signs((n,)))[some]

    def _below(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """A term, perhaps half a unit of the result's last place beside it, and one about as small as its alignment keeps."""
        n, rng, t = len(batch), self.rng, min(3, len(within))
        p = hint.significand if hint else self.d.fraction_bits + 1
        bits = hint.fraction_bits if hint and hint.fraction_bits else 24
        least = self.d.minimum_exponent
        near = hint.floor if hint and hint.floor is not None else least
        anywhere = rng.integers(min(max(self.deepest, least - p), self.highest), self.highest + 1, n)
        first = np.where(rng.random(n) < 0.5, near + rng.integers(-8, 4, n), anywhere)
        tiny = first - bits + rng.integers(-4, 6, n)
        exponent = np.stack([first, first - p, tiny], axis=1)[:, :t]
        a, b = self.products(exponent, rng.choice([0, 0, 0, 1, 2], (n, t)), self._signs((n, t)))
        a[rng.random(n) < 0.25, 0] = 0
        of_c = np.where(a[:, 0] == 0, first, tiny)
        if t > 1:
            a[rng.random(n) < 0.6, 1] = 0
        used = (a[:, 0] == 0) | (t < 3) | (rng.random(n) < 0.5)
        if t > 2:
            a[used & (of_c == tiny), 2] = 0
        self.put(batch, self.columns(n, t, within), a, b)
        batch.c[used] = self.addends(of_c, rng.choice([0, 0, 2], n), self._signs((n,)))[used]

    def _tie(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """c at a tie or a step of the result, moved by its own low bits; often alone, or beside small products."""
        n, rng, t = len(batch), self.rng, min(2, len(within))
        p = hint.significand if hint else self.d.fraction_bits + 1
        least = self.d.minimum_exponent
        low = least - p - 2
        centre = np.where(rng.random(n) < 0.5, rng.integers(low, least + 3, n), rng.integers(low, most(self.d), n))
        quantum = np.maximum(centre - p + 1, least + 1 - p)
        steps = np.floor(np.ldexp(1 + rng.random(n), centre - quantum)) + rng.choice([0.0, 0.5, 0.5], n)
        value = np.ldexp(steps + rng.integers(-1, 2, n) * np.ldexp(1.0, -rng.integers(2, 26, n)), quantum)
        value = np.where(value > 0, value, np.ldexp(1.0, quantum - 1))
        fraction, exponent = np.frexp(value)
        batch.c[:] = code(self.c, exponent - 1, 2 * fraction, self._signs((n,)))
        below = quantum[:, None] - rng.integers(-3, 30, (n, t))
        a, b = self.products(below, rng.choice([0, 0, 2], (n, t)), self._signs((n, t)))
        a[rng.random((n, t)) < 0.7] = 0
        self.put(batch, self.columns(n, t, within), a, b)

    def _low(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Sums near the smallest numbers of the result."""
        n, rng, p = len(batch), self.rng, self.d.fraction_bits + 1
        least = self.d.minimum_exponent
        centre = (least + rng.integers(-p - 8, 12, n)).clip(self.deepest, self.highest)
        addend = np.where(rng.random(n) < 0.6, least - rng.integers(-3, p + 2, n), centre)
        self._spread(batch, within, centre, rng.choice([1, 4, 12, 30, 50], n), addend)
        batch.c[rng.random(n) < 0.4] = 0

    def _high(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Sums near the largest numbers of the result."""
        n, rng = len(batch), self.rng
        top = most(self.d)
        centre = (top - rng.integers(-2, 6, n)).clip(self.lowest, self.highest)
        self._spread(batch, within, centre, rng.choice([0, 1, 3, 10], n), top - rng.integers(0, 3, n))
        many = rng.random(n) < 0.5
        batch.a[many] &= batch.a.dtype.type(
            ~(1 << (self.formats[0].sign_shift + self.formats[0].ignored_low_bits)) & (2 ** (8 * batch.a.itemsize) - 1)
        )
        batch.c[many] = self.addends(top - rng.integers(0, 4, n), rng.choice([2, 3, 4], n), np.zeros(n, np.int64))[many]

    def _subnormal(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Subnormal inputs times large ones, and subnormal c."""
        n, rng, t = len(batch), self.rng, len(within)
        pair = []
        for format_ in self.formats:
            small = rng.integers(0, 1 << format_.fraction_bits, (n, t)) << format_.ignored_low_bits
            sign = self._signs((n, t)) << (format_.sign_shift + format_.ignored_low_bits)
            pair.append((small | sign).astype(format_.dtype))
        centre = rng.integers(-3, most(self.formats[0]) + 1, (n, 1)) - rng.integers(0, 8, (n, t))
        normal = [
            code(f, np.clip(centre, f.minimum_exponent, most(f)), 1 + rng.random((n, t)), self._signs((n, t)))
            for f in self.formats
        ]
        which = rng.integers(0, 4, (n, t))
        batch.a[:, within] = np.where(which & 1, normal[0], pair[0])
        batch.b[:, within] = np.where(which & 2, normal[1], pair[1])
        few = rng.random((n, t)) < rng.choice([0.0, 0.6, 0.9], (n, 1))
        batch.a[:, within] = np.where(few, 0, batch.a[:, within])
        least = self.c.minimum_exponent
        exponent = np.where(
            rng.random(n) < 0.6, least - rng.integers(0, self.c.fraction_bits + 1, n), rng.integers(-8, 8, n)
        )
        batch.c[:] = self.addends(exponent, rng.integers(0, 4, n), self._signs((n,)))
        batch.c[rng.random(n) < 0.3] = 0

    def _zeros(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Signed zeros, sums that cancel, negative numbers that vanish."""
        n, rng, t = len(batch), self.rng, len(within)
        p = hint.significand if hint else self.d.fraction_bits + 1
        near = self.d.minimum_exponent - p + rng.integers(-24, 4, (n, t))  # about the smallest result
        exponent = np.where(rng.random((n, 1)) < 0.5, near, rng.integers(self.deepest, self.highest + 1, (n, t)))
        a, b = self.products(exponent, rng.integers(0, 4, (n, t)), self._signs((n, t)))
        gone = rng.random((n, t)) < rng.choice([1.0, 0.95, 1 - 1 / t], (n, 1))
        top = self.formats[0].sign_shift + self.formats[0].ignored_low_bits
        minus = (rng.random((n, t)) < rng.choice([0.5, 1.0], (n, 1))).astype(a.dtype) << a.dtype.type(top)
        batch.a[:, within] = np.where(gone, minus, a)
        batch.b[:, within] = b
        every = rng.random(n) < 0.6  # all the other columns are negative zeros too
        fill = np.setdiff1d(np.arange(self.signature.k), within)
        if len(fill):
            batch.a[np.ix_(every, fill)] = a.dtype.type(1 << top)
            positive = code(self.formats[1], np.zeros((1, 1), np.int64), np.ones((1, 1)), np.zeros((1, 1), np.int64))
            batch.b[np.ix_(every, fill)] = positive
        batch.c[:] = self._signs((n,)).astype(batch.c.dtype) << batch.c.dtype.type(self.c.sign_shift)
        batch.c[rng.random(n) < 0.15] = self.c.dtype.type((1 << self.c.sign_shift) | 1)

    def _special(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Infinities and NaN among ordinary numbers."""
        self._dense(batch, within, hint)
        n, rng, t = len(batch), self.rng, len(within)
        for codes, format_ in ((batch.a, self.formats[0]), (batch.b, self.formats[1])):
            if format_.nan == "none":
                continue
            some = rng.random((n, t)) < 0.5 / t
            top = (
                (1 << format_.sign_shift) - 1
                if not format_.infinity or rng.random() < 0.3
                else format_.infinity_code or 0
            )
            special = (np.int64(top) | (self._signs((n, t)) << format_.sign_shift)) << format_.ignored_low_bits
            codes[:, within] = np.where(some, special.astype(codes.dtype), codes[:, within])
        infinite = rng.random(n) < 0.3
        special_c = (self.c.infinity_code or 0) | (self._signs((n,)) << self.c.sign_shift)
        batch.c[infinite] = special_c.astype(batch.c.dtype)[infinite]

    def _aimed(self, batch: Batch, within: Sequence[int], hint: Machine | None) -> None:
        """Terms placed for one purpose each, round what a hypothesis keeps."""
        aimed.fill(self.rng, batch, within, hint)
