"""clusterlaunchcontrol.try_cancel after an answer that said no."""

from __future__ import annotations

import pytest

from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text, wait

SCHEDULES = ("late", "early", 1, 2, 3)
_ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128"
_EVERYBODY = (
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"
)
_CANCELED = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128"
_HEAD = """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 64; add.u32 %r3, %r1, 80; mov.u32 %r4, 0; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 32; .reg .b128 %q;
    mov.u32 %r6, %cluster_ctarank; setp.eq.u32 %p5, %r6, 0; and.pred %p5, %p5, %p1;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1; @%p1 mbarrier.init.shared::cta.b64 [%r2+8], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
"""
UNTIL_NO = f"""{_HEAD}
    AGAIN:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
    @%p1 {_ASK} [%r1], [%r2];
    {wait("ANSWER", "%r2", "%r4")}
    ld.shared.b128 %q, [%r1];
    {_CANCELED} %p3, %q;
    xor.b32 %r4, %r4, 1; fence.proxy.async.shared::cta; bar.sync 0;
    @%p3 bra AGAIN;
    AFTER
"""
"""A block asks until there is no work."""
_ONCE_MORE = f"{{0}} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16; {{0}} {_ASK} [%r1], [%r2]; {wait('MORE', '%r2', '%r4')}"
TWO_AT_ONCE = f"""{_HEAD}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16; @%p1 {_ASK} [%r1], [%r2];
    BETWEEN
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+8], 16; @%p1 {_ASK} [%r1+16], [%r2+8];
    {wait("FIRST", "%r2", "0")}
    {wait("SECOND", "%r2+8", "0")}
"""
"""A block asks twice before it looks at an answer."""
EVERYBODY = f"""{_HEAD}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16; barrier.cluster.arrive; barrier.cluster.wait;
    @%p5 {_EVERYBODY} [%r1], [%r2];
    {wait("ANSWER", "%r2", "0")}
    ld.shared.b128 %q, [%r1];
    AFTER
    barrier.cluster.arrive; barrier.cluster.wait;
"""
"""The first block of a cluster asks for both."""
_OTHER = f"setp.eq.u32 %p6, %r6, 1; and.pred %p6, %p6, %p1; @%p6 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+8], 16; @%p6 {_ASK} [%r1+16], [%r2+8]; @!%p6 bra NOT; {wait('OWN', '%r2+8', '0')} NOT:"
KERNELS = {
    "until no": (UNTIL_NO.replace("AFTER", ""), 1, False),
    "once more": (UNTIL_NO.replace("AFTER", _ONCE_MORE.format("@%p1")), 1, True),
    "once more by another warp": (UNTIL_NO.replace("AFTER", _ONCE_MORE.format("@%p2")), 1, True),
    "two at once": (TWO_AT_ONCE.replace("BETWEEN", ""), 1, False),
    "two, one after the other": (TWO_AT_ONCE.replace("BETWEEN", wait("EARLIER", "%r2", "0")), 1, True),
    "for the cluster": (EVERYBODY.replace("AFTER", ""), 2, False),
    "for the cluster, and the other block again": (EVERYBODY.replace("AFTER", _OTHER), 2, True),
}


def launched(body: str, blocks: int, schedule: str | int, grid: int) -> Run:
    """A launch of clusters."""
    return parse(text(".param .u64 unused", body, "sm_100a")).kernel().launch(
        Memory(), [0], grid=(grid, 1, 1), block=(64, 1, 1), cluster=(blocks, 1, 1), schedule=schedule
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_block_asks_again(name: str, schedule: str | int) -> None:
    body, blocks, again = KERNELS[name]
    run = launched(body, blocks, schedule, blocks)
    assert run.completed and {own.name for own in run.errors} == ({"CLC_AFTER_NO"} if again else set()), [
        str(own) for own in run.hazards
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["until no", "once more"])
def test_with_work_that_can_be_taken(name: str, schedule: str | int) -> None:
    body, blocks, again = KERNELS[name]
    run = launched(body, blocks, schedule, 5)
    assert run.completed and {own.name for own in run.errors} == ({"CLC_AFTER_NO"} if again else set())
