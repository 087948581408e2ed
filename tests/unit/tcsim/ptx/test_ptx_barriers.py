"""Kernels of barriers, register pools, launches and small copies on the machine: what they leave in memory is what NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tests.support.ptx_copies import SCHEDULES, run, text, wait

SOURCE, TARGET = 0x10000, 0x80000
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def completed(found: Any) -> None:
    """The kernel ran to its end, and nothing was wrong."""
    assert found.completed, [hazard.as_dict() for hazard in found.hazards]
    assert [hazard.name for hazard in found.hazards if hazard.severity == "error"] == []


# --- mbarrier

STATES = text(
    ".param .u64 target",
    """
    ld.param.u64 %rd1, [target];
    mov.u32 %r1, smem; setp.ne.u32 %p1, %r0, 0;
    @%p1 bra DONE;
    mbarrier.init.shared::cta.b64 [%r1], 4;
    mbarrier.arrive.shared::cta.b64 %rd2, [%r1];
    mbarrier.arrive.noComplete.shared::cta.b64 %rd3, [%r1], 2;
    mbarrier.pending_count.b64 %r2, %rd3;                          // 3: before the two
    mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %rd2;           // no
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;
    mbarrier.arrive_drop.shared::cta.b64 %rd4, [%r1];              // the last one: bytes are missing
    mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0;       // no
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32;
    mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 0;       // yes
    mbarrier.try_wait.shared::cta.b64 %p5, [%r1], %rd4;            // yes
    mbarrier.test_wait.parity.shared::cta.b64 %p6, [%r1], 1;       // no
    mbarrier.arrive.shared::cta.b64 %rd5, [%r1], 3;                // three are left of four
    mbarrier.test_wait.shared::cta.b64 %p7, [%r1], %rd5;           // yes
    mbarrier.test_wait.parity.shared::cta.b64 %p8, [%r1], 3;       // yes: the lowest bit of the parity counts
    mbarrier.inval.shared::cta.b64 [%r1];
    mbarrier.init.shared::cta.b64 [%r1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [%r1], 0;
    mbarrier.test_wait.shared::cta.b64 %p9, [%r1], %rd6;           // yes
    selp.u32 %r3, 1, 0, %p2; selp.u32 %r4, 2, 0, %p3; or.b32 %r3, %r3, %r4; selp.u32 %r4, 4, 0, %p4; or.b32 %r3, %r3, %r4;
    selp.u32 %r4, 8, 0, %p5; or.b32 %r3, %r3, %r4; selp.u32 %r4, 16, 0, %p6; or.b32 %r3, %r3, %r4;
    selp.u32 %r4, 32, 0, %p7; or.b32 %r3, %r3, %r4; selp.u32 %r4, 64, 0, %p8; or.b32 %r3, %r3, %r4;
    selp.u32 %r4, 128, 0, %p9; or.b32 %r3, %r3, %r4;
    st.global.v2.u32 [%rd1], {%r2, %r3};
    st.global.u64 [%rd1+8], %rd2; st.global.u64 [%rd1+16], %rd5;
    DONE:
    """,
)


def test_states_and_phases() -> None:
    """A thread alone with its barrier: states, counts, bytes, dropped arrivals, three phases and a second life."""
    found, after = run(STATES, {TARGET: np.zeros(6, np.uint32)}, (TARGET,), "late")
    completed(found)
    words = after[TARGET].view(np.uint32)
    assert words[:2].tolist() == [3, 0b11101100]
    first = tcsim.MBarrier.decode(int(words[3]) << 32, arch="sm_90")
    third = tcsim.MBarrier.decode(int(words[5]) << 32, arch="sm_90")
    assert (first.phase, first.pending, third.phase, third.pending) == (0, 4, 1, 3)
    assert words[2] == words[4] == 0


COPIED = text(
    ".param .u64 source, .param .u64 target",
    f"""
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 8192; setp.ne.u32 %p1, %r0, 0;
    @%p1 bra MADE;
    mbarrier.init.shared::cta.b64 [%r2], 64;
    mbarrier.init.shared::cta.b64 [%r2+8], 64;
    MADE:
    bar.sync 0;
    mul.wide.u32 %rd3, %r0, 16; add.u64 %rd4, %rd1, %rd3; shl.b32 %r3, %r0, 4; add.u32 %r3, %r3, %r1;
    cp.async.cg.shared.global [%r3], [%rd4], 16;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];          // counts as the arrival
    cp.async.ca.shared.global [%r3+1024], [%rd4], 4, 3;
    cp.async.mbarrier.arrive.shared::cta.b64 [%r2+8];              // one more, and its arrival
    mbarrier.arrive.shared::cta.b64 _, [%r2+8];
    {wait("FIRST", "%r2", "0")}
    add.u32 %r4, %r2, 8;
    {wait("SECOND", "%r4", "0")}
    xor.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 4; add.u32 %r5, %r5, %r1;     // another thread's
    ld.shared.v4.u32 {{%r6, %r7, %r8, %r9}}, [%r5]; ld.shared.u32 %r10, [%r5+1024];
    mul.wide.u32 %rd5, %r0, 20; add.u64 %rd5, %rd5, %rd2;
    st.global.u32 [%rd5], %r6; st.global.u32 [%rd5+4], %r7; st.global.u32 [%rd5+8], %r8; st.global.u32 [%rd5+12], %r9;
    st.global.u32 [%rd5+16], %r10;
    """,
)


@schedules
def test_copies_that_arrive(schedule: str | int) -> None:
    """cp.async.mbarrier.arrive with and without .noinc: 64 threads read what others have copied."""
    words = np.random.default_rng(1).integers(0, 1 << 32, (64, 4), np.uint32)
    found, after = run(COPIED, {SOURCE: words, TARGET: np.zeros((64, 5), np.uint32)}, (SOURCE, TARGET), schedule, 64)
    completed(found)
    want = np.concatenate([words, words[:, :1] & np.uint32(0xFFFFFF)], axis=1)[::-1]
    assert np.array_equal(after[TARGET].view(np.uint32).reshape(64, 5), want)


# --- warpgroups, named barriers, the register pool

POOL = text(
    ".param .u64 target",
    """
    ld.param.u64 %rd1, [target];
    mov.u32 %r1, smem; shr.u32 %r2, %r0, 7; setp.eq.u32 %p1, %r2, 0; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r1;
    @!%p1 bra CONSUMER;
    setmaxnreg.dec.sync.aligned.u32 40;
    mul.lo.u32 %r4, %r0, %r0; st.shared.u32 [%r3], %r4;
    barrier.cta.arrive.aligned 1, 256;                             // the other warpgroup may read
    barrier.cta.sync.aligned 2, 256;
    ld.shared.u32 %r5, [%r3]; and.b32 %r6, %r5, 1; setp.ne.u32 %p2, %r6, 0;
    barrier.cta.red.popc.aligned.u32 %r7, 3, 128, %p2;
    setp.eq.u32 %p3, %r0, 77;
    barrier.cta.red.or.aligned.pred %p4, 4, 128, %p3;
    barrier.cta.red.and.aligned.pred %p5, 5, 128, %p3;
    selp.u32 %r8, 1000, 0, %p4; add.u32 %r7, %r7, %r8; selp.u32 %r8, 5000, 0, %p5; add.u32 %r7, %r7, %r8;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r7;
    bra DONE;
    CONSUMER:
    setmaxnreg.inc.sync.aligned.u32 216;                           // waits for what the others give back
    barrier.cta.sync.aligned 1, 256;
    sub.u32 %r3, %r3, 512; ld.shared.u32 %r5, [%r3];
    elect.sync %r9|%p6, 0xffffffff;
    selp.u32 %r10, 100000, 0, %p6; add.u32 %r10, %r10, %r5; add.u32 %r10, %r10, %r9;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r10;
    mul.lo.u32 %r5, %r5, 3; st.shared.u32 [%r3], %r5;
    barrier.cta.arrive.aligned 2, 256;
    DONE:
    """,
    directives=".maxntid 256, 1, 1 .maxnreg 128",
)


@schedules
def test_two_warpgroups(schedule: str | int) -> None:
    """Registers that one gives back and the other takes, barriers that one arrives at and the other waits for, reductions."""
    found, after = run(POOL, {TARGET: np.zeros(256, np.uint32)}, (TARGET,), schedule, 256)
    completed(found)
    squares = np.arange(128, dtype=np.uint32) ** 2
    odd = int((3 * squares & 1).sum())
    elected = np.where(np.arange(128) % 32 == 0, 100000, 0)
    want = np.concatenate([np.full(128, odd + 1000), squares + elected])
    assert after[TARGET].view(np.uint32).tolist() == want.tolist()


def test_a_pool_that_is_never_filled() -> None:
    """Registers that nobody gives back are waited for in vain: a deadlock, and not a wrong result."""
    source = POOL.replace("setmaxnreg.dec.sync.aligned.u32 40;", "")
    found, _ = run(source, {TARGET: np.zeros(256, np.uint32)}, (TARGET,), "late", 256)
    names = [hazard.name for hazard in found.hazards]
    assert not found.completed and names == ["SETMAXNREG_OVERSUBSCRIBED", "DEADLOCK"]


# --- launches

FIRST = text(
    ".param .u64 target",
    """
    ld.param.u64 %rd1, [target]; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd1, %rd1, %rd2;
    griddepcontrol.launch_dependents;
    mul.lo.u32 %r1, %r0, 7; st.global.u32 [%rd1], %r1;
    """,
)
SECOND = text(
    ".param .u64 target",
    """
    ld.param.u64 %rd1, [target]; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd1, %rd1, %rd2;
    griddepcontrol.wait;
    ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;
    """,
)


@schedules
def test_a_dependent_launch(schedule: str | int) -> None:
    """griddepcontrol.wait: what the launch before has written is there."""
    first, memory = run(FIRST, {TARGET: np.zeros(32, np.uint32)}, (TARGET,), schedule)
    completed(first)
    second, after = run(SECOND, memory, (TARGET,), schedule, after=first)
    completed(second)
    assert after[TARGET].view(np.uint32).tolist() == [7 * lane + 1 for lane in range(32)]


CANCEL = text(
    ".param .u64 target",
    f"""
    ld.param.u64 %rd1, [target]; mov.u32 %r1, smem; add.u32 %r2, %r1, 64; setp.eq.u32 %p1, %r0, 0;
    .reg .b128 %q;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, 0;                         // the block's work, and the parity
    bar.sync 0;
    AGAIN:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];
    mul.wide.u32 %rd2, %r3, 128; add.u64 %rd2, %rd2, %rd1; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r5, [%rd2]; add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, 1; st.global.u32 [%rd2], %r5;
    {wait("ANSWER", "%r2", "%r4")}
    ld.shared.b128 %q, [%r1];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q;
    @!%p2 bra DONE;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r3, %q;
    xor.b32 %r4, %r4, 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    bra AGAIN;
    DONE:
    """,
    target="sm_100a",
)


@schedules
def test_work_is_done_once(schedule: str | int) -> None:
    """clusterlaunchcontrol: whoever does the work of a block, every block's is done exactly once."""
    found, after = run(CANCEL, {TARGET: np.zeros((5, 32), np.uint32)}, (TARGET,), schedule, grid=5)
    completed(found)
    assert after[TARGET].view(np.uint32).reshape(5, 32).tolist() == [[block + 1] * 32 for block in range(5)]
    one, _ = run(CANCEL, {TARGET: np.zeros((1, 32), np.uint32)}, (TARGET,), schedule)
    # early all blocks have started and each does its own work; else one does the work of all, and needs fewer instructions
    assert (found.instructions == 5 * one.instructions) == (schedule == "early"), (found.instructions, one.instructions)


# --- small copies

SMALL = text(
    ".param .u64 source, .param .u64 target",
    f"""
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 4096; mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r0, 0;
    createpolicy.fractional.L2::evict_first.b64 %rd5, 0.5;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
    mov.u64 %rd6, 512; st.bulk.weak.shared::cta [%r1], %rd6, 0;
    @%p1 prefetch.global.L2 [%rd1];
    mov.u32 %r4, 256; mov.u32 %r5, 5; mov.u32 %r6, 2;
    @%p1 cp.async.bulk.prefetch.L2.global [%rd1], %r4;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.u16 %h1, 3;
    shl.b32 %r7, %r3, 8; add.u32 %r7, %r7, %r1; mul.wide.u32 %rd3, %r3, 256; add.u64 %rd3, %rd3, %rd1;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
        [%r7], [%rd3], 256, [%r2], %h1, %rd5;
    {wait("FULL", "%r2", "0")}
    mov.u16 %h2, 0x8421;
    mul.wide.u32 %rd4, %r3, 512; add.u64 %rd4, %rd4, %rd2;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd4], [%r1], 512, %h2;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
    applypriority.global.L2::evict_normal [%rd2], 128;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """,
    target="sm_100a",
)


@schedules
def test_small_copies(schedule: str | int) -> None:
    """A bulk multicast of two halves, a store of some bytes of every 16, hints that change nothing."""
    data = np.random.default_rng(2).integers(0, 256, 512, np.uint8)
    found, after = run(SMALL, {SOURCE: data, TARGET: np.full(1024, 9, np.uint8)}, (SOURCE, TARGET), schedule, 32, 2, 2)
    completed(found)
    kept = (0x8421 >> np.arange(512) % 16 & 1).astype(bool)
    assert np.array_equal(after[TARGET].reshape(2, 512), np.stack([np.where(kept, data, 9)] * 2))


@pytest.mark.parametrize(
    ("line", "name", "detail"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [%r1], 3;", "MBARRIER_FAULT", "2 arrivals are pending"),
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;",
            "MBAR_TX_RANGE",
            "transaction count would be",
        ),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 32768;", "", ""),
        (
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 24, [%r1];",
            "INVALID_OPERAND",
            "size=24",
        ),
        (
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+8], [%rd1], 16, [%r1];",
            "TMA_MISALIGNED",
            "0x408",
        ),
        ("mbarrier.init.shared::cta.b64 [%r1], 0;", "MBAR_COUNT", "expected arrivals from 1"),
    ],
)
def test_wrong_uses(line: str, name: str, detail: str) -> None:
    """A wrong use is a hazard that names the line."""
    body = "ld.param.u64 %rd1, [target]; mov.u32 %r1, smem; setp.eq.u32 %p1, %r0, 0;\n"
    body += "@%p1 mbarrier.init.shared::cta.b64 [%r1], 2;\nbar.sync 0;\n"
    source = text(".param .u64 target", f"{body}@%p1 {line}")
    found, _ = run(source, {TARGET: np.zeros(64, np.uint8)}, (TARGET,), "late")
    assert [hazard.name for hazard in found.hazards if hazard.severity == "error"] == [name] * bool(name)
    if name:
        (hazard,) = found.hazards
        assert detail in hazard.message
        assert hazard.line is not None and line in source.splitlines()[hazard.line - 1]
    else:
        completed(found)


@pytest.mark.parametrize(("bytes", "fits"), [(32767, True), (32768, False)])
def test_what_a_warp_tells_a_barrier_is_one_number(bytes: int, fits: bool) -> None:
    """32 lanes expect bytes in one instruction: the sum has the limits of a single number, 2**20 - 1."""
    body = f"""
    mov.u32 %r1, smem; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 32;
    bar.sync 0;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], {bytes};
    """
    found, _ = run(text(".param .u64 target", body), {TARGET: np.zeros(64, np.uint8)}, (TARGET,), "late")
    assert found.completed == fits
    assert [hazard.name for hazard in found.hazards] == ([] if fits else ["MBAR_TX_RANGE"])


@schedules
def test_an_arrival_of_a_warp_that_has_ended_counts(schedule: str | int) -> None:
    """The second warp comes to the barrier after the first one has arrived and ended."""
    body = """setp.lt.u32 %p1, %r0, 32; @%p1 bra FIRST; mov.u32 %r1, 0;
        MORE: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 50; @%p2 bra MORE;
        bar.sync 1, 64; bra DONE;
        FIRST: bar.arrive 1, 64;
        DONE:"""
    found, _ = run(text("", body), {}, [], schedule, block=64)
    completed(found)
