"""Outputs that differ from the model by rounding alone: how far, and which order of summation gives every bit."""

from __future__ import annotations

from functools import partial

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.arithmetic import OTHER_ARCH
from tcsim.diagnosis.bitwise import as_output
from tcsim.diagnosis.kept import kept_sums
from tcsim.diagnosis.orders import reproducing
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.relations import TRUNCATED, truncated
from tcsim.diagnosis.report import Diagnosis, Explanation
from tcsim.diagnosis.solution import Solved
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS, Format


def within_rounding(
    problem: Problem, model: Codes, own: Solved, exact: list[Explanation], where: str, tried: int
) -> Diagnosis:
    """Correct, with the order of summation if it is known; a catalogued mistake that gives every bit has priority."""
    outputs = int(problem.inside().sum())
    right = outputs - int(((model != problem.observed) & problem.inside()).sum())
    bare = problem.bare
    orders: list[Explanation] = []
    mistakes = exact
    nearest: tuple[str, int] | None = None
    if all(item.mistake == OTHER_ARCH for item in mistakes):
        nearest = reproducing(bare, partial(as_output, problem), repeatable())
        if nearest is not None and nearest[1] == outputs:
            orders = [Explanation("another order of summation", nearest[0], "", outputs)]
    mistakes = [item for item in mistakes if item.mistake != OTHER_ARCH or not orders]  # the own arch explains it
    kept = None if orders or mistakes else kept_sums(bare, own.reals, own.ends)
    if kept is not None:
        mistakes = [Explanation(*kept.names()[0], outputs)]
    if mistakes:
        names = {item.mistake for item in mistakes}
        verdict = "explained" if len(names) == 1 else "ambiguous"
        return Diagnosis(verdict, outputs, right, tuple(mistakes), (), tried, where)  # type: ignore[arg-type]
    format = problem.machine.formats["d"]
    if problem.output:
        format = FORMATS[problem.output]
    off = ulps(problem, model, format)
    note = f"equal within rounding: at most {off:,} ulp of {format.name}"
    if problem.output and (truncated(bare.outputs, problem.output) == problem.observed)[problem.inside()].all():
        advice = "cvt.rn rounds to nearest even; a shift or a mask cuts"
        cut = Explanation(TRUNCATED, problem.output, advice, outputs)
        return Diagnosis("explained", outputs, right, (cut,), (), tried, where)
    if not orders and nearest is not None:
        note += f"; the nearest order of those tried gives {nearest[1]:,} of {outputs:,} in every bit: {nearest[0]}"
    return Diagnosis("correct", outputs, right, tuple(orders), (), tried, where, note=note)


def ulps(problem: Problem, model: Codes, format: Format) -> int:
    """The largest distance of an output from the model's, in units of its last place; of a small one in those of the median."""
    wide = problem.machine.formats["d"]
    seen, right = (decode(codes, wide).astype(np.float64)[problem.inside()] for codes in (problem.observed, model))
    known = np.isfinite(seen) & np.isfinite(right)
    far = np.abs(seen - right)[known]
    if format.kind != "float" or not far.any():
        return int(far.max(initial=0))
    size = np.maximum(np.abs(right[known]), np.median(np.abs(right[known])))
    unit = np.exp2(np.floor(np.log2(np.maximum(size, 1e-300))) - format.fraction_bits)
    return int(np.ceil((far / unit).max()))
