"""Lanes that execute a warp's instruction as one although they stand at different places of the program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ptx_copies import SCHEDULES
from tests.unit.tcsim.ptx.test_ptx_threads import ran

LANES = range(32)


def parted(low: str, high: str, before: str = "") -> str:
    """A warp whose lower half takes one path with 1000 + its lane in %r2, whose upper half takes another with 3 times its lane."""
    return f"""
        setp.lt.u32 %p0, %r0, 16; add.u32 %r2, %r0, 1000; setp.lt.u32 %p1, %r0, 20; mov.u32 %r8, -1; {before}
        @%p0 bra LOW;
        mul.lo.u32 %r2, %r0, 3;
        {high}
        bra JOIN;
        LOW: {low}
        JOIN: st.global.u32 [%rd1], %r1;
    """


VALUES = [1000 + lane if lane < 16 else 3 * lane for lane in LANES]
ACROSS = [VALUES[lane ^ 16] for lane in LANES]
BOTH = [VALUES[lane] + ACROSS[lane] for lane in LANES]

MEETINGS: dict[str, tuple[str, str, list[int]]] = {
    "shuffle": ("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;",) * 2 + (ACROSS,),
    "different lanes": (
        "shfl.sync.idx.b32 %r1, %r2, 31, 31, -1;", "shfl.sync.idx.b32 %r1|%p2, %r2, 0, 31, %r8;",
        [93] * 16 + [1000] * 16,
    ),
    "several": (
        "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1; add.u32 %r1, %r1, %r2; shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1;",
        "shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1; shfl.sync.idx.b32 %r4, %r3, 16, 31, 0xffff0000; add.u32 %r3, %r3, %r2;"
        "shfl.sync.bfly.b32 %r1, %r3, 16, 31, -1;", BOTH,
    ),
    "ballot": (
        "vote.sync.ballot.b32 %r1, %p1, %r8;", "vote.sync.ballot.b32 %r1, !%p1, %r8;", [0xFFF0FFFF] * 32,
    ),
    "vote": (
        "vote.sync.all.pred %p2, %p1, -1; selp.u32 %r1, 1, 2, %p2;", "vote.sync.all.pred %p3, %p1, -1; selp.u32 %r1, 3, 4, %p3;",
        [2] * 16 + [4] * 16,
    ),
    "match": (
        "match.any.sync.b32 %r1, 5, %r8;", "selp.u32 %r2, 5, 6, %p1; match.any.sync.b32 %r1, %r2, -1;",
        [0x000FFFFF] * 20 + [0xFFF00000] * 12,
    ),
    "match all": (
        "match.all.sync.b32 %r1|%p2, 5, -1;", "mov.u32 %r3, 5; match.all.sync.b32 %r1|%p2, %r3, -1;", [0xFFFFFFFF] * 32,
    ),
    "redux": ("redux.sync.add.u32 %r1, %r2, %r8;", "redux.sync.add.u32 %r1, %r2, -1;", [sum(VALUES)] * 32),
    "elect": (
        "elect.sync %r3|%p2, -1; selp.u32 %r1, 1, %r3, %p2;", "elect.sync %r3|%p2, %r8; selp.u32 %r1, 1, %r3, %p2;",
        [1] + [0] * 31,
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", MEETINGS)
def test_lanes_meet_at_different_instructions(name: str, schedule: str | int) -> None:
    """Each lane gets what it would get at one instruction with everybody's operands."""
    low, high, expected = MEETINGS[name]
    run, found = ran(parted(low, high), schedule=schedule)
    assert run.completed, run.hazards
    assert found[:32].tolist() == expected


def test_members_that_have_exited_are_not_waited_for() -> None:
    """Lanes 8 to 23 exit, some of either path; the sum is that of the others."""
    before = "setp.ge.u32 %p2, %r0, 8; setp.lt.and.u32 %p2, %r0, 24, %p2; @%p2 exit;"
    run, found = ran(parted("redux.sync.add.u32 %r1, %r2, -1;", "redux.sync.add.u32 %r1, %r2, -1;", before))
    left = [lane for lane in LANES if not 8 <= lane < 24]
    assert run.completed, run.hazards
    assert found[:32].tolist() == [sum(VALUES[own] for own in left) if lane in left else 0 for lane in LANES]


def test_other_warps_go_on_meanwhile() -> None:
    """Two warps diverge, and between them a barrier stands before the meeting of one of them."""
    body = """
        setp.lt.u32 %p3, %r0, 32; @%p3 bar.sync 1, 64; @!%p3 bar.arrive 1, 64; mov.u32 %r1, 0;
        and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0;
        @%p0 bra EVEN;
        shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; bra JOIN;
        EVEN: shfl.sync.bfly.b32 %r1, %r0, 3, 31, -1;
        JOIN: st.global.u32 [%rd1], %r1;
    """
    run, found = ran(body, block=64)
    assert run.completed, run.hazards
    assert found[:64].tolist() == [thread ^ (1 if thread % 2 else 3) for thread in range(64)]


@pytest.mark.parametrize("schedule", ["late", "early", 7])
def test_lanes_meet_at_instructions_with_opposite_predicates(schedule: str | int) -> None:
    """Each exchanges with a lane that executes the other one; a loop jumps back to the first of them."""
    body = """
        mov.u32 %r1, %r0; mov.u32 %r5, 0; setp.lt.u32 %p0, %r0, 16;
        AGAIN: @%p0 shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1; @!%p0 shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1;
        add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 3; @%p1 bra AGAIN;
        st.global.u32 [%rd1], %r1;
    """
    run, found = ran(body, schedule=schedule)
    assert run.completed and not run.hazards, run.hazards
    assert found[:32].tolist() == [lane ^ 16 for lane in range(32)]


def test_lanes_that_a_predicate_leaves_out_are_missed() -> None:
    """The mask names them, and nobody else executes it."""
    run, _ = ran("setp.lt.u32 %p0, %r0, 16; @%p0 shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1; bar.sync 0;")
    assert "DEADLOCK" in [own.name for own in run.hazards]


def test_a_predicate_that_the_mask_follows() -> None:
    """Eight lanes, as the mask says."""
    run, found = ran(
        "mov.u32 %r1, 0; setp.lt.u32 %p0, %r0, 8; @%p0 shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xff; st.global.u32 [%rd1], %r1;"
    )
    assert run.completed and not run.hazards, run.hazards
    assert found[:32].tolist() == [lane ^ 1 if lane < 8 else 0 for lane in range(32)]


APART: list[tuple[str, str, str]] = [
    ("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;", "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", "shfl.sync.bfly.b32"),
    ("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;", "shfl.sync.idx.b32 %r1, %r2, 0, 31, 0xffff0001;", "shfl.sync.idx.b32"),
    ("redux.sync.add.u32 %r1, %r2, -1;", "redux.sync.or.b32 %r1, %r2, -1;", "redux.sync.or.b32"),
]


@pytest.mark.parametrize(("low", "high", "said"), APART)
def test_other_modifiers_or_masks_do_not_meet(low: str, high: str, said: str) -> None:
    """The deadlock names both places."""
    for schedule in ("late", 5):
        run, _ = ran(parted(low, high), schedule=schedule)
        assert {own.name for own in run.hazards[:-1]} == {"WARP_SYNC_MASK"} and run.hazards[-1].name == "DEADLOCK"
        message: Any = run.hazards[-1].message
        assert f"{said}, the same with the same mask: threads 0 to 15" in message
        assert "the same with the same mask: threads 16 to 31" in message
