"""Mistakes with block scales: ignored, of another row or block, exchanged, other bytes or threads of the registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.core.errors import TcsimError
from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.isa.mma.scaled_multiply import Side
from tcsim.numbers.codec import encode

_SIDES: tuple[Side, ...] = ("a", "b")
_Change = Callable[[Codes], Codes]  # of scales (batch, rows, blocks)


def attempts(problem: Problem) -> Iterator[Attempt]:
    """What can go wrong with scale_a and scale_b; nothing for an instruction without block scales."""
    if problem.scales is None:
        return
    where = "look at the layout of the scale factors: which lane, byte or column belongs to a row and a block"
    one = encode(1.0, problem.machine.formats["scale"])
    for side in _SIDES:
        name = f"scale_{side}"
        rows, blocks = _of(problem, side).shape[1:]
        said = "row" if side == "a" else "column"
        ignored: _Change = partial(np.full_like, fill_value=one)
        yield Attempt(f"{name} ignored", "every factor is 1", where, partial(_changed, problem, side, ignored))
        for bit in (1, 2, 4, 8, 16, 32):
            if rows % (2 * bit) == 0:
                order = np.arange(rows) ^ bit
                change: _Change = partial(np.take, indices=order, axis=1)
                detail = f"{said} i with i ^ {bit}"
                yield Attempt(f"{name} of another {said}", detail, where, partial(_changed, problem, side, change))
        if blocks > 1:
            own = np.arange(blocks)
            for detail, order in (
                ("in reverse", own[::-1]),
                ("one block late", np.maximum(own - 1, 0)),
                ("one block early", np.minimum(own + 1, blocks - 1)),
                ("always the first", own * 0),
                *([("each two neighbours exchanged", own ^ 1)] if blocks % 2 == 0 else []),
            ):
                change = partial(np.take, indices=order, axis=2)
                yield Attempt(f"{name} of another block", detail, where, partial(_changed, problem, side, change))
            yield Attempt(
                f"{name} transposed",
                "blocks by rows taken for rows by blocks",
                "look at the order in memory of the scale factors",
                partial(_changed, problem, side, _transposed),
            )
        yield from _selectors(problem, side)
    lines = problem.size or problem.observed.shape[1:]
    if lines[0] == lines[1]:
        yield Attempt(
            "scale_a and scale_b exchanged", "", "look at the order of the operands", partial(_exchanged, problem)
        )


def _of(problem: Problem, side: Side) -> Codes:
    """The scales of A's rows, or of B's columns: (batch, rows, blocks)."""
    if problem.scales is None:
        raise TypeError("the problem has no scales")
    return problem.scales[0] if side == "a" else problem.scales[1].swapaxes(1, 2)


def _with(problem: Problem, side: Side, scales: Codes) -> Problem:
    if problem.scales is None:
        raise TypeError("the problem has no scales")
    own, other = problem.scales
    return replace(problem, scales=(scales, other) if side == "a" else (own, scales.swapaxes(1, 2)))


def _changed(problem: Problem, side: Side, change: _Change) -> Problem:
    return _with(problem, side, change(_of(problem, side)))


def _transposed(scales: Codes) -> Codes:
    batch, rows, blocks = scales.shape
    return scales.reshape(batch, blocks, rows).swapaxes(1, 2)


def _exchanged(problem: Problem) -> Problem:
    a, b = _of(problem, "a").copy(), _of(problem, "b").copy()
    both = min(a.shape[1], b.shape[1])  # one may be padded further
    a[:, :both], b[:, :both] = b[:, :both], a[:, :both].copy()
    return _with(_with(problem, "a", a), "b", b)


def _selectors(problem: Problem, side: Side) -> Iterator[Attempt]:
    """Other byte and thread ids, if the scales came in registers."""
    if problem.scale_words is None or side not in problem.scale_words:
        return
    words, *given = problem.scale_words[side]
    for byte in range(4):
        for thread in range(4):
            if [byte, thread] != given:
                detail = f"byte_id_{side} {byte}, thread_id_{side} {thread}"
                advice = f"look at the selectors of scale_{side}: which bytes of which lanes are read"
                yield Attempt(
                    f"scale_{side} selector wrong", detail, advice, partial(_selected, problem, side, byte, thread)
                )


def _selected(problem: Problem, side: Side, byte: int, thread: int) -> Problem | None:
    multiply = problem.machine.instruction
    if problem.scale_words is None:
        return None
    try:
        scales = multiply.scale_matrix(side, problem.scale_words[side][0], byte, thread)
    except TcsimError:
        return None  # no such selector
    return _with(problem, side, scales if side == "a" else scales.swapaxes(1, 2))
