"""Selectors of an instruction that pick other lanes' metadata or other bytes of the scale registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from tcsim.core.errors import TcsimError
from tcsim.diagnosis.problem import Attempt, Problem
from tcsim.isa.mma.scaled_multiply import Side

_SIDES: tuple[Side, ...] = ("a", "b")


def attempts(problem: Problem) -> Iterator[Attempt]:
    """Every other selector of what came in registers."""
    sparsity = problem.machine.sparsity
    if problem.metadata is not None and sparsity is not None:
        for selector in sparsity.selectors:
            if selector != problem.selector:
                said = "look at the last immediate of the instruction: which lanes' metadata it reads"
                yield Attempt("metadata selector wrong", f"{selector}", said, partial(_metadata, problem, selector))
    words = problem.scale_words or {}
    for side, byte, thread in product(_SIDES if words else (), range(4), range(4)):
        if (byte, thread) != words[side][1:]:
            detail = f"byte_id_{side} {byte}, thread_id_{side} {thread}"
            advice = f"look at the selectors of scale_{side}: which bytes of which lanes are read"
            made = partial(_scale, problem, side, byte, thread)
            yield Attempt(f"scale_{side} selector wrong", detail, advice, made)


def _metadata(problem: Problem, selector: int) -> Problem | None:
    if problem.metadata is None:
        return None
    try:
        multiply = problem.machine.instruction
        return replace(problem, positions=multiply.decode_metadata(problem.metadata, selector))
    except TcsimError:
        return None  # what those lanes hold is not metadata


def _scale(problem: Problem, side: Side, byte: int, thread: int) -> Problem | None:
    if problem.scale_words is None or problem.scales is None:
        return None
    try:
        own = problem.machine.instruction.scale_matrix(side, problem.scale_words[side][0], byte, thread)
    except TcsimError:
        return None  # no such selector
    return replace(problem, scales=(own, problem.scales[1]) if side == "a" else (problem.scales[0], own))
