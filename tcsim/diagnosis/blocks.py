"""Mistakes in the loop over K: blocks left out, repeated or mismatched, an advance that is too long or too short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.diagnosis.problem import Attempt, Codes, Problem


def attempts(problem: Problem) -> Iterator[Attempt]:
    """What can go wrong between the instructions of one output; nothing if there is one."""
    count = problem.blocks
    if count < 2:
        return
    own = tuple(range(count))
    loop = "count the iterations of the K loop"
    for block in own:
        yield _ordered(problem, "K block missing", f"block {block} of {count}", loop, own[:block] + own[block + 1 :])
    for block in own:
        yield _ordered(problem, "K block repeated", f"block {block} of {count}", loop, tuple(sorted((*own, block))))
    yield Attempt(
        "accumulator restarted",
        "each instruction starts from zero: the last K block alone is left",
        "set scale_d (or pass the accumulator) after the first instruction",
        partial(_last_alone, problem),
    )
    rounding = "same terms, other order: the rounding differs, as it does between tile shapes"
    yield _ordered(problem, "K blocks in another order", "descending", rounding, own[::-1])
    if count > 2:
        yield _ordered(problem, "K blocks in another order", "even ones first", rounding, own[::2] + own[1::2])
    advance = "the K advance is in bytes where elements are meant, or the other way round, or the wrong number"
    for name in "ab":
        step = problem.kept if name == "a" else problem.step
        yield _advanced(problem, name, "K advance wrong", "no advance: block 0 every time", advance, 0, 1)
        for number, over in ((1, 2), (1, 4), (2, 1), (4, 1)):
            said = f"{number} / {over} of" if over > 1 else f"{number} times"
            if step % over == 0:
                yield _advanced(problem, name, "K advance wrong", f"{said} the right one", advance, number, over)
        stage = "producer and consumer disagree about the stage of the pipeline"
        for detail, order in (
            ("each pair of blocks exchanged", [min(i ^ 1, count - 1) for i in own]),
            ("one block late", [max(i - 1, 0) for i in own]),
            ("one block early", [min(i + 1, count - 1) for i in own]),
            ("blocks rotated by one", [(i + 1) % count for i in own]),
        ):
            yield Attempt(f"K blocks of {name} mismatched", detail, stage, partial(_taken, problem, name, order))


def _ordered(problem: Problem, mistake: str, detail: str, advice: str, order: tuple[int, ...]) -> Attempt:
    return Attempt(mistake, detail, advice, lambda: replace(problem, order=order))


def _last_alone(problem: Problem) -> Problem:
    return replace(problem, order=problem.order[-1:], c=np.zeros_like(problem.c))


def _advanced(problem: Problem, name: str, mistake: str, detail: str, advice: str, number: int, over: int) -> Attempt:
    return Attempt(f"{name}: {mistake}", detail, advice, partial(_moved, problem, name, number, over))


def _moved(problem: Problem, name: str, number: int, over: int) -> Problem | None:
    step = problem.kept if name == "a" else problem.step
    starts = np.arange(problem.blocks) * step * number // over
    index = (starts[:, None] + np.arange(step)).reshape(-1)
    size = problem.a.shape[2] if name == "a" else problem.b.shape[1]
    inside = index < size
    if number > 1:  # what lies behind the row is the next row: only known as far as the tile goes
        return _with_index(problem, name, np.where(inside, index, 0), inside)
    return _with_index(problem, name, index, inside)


def _taken(problem: Problem, name: str, order: list[int]) -> Problem | None:
    step = problem.kept if name == "a" else problem.step
    index = (np.asarray(order)[:, None] * step + np.arange(step)).reshape(-1)
    return _with_index(problem, name, index, np.ones(len(index), bool))


def _with_index(problem: Problem, name: str, index: Codes, inside: Codes) -> Problem | None:
    """K elements taken from elsewhere along the same row of A (column of B); zeros outside."""
    if name == "b":
        codes = problem.b[:, index]
        return replace(problem, b=np.where(inside[:, None], codes, codes.dtype.type(0)))
    codes = problem.a[:, :, index]
    a = np.where(inside, codes, codes.dtype.type(0))
    if problem.positions is None:
        return replace(problem, a=a)
    return replace(problem, a=a, positions=problem.positions[:, :, index])
