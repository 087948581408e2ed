"""Results of 16 bits that were written in one format and are read in the other: f16 as bf16, bf16 as f16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.report import Explanation
from tcsim.numbers.codec import decode, encode

_OTHER = {"f16": "bf16", "bf16": "f16"}
_NEAR, _MOST = 2.0**-6, 0.98
"""Sums in another order differ by less, in nearly every output."""


def reread(problem: Problem) -> Explanation | None:
    """The mistake, if the codes are the model's results in the other format: bit for bit, or but for the order of summation."""
    own = problem.output
    if own is None or own not in _OTHER:
        return None
    other, inside = _OTHER[own], problem.inside()
    codes = encode(decode(problem.observed, "f32"), own)
    model = replace(problem, output=None, finish=None).outputs()
    numbers, right = decode(codes, other), decode(narrowed(model, other), "f32")
    same = int(((numbers == right) & inside).sum())
    usual = float(np.abs(right[inside & np.isfinite(right)]).mean()) if np.isfinite(right[inside]).any() else 0.0
    with np.errstate(invalid="ignore"):
        off = np.abs(numbers - right)
    near = (numbers == right) | np.isfinite(right) & (off <= _NEAR * np.maximum(np.abs(right), usual))
    if near[inside].mean() < _MOST:
        return None
    said = f"the codes are those of {other} results, and were read as {own}"
    advice = "give the output tensor the type that the epilogue converts to"
    return Explanation(f"d: {other} read as {own}", said, advice, same, bits=same == int(inside.sum()))
