"""The fused dot-add of the floating-point tensor cores: many products and one addend, one rounding.

The machine aligns every exact product, and the addend, to the largest exponent among them, cuts each below a fixed
number of fraction bits, adds the cut integers exactly, and rounds once (docs/numerics.md, "The fused dot-add step").
The integers are held in float64, where they are exact: a cut term is below 2**(fraction_bits + 2), and the sum of all
terms of one step stays far below 2**53. Infinities and NaN follow from the float64 arithmetic on the same terms. Finite
products of few bits are exact in float32 too, which takes half the time; `dot_add` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import FormatError
from tcsim.numbers.formats import FORMATS, NO_EXPONENT, Format
from tcsim.numbers.rounding import Rounding

F64 = npt.NDArray[np.float64]
_BIAS64 = 1023
_BIAS32 = 127


@dataclass(frozen=True)
class Datapath:
    """The constants of one dot-add unit.

    The three fields after `rounding` are what the hardware does on every GPU measured so far; they are fields so that a
    mutant, or another vendor's unit, is a row and not a patch.
    """

    fraction_bits: int  # F: bits kept below the point of the largest exponent
    floor: int  # the largest exponent is never taken below this
    output: Literal["f32", "f16", "e8m13"]  # e8m13: an f32 code with 14 significant bits
    rounding: Rounding  # of the sum to the output: "rz" (overflowing to infinity) or "rne"
    renormalise_products: bool = False  # a significand product in [2, 4) moves to the next exponent
    keep_negative_zero: bool = False  # a zero result keeps the sign of the sum
    addend_last: bool = False  # c is added after the products were rounded
    addend_shift: int = 0  # c counts 2**-addend_shift times: tcgen05.mma's scale-input-d


def dot_add(
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    formats: tuple[Format, Format, Format],
    unit: Datapath,
) -> npt.NDArray[Any]:
    """One step: c + sum over k of a[:, k] * b[k, :], codes in and codes of the output's container out.

    a (batch, M, K), b (batch, K, N), c (batch, M, N). The result, like c, is f32 codes (uint32) for the outputs f32 and
    e8m13 and f16 codes (uint16) for f16.
    """
    if unit.addend_last:
        inner, zero, format_zero = without_addend(c, unit)
        return add_afterwards(dot_add(a, b, zero, (*formats[:2], format_zero), inner), c, formats[2], unit)
    factors = Factors.of(a, b, formats)
    if not factors.fit_float32(formats, unit):
        return add_terms(factors.aligned(c, formats[2], unit), unit)
    return round_sum(*factors.sum_in_float32(c, formats[2], unit), unit).transpose(2, 0, 1)


@dataclass(frozen=True)
class AlignedTerms:
    """The terms of a step after alignment and truncation, as integers in units of 2**(exponent - fraction_bits).

    Axes: products (K, M, N, batch), addend and exponent (M, N, batch).
    """

    products: F64
    addend: F64
    exponent: npt.NDArray[np.int16]


def aligned_terms(
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    formats: tuple[Format, Format, Format],
    unit: Datapath,
) -> AlignedTerms:
    """Rules 1 to 3: exact products, the largest exponent, and the cut. Shapes as in `dot_add`."""
    return Factors.of(a, b, formats).aligned(c, formats[2], unit)


@dataclass(frozen=True)
class Factors:
    """What is multiplied: a (K, M, 1, batch) and b (K, 1, N, batch), decoded."""

    a: F64
    b: F64
    exponents_a: npt.NDArray[np.int16]
    exponents_b: npt.NDArray[np.int16]

    @classmethod
    def of(cls, a: npt.NDArray[Any], b: npt.NDArray[Any], formats: tuple[Format, Format, Format]) -> Factors:
        """Codes as in `dot_add`. The batch is innermost: long contiguous runs for NumPy's inner loops."""
        a = np.ascontiguousarray(a.transpose(2, 1, 0))[:, :, None, :]
        b = np.ascontiguousarray(b.transpose(1, 2, 0))[:, None, :, :]
        format_a, format_b, _ = formats
        return cls(format_a.values(a), format_b.values(b), format_a.exponents(a), format_b.exponents(b))

    def aligned(self, c: npt.NDArray[Any], format_c: Format, unit: Datapath) -> AlignedTerms:
        """Rules 1 to 3 in float64, for every unit and value."""
        with np.errstate(invalid="ignore", over="ignore"):
            products = self.a * self.b
        return align(products, self.exponents_a + self.exponents_b, c, format_c, unit)

    def fit_float32(self, formats: tuple[Format, Format, Format], unit: Datapath) -> bool:
        """Whether the products and what is left of them are exact in float32, and their terms in int32."""
        fraction = formats[0].fraction_bits + formats[1].fraction_bits
        if fraction + 2 > 24 or unit.fraction_bits > 29 or unit.renormalise_products or unit.keep_negative_zero:
            return False
        if not (np.isfinite(self.a).all() and np.isfinite(self.b).all()):
            return False
        exponents = self.exponents_a, self.exponents_b
        lowest = max(unit.fraction_bits, fraction + 1) - _BIAS32  # that a product may have
        low = formats[0].minimum_exponent + formats[1].minimum_exponent
        if low < lowest:
            low = sum(int(own.min(where=own != NO_EXPONENT, initial=0)) for own in exponents)
        return low >= lowest and sum(int(own.max(initial=0)) for own in exponents) + 2 <= _BIAS32

    def sum_in_float32(
        self, c: npt.NDArray[Any], format_c: Format, unit: Datapath
    ) -> tuple[F64, npt.NDArray[np.int16]]:
        """The exact sum of the cut terms, and the largest exponent: (M, N, batch) each.

        Pre-conditions: `fit_float32`.
        """
        c = np.ascontiguousarray(c.transpose(1, 2, 0))
        exponent = _largest(self.exponents_a + self.exponents_b, c, format_c, unit)
        terms = np.empty(np.broadcast_shapes(self.a.shape, self.b.shape), np.float32)
        terms[...] = self.a  # then runs of N * batch elements are multiplied, not of a batch
        wide = terms.reshape(*terms.shape[:2], -1)
        wide *= self.b.astype(np.float32).reshape(len(wide), 1, -1)
        # where the exponent is so low that the scale is not a float32, all products are zero
        scale = np.minimum(unit.fraction_bits - exponent, _BIAS32).astype(np.int32)
        terms *= ((scale + _BIAS32) << 23).view(np.float32)
        cut = terms.view(np.int32)  # in place: fresh memory costs as much as all of the arithmetic
        np.copyto(cut.reshape(-1), terms.reshape(-1), casting="unsafe")
        total = _cut_addend(c, format_c, power_of_two(unit.fraction_bits - exponent), unit)
        most = (1 << 31) >> (unit.fraction_bits + 2)  # terms whose sum is an int32
        for start in range(0, len(terms), most):
            total += cut[start : start + most].sum(axis=0, dtype=np.int32)
        return total, exponent


def align(
    products: F64, exponents: npt.NDArray[np.int16], c: npt.NDArray[Any], format_c: Format, unit: Datapath
) -> AlignedTerms:
    """Rules 2 and 3 for exact products with their exponents (K, M, N, batch) and addends c (batch, M, N).

    An exponent of `NO_EXPONENT // 2` or less belongs to a zero, whatever the product is. `products` is overwritten.
    """
    c = np.ascontiguousarray(c.transpose(1, 2, 0))
    with np.errstate(invalid="ignore", over="ignore"):
        if unit.renormalise_products:
            nonzero = exponents > NO_EXPONENT // 2
            exponents = np.where(nonzero, np.frexp(products)[1] - 1, exponents).astype(np.int16)
        exponent = _largest(exponents, c, format_c, unit)
        scale = power_of_two(unit.fraction_bits - exponent)
        np.multiply(products, scale, out=products)
        np.trunc(products, out=products)
    return AlignedTerms(products, _cut_addend(c, format_c, scale, unit), exponent)


def _largest(
    exponents: npt.NDArray[np.int16], c: npt.NDArray[Any], format_c: Format, unit: Datapath
) -> npt.NDArray[np.int16]:
    """Rule 2: the largest exponent (M, N, batch) of products (K, M, N, batch) and the addend, the floor at least."""
    exponent: npt.NDArray[np.int16] = exponents.max(axis=0)
    np.maximum(exponent, format_c.exponents(c) - np.int16(unit.addend_shift), out=exponent)
    return np.maximum(exponent, np.int16(unit.floor), out=exponent)


def _cut_addend(c: npt.NDArray[Any], format_c: Format, scale: F64, unit: Datapath) -> F64:
    """Rule 3 for the addend."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.trunc(format_c.values(c) * 2.0**-unit.addend_shift * scale)


def add_terms(terms: AlignedTerms, unit: Datapath) -> npt.NDArray[Any]:
    """Rules 4 to 7: the exact sum, rounded once: codes (batch, M, N) of the output's container."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = terms.products.sum(axis=0)
        total += terms.addend
        if unit.keep_negative_zero:
            negative = np.signbit(terms.products).all(axis=0) & np.signbit(terms.addend)
            total = np.where(negative & (total == 0), -0.0, total)
    return round_sum(total, terms.exponent, unit).transpose(2, 0, 1)


def power_of_two(exponent: npt.NDArray[np.integer]) -> F64:
    """2.0**exponent for exponents of normal float64 numbers, without calling pow."""
    return ((exponent.astype(np.int64) + _BIAS64) << 52).view(np.float64)


def round_sum(total: F64, exponent: npt.NDArray[np.int16], unit: Datapath) -> npt.NDArray[Any]:
    """Rules 5 to 7: an exact sum in units of 2**(exponent - fraction_bits) to codes of the output.

    A zero is +0; NaN is the canonical one; magnitudes of 2**128 (f32) and more are infinite even when truncating.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        value = total * power_of_two(exponent - np.int16(unit.fraction_bits))
        if unit.output == "f16":
            codes: npt.NDArray[Any] = _to_f16(value, unit.rounding)
            magnitude = codes & np.uint16(0x7FFF)
        else:
            codes = _to_f32(value, unit.rounding, 10 if unit.output == "e8m13" else 0)
            magnitude = codes & np.uint32(0x7FFFFFFF)
    nan = FORMATS["f16" if unit.output == "f16" else "f32"].canonical_nan
    codes[np.isnan(total)] = nan
    if not unit.keep_negative_zero:
        codes[magnitude == 0] = 0
    return codes


def _to_f32(value: F64, rounding: Rounding, dropped_bits: int) -> npt.NDArray[np.uint32]:
    nearest = value.astype(np.float32)
    codes = nearest.view(np.uint32)
    if rounding == "rne":
        if dropped_bits:
            raise FormatError("e8m13 is defined with rounding rz only")
        return codes
    if rounding != "rz":
        raise FormatError(f"the dot-add unit rounds rz or rne, not {rounding}")
    finite = np.abs(value) < 2.0**128
    codes = codes - (finite & (np.abs(nearest.astype(np.float64)) > np.abs(value))).astype(np.uint32)
    return codes & np.uint32(0xFFFFFFFF << dropped_bits & 0xFFFFFFFF)


def _to_f16(value: F64, rounding: Rounding) -> npt.NDArray[np.uint16]:
    nearest = value.astype(np.float16)
    codes = nearest.view(np.uint16)
    if rounding == "rne":
        return codes
    if rounding != "rz":
        raise FormatError(f"the dot-add unit rounds rz or rne, not {rounding}")
    finite = np.abs(value) < 2.0**16
    return codes - (finite & (np.abs(nearest.astype(np.float64)) > np.abs(value))).astype(np.uint16)


def without_addend(c: npt.NDArray[Any], unit: Datapath) -> tuple[Datapath, npt.NDArray[Any], Format]:
    """For `addend_last`: the unit that sums the products alone, and the zeros it takes instead of c, with their format."""
    container = FORMATS["f16" if unit.output == "f16" else "f32"]
    return replace(unit, addend_last=False), np.zeros(c.shape, container.dtype), container


def add_afterwards(
    partial: npt.NDArray[Any], c: npt.NDArray[Any], format_c: Format, unit: Datapath
) -> npt.NDArray[Any]:
    """For `addend_last`: c added to products that were rounded already, and rounded again."""
    container = FORMATS["f16" if unit.output == "f16" else "f32"]
    with np.errstate(invalid="ignore", over="ignore"):
        value = container.values(partial) + format_c.values(c) * 2.0**-unit.addend_shift
    return round_sum(value, np.full(value.shape, unit.fraction_bits, np.int16), unit)
