"""What an epilogue does to every output alike: a narrower format, ReLU, a bias, factors of rows or columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS

NARROW = "result passed through a narrower format"
TRUNCATED = "result truncated to a narrower format"
_FORMATS = ("e4m3", "e5m2", "bf16", "f16")


@dataclass(frozen=True)
class Relation:
    """One thing an epilogue does."""

    mistake: str
    detail: str
    advice: str


def narrow_format(problem: Problem, model: Codes) -> str | None:
    """The narrowest format that every observed f32 fits, though not every one of the model's; None if there is none."""
    if problem.machine.formats["d"].name != "f32":
        return None
    seen = problem.observed[np.isfinite(decode(problem.observed, "f32"))]
    if seen.size < 8 or not seen.any():
        return None
    for name in _FORMATS:
        if _fits(seen, name).all() and _fits(model, name).mean() < 0.5:
            return name
    return None


def _fits(codes: npt.NDArray[Any], name: str) -> Mask:
    fits: Mask = narrowed(codes, name) == codes
    return fits


def precision(name: str | None) -> tuple[float, float]:
    """The relative and the smallest step of a narrower format, which truncation can take off; 0 for none."""
    if name is None:
        return 0.0, 0.0
    format = FORMATS[name]
    return 2.0**-format.fraction_bits, 2.0 ** (format.minimum_exponent - format.fraction_bits)


def truncated(codes: Codes, name: str) -> Codes:
    """f32 codes cut to a narrower format, toward zero."""
    return encode(decode(encode(decode(codes, "f32"), name, "rz"), name), "f32")


def narrowing(name: str, reals: Reals, values: Numbers) -> Relation:
    """Whether the observed results are rounded or cut, given what they were before."""
    toward = np.abs(reals.observed) <= np.abs(values) + reals.reach * 1e-3
    known = reals.finite & np.isfinite(values)
    if toward[known].mean() > 0.99:
        return Relation(TRUNCATED, name, "the epilogue cuts bits off: cvt.rn rounds to nearest even")
    return Relation(
        NARROW, name, f"the epilogue or the output tensor is {name}, or the accumulator was moved as {name}"
    )


def is_relu(reals: Reals) -> bool:
    """No negative output, and in most rows and columns some zeros and some others."""
    seen = reals.observed
    if (seen < 0).any() or not (reals.right < 0).any():
        return False
    zeros = seen == 0
    if not 0.2 < zeros.mean() < 0.8:
        return False
    for axis in (1, 2):
        share = zeros.mean(axis=axis)
        if ((share > 0) & (share < 1)).mean() < 0.9:
            return False
    return True


RELU = Relation("ReLU applied", "negative results are 0", "the epilogue clamps at zero")


def vector(reals: Reals) -> tuple[Relation, Numbers] | None:
    """A bias or factors of rows or of columns, and what is predicted with them; None if there is none."""
    right, seen, product = reals.right, reals.observed, reals.product
    if min(right.shape[1:]) < 4:
        return None
    for axis, line, other in ((1, "column", "rows"), (2, "row", "columns")):
        off = np.median(seen - right, axis=axis, keepdims=True)
        values = right + off
        if reals.near(values)[reals.finite].all() and np.ptp(off) > 0:
            said = f"one number for each {line}, from {off.min():.4g} to {off.max():.4g}"
            return Relation("bias added", said, f"the epilogue adds a vector along the {other}"), values
    for axis, what in ((2, "rows"), (1, "columns")):
        for base, rest in ((right, 0.0), (product, reals.c)):
            with np.errstate(all="ignore"):
                factor = (base * (seen - rest)).sum(axis=axis, keepdims=True) / (base**2).sum(axis=axis, keepdims=True)
                values = factor * base + rest
                reach = np.maximum(1.0, np.abs(factor)) * reals.reach
            apart = np.ptp(factor) > 1e-4 * np.abs(factor).max() and (factor != 0).all()
            if apart and (np.abs(values - seen) <= reach)[reals.finite].all():
                said = f"factors from {factor.min():.4g} to {factor.max():.4g}"
                return Relation(
                    f"{what} scaled", said, f"the epilogue multiplies each of the {what} by a number"
                ), values
    return None
