"""Rules of the machine on the few numbers that decide them: order of blocks, barriers, work that is forced, meetings, fibers."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.compile.convergence import meetings
from tcsim.ptx.compile.spins import Spins
from tcsim.ptx.counters.occupancy import occupancy
from tcsim.ptx.launch.grid import Grid
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.fibers import Fibers
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.reports import Reports

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [
        ((4, 4, 1), (2, 2, 1)),
        ((4, 6, 2), (2, 2, 1)),
        ((6, 2, 4), (3, 1, 2)),
        ((2, 6, 2), (1, 3, 2)),
        ((5, 3, 1), (1, 1, 1)),
    ],
)
def test_the_blocks_of_clusters(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
    """By rank, x first, then y, then z; clusters in the same order; every block of the grid once."""
    own: Any = SimpleNamespace(launch=SimpleNamespace(shape=SimpleNamespace(grid=grid, cluster=cluster)))
    (gx, gy, gz), (cx, cy, cz) = grid, cluster
    seen = []
    for number in range(gx * gy * gz // (cx * cy * cz)):
        blocks = Grid._blocks(own, number)
        seen += blocks
        px, py, pz = number % (gx // cx), number // (gx // cx) % (gy // cy), number // (gx // cx * (gy // cy))
        for rank, block in enumerate(blocks):
            assert block == (px * cx + rank % cx, py * cy + rank // cx % cy, pz * cz + rank // (cx * cy))
    assert sorted(seen) == sorted((x, y, z) for x in range(gx) for y in range(gy) for z in range(gz))


@pytest.mark.parametrize("batch", [1, 4096])
def test_ranks_in_a_cluster_of_two_by_two(batch: int) -> None:
    """%cluster_ctarank counts x, then y; shared memory of that rank is the block's at that place."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 2, 1
{{
  .reg .b32 %r<12>; .reg .b64 %d<4>; .shared .align 4 .b32 own;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r3, %r2, 4, %r1;
  mov.u32 %r4, own; st.shared.u32 [%r4], %r3;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 2;
  mapa.shared::cluster.u32 %r7, %r4, %r6; ld.shared::cluster.u32 %r8, [%r7];
  mov.u32 %r10, %clusterid.x; mov.u32 %r11, %clusterid.y; mad.lo.u32 %r10, %r11, 16, %r10;
  mul.wide.u32 %d2, %r3, 12; add.u64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r5; st.global.u32 [%d1+4], %r8; st.global.u32 [%d1+8], %r10;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ret;
}}"""
    memory, count = Memory(), 4 * 6
    out = memory.allocate(12 * count)
    run = parse(text).kernel().launch(memory, [out], grid=(4, 6, 1), block=(1, 1, 1))
    assert run.completed and not run.hazards
    found = memory.read(out, 12 * count).view(np.uint32).reshape(6, 4, 3)
    for y in range(6):
        for x in range(4):
            assert found[y, x].tolist() == [x % 2 + 2 * (y % 2), (y ^ 1) * 4 + x, x // 2 + 16 * (y // 2)]


@pytest.mark.parametrize("true", [(), (0,), (63,), tuple(range(64)), tuple(range(63)), tuple(range(32)), (5, 40)])
def test_what_a_barrier_reduces(true: tuple[int, ...]) -> None:
    """How many predicates of its 64 threads are true, whether all are, whether any is."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 flags, .param .u64 out)
{{
  .reg .pred %p<4>; .reg .b32 %r<6>; .reg .b64 %d<5>;
  ld.param.u64 %d1, [flags]; ld.param.u64 %d2, [out];
  mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3; ld.global.u32 %r2, [%d1];
  setp.ne.u32 %p1, %r2, 0;
  barrier.cta.red.popc.aligned.u32 %r3, 0, %p1;
  barrier.cta.red.and.aligned.pred %p2, 0, %p1;
  barrier.cta.red.or.aligned.pred %p3, 0, %p1;
  selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 1, 0, %p3;
  mul.wide.u32 %d3, %r1, 12; add.u64 %d2, %d2, %d3;
  st.global.u32 [%d2], %r3; st.global.u32 [%d2+4], %r4; st.global.u32 [%d2+8], %r5;
  ret;
}}"""
    memory, flags = Memory(), np.zeros(64, np.uint32)
    flags[list(true)] = 7
    pointer, out = memory.allocate(flags.view(np.uint8)), memory.allocate(64 * 12)
    run = parse(text).kernel().launch(memory, [pointer, out], block=(64, 1, 1))
    assert run.completed
    found = memory.read(out, 64 * 12).view(np.uint32).reshape(64, 3)
    assert found.tolist() == [[len(true), len(true) == 64, len(true) > 0]] * 64


@pytest.mark.parametrize("first", [1, 5, 33])
def test_a_thread_that_arrives_twice_at_the_barrier_of_the_cluster(first: int) -> None:
    """From some thread on, before the others have: the first of them is named. Once each, nothing is wrong."""
    text = f"""{HEAD}
.visible .entry k()
{{
  .reg .pred %p; .reg .b32 %r;
  mov.u32 %r, %tid.x; setp.ge.u32 %p, %r, {first};
  @%p barrier.cluster.arrive;
  @%p barrier.cluster.arrive;
  @!%p barrier.cluster.arrive;
  barrier.cluster.wait;
  ret;
}}"""
    run = parse(text).kernel().launch(Memory(), [], block=(64, 1, 1))
    (hazard,) = [own for own in run.hazards if own.name == "CLUSTER_BARRIER_TWICE"]
    assert hazard.thread == first and not run.completed
    good = text.replace("@%p barrier.cluster.arrive;\n  @%p", "@%p")
    run = parse(good).kernel().launch(Memory(), [], block=(64, 1, 1))
    assert run.completed and not run.hazards


def queue(*flights: tuple[str, bool], schedule: Any = "late") -> tuple[Queue, list[int]]:
    """Work in flight by group, and whether something follows it; and the order in which it is forced."""
    own, order = Queue(schedule, Events()), list[int]()
    own.flights = [
        SimpleNamespace(kind=kind, followers=[1] if followed else [], number=number)
        for number, (kind, followed) in enumerate(flights)
    ]  # type: ignore[misc]

    def finish(flight: Any) -> None:
        own.flights.remove(flight)
        order.append(flight.number)

    own.finish_chain = finish  # type: ignore[method-assign, assignment]
    return own, order


@pytest.mark.parametrize(
    ("flights", "order"),
    [
        ((("bulk", False), ("", False)), [1, 0]),  # what an mbarrier alone tells of is first
        ((("bulk", False), ("tcgen05", False)), [1, 0]),
        ((("bulk", False), ("wgmma", True)), [1, 0]),  # and what something follows
        ((("bulk", False), ("wgmma", False)), [0, 1]),
        ((("", False), ("", False), ("bulk", True)), [0, 1, 2]),  # the oldest first
        ((("bulk", False), ("wgmma", False), ("tcgen05", False), ("", False)), [2, 3, 0, 1]),
    ],
)
def test_work_that_is_forced(flights: tuple[tuple[str, bool], ...], order: list[int]) -> None:
    own, found = queue(*flights)
    while own.force():
        pass
    assert found == order and not own.flights
    own, found = queue(*flights, schedule=3)
    while own.force():
        pass
    drawn, left = Random(3), list(range(len(flights)))
    assert found == [left.pop(left.index(drawn.choice(left))) for _ in flights]


@pytest.mark.parametrize(
    ("body", "cut"),
    [
        ("add.u32 %r1, %r1, 1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", False),
        ("st.shared.u32 [%r1], %r1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", True),
        ("st.shared.u32 [%r1], %r1; add.u32 %r1, %r1, 1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", True),
        (
            "atom.shared.add.u32 %r3, [%r1], 1; add.u32 %r1, %r1, 1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
            True,
        ),
        ("ld.shared.u32 %r3, [%r1]; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", False),
    ],
)
def test_a_block_is_cut_before_a_meeting_if_others_may_wait_for_what_is_before_it(body: str, cut: bool) -> None:
    """A thread that has to wait for the others must have done by then what they may wait for."""
    function = parse(f"{HEAD}.visible .entry k() {{ .reg .b32 %r<4>; {body} ret; }}").kernel().function
    place = next(at for at, item in enumerate(function.body) if item.opcode.startswith("ldmatrix"))
    starts, gathers = meetings(function, {0}, {})
    assert starts == ({0, place} if cut else {0}) and gathers == {place if cut else 0: 32}


def test_fibers_that_meet_have_the_turns_of_the_one_that_had_more() -> None:
    for first, second in ((3, 8), (8, 3), (5, 5)):
        fibers = Fibers(SimpleNamespace(batch=1, alive=np.ones(4, bool)), 0)  # type: ignore[arg-type]
        fibers.ready.clear()
        fibers.add(np.array([True, False, False, False]), 7, first)
        fibers.add(np.array([False, False, True, False]), 7, second)
        (fiber,) = fibers.ready.values()
        assert (
            fiber.mask.tolist() == [True, False, True, False] and fiber.turns == max(first, second) and fiber.block == 7
        )
        fibers.add(np.array([False, True, False, False]), 9, 1)
        assert sorted(fibers.ready) == [7, 9] and fibers.ready[9].turns == 1


def test_steps_beyond_the_end_are_none() -> None:
    session = parse(f"{HEAD}.visible .entry k() {{ .reg .b32 %r; mov.u32 %r, 1; ret; }}").kernel().session(Memory(), [])
    session.step(count=10**25)
    assert session.ended


def test_loops_that_ask_nothing_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of branches back: none of them is followed, as nothing in them could be waited for."""
    looked = []
    monkeypatch.setattr(Spins, "_asked", lambda self, start, end: looked.append(end) or set())
    body = "".join(f"L{i}: @%p bra L{i * 7 % 3000};\n" for i in range(3000))
    text = f"{HEAD}.visible .entry k() {{ .reg .pred %p; .reg .b32 %r; {body} W: ld.volatile.shared.u32 %r, [0]; setp.eq.u32 %p, %r, 0; @%p bra W; ret; }}"
    spins = Spins(parse(text).kernel().function)
    assert len(set(looked)) == 1 and not spins.waiting


@pytest.mark.parametrize(("true", "answer"), [(32, (32, 1, 1)), (31, (31, 0, 1)), (0, (0, 0, 0))])
def test_what_is_not_at_a_barrier_does_not_count(true: int, answer: tuple[int, int, int]) -> None:
    """Of two warps one uses the barrier, for 32 threads; the other has none of it."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out)
{{
  .reg .pred %p<5>; .reg .b32 %r<6>; .reg .b64 %d<5>;
  ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;
  setp.ge.u32 %p4, %r1, 32; @%p4 bra END;
  setp.lt.u32 %p1, %r1, {true};
  barrier.cta.red.popc.aligned.u32 %r3, 1, 32, %p1;
  barrier.cta.red.and.aligned.pred %p2, 1, 32, %p1;
  barrier.cta.red.or.aligned.pred %p3, 1, 32, %p1;
  selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 1, 0, %p3;
  mul.wide.u32 %d3, %r1, 12; add.u64 %d2, %d2, %d3;
  st.global.u32 [%d2], %r3; st.global.u32 [%d2+4], %r4; st.global.u32 [%d2+8], %r5;
  END: ret;
}}"""
    memory = Memory()
    out = memory.allocate(32 * 12)
    assert parse(text).kernel().launch(memory, [out], block=(64, 1, 1)).completed
    assert memory.read(out, 32 * 12).view(np.uint32).reshape(32, 3).tolist() == [list(answer)] * 32


@pytest.mark.parametrize("same", [True, False])
def test_what_all_lanes_match(same: bool) -> None:
    """match.all gives the member mask where all have the same value, and 0 where they do not."""
    value = "7" if same else "%r1"
    text = f"""{HEAD}
.visible .entry k(.param .u64 out)
{{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, {value};
  match.all.sync.b32 %r3|%p, %r2, -1; selp.u32 %r4, 1, 0, %p;
  mul.wide.u32 %d2, %r1, 8; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r3; st.global.u32 [%d1+4], %r4;
  ret;
}}"""
    memory = Memory()
    out = memory.allocate(256)
    assert parse(text).kernel().launch(memory, [out], block=(32, 1, 1)).completed
    assert memory.read(out, 256).view(np.uint32).reshape(32, 2).tolist() == [[0xFFFFFFFF, 1] if same else [0, 0]] * 32


def test_a_fence_is_told_if_any_thread_executes_it() -> None:
    told: list[Any] = []
    own: Any = SimpleNamespace(
        threads=SimpleNamespace(mask=lambda w: w),
        events=SimpleNamespace(fenced=[lambda block, mask: told.append(block)]),
        block="block",
    )
    for mask, count in ((np.zeros(4, bool), 0), (np.array([False, True, False, False]), 1), (np.ones(4, bool), 2)):
        Reports.fenced(own, mask)
        assert told == ["block"] * count


def test_occupancy_without_registers_and_shared_memory() -> None:
    for threads in (32, 256, 1024):
        assert occupancy("sm_90", threads) == occupancy("sm_90", threads, 0, 0)
        assert occupancy("sm_90", threads, 32) == occupancy("sm_90", threads, 32, 0)
