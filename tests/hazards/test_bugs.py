"""Bugs of real projects are named at the right lines, and their mended twins are clean, in each order in which asynchronous work may complete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse
from tests.hazards.bugs.table import BUGS, OPEN, Bug

SCHEDULES = ("late", "early", 7)
NOT_FILLED = ("SMEM_UNINITIALISED", "TMEM_LD_UNINITIALISED")
"""What small kernels may do: they read more than they fill."""
NAMED = [bug for bug in BUGS if bug.mark not in OPEN]


@cache
def ran(source: str, before: str, threads: int, blocks: int, schedule: str | int) -> Run:
    """A launch of a kernel's text, after another one where there is one."""
    memory, first = Memory(), None
    pointers = [memory.allocate(np.zeros(1024, dtype=np.uint32).view(np.uint8)) for _ in range(2)]
    if before:
        first = parse(before).kernel().launch(memory, pointers, block=(threads, 1, 1), schedule=schedule)
    return parse(source).kernel().launch(
        memory, pointers, grid=(blocks, 1, 1), block=(threads, 1, 1), cluster=(blocks, 1, 1), schedule=schedule, after=first
    )  # fmt: skip


def _of(bug: Bug, source: str, schedule: str | int) -> Run:
    return ran(source, bug.before, bug.kernel.threads, bug.kernel.blocks, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("bug", NAMED, ids=lambda own: own.mark)
def test_a_bug_is_named_where_it_is(bug: Bug, schedule: str | int) -> None:
    named, against = bug.kernel.lines(bug.mark)
    run = _of(bug, bug.kernel.without(bug.mark), schedule)
    found = [(own.line, own.other_line) for own in run.hazards if own.name == bug.rule]
    assert named and any(_is(at, named) and _is(other, against) for at, other in found), [
        str(own) for own in run.hazards
    ]


def _is(line: int | None, expected: Sequence[int]) -> bool:
    return line in expected if expected else line is None


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("bug", BUGS, ids=lambda own: own.mark)
def test_the_mended_twin_is_clean(bug: Bug, schedule: str | int) -> None:
    run = _of(bug, bug.kernel.source, schedule)
    found = [own for own in run.hazards if own.name not in NOT_FILLED]
    assert run.completed and not found, [str(own) for own in found]


def test_every_bug_is_in_the_table() -> None:
    assert sorted({int(bug.mark[1:].split(".")[0]) for bug in BUGS}) == list(range(1, 36))
    assert {bug.mark for bug in BUGS} == {mark for bug in BUGS for mark in bug.kernel.defects}
