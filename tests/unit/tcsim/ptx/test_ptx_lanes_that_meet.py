"""Lanes of a warp that come to a vote or to bar.warp.sync one after the other: who goes on, and who waits for whom."""

from __future__ import annotations

import pytest

from tests.support.ptx_copies import SCHEDULES
from tests.unit.tcsim.ptx.test_ptx_threads import ran


@pytest.mark.parametrize("schedule", [15, 23, 25, 29])
def test_lanes_that_come_with_another_warp_join_those_that_wait(schedule: int) -> None:
    """A lane of warp 1 comes to a vote, whose mask only running tells, while all of warp 0 is there to execute it again."""
    run, found = ran(
        """
        setp.eq.u32 %p0, %r0, 34; selp.u32 %r1, 3, 1, %p0; mov.u32 %r3, -1; add.u32 %r3, %r3, 0;
        AGAIN: add.u32 %r1, %r1, -1; setp.gt.s32 %p1, %r1, 0; @%p1 bra AGAIN;
        vote.sync.ballot.b32 %r2, %p0, %r3; st.global.u32 [%rd1], %r2;
        """,
        block=64, schedule=schedule,
    )  # fmt: skip
    assert run.completed and found[:64].tolist() == [0] * 32 + [4] * 32


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warp_barriers_with_other_masks_are_others(schedule: str | int) -> None:
    """Half of the warp meets twice, at two places, before lane 0 writes; the other half is at the barrier of all by then."""
    run, found = ran(
        """
        setp.ge.u32 %p0, %r0, 16; setp.ge.u32 %p1, %r0, 8; mov.u32 %r1, 42; mov.u32 %r2, 0xffff; mov.u32 %r3, 0; setp.ne.u32 %p2, %r0, 0;
        @!%p0 bra HALF;
        bar.warp.sync 0xffffffff; bra JOIN;
        HALF: @%p1 bra UPPER;
        bar.warp.sync %r2; bra LOW;
        UPPER: bar.warp.sync %r2;
        LOW: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 50; @%p1 bra LOW;
        @!%p2 st.shared.u32 [smem], %r1;
        bar.warp.sync 0xffffffff;
        JOIN: ld.shared.u32 %r2, [smem]; st.global.u32 [%rd1], %r2;
        """,
        schedule=schedule,
    )
    assert run.completed and found[:32].tolist() == [42] * 32
