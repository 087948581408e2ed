"""Waits that may come when the next phase is over, too, and arrivals that may come before the phase before is: nothing orders them, in whatever order they ran."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text

SCHEDULES = ("late", "early", 1, 2, 3)

RING = """
    ld.param.u64 %rd1, [source];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 1024; add.u32 %r3, %r1, 1040; and.b32 %r4, %r0, 31; shr.u32 %r5, %r0, 5;
    setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r4, 0; setp.eq.u32 %p3, %r5, 2; setp.eq.u32 %p4, %r5, 0; and.pred %p5, %p2, %p4;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], FULL; @%p1 mbarrier.init.shared::cta.b64 [%r2+8], FULL;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], EMPTY; @%p1 mbarrier.init.shared::cta.b64 [%r3+8], EMPTY;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %r6, 0;
    @%p3 bra PRODUCER;
    CONSUME:
    and.b32 %r7, %r6, 1; shl.b32 %r7, %r7, 3; add.u32 %r8, %r2, %r7; add.u32 %r9, %r3, %r7; shr.u32 %r10, %r6, 1; and.b32 %r10, %r10, 1;
    FILLED: WAIT %p6, [%r8], %r10; @!%p6 bra FILLED;
    RELEASE
    add.u32 %r6, %r6, 1; setp.lt.u32 %p7, %r6, 6; @%p7 bra CONSUME;
    bra DONE;
    PRODUCER:
    PRODUCE:
    and.b32 %r7, %r6, 1; shl.b32 %r7, %r7, 3; add.u32 %r8, %r2, %r7; add.u32 %r9, %r3, %r7; shr.u32 %r10, %r6, 1; and.b32 %r10, %r10, 1; xor.b32 %r10, %r10, 1; mad.lo.u32 %r12, %r7, 32, %r1;
    EMPTIED: WAIT %p6, [%r9], %r10; @!%p6 bra EMPTIED;
    FILL
    add.u32 %r6, %r6, 1; setp.lt.u32 %p7, %r6, 6; @%p7 bra PRODUCE;
    DONE:
"""
"""Warp 2 fills two slots in turn, six times, warps 0 and 1 wait for each."""
FILLS = {
    "arrive": ("@%p2 mbarrier.arrive.shared::cta.b64 _, [%r8];", 1, "sm_90a"),
    "all lanes": ("mbarrier.arrive.shared::cta.b64 _, [%r8];", 32, "sm_90a"),
    "bytes": (
        "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 16; "
        "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd1], 16, [%r8]; bar.warp.sync -1;", 1, "sm_90a",
    ),
    "expected apart": (
        "@%p2 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 16; @%p2 mbarrier.arrive.shared::cta.b64 _, [%r8]; "
        "@%p2 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r8], 16;", 1, "sm_90a",
    ),
    "copies": (
        "mad.lo.u32 %r11, %r4, 4, %r1; mad.lo.u32 %r11, %r7, 32, %r11; mad.wide.u32 %rd2, %r4, 4, %rd1; cp.async.ca.shared.global [%r11], [%rd2], 4; "
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r8]; cp.async.wait_all;", 32, "sm_90a",
    ),
    "commit": ("@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];", 1, "sm_100a"),
}  # fmt: skip
WAITS = {
    "try": "mbarrier.try_wait.parity.shared::cta.b64",
    "test": "mbarrier.test_wait.parity.shared::cta.b64",
    "relaxed": "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64",
}
_FREE = "mbarrier.arrive.shared::cta.b64 _, [%r9];"
RELEASES = {
    "each warp arrives": (f"@%p2 {_FREE}", 2, True),
    "each thread arrives": (_FREE, 64, True),
    "relaxed": ("@%p2 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r9];", 2, True),
    "one after a barrier": (f"bar.sync 1, 64; @%p5 {_FREE}", 1, True),
    "one alone": (f"@%p5 {_FREE}", 1, False),
    "one before a barrier": (f"@%p5 {_FREE} bar.sync 1, 64;", 1, False),
    "one after a vote": (f"vote.sync.any.pred %p8, %p1, -1; bar.warp.sync -1; @%p5 {_FREE}", 1, False),
    "one alone, twice": (f"@%p5 {_FREE} @%p5 {_FREE}", 2, False),
}
"""How the consumers give a slot back: PTX, arrivals of a phase, whether all waits come before."""


def launched(body: str, target: str, schedule: str | int, threads: int = 96, blocks: int = 1) -> Run:
    """A launch of one cluster."""
    memory = Memory()
    source = memory.allocate(np.zeros(4096, np.uint8))
    return parse(text(".param .u64 source", body, target)).kernel().launch(
        memory, [source], grid=(blocks, 1, 1), block=(threads, 1, 1), cluster=(blocks, 1, 1), schedule=schedule
    )  # fmt: skip


def ring(fill: str, wait: str, release: str) -> tuple[str, str]:
    """The PTX of a ring, and its target."""
    filling, full, target = FILLS[fill]
    freeing, empty, _ = RELEASES[release]
    words = {
        "FILL\n": f"{filling}\n",
        "WAIT": WAITS[wait],
        "RELEASE": freeing,
        "FULL": str(full),
        "EMPTY;": f"{empty};",
    }
    body = RING
    for word, own in words.items():
        body = body.replace(word, own)
    return body, target


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("fill", "wait"), [
    *((fill, "try") for fill in FILLS), ("arrive", "test"), ("bytes", "test"), ("arrive", "relaxed"), ("bytes", "relaxed"),
])  # fmt: skip
def test_a_ring_of_slots(fill: str, wait: str, release: str, schedule: str | int) -> None:
    body, target = ring(fill, wait, release)
    run = launched(body, target, schedule)
    found = {own.name for own in run.errors}
    if RELEASES[release][2]:
        assert run.completed and "MBAR_PHASE_ALIAS" not in found, [str(own) for own in run.hazards]
        assert not found or "relaxed" in (wait, release)  # which orders no copies
    else:
        assert "MBAR_PHASE_ALIAS" in found, [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("release", RELEASES)
def test_who_does_not_wait_is_not_late(release: str, schedule: str | int) -> None:
    """With one consumer that waits, whoever else arrives."""
    body, target = ring("arrive", "try", release)
    body = body.replace("FILLED: ", "@!%p4 bra SKIPPED;\nFILLED: ").replace("bra FILLED;", "bra FILLED;\nSKIPPED:")
    run = launched(body, target, schedule)
    assert not any(own.name == "MBAR_PHASE_ALIAS" and own.thread == 32 for own in run.hazards)
    if release == "one alone":
        assert run.completed and not run.errors, [str(own) for own in run.hazards]


_ZEROS = " ".join(f"mov.f32 %f{number}, 0f00000000;" for number in range(1, 5))
_PRODUCT = """
    wgmma.fence.sync.aligned; mov.u64 %rd3, 0x0000000800080100;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd3, %rd3, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
"""The four warps give their registers to one product, and wait for it: then each knows what the others did before."""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("release", "late"), [
    (f"{_PRODUCT} @%p1 {_FREE}", False), (f"@%p1 {_FREE} {_PRODUCT}", True), (f"@%p1 {_FREE}", True),
])  # fmt: skip
def test_one_thread_of_a_warpgroup_gives_slots_back(release: str, late: bool, schedule: str | int) -> None:
    """As kernels of CUTLASS do, behind the product of the warpgroup."""
    body = RING.replace("setp.eq.u32 %p3, %r5, 2", f"{_ZEROS} setp.eq.u32 %p3, %r5, 4")
    words = {"FILL\n": f"{FILLS['bytes'][0]}\n", "WAIT": WAITS["try"], "RELEASE": release, "FULL": "1", "EMPTY;": "1;"}
    for word, own in words.items():
        body = body.replace(word, own)
    run = launched(body, "sm_90a", schedule, 160)
    found = {own.name for own in run.errors}
    assert run.completed and found == ({"MBAR_PHASE_ALIAS"} if late else set()), [str(own) for own in run.hazards]


_TWICE = """
    mov.u32 %r1, smem; setp.eq.u32 %p1, %r0, 0; and.b32 %r4, %r0, 31; setp.eq.u32 %p2, %r4, 0; shr.u32 %r5, %r0, 5; setp.eq.u32 %p3, %r5, 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], COUNT; @%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;
    bar.sync 0;
"""
TOKENS = f"""{_TWICE.replace("COUNT", "2")} .reg .b64 %s<2>; mov.u32 %r6, 0;
    @!%p2 bra DONE;
    AGAIN: mbarrier.arrive.shared::cta.b64 %s0, [%r1];
    ASK: mbarrier.try_wait.shared::cta.b64 %p4, [%r1], %s0; @!%p4 bra ASK;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 5; @%p5 bra AGAIN;
    DONE:
"""
"""One lane of each of two warps arrives and waits with what it got, again and again."""
WATCHED = f"""{_TWICE.replace("COUNT", "1")} .reg .b64 %s<2>; mov.u32 %r6, 0;
    @!%p2 bra DONE;
    @%p3 bra WATCH;
    AGAIN: mbarrier.arrive.shared::cta.b64 %s0, [%r1];
    ASK: mbarrier.try_wait.shared::cta.b64 %p4, [%r1], %s0; @!%p4 bra ASK;
    SEEN
    add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 5; @%p5 bra AGAIN;
    bra DONE;
    WATCH: and.b32 %r7, %r6, 1;
    LOOK: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], %r7; @!%p4 bra LOOK;
    TELL
    add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 5; @%p5 bra WATCH;
    DONE:
"""
"""Warp 0 ends phases by itself, and warp 1 waits for each."""
_TOLD = (
    "and.b32 %r8, %r6, 1; BACK: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+8], %r8; @!%p4 bra BACK;",
    "mbarrier.arrive.shared::cta.b64 _, [%r1+8];",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("body", "late"), [
    (TOKENS, False),
    (WATCHED.replace("SEEN", "").replace("TELL", ""), True),
    (WATCHED.replace("SEEN", _TOLD[0]).replace("TELL", _TOLD[1]), False),
])  # fmt: skip
def test_arrivals_that_return_a_state(body: str, late: bool, schedule: str | int) -> None:
    run = launched(body, "sm_90a", schedule, 64)
    found = {own.name for own in run.errors}
    assert ("MBAR_PHASE_ALIAS" in found) is late and (late or (run.completed and not found)), [
        str(own) for own in run.hazards
    ]


REMOTE = """
    mov.u32 %r1, smem; setp.eq.u32 %p1, %r0, 0; and.b32 %r4, %r0, 31; setp.eq.u32 %p2, %r4, 0; mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p3, %r5, 1; shr.u32 %r6, %r0, 5; setp.eq.u32 %p6, %r6, 0; and.pred %p6, %p6, %p2;
    mov.u32 %r2, 0; mapa.shared::cluster.u32 %r7, %r1, %r2; mov.u32 %r2, 1; add.u32 %r8, %r1, 8; mapa.shared::cluster.u32 %r9, %r8, %r2;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @%p1 mbarrier.init.shared::cta.b64 [%r8], COUNT; @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r10, 0;
    @%p3 bra TELL;
    WAIT: and.b32 %r11, %r10, 1;
    ASK: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r1], %r11; @!%p4 bra ASK;
    BACK
    add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 4; @%p5 bra WAIT;
    bra DONE;
    TELL: and.b32 %r11, %r10, 1;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
    ANSWER: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r8], %r11; @!%p4 bra ANSWER;
    bar.sync 1;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 4; @%p5 bra TELL;
    DONE:
    barrier.cluster.arrive; barrier.cluster.wait;
"""
"""Block 1 tells two warps of block 0, and waits for their answer."""
_ANSWER = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("back", "count", "late"), [
    (f"@%p2 {_ANSWER}", 2, False),
    (f"@%p6 {_ANSWER}", 1, True),
    (f"bar.sync 2; @%p6 {_ANSWER}", 1, False),
])  # fmt: skip
def test_blocks_that_tell_each_other(back: str, count: int, late: bool, schedule: str | int) -> None:
    run = launched(REMOTE.replace("BACK", back).replace("COUNT", str(count)), "sm_90a", schedule, 64, 2)
    found = {own.name for own in run.errors}
    assert ("MBAR_PHASE_ALIAS" in found) is late and (late or (run.completed and not found)), [
        str(own) for own in run.hazards
    ]


SLOW = """
    mov.u32 %r1, smem; setp.eq.u32 %p1, %r0, 0; shr.u32 %r5, %r0, 5; setp.eq.u32 %p2, %r5, 1; mov.u32 %r6, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;
    bar.sync 0;
    @%p2 bra SLOW;
    TELL: and.b32 %r7, %r6, 1;
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
    SEE: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], %r7; @!%p4 bra SEE;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 3; @%p5 bra TELL;
    bra DONE;
    SLOW: add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 400; @%p5 bra SLOW;
    BETWEEN
    ASK: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0; @!%p4 bra ASK;
    DONE: END
"""
"""Warp 1 comes to its wait for phase 0 when phase 2 is over."""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("between", "end", "late"), [("", "", True), ("bar.sync 1, 64;", "@!%p2 bar.sync 1, 64;", False)]
)
def test_a_wait_that_finds_a_later_phase(between: str, end: str, late: bool, schedule: str | int) -> None:
    """It is right where all that goes before is known to be over: then it is for phase 2."""
    run = launched(SLOW.replace("BETWEEN", between).replace("END", end), "sm_90a", schedule, 64)
    found = {own.name for own in run.errors}
    assert run.completed and found == ({"MBAR_PHASE_ALIAS"} if late else set()), [str(own) for own in run.hazards]


_ROLES = """
    mov.u32 %r6, 0; shr.u32 %r5, %r0, 5; setp.eq.u32 %p1, %r5, 0;
    @%p1 bra GIVE;
    TAKE: bar.sync 1, 64; BACK add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra TAKE; bra DONE;
    GIVE: ARRIVE NEXT add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra GIVE;
    DONE:
"""
_ARRIVE, _HERE = "bar.arrive 1, 64;", "bar.sync 2, 64;"


def _roles(arrive: str = _ARRIVE, back: str = "", following: str = "") -> str:
    return _ROLES.replace("ARRIVE", arrive).replace("BACK", back).replace("NEXT", following)


_PAIRS = "shr.u32 %r5, %r0, 6; setp.eq.u32 %p1, %r5, 0; @!%p1 bra OTHER; bar.sync 1, 64; OTHER: {} @%p1 bra DONE; bar.sync 1, 64; DONE:"
NAMED = {
    "arrives again": (_roles(), 64, True),
    "arrives again after an answer": (_roles(back="bar.arrive 2, 64;", following=_HERE), 64, False),
    "arrives again after both meet": (_roles(back=_HERE, following=_HERE), 64, False),
    "barrier.arrive again": (_roles("barrier.arrive 1, 64;"), 64, True),
    "waits for another barrier": (_roles(following="bar.sync 3, 32;"), 64, True),
    "arrives, and then waits": (
        "shr.u32 %r5, %r0, 5; setp.eq.u32 %p1, %r5, 0; @%p1 bra GIVE; bar.sync 1, 64; bar.sync 1, 64; bra DONE; GIVE: bar.arrive 1, 64; bar.sync 1, 64; DONE:", 64, True,
    ),
    "arrives, and then reduces": (
        "shr.u32 %r5, %r0, 5; setp.eq.u32 %p1, %r5, 0; @%p1 bra GIVE; barrier.red.popc.u32 %r7, 1, 64, %p1; barrier.red.popc.u32 %r7, 1, 64, %p1; bra DONE; "
        "GIVE: barrier.arrive 1, 64; barrier.red.popc.u32 %r7, 1, 64, %p1; DONE:", 64, True,
    ),
    "waits again and again": ("bar.sync 1, 64; bar.sync 1, 64; bar.sync 1, 64;", 64, False),
    "reduces again and again": ("barrier.red.and.pred %p1, 1, 64, %p2; barrier.red.and.pred %p1, 1, 64, %p2;", 64, False),
    "two pairs at one barrier": (_PAIRS.format(""), 128, True),
    "two pairs, a barrier of all between": (_PAIRS.format("bar.sync 0;"), 128, False),
    "for all threads": ("bar.sync 0; bar.sync 0; bar.sync 0;", 128, False),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", NAMED)
def test_phases_of_a_named_barrier(name: str, schedule: str | int) -> None:
    body, threads, early = NAMED[name]
    run = launched(body, "sm_90a", schedule, threads)
    found = {own.name for own in run.errors}
    assert ("BARRIER_PHASE_ALIAS" in found) is early, [str(own) for own in run.hazards]
    assert early or (run.completed and not found), [str(own) for own in run.hazards]
