"""Instructions that all threads of a warp or warpgroup have to execute, without one of them; and setmaxnreg, which all warps of a warpgroup execute alike."""

from __future__ import annotations

import pytest

from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text

SCHEDULES = ("late", "early", 1, 2, 3)

_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3];"
_STMATRIX = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r5};"
ALIGNED = {
    "mma": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r5, %r5, %r5, %r5}, {%r5, %r5}, {%f0, %f0, %f0, %f0};", "sm_80"),
    "sparse": ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r5, %r5}, {%r5, %r5}, {%f0, %f0, %f0, %f0}, %r16, 0x0;", "sm_80"),
    "scaled": ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {%f1, %f2, %f3, %f4}, {%r5, %r5, %r5, %r5}, {%r5, %r5}, {%f0, %f0, %f0, %f0}, %r5, {0, 0}, %r5, {0, 0};", "sm_120a"),
    "wmma.load": ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12}, [%r1], 16;", "sm_80"),
    "wmma.store": ("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r2], {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0}, 16;", "sm_80"),
    "ldmatrix": (_LDMATRIX, "sm_80"),
    "stmatrix": (_STMATRIX, "sm_90"),
    "movmatrix": ("movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r0;", "sm_80"),
    "two of them": (f"movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r0; movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r0; {_LDMATRIX}", "sm_80"),
    "tcgen05.alloc": ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "sm_100a"),
    "tcgen05.wait": ("tcgen05.wait::ld.sync.aligned;", "sm_100a"),
    "tensormap": ("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1], 128;", "sm_90"),
    "setmaxnreg": ("setmaxnreg.dec.sync.aligned.u32 40;", "sm_90a"),
    "wgmma.fence": ("wgmma.fence.sync.aligned;", "sm_90a"),
    "wgmma.wait": ("wgmma.wait_group.sync.aligned 0;", "sm_90a"),
    "wgmma": ("wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r5, %r5, %r5, %r5}, %rd2, 0, 1, 1, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", "sm_90a"),
}  # fmt: skip
"""What needs a whole warp, or a warpgroup: PTX, and a target that has it."""
MATRICES = ("mma", "sparse", "scaled", "wmma.load", "wmma.store", "ldmatrix", "stmatrix", "movmatrix", "two of them")
"""Those that take or give fragments of a warp's 32 lanes."""
_LOOP = "mov.u32 %r13, 0; AGAIN: {} setp.eq.u32 %p3, %r13, %r14; {} add.u32 %r13, %r13, 1; setp.lt.u32 %p4, %r13, 3; @%p4 bra AGAIN;"
LOST = {
    "exit": "@%p1 exit; ACTION",
    "ret": "@%p1 ret; ACTION",
    "branch to the end": "@%p1 bra END; ACTION END:",
    "exit of a function": "@%p1 call leave; ACTION",
    "exit on another path": "@!%p1 bra ON; add.u32 %r13, %r0, 1; exit; ON: ACTION",
    "exit in the second round": _LOOP.format("ACTION", "@%p3 exit;"),
    "predicate": "@!%p1 ACTION",
}
"""How thread 69 does not execute the action of its warp, or of its warpgroup."""
_LEAVE = ".func leave () { exit; }\n"


def launched(body: str, target: str, schedule: str | int, threads: int = 128) -> Run:
    """A launch of some warps, all of shared memory written."""
    head = """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 4096; mov.u64 %rd2, 0x0000000800080040; mov.f32 %f0, 0f00000000; mov.u32 %r16, 0x44444444;
    ld.param.u64 %rd1, [o]; shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r1; mov.u32 %r7, 0;
    FILL: st.shared.u32 [%r4], %r7; add.u32 %r4, %r4, STRIDE; add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, 16; @%p5 bra FILL;
    and.b32 %r3, %r0, 7; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r1; mov.u32 %r5, 0; shr.u32 %r14, %r0, 5; mul.wide.u32 %rd3, %r14, 128; add.u64 %rd1, %rd1, %rd3;
    and.b32 %r15, %r0, 31; setp.eq.u32 %p1, %r0, 69; selp.u32 %r14, 1, 9, %p1;
    FENCE bar.sync 0;
    """
    fence = "" if target == "sm_80" else "fence.proxy.async.shared::cta;"
    head = head.replace("STRIDE", str(4 * threads)).replace("FENCE", fence)
    source = text(
        ".param .u64 o",
        head + body,
        target,
        directives=f".maxntid {threads} .minnctapersm 1 .maxnreg 160",
    )
    memory = Memory()
    out = memory.allocate(4096)
    return parse(source.replace(".visible", _LEAVE + ".visible")).kernel().launch(
        memory, [out], block=(threads, 1, 1), schedule=schedule
    )  # fmt: skip


def names(run: Run) -> set[str]:
    """Errors by name."""
    return {own.name for own in run.errors}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("action", ALIGNED)
def test_whole_warps_are_clean(action: str, schedule: str | int) -> None:
    """Whether threads end afterwards, or a warp has ended before; of a warpgroup's the first warp of another one."""
    body, target = ALIGNED[action]
    before = "" if action.startswith(("wgmma", "setmaxnreg")) else "setp.lt.u32 %p2, %r0, 32; @%p2 exit;"
    run = launched(f"{before} {body} @%p1 exit; mov.u32 %r13, 1;", target, schedule)
    assert run.completed and not names(run), [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("way", LOST)
@pytest.mark.parametrize("action", ALIGNED)
def test_a_thread_does_not_execute_what_its_warp_has_to(action: str, way: str, schedule: str | int) -> None:
    body, target = ALIGNED[action]
    if way == "predicate":
        lost = " ".join(f"@!%p1 {own.strip()};" for own in body.split(";") if own.strip())
    else:
        lost = LOST[way].replace("ACTION", body)
    run = launched(lost, target, schedule)
    found = [own for own in run.errors if own.name == "WARP_INCOMPLETE"]
    assert run.completed and found, [str(own) for own in run.hazards]
    assert {own.thread for own in found} == {69} and {own.line for own in found} <= set(range(1, 60))


COUNTED = {
    "shfl": "shfl.sync.idx.b32 %r5, %r0, 0, 31, -1;",
    "vote": "vote.sync.ballot.b32 %r5, %p5, -1;",
    "match": "match.any.sync.b32 %r5, %r0, -1;",
    "redux": "redux.sync.add.s32 %r5, %r0, -1;",
    "elect": "elect.sync _|%p5, -1;",
    "bar.warp.sync": "bar.warp.sync -1;",
    "bar.sync": "bar.sync 1;",
    "barrier.sync": "barrier.sync 1, 128;",
    "barrier.red": "barrier.red.popc.u32 %r5, 1, %p5;",
    "cluster": "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
}
"""What waits for threads that have not ended."""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("action", COUNTED)
def test_what_counts_threads_that_have_not_ended_is_clean(action: str, schedule: str | int) -> None:
    run = launched(f"@%p1 exit; {COUNTED[action]}", "sm_90a", schedule)
    assert run.completed and not names(run), [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("action", sorted(set(ALIGNED) - {"wgmma", "wgmma.fence", "wgmma.wait"}))
def test_a_last_warp_that_is_not_full(action: str, schedule: str | int) -> None:
    """It has no fragments of 32 lanes; what has none of them is whole with the threads that there are."""
    body, target = ALIGNED[action]
    run = launched(body, target, schedule, 112)
    assert names(run) - {"INVALID_OPERAND"} == ({"WARP_INCOMPLETE"} if action in MATRICES else set())
    assert (
        run.completed or action == "sparse"
    )  # the registers of threads that do not exist are 0 here: no positions of elements


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("threads", "found"), [(128, set()), (120, {"WARP_INCOMPLETE"}), (96, {"INVALID_OPERAND"})])
def test_a_warpgroup_that_is_not_full(threads: int, found: set[str], schedule: str | int) -> None:
    run = launched(ALIGNED["wgmma"][0], "sm_90a", schedule, threads)
    assert names(run) == found


DEC, INC = "setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"
UPPER, LAST = "setp.ge.u32 %p2, %r0, 96;", "setp.eq.u32 %p2, %r0, 64;"
POOLS = {
    "alike": (f"{DEC} 72;", set()),
    "alike at two places": (f"{UPPER} @%p2 bra HI; {DEC} 72; bra MET; HI: {DEC} 72; MET:", set()),
    "different counts": (f"{UPPER} @%p2 bra HI; {DEC} 72; bra MET; HI: {DEC} 24; MET:", {"SETMAXNREG_DIVERGED"}),
    "up and down": (f"{UPPER} @%p2 bra HI; {DEC} 160; bra MET; HI: {INC} 160; MET:", {"SETMAXNREG_DIVERGED"}),
    "one warp skips it": (f"{UPPER} @%p2 bra MET; {DEC} 72; MET:", {"SETMAXNREG_DIVERGED"}),
    "three warps skip it": (f"{UPPER} @!%p2 bra MET; {DEC} 72; MET:", {"SETMAXNREG_DIVERGED"}),
    "one warp has ended": (f"{UPPER} @%p2 exit; {DEC} 72;", {"SETMAXNREG_DIVERGED"}),
    "of two one": (f"{DEC} 72; bar.sync 1; {UPPER} @%p2 bra MET; {DEC} 24; MET:", {"SETMAXNREG_DIVERGED"}),
    "two after a barrier": (f"{DEC} 72; bar.sync 1, 128; {INC} 96;", set()),
    "two": (f"{DEC} 72; {DEC} 24;", {"SETMAXNREG_UNORDERED"}),
    "two after a barrier of two warps": (
        f"{DEC} 72; shr.u32 %r13, %r0, 6; add.u32 %r13, %r13, 1; bar.sync %r13, 64; {DEC} 24;", {"SETMAXNREG_UNORDERED"},
    ),
    "two of which the second changes nothing": (f"{DEC} 72; {DEC} 72;", set()),
    "in a loop": (
        f"mov.u32 %r13, 0; AGAIN: {DEC} 72; {INC} 96; add.u32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, 3; @%p3 bra AGAIN;", {"SETMAXNREG_UNORDERED"},
    ),
    "in a loop with barriers": (
        f"mov.u32 %r13, 0; AGAIN: {DEC} 72; bar.sync 1; {INC} 96; bar.sync 1; add.u32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, 3; @%p3 bra AGAIN;", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pool", POOLS)
def test_the_warps_of_a_warpgroup_ask_for_registers_alike(pool: str, schedule: str | int) -> None:
    body, found = POOLS[pool]
    run = launched(body, "sm_90a", schedule)
    assert run.completed and names(run) == found, [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("body", "found"), [
    (f"setp.lt.u32 %p2, %r0, 128; @%p2 bra LOW; {INC} 168; bra MET; LOW: {DEC} 152; MET:", set()),
    (f"setp.lt.u32 %p2, %r0, 128; @%p2 bra LOW; {DEC} 72; LOW:", set()),
    (f"setp.lt.u32 %p2, %r0, 160; @%p2 bra LOW; {DEC} 72; LOW:", {"SETMAXNREG_DIVERGED"}),
    (f"setp.lt.u32 %p2, %r0, 160; @%p2 bra LOW; {DEC} 72; bra MET; LOW: {DEC} 80; MET:", {"SETMAXNREG_DIVERGED"}),
])  # fmt: skip
def test_warps_beyond_a_multiple_of_four_are_a_warpgroup_of_their_own(
    body: str, found: set[str], schedule: str | int
) -> None:
    run = launched(body, "sm_90a", schedule, 192)
    assert run.completed and names(run) == found, [str(own) for own in run.hazards]


STORED = """
    mov.u32 %r1, smem; shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1; mov.u32 %r3, 0; mov.f32 %f0, 0f00000000; mov.u64 %rd2, 0x0000000800080040; add.u32 %r4, %r1, 8192; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r4], 128;
    bar.sync 2;
    st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
    fence.proxy.async.shared::cta;
    BARRIER
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd2, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
"""Each warp stores a quarter of what the warpgroup reads."""
_ARRIVED = "mbarrier.arrive.shared::cta.b64 _, [%r4]; WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra WAIT;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("barrier", "found"), [
    ("bar.sync 0;", set()),
    ("bar.sync 1, 128;", set()),
    (_ARRIVED, set()),
    ("bar.warp.sync -1;", {"WGMMA_WARPS_APART"}),
    ("", {"WGMMA_WARPS_APART"}),
    ("shr.u32 %r5, %r0, 6; add.u32 %r5, %r5, 4; bar.sync %r5, 64;", {"WGMMA_WARPS_APART"}),
])  # fmt: skip
def test_warps_store_what_their_warpgroup_reads(barrier: str, found: set[str], schedule: str | int) -> None:
    """The manual does not say that wgmma orders what the four warps did before: strict."""
    body = STORED.replace("BARRIER", barrier)
    run = parse(text(".param .u64 unused", body)).kernel().launch(Memory(), [0], block=(128, 1, 1), schedule=schedule)
    assert run.completed and not run.errors and {own.name for own in run.hazards} == found
