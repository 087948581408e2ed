"""The fused dot-add with block scales (mxf8f6f4, mxf4, mxf4nvf4): what one step of a block-scaled instruction computes.

Two ways of scaling, both exact, both followed by the alignment, sum and rounding of `tcsim.arithmetic.dot` (docs/numerics.md,
"Block scaling"; MMA-Sim, arXiv 2511.10909):

- *by product* (mxf8f6f4): every product is a term. Its exponent is the sum of four: of a, of b and of their scales.
- *by group* (mxf4, mxf4nvf4): every run of 16 products is summed exactly first and multiplied by the significands of its
  two scales: one term. Its exponent is the sum of the two scales' exponents, whatever the products are. A group whose 16
  products are all zero, or one with a zero scale, counts as a zero; a group that cancels does not.

tcsim/arithmetic/steps.py asks for mma.sync and mma.sp; tcgen05.mma computes the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.dot import F64, AlignedTerms, Datapath, add_afterwards, add_terms, align, without_addend
from tcsim.core.errors import FormatError, OperandError
from tcsim.numbers.formats import NO_EXPONENT, Format

Codes = npt.NDArray[Any]
ScaledFormats = tuple[Format, Format, Format, Format]
"""The formats of a, of b, of c, and of both scales."""
_MOST_SUMMED = 64
"""Products of a group whose sums are exact in float32: without NaN a product is at most 448**2 times the smallest (e3m2)."""


def scaled_dot_add(
    a: Codes,
    b: Codes,
    c: Codes,
    scale_a: Codes,
    scale_b: Codes,
    formats: ScaledFormats,
    unit: Datapath,
    group: int = 0,
) -> Codes:
    """One step: c + sum over k of (a[:, k] * scale_a[:, k // block]) * (b[k, :] * scale_b[k // block, :]).

    Codes in, codes of the output's container out: a (batch, M, K), b (batch, K, N), c (batch, M, N), scale_a
    (batch, M, blocks), scale_b (batch, blocks, N). K is cut into `blocks` runs of the same length. `group` is 0 for
    scaling by product, or how many products are summed before they are scaled.

    Raises OperandError if K is not a whole number of blocks or groups, or a group lies in two blocks; FormatError for
    scaling by group of a format whose sums of `group` products would not be exact.

    >>> from tcsim.arithmetic.units import unit_for
    >>> from tcsim.core.targets import ARCHS
    >>> unit = unit_for("mxf4", ARCHS["sm_120"]).datapath("f32")
    >>> formats = tuple(FORMATS[name] for name in ("e2m1", "e2m1", "f32", "ue4m3"))
    >>> one, two = (tcsim.encode(np.full((1, 1, 64), x), "e2m1") for x in (1.0, 2.0))
    >>> half = tcsim.encode(np.full((1, 1, 4), 0.5), "ue4m3")
    >>> c = np.zeros((1, 1, 1), np.uint32)
    >>> d = scaled_dot_add(one, two.reshape(1, 64, 1), c, half, half.reshape(1, 4, 1), formats, unit, group=16)
    >>> float(tcsim.decode(d, "f32")[0, 0, 0])
    32.0
    """
    if unit.addend_last:
        inner, zero, format_zero = without_addend(c, unit)
        inner_formats = (formats[0], formats[1], format_zero, formats[3])
        partial = scaled_dot_add(a, b, zero, scale_a, scale_b, inner_formats, inner, group)
        return add_afterwards(partial, c, formats[2], unit)
    return add_terms(scaled_terms(a, b, c, scale_a, scale_b, formats, unit, group), unit)


def scaled_terms(
    a: Codes,
    b: Codes,
    c: Codes,
    scale_a: Codes,
    scale_b: Codes,
    formats: ScaledFormats,
    unit: Datapath,
    group: int = 0,
) -> AlignedTerms:
    """The terms of a step, aligned and cut: one a product, or one a group. Arguments and errors as `scaled_dot_add`."""
    k, blocks = a.shape[2], scale_a.shape[2]
    if k % blocks or (group and (k % group or k // blocks % group)):
        runs = f" and groups of {group}" if group else ""
        raise OperandError(f"K = {k} with {blocks} scales a row: not a whole number of blocks{runs}")
    # batch innermost, as in tcsim.arithmetic.dot
    a, scale_a = (np.ascontiguousarray(x.transpose(2, 1, 0)) for x in (a, scale_a))
    b, scale_b = (np.ascontiguousarray(x.transpose(1, 2, 0)) for x in (b, scale_b))
    terms = _by_group if group else _by_product
    products, exponents = terms(a, b, scale_a, scale_b, formats, group)
    return align(products, exponents, c, formats[2], unit)


def _by_product(
    a: Codes, b: Codes, scale_a: Codes, scale_b: Codes, formats: ScaledFormats, group: int
) -> tuple[F64, npt.NDArray[np.int16]]:
    """Products (K, M, N, batch) and their exponents; the scales are folded into a and b first, which is exact."""
    factors = []
    for codes, scales, format in ((a, scale_a, formats[0]), (b, scale_b, formats[1])):
        repeat = len(codes) // len(scales)
        with np.errstate(invalid="ignore"):
            values = format.values(codes) * formats[3].values(scales).repeat(repeat, axis=0)
        factors.append((values, _sum(format.exponents(codes), formats[3].exponents(scales).repeat(repeat, axis=0))))
    (values_a, exponents_a), (values_b, exponents_b) = factors
    with np.errstate(invalid="ignore"):
        products = values_a[:, :, None, :] * values_b[:, None, :, :]
    return products, exponents_a[:, :, None, :] + exponents_b[:, None, :, :]


def _by_group(
    a: Codes, b: Codes, scale_a: Codes, scale_b: Codes, formats: ScaledFormats, group: int
) -> tuple[F64, npt.NDArray[np.int16]]:
    """Scaled sums of `group` products (K / group, M, N, batch), exact, and the exponents of their scales."""
    if group > _MOST_SUMMED or any(f.infinity or f.nan != "none" for f in formats[:2]):
        names = " and ".join(f.name for f in formats[:2])
        raise FormatError(f"scaling by groups of {group} is for small formats without NaN, such as e2m1, not {names}")
    groups = len(a) // group
    # BLAS on float32 is exact here
    values_a, values_b = (
        f.values(x).astype(np.float32).reshape(groups, group, *x.shape[1:])
        for f, x in zip(formats, (a, b), strict=False)
    )
    left, right = values_a.transpose(0, 3, 2, 1), values_b.transpose(0, 3, 1, 2)  # (groups, batch, M, group), (..., N)
    sums = np.matmul(left, right).transpose(0, 2, 3, 1).astype(np.float64)
    some = np.matmul(np.abs(left), np.abs(right)).transpose(0, 2, 3, 1) > 0
    repeat = groups // len(scale_a)
    per_a, per_b = (x.repeat(repeat, axis=0) for x in (scale_a, scale_b))
    with np.errstate(invalid="ignore"):
        sums *= formats[3].values(per_a)[:, :, None, :] * formats[3].values(per_b)[:, None, :, :]
    exponents = _sum(formats[3].exponents(per_a)[:, :, None, :], formats[3].exponents(per_b)[:, None, :, :])
    return sums, np.where(some, exponents, np.int16(NO_EXPONENT))


def _sum(x: npt.NDArray[np.int16], y: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """x + y, where two that stand for no exponent make one: so that two such sums still fit 16 bits."""
    return np.maximum(x + y, np.int16(NO_EXPONENT))
