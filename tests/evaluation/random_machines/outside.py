"""Machines that no combination of the vocabulary describes. Each must be refused, with a small case that shows why."""

from __future__ import annotations

from typing import Any

import numpy as np

from .formats import FORMATS, Array, Numbers, unpack
from .known import machine
from .machine import Machine, Signature, Terms, as_terms
from .rounding import Sum


class Random(Machine):
    """Results have nothing to do with the inputs, but the same call gives the same answer."""

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """A hash of the codes."""
        word = np.full(len(c), 0x9E3779B97F4A7C15, np.uint64)
        for column in (*a.T, *b.T, c):
            word = (word ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
            word ^= word >> np.uint64(29)
        return (word >> np.uint64(32)).astype(FORMATS[self.signature.d].container)


class ApproximateMultiplier(Machine):
    """Split each significand into a high and a low part: the product of the two low parts is left out."""

    def multiply(self, a: Numbers, b: Numbers) -> Terms:
        """The sum of three partial products of four."""
        terms = super().multiply(a, b)
        low_a = a.magnitude & ((1 << (FORMATS[self.signature.a].fraction_bits + 1) // 2) - 1)
        low_b = b.magnitude & ((1 << (FORMATS[self.signature.b].fraction_bits + 1) // 2) - 1)
        return terms._replace(value=terms.value - np.where(terms.negative, -1, 1) * low_a * low_b)


class NearestShift(Machine):
    """Shifted terms are rounded to nearest, halves away from zero."""

    def align(self, value: Array, shift: Array) -> Array:
        """Half of the last kept bit is added before the cut."""
        right = np.clip(-shift, 0, 60)
        half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
        return np.sign(value) * (((np.abs(value) << np.clip(shift, 0, 61)) + half) >> right)


class StickyShift(Machine):
    """What a shift loses sets the last kept bit."""

    def align(self, value: Array, shift: Array) -> Array:
        """The last bit becomes the or of all that fell off."""
        kept, right = super().align(value, shift), np.clip(-shift, 0, 60)
        lost = np.abs(value) & ((np.int64(1) << right) - 1) != 0
        return np.where(lost, np.sign(value) * (np.abs(kept) | 1), kept)


class PairwiseTree(Machine):
    """Neighbouring products are added, then neighbouring sums, every sum rounded to the result's format; c comes last."""

    def step(self, terms: Terms) -> Array:
        """A tree of IEEE additions; the last term is c."""
        level = [terms.columns(slice(k, k + 1)) for k in range(terms.value.shape[1] - 1)]
        addend = terms.columns(slice(-1, None))
        while len(level) > 1:
            level = [self._sum(x, y) for x, y in zip(level[::2], level[1::2], strict=True)]
        return self.add(level[0].beside(addend))

    def _sum(self, x: Terms, y: Terms) -> Terms:
        return as_terms(unpack(self.add(x.beside(y)), self.signature.d))


class StochasticRounding(Machine):
    """The sum is rounded up or down at random: the same call gives different answers."""

    def __init__(self, signature: Signature, truth: dict[str, Any]) -> None:
        super().__init__(signature, truth)
        self.rng = np.random.default_rng(7)

    def total(self, terms: Terms) -> Sum:
        """The sum with a random amount below the last kept bit added to its magnitude."""
        total = super().total(terms)
        width = np.int64(1) << 20
        noise = self.rng.integers(0, width, len(total.unit))
        wide = (total.magnitude << 20) + np.where(total.magnitude > 0, noise, 0)
        return total._replace(magnitude=wide, unit=total.unit - 20)


class StuckBit(Machine):
    """One bit of the result is always 1."""

    bit = 3

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """The result with the bit set."""
        d = super().dot(a, b, c, scale_a, scale_b)
        return d | d.dtype.type(1 << self.bit)


class DeadProduct(Machine):
    """One product is never added."""

    def multiply(self, a: Numbers, b: Numbers) -> Terms:
        """Product 1 is +0."""
        terms = super().multiply(a, b)
        gone = np.zeros(terms.value.shape, bool)
        gone[:, 1] = True
        clear = {name: np.where(gone, False, getattr(terms, name)) for name in ("live", "negative", "nan", "infinite")}
        return terms._replace(value=np.where(gone, 0, terms.value), **clear)


class Marginal(Machine):
    """Right but for results of magnitude 2 and more whose last bits are 101: those lose their last bit."""

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """A marginal circuit."""
        d = super().dot(a, b, c, scale_a, scale_b)
        form = FORMATS[self.signature.d]
        large = (d >> form.fraction_bits) & ((1 << form.exponent_bits) - 1) > form.bias
        return np.where(large & (d & 7 == 5), d ^ 1, d).astype(d.dtype)


class Remembering(Machine):
    """Each answer's last bit depends on the inputs of the answer before it in the batch."""

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """The parity of the previous row's first product's codes is added to the last bit."""
        d = super().dot(a, b, c, scale_a, scale_b)
        parity = ((np.roll(a[:, 0], 1).astype(np.int64) & np.roll(b[:, 0], 1).astype(np.int64)) >> 13) & 1
        parity[0] = 0
        return d ^ parity.astype(d.dtype)


KINDS: tuple[type[Machine], ...] = (
    Random, ApproximateMultiplier, NearestShift, StickyShift, PairwiseTree, StochasticRounding, StuckBit, DeadProduct,
    Marginal, Remembering,
)  # fmt: skip


def outside_machines(signature: Signature | None = None) -> dict[str, Machine]:
    """One machine of each kind, by name; otherwise they are an H200's f16 instruction."""
    signature = signature or Signature(16, "f16", "f16", "f32", "f32")
    usual = machine(signature, signature.k, 15 if signature.d == "f16" else 25, -21 if signature.d == "f16" else -133)
    return {kind.__name__: kind(signature, usual.truth | {"kind": kind.__name__}) for kind in KINDS}
