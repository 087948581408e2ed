"""How threads of a kernel part, meet and wait: divergence, spinning, barriers, deadlocks, faults; each kernel under several schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Limits, Memory, Run, parse
from tests.support.ptx_copies import SCHEDULES, text

OUT = 0x10000


def ran(
    body: str, words: int = 64, block: int = 32, grid: int = 1, cluster: int = 1, **options: Any
) -> tuple[Run, Any]:
    """The run of a kernel that gets a pointer in %rd0 and the address of its own word in %rd1; what it wrote, as words."""
    head = """
    ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;
    mov.u32 %r63, %laneid;
    """
    memory = Memory()
    memory.map(OUT, np.zeros(4 * words, np.uint8))
    options = {"target": "sm_90a", "directives": "", "shared": 4096} | options
    made = {name: options.pop(name) for name in ("target", "directives", "shared")}
    kernel = parse(text(".param .u64 out", head + body, **made)).kernel()
    run = kernel.launch(memory, [OUT], (grid, 1, 1), (block, 1, 1), (cluster, 1, 1), **options)
    return run, memory.read(OUT, 4 * words).view(np.uint32)


# --- lanes of a warp ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_of_two_paths_meet_at_a_shuffle(schedule: str | int) -> None:
    """Even lanes take a long way, odd ones a short one; all are needed at the shuffle behind."""
    run, found = ran(
        """
        and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; mov.u32 %r2, 100;
        @!%p0 bra MEET;
        mov.u32 %r3, 0;
        LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r0; @%p1 bra LOOP;
        add.u32 %r2, %r0, 1000;
        MEET:
        shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1;
        st.global.u32 [%rd1], %r4;
        """,
        schedule=schedule,
    )
    assert run.completed
    assert found[:32].tolist() == [100 if lane % 2 == 0 else 999 + lane for lane in range(32)]


def test_members_that_have_exited_add_nothing() -> None:
    """The second warp has 16 threads, 4 of which exit: 12 of the 32 members add 1, in a sum and in the choice of a leader."""
    run, found = ran(
        """
        setp.ge.u32 %p0, %r0, 32; setp.lt.and.u32 %p0, %r0, 36, %p0; @%p0 exit;
        mov.u32 %r1, 1; redux.sync.add.u32 %r1, %r1, 0xffffffff; elect.sync %r2|%p1, 0xffffffff;
        shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2; st.global.u32 [%rd1], %r1;
        """,
        block=48,
    )
    assert run.completed, run.hazards
    assert found[:48].tolist() == [32] * 32 + [0] * 4 + [4 << 16 | 12] * 12


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_members_alone_meet(schedule: str | int) -> None:
    """Each half of the warp votes with a mask of its own, at the same instruction or not."""
    run, found = ran(
        """
        setp.lt.u32 %p0, %r0, 16; setp.lt.u32 %p1, %r0, 5; mov.u32 %r5, 0x0000ffff; mov.u32 %r6, 0xffff0000;
        selp.b32 %r7, %r5, %r6, %p0;
        vote.sync.ballot.b32 %r1, %p1, %r7;
        @%p0 bra LOW;
        vote.sync.any.pred %p2, %p1, 0xffff0000; selp.u32 %r2, 7, 8, %p2; bra JOIN;
        LOW: vote.sync.any.pred %p2, %p1, 0x0000ffff; selp.u32 %r2, 5, 6, %p2;
        JOIN: shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2; st.global.u32 [%rd1], %r1;
        """,
        schedule=schedule,
    )
    assert run.completed
    assert found[:32].tolist() == [0x5001F] * 16 + [0x80000] * 16


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warp_barriers_at_two_places_are_one(schedule: str | int) -> None:
    """Lane 0 writes and meets the others, who wait at another bar.warp.sync; three lanes have exited before."""
    run, found = ran(
        """
        setp.ge.u32 %p3, %r0, 29; @%p3 exit;
        setp.ne.u32 %p0, %r0, 0; mov.u32 %r1, 42;
        @%p0 bra OTHERS;
        st.shared.u32 [smem], %r1;
        bar.warp.sync 0xffffffff;
        bra JOIN;
        OTHERS: bar.warp.sync 0xffffffff;
        JOIN: ld.shared.u32 %r2, [smem]; st.global.u32 [%rd1], %r2;
        """,
        schedule=schedule,
    )
    assert run.completed and found[:32].tolist() == [42] * 29 + [0] * 3


@pytest.mark.parametrize("grid", [1, 8])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_end_of_another_warp_does_not_open_a_warp_barrier(schedule: str | int, grid: int) -> None:
    """Lane 0 waits for a copy for its warp, whose other lanes are at bar.warp.sync while warp 1 ends; so do those that ended before."""
    run, found = ran(
        """
        setp.ne.u32 %p0, %r0, 0; @%p0 bra MEET;
        mbarrier.init.shared::cta.b64 [smem+256], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+256], 32;
        mov.u32 %r1, smem; add.u32 %r2, %r1, 256;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd0+256], 32, [%r2];
        AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+256], 0; @!%p1 bra AGAIN;
        MEET: setp.eq.u32 %p2, %r0, 31; @%p2 exit;
        bar.warp.sync 0xffffffff;
        setp.ge.u32 %p2, %r0, 32; @%p2 exit;
        ld.shared.u32 %r3, [smem]; add.u32 %r3, %r3, 5; st.global.u32 [%rd1], %r3;
        """,
        words=128, block=64, grid=grid, schedule=schedule,
    )  # fmt: skip
    assert run.completed and not run.errors and found[:32].tolist() == [5] * 31 + [0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_block_of_a_part_of_a_warp(schedule: str | int) -> None:
    run, found = ran(
        """
        activemask.b32 %r1; shfl.sync.down.b32 %r2, %r0, 1, 31, 0x7f; bar.sync 0;
        st.global.v2.u32 [%rd0+8], {%r1, %r2}; st.global.u32 [%rd1+32], %r2;
        """,
        block=7, schedule=schedule,
    )  # fmt: skip
    assert run.completed and found[2] == 0x7F and found[8:14].tolist() == [1, 2, 3, 4, 5, 6]


# --- waiting in memory -------------------------------------------------------------------------------------------------

SPIN = """
    setp.ge.u32 %p0, %r0, 32; mov.u32 %r1, 0;
    @%p0 bra WRITER;
    SPINNING: {between} ld.volatile.shared.u32 %r2, [smem]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPINNING;
    st.global.u32 [%rd1], %r2; bra END;
    WRITER: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 400; @%p1 bra WRITER;
    setp.eq.u32 %p2, %r0, 32; mov.u32 %r3, 9; @%p2 st.volatile.shared.u32 [smem], %r3;
    END:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "between",
    ["", "nanosleep.u32 20;", "atom.shared.add.u32 %r9, [smem+64], 0;", "st.shared.u32 [smem+64], %r0;"],
)
def test_who_spins_does_not_starve_who_writes(between: str, schedule: str | int) -> None:
    run, found = ran(SPIN.format(between=between), block=64, schedule=schedule)
    assert run.completed and found[:32].tolist() == [9] * 32


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_spin_on_a_barrier_lets_its_bytes_land(schedule: str | int) -> None:
    """test_wait in a loop: nothing changes before the copy lands, and late it lands only because of that."""
    run, found = ran(
        """
        setp.ne.u32 %p0, %r0, 0; @%p0 bra WAITING;
        mbarrier.init.shared::cta.b64 [smem+256], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+256], 32;
        mov.u32 %r1, smem; add.u32 %r2, %r1, 256;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd0+128], 32, [%r2];
        WAITING: bar.warp.sync 0xffffffff;
        AGAIN: mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+256], 0; @!%p1 bra AGAIN;
        ld.shared.u32 %r3, [smem]; add.u32 %r3, %r3, 5; st.global.u32 [%rd1], %r3;
        """,
        schedule=schedule,
    )
    assert run.completed and found[:32].tolist() == [5] * 32


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_that_wait_for_later_ones(schedule: str | int) -> None:
    """Every block of the grid waits until all have come: the ones that have not started start beside it."""
    run, found = ran(
        """
        setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
        atom.global.add.u32 %r1, [%rd0+128], 1;
        AGAIN: ld.volatile.global.u32 %r2, [%rd0+128]; setp.lt.u32 %p1, %r2, 5; @%p1 bra AGAIN;
        mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd2, %rd0, %rd2; st.global.u32 [%rd2], %r2;
        END:
        """,
        grid=5, schedule=schedule,
    )  # fmt: skip
    assert run.completed and found[:5].tolist() == [5] * 5


# --- when pending work completes ---------------------------------------------------------------------------------------

COPY = """
    mov.u32 %r1, smem; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; mov.u32 %r3, 77; st.shared.u32 [%r1], %r3;
    cp.async.ca.shared.global [%r1], [%rd1+128], 4;
    cp.async.commit_group;
    {wait}
    ld.shared.u32 %r4, [%r1]; add.u32 %r4, %r4, 1; st.global.u32 [%rd1], %r4;
    cp.async.wait_all;
"""


def test_late_is_as_late_as_the_program_allows() -> None:
    """Without a wait the old bytes are read late and the new ones early; a wait for the group is enough, one that leaves it is not."""
    seen = {
        (wait, schedule): ran(COPY.format(wait=wait), schedule=schedule)[1][:32].tolist()
        for wait in ("", "cp.async.wait_group 1;", "cp.async.wait_group 0;")
        for schedule in ("late", "early")
    }
    old, new = [78] * 32, [1] * 32
    assert seen == {
        ("", "late"): old, ("", "early"): new,
        ("cp.async.wait_group 1;", "late"): old, ("cp.async.wait_group 1;", "early"): new,
        ("cp.async.wait_group 0;", "late"): new, ("cp.async.wait_group 0;", "early"): new,
    }  # fmt: skip


def test_a_seed_is_an_order_of_its_own_and_always_the_same() -> None:
    """A copy that is not waited for: whether it has landed after some steps depends on the seed alone."""
    body = COPY.format(wait="bar.warp.sync -1;" * 4)
    found = [tuple(ran(body, schedule=seed)[1][:32].tolist()) for seed in range(16) for _ in range(2)]
    assert all(first == second for first, second in zip(found[::2], found[1::2], strict=True))
    assert set(found) == {(78,) * 32, (1,) * 32}


def test_a_wait_for_reads_leaves_the_writes() -> None:
    """A bulk store: after wait_group.read its source may change; late, the destination is written at the full wait."""
    body = """
    setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
    mov.u32 %r1, smem; mov.u32 %r2, 3; mov.u32 %r3, 4;
    st.shared.v4.u32 [smem], {%r2, %r2, %r2, %r2}; fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    st.shared.v4.u32 [smem], {%r3, %r3, %r3, %r3};
    ld.global.u32 %r4, [%rd0]; st.global.u32 [%rd0+64], %r4;
    cp.async.bulk.wait_group 0;
    END:
    """
    for schedule, seen in (("late", 0), ("early", 3)):
        run, found = ran(body, schedule=schedule)
        assert run.completed and found[:4].tolist() == [3] * 4 and found[16] == seen


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_that_copy_together_tell_their_own_barriers(schedule: str | int) -> None:
    """Four lanes of the second warp each copy bytes of a size of their own, to a barrier of their own."""
    run, found = ran(
        """
        mov.u32 %r1, smem; shl.b32 %r2, %r63, 3; add.u32 %r2, %r1, %r2; shl.b32 %r3, %r63, 7; add.u32 %r3, %r3, %r1; add.u32 %r3, %r3, 256;
        setp.lt.u32 %p0, %r0, 32; @%p0 bra END; setp.ge.u32 %p1, %r63, 4; @%p1 bra END;
        mov.u32 %r10, 7; st.global.u32 [%rd1], %r10; fence.proxy.async;
        add.u32 %r4, %r63, 1; shl.b32 %r4, %r4, 4;
        mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r4;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd0+128], %r4, [%r2];
        W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra W;
        ld.shared.u32 %r5, [%r3+12]; add.u32 %r5, %r5, %r4; st.global.u32 [%rd1+256], %r5;
        END:
        """,
        words=128, block=64, schedule=schedule,
    )  # fmt: skip
    assert run.completed, run.hazards
    assert found[96:101].tolist() == [16 + 7, 32 + 7, 48 + 7, 64 + 7, 0] and not found[:32].any()


def test_a_fault_of_work_in_flight_is_the_issuers() -> None:
    """The copy reads what is not mapped: late, at the wait; the line is the copy's, as early."""
    lines = []
    for schedule in ("late", "early"):
        run, _ = ran(
            """
            mov.u32 %r1, smem; mov.u64 %rd5, 0x990000;
            cp.async.ca.shared.global [%r1], [%rd5], 4;
            cp.async.commit_group; bar.warp.sync -1; cp.async.wait_all;
            """,
            block=1, schedule=schedule,
        )  # fmt: skip
        assert [own.name for own in run.hazards] == ["GMEM_UNMAPPED"] and not run.completed
        lines.append(run.hazards[0].line)
    assert lines[0] == lines[1] is not None


# --- deadlocks ---------------------------------------------------------------------------------------------------------

DEADLOCKS: list[tuple[str, dict[str, Any], list[str], set[str]]] = [
    (
        "mbarrier.init.shared::cta.b64 [smem], 3; mbarrier.arrive.shared::cta.b64 %rd5, [smem];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem], 0; @!%p1 bra W;",
        {"block": 1}, ["mbarrier at 0x400", "phase 0", "2 of 3 arrivals missing;"], {"MBAR_ARRIVE_MISSING"},
    ),
    (
        "mbarrier.init.shared::cta.b64 [smem], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem], 48;\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem], 0; @!%p1 bra W;",
        {"block": 1}, ["0 of 1 arrivals missing", "48 bytes missing"], {"MBAR_TX_OVER"},
    ),
    (
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra E; barrier.sync 3, 96; E:",
        {"block": 96}, ["barrier 3 for 96 threads", "arrived: threads 32 to 95"], {"BARRIER_COUNT"},
    ),
    (
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra E; bar.sync 0; E: bar.sync 1;",
        {"block": 64}, ["waits at barrier 0", "waits at barrier 1", "threads 0 to 31", "threads 32 to 63"], {"BARRIER_ROLE_DIVERGENCE"},
    ),
    (
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 bra E;\n"
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; E: @!%p1 bra F; barrier.sync 2, 64; F:",
        {"grid": 2, "cluster": 2}, ["the cluster's barrier", "threads 0 to 31 of block (1, 0, 0)", "barrier 2 for 64"], {"BARRIER_COUNT"},
    ),
    (
        "W: ld.volatile.shared.u32 %r1, [smem]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;",
        {}, ["threads 0 to 31", "spins"], {"SMEM_UNINITIALISED"},
    ),
    (
        "setp.lt.u32 %p1, %r0, 16; @%p1 bra W; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; bra E;\n"
        "W: ld.volatile.shared.u32 %r1, [smem]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W; E:",
        {}, ["other lanes of its warp", "threads 0 to 15", "spins"], {"SMEM_UNINITIALISED", "WARP_SYNC_MASK"},
    ),
    (
        "mov.u32 %r1, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 512;\n"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
        {"target": "sm_100a"}, ["32 columns of Tensor Memory", "columns taken: 512 by", "free: 0"], {"TMEM_DEADLOCK"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "options", "said", "rules"), DEADLOCKS, ids=[own[2][0] for own in DEADLOCKS])
def test_a_deadlock_says_who_waits_for_what(
    body: str, options: dict[str, Any], said: list[str], rules: set[str]
) -> None:  # fmt: skip
    for schedule in ("late", "early", 5):
        run, _ = ran(body, schedule=schedule, **options)
        *named, hazard = run.hazards
        assert not run.completed and hazard.name == "DEADLOCK" and {own.name for own in named} == rules
        assert hazard.line and hazard.block is not None
        missing = [part for part in said if part not in hazard.message]
        assert not missing, f"{missing} not in {hazard.message}"


# --- faults ------------------------------------------------------------------------------------------------------------

FAULTS: list[tuple[str, str, int | None]] = [
    ("setp.eq.u32 %p1, %r0, 5; mov.u64 %rd2, 0x999000; @%p1 st.global.u32 [%rd2], %r0;", "GMEM_UNMAPPED", 5),
    ("setp.eq.u32 %p1, %r0, 6; @%p1 ld.global.u64 %rd3, [%rd0+4];", "ADDRESS_MISALIGNED", 6),
    ("setp.eq.u32 %p1, %r0, 7; mov.u32 %r1, 0x30000; @%p1 ld.shared.u32 %r2, [%r1];", "SMEM_OUT_OF_RANGE", 7),
    ("mov.u64 %rd7, -8; setp.eq.u32 %p1, %r0, 9; @%p1 ld.u64 %rd3, [%rd7];", "GMEM_UNMAPPED", 9),
    ("mov.u64 %rd7, 0xf3000000000000; setp.eq.u32 %p1, %r0, 9; @%p1 st.u64 [%rd7], %rd3;", "GMEM_UNMAPPED", 9),
    (".local .align 8 .b8 own[64]; mov.u64 %rd7, -8; setp.eq.u32 %p1, %r0, 9; @%p1 st.local.u64 [%rd7], %rd3;", "LOCAL_OUT_OF_RANGE", 9),
    (".local .align 8 .b8 own[12]; mov.u64 %rd7, own; cvta.local.u64 %rd7, %rd7; ld.u64 %rd3, [%rd7+8];", "LOCAL_OUT_OF_RANGE", 0),
    ("setp.eq.u32 %p1, %r0, 8; @%p1 trap;", "TRAP", 8),
    ("bar.sync 0, 33;", "BARRIER_COUNT", 0),
    ("mov.u32 %r1, 99; bar.sync %r1;", "INVALID_OPERAND", 0),
    ("mov.u32 %r1, smem; mov.u32 %r2, 9; mbarrier.init.shared::cta.b64 [%r1], %r2; mbarrier.arrive.shared::cta.b64 _, [%r1];",
     "MBARRIER_FAULT", None),
    ("mov.u32 %r1, 0x7000000; ld.shared::cluster.u32 %r2, [%r1];", "SMEM_OUT_OF_RANGE", 0),
    ("mbarrier.arrive.b64 _, [%rd1];", "MBARRIER_FAULT", None),
    ("mov.u32 %r1, smem; mbarrier.init.shared::cta.b64 [%r1+4], 1;", "MBAR_MISALIGNED", None),
    ("mov.u64 %rd7, 0xf000000000000000; mbarrier.arrive.b64 _, [%rd7];", "GMEM_UNMAPPED", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name", "thread"), FAULTS, ids=[f"{name}-{at}" for at, (_, name, _) in enumerate(FAULTS)]
)
def test_a_fault_names_its_place_and_memory_stays(body: str, name: str, thread: int | None) -> None:
    before = "mov.u32 %r60, 11; st.global.u32 [%rd1], %r60;\n"
    run, found = ran(before + "//\n" + body, directives=".maxntid 32")
    assert not run.completed and [own.name for own in run.hazards] == [name], run.hazards
    hazard = run.hazards[0]
    assert hazard.block == (0, 0, 0) and hazard.line is not None and hazard.line > 10
    assert thread is None or hazard.thread == thread
    assert found[:32].tolist() == [11] * 32


def test_a_kernel_without_an_end_reaches_its_limit() -> None:
    run, _ = ran("mov.u32 %r1, 0; W: add.u32 %r1, %r1, 1; bra W;", limits=Limits(instructions=50_000))
    assert not run.completed and run.hazards[0].name == "LIMIT" and run.instructions < 60_000


def test_the_largest_grid_reaches_its_limit_at_once() -> None:
    run = parse(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }").kernel().launch(
        Memory(), [], grid=(2**31 - 1, 65535, 65535), limits=Limits(instructions=100)
    )  # fmt: skip
    assert [(own.name, own.block) for own in run.hazards] == [("LIMIT", (100, 0, 0))] and run.instructions == 101


# --- registers of a warpgroup, Tensor Memory of a pair -----------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_memory_is_taken_by_a_pair_together(schedule: str | int) -> None:
    """CTA 0 holds columns of its own first: the pair's are the first that are free in both."""
    run, found = ran(
        """
        mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, smem;
        tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r2], 128;
        add.u32 %r3, %r2, 4;
        tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3], 64;
        ld.shared.u32 %r4, [smem]; ld.shared.u32 %r5, [smem+4];
        mul.wide.u32 %rd3, %r1, 8; add.s64 %rd3, %rd3, %rd0; st.global.v2.u32 [%rd3], {%r4, %r5};
        tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 128;
        tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r5, 64;
        """,
        target="sm_100a", grid=2, cluster=2, schedule=schedule,
    )  # fmt: skip
    assert run.completed, run.hazards
    assert found[:4].tolist() == [0, 128, 0, 128]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_register_that_is_read_waits_for_tensor_memory(schedule: str | int) -> None:
    """tcgen05.ld without a wait::ld: a read of its register is a true dependency."""
    run, found = ran(
        """
        mov.u32 %r2, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32; ld.shared.u32 %r4, [smem];
        add.u32 %r5, %r0, 300; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {%r5}; tcgen05.wait::st.sync.aligned;
        mov.u32 %r6, 1;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r4];
        st.global.u32 [%rd1], %r6;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;
        """,
        target="sm_100a", schedule=schedule,
    )  # fmt: skip
    assert run.completed, run.hazards
    assert found[:32].tolist() == list(range(300, 332))


def test_a_wait_that_looks_at_the_time_is_not_long() -> None:
    """As cuda::barrier waits: the copies complete although the time is another at each look, so that no state comes again."""
    run, found = ran(
        """
        mov.u32 %r1, smem; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r1], 32; bar.sync 0;
        shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; mov.u32 %r4, 7; st.global.u32 [%rd1], %r4;
        cp.async.ca.shared.global [%r3+64], [%rd1], 4; cp.async.mbarrier.arrive.shared.b64 [%r1];
        mbarrier.arrive.shared.b64 %rd2, [%r1];
        WAIT: mov.u64 %rd3, %globaltimer; mbarrier.test_wait.shared.b64 %p1, [%r1], %rd2; @!%p1 bra WAIT;
        ld.shared.u32 %r5, [%r3+64]; add.u32 %r5, %r5, %r0; st.global.u32 [%rd1], %r5;
        """,
        limits=Limits(instructions=2000),
    )
    assert run.completed, run.hazards
    assert found[:32].tolist() == [7 + lane for lane in range(32)]


@pytest.mark.parametrize("warps", [1, 2, 3])
def test_warps_move_matrices_together(warps: int) -> None:
    """movmatrix of several warps at once: each transposes its own 8 x 8."""
    matrices = np.arange(64 * warps, dtype=np.uint16).reshape(warps, 8, 8)
    memory = Memory()
    data = memory.allocate(matrices.view(np.uint8).reshape(-1))
    body = """
    ld.param.u64 %rd1, [data]; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r1, [%rd1];
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2; movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r3;
    st.global.u32 [%rd1], %r4;
    """
    run = parse(text(".param .u64 data", body, "sm_80")).kernel().launch(memory, [data], block=(32 * warps, 1, 1))
    assert run.completed and not run.hazards
    found = memory.read(data, 128 * warps).view(np.uint16).reshape(warps, 8, 8)
    assert (found == matrices.swapaxes(1, 2)).all()
