"""Outputs that differ from the model by rounding alone: how far, and which order of summation gives every bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.diagnosis.arithmetic import OTHER_ARCH, narrowed
from tcsim.diagnosis.equivalence import right_of
from tcsim.diagnosis.orders import reproducing
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.relations import TRUNCATED, truncated
from tcsim.diagnosis.report import Diagnosis, Explanation
from tcsim.diagnosis.solved import Solved
from tcsim.numbers.formats import FORMATS, Format

_RIGHT = ("K blocks in another order", "not a tensor core's result")
"""Catalogued differences that a right kernel may show."""


def within_rounding(
    problem: Problem, model: Codes, own: Solved, exact: list[Explanation], where: str, tried: int
) -> Diagnosis:
    """Correct, with the order of summation if it is known; a catalogued mistake that gives every bit has priority."""
    outputs = int(problem.inside().sum())
    right = outputs - int(((model != problem.observed) & problem.inside()).sum())
    bare = replace(problem, finish=None)
    orders = [item for item in exact if item.mistake in _RIGHT]
    mistakes = [item for item in exact if item.mistake not in _RIGHT]
    nearest: tuple[str, int] | None = None
    if not orders and all(item.mistake == OTHER_ARCH for item in mistakes):
        nearest = reproducing(bare, partial(_ended, problem), np.random.default_rng(0))
        if nearest is not None and nearest[1] == outputs:
            orders = [Explanation("another order of summation", nearest[0], "", outputs)]
    mistakes = [item for item in mistakes if item.mistake != OTHER_ARCH or not orders]  # the own arch explains it
    if mistakes:
        names = {item.mistake for item in mistakes}
        verdict = "explained" if len(names) == 1 else "ambiguous"
        return Diagnosis(verdict, outputs, right, tuple(mistakes), (), tried, where)  # type: ignore[arg-type]
    format = problem.machine.formats["d"]
    if problem.output:
        format = FORMATS[problem.output]
    off = ulps(problem, model, format)
    note = f"equal within rounding: at most {off:,} ulp of {format.name}"
    if problem.output and (truncated(right_of(bare), problem.output) == problem.observed)[problem.inside()].all():
        advice = "cvt.rn rounds to nearest even; a shift or a mask cuts"
        cut = Explanation(TRUNCATED, problem.output, advice, outputs)
        return Diagnosis("explained", outputs, right, (cut,), (), tried, where)
    if not orders and nearest is not None:
        note += f"; the nearest order of those tried gives {nearest[1]:,} of {outputs:,} in every bit: {nearest[0]}"
    return Diagnosis("correct", outputs, right, tuple(orders), (), tried, where, note=note)


def _ended(problem: Problem, codes: Codes) -> Codes:
    return narrowed(codes, problem.output) if problem.output else codes


def ulps(problem: Problem, model: Codes, format: Format) -> int:
    """The largest distance of an output from the model's, in units of the format's last place; 0 codes count as one scale."""
    shift = np.int64(problem.machine.formats["d"].bits - format.bits) if format.name == "bf16" else np.int64(0)
    inside = problem.inside()
    far = np.abs(_ordered(problem, problem.observed) - _ordered(problem, model))[inside]
    if format.name in ("f16", "e4m3", "e5m2") and problem.machine.formats["d"].name == "f32":
        shift = np.int64(23 - format.fraction_bits)
    return int(far.max() >> shift) if far.size else 0


def _ordered(problem: Problem, codes: Codes) -> np.ndarray:
    """Codes as integers in the order of their numbers."""
    format = problem.machine.formats["d"]
    wide = codes.astype(np.int64)
    if format.kind != "float":
        return np.where(wide >> (format.bits - 1) & 1, wide - (1 << format.bits), wide)
    sign = np.int64(1) << (format.bits - 1)
    return np.where(wide & sign, -(wide & (sign - 1)), wide)
