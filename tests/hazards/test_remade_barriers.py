"""mbarriers that are made, used and invalidated again and again in the same place, as Triton's kernels do: what is right is not reported."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse

ROUNDS = 60
KERNEL = f""".version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target)
{{
    .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<3>; .shared .align 128 .b8 smem[1024];
    ld.param.u64 %d0, [source]; ld.param.u64 %d1, [target]; mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, 0; mov.u32 %r5, 0;
    mad.lo.u32 %r3, %r0, 4, %r1; setp.lt.u32 %p1, %r0, 32;
AGAIN:
    elect.sync %r4|%p2, -1; and.pred %p3, %p1, %p2; @%p3 mbarrier.init.shared::cta.b64 [%r1+512], 1;
    fence.mbarrier_init.release.cluster; bar.sync 0;
    elect.sync %r4|%p2, -1; and.pred %p3, %p1, %p2;
    @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+512], 256;
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, [%r1+512];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+512], 0; @!%p4 bra WAIT;
    ld.shared.u32 %r6, [%r3]; add.u32 %r5, %r5, %r6;
    fence.proxy.async; bar.sync 0;
    elect.sync %r4|%p2, -1; and.pred %p3, %p1, %p2; @%p3 mbarrier.inval.shared::cta.b64 [%r1+512];
    add.u32 %r2, %r2, 1; setp.lt.u32 %p5, %r2, {ROUNDS}; @%p5 bra AGAIN;
    mul.wide.u32 %d2, %r0, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r5;
    ret;
}}
"""
LATE = KERNEL.replace("[%r1], [%d0], 256, [%r1+512];", "[%r1], [%d0], 256, [%r1+512];", 1).replace(
    ", 256;\n    @%p3 cp", ", 128;\n    @%p3 cp"
)
"""The same where the mbarrier expects half of the bytes."""
OTHER_LANE = KERNEL.replace("@%p3 mbarrier.inval", "setp.eq.u32 %p3, %r0, 9; @%p3 mbarrier.inval")
"""The same where another lane invalidates it: the one that makes it again does not know."""


def ran(source: str, schedule: str) -> Run:
    memory = Memory()
    given, taken = memory.allocate(np.arange(64, dtype=np.uint32).view(np.uint8)), memory.allocate(256)
    run = parse(source).kernel().launch(memory, [given, taken], (1, 1, 1), (64, 1, 1), schedule=schedule)
    if run.completed and source is KERNEL:
        assert np.array_equal(memory.read(taken, 256).view(np.uint32), np.arange(64) * ROUNDS)
    return run


@pytest.mark.parametrize("schedule", ["late", "early"])
def test_what_is_right_is_not_reported(schedule: str) -> None:
    """Each round has a copy of its own, an object of its own, and an elected lane that is the same one."""
    assert ran(KERNEL, schedule).hazards == []


@pytest.mark.parametrize(("source", "name"), [(LATE, "MBAR_TX_UNDER"), (OTHER_LANE, "WARP_SYNC_COLLECTIVE")])
def test_what_is_wrong_is(source: str, name: str) -> None:
    assert source != KERNEL
    assert name in {own.name for own in ran(source, "late").hazards}
