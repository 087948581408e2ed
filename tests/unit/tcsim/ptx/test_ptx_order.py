"""`Run.inexact` of what shows in which order, or how fast, threads ran; each case with a twin in which it does not show."""

from __future__ import annotations

from typing import Any

import pytest

from tcsim.ptx import Memory, Run, parse

SCHEDULES = ("late", "early", 0, 1, 2)
HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<19>; .reg .f32 %f<9>; .reg .b64 %d<19>; .reg .b128 %q<3>; .shared .align 16 .b8 s[1024];
  ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %r0;
  mad.wide.u32 %d1, %r2, 8, %d0; add.u64 %d1, %d1, 4096; mov.u32 %r10, 0;
"""


def ran(body: str, schedule: str | int = "late", grid: int = 2, block: int = 32, **options: Any) -> Run:
    memory = Memory()
    run = parse(HEAD + body + " ret; }").kernel().launch(
        memory, [memory.allocate(1 << 16)], grid=(grid, 1, 1), block=(block, 1, 1), schedule=schedule, **options
    )  # fmt: skip
    assert run.completed, run.hazards
    return run


STORE, WIDE = "st.global.u32 [%d1], %r9;", "st.global.u64 [%d1], %d9;"
SHOWS = {  # instruction in inexact: what shows the order, and the same without that it does
    "a place": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; {STORE}", f"red.global.add.u32 [%d0], 1; mov.u32 %r9, 1; {STORE}"),
    "an old value that nobody reads": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; {STORE}", "atom.global.add.u32 %r9, [%d0], 1; add.u32 %r8, %r9, 1;"),
    "a place of each thread": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; {STORE}", f"atom.global.add.u32 %r9, [%d1+8192], 1; {STORE}"),
    "one thread comes twice": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; {STORE}", f"setp.eq.u32 %p1, %r2, 5; @%p1 atom.global.add.u32 %r9, [%d0], 1; @%p1 atom.global.add.u32 %r9, [%d0], 1; {STORE}"),
    "one thread reads": ("atom.add.u32", f"setp.eq.u32 %p1, %r2, 5; @%p1 atom.global.add.u32 %r9, [%d0], 1; @!%p1 red.global.add.u32 [%d0], 1; {STORE}",
                         f"setp.eq.u32 %p1, %r2, 5; @%p1 atom.global.add.u32 %r9, [%d0], 1; @!%p1 red.global.add.u32 [%d0+4], 1; {STORE}"),
    "an address": ("atom.add.u32", "atom.global.add.u32 %r9, [%d0], 1; mad.wide.u32 %d2, %r9, 4, %d0; st.global.u32 [%d2+16384], %r2;",
                   "atom.global.add.u32 %r9, [%d0], 0; mad.wide.u32 %d2, %r2, 4, %d0; st.global.u32 [%d2+16384], %r9;"),
    "who is last": ("atom.inc.u32", f"atom.global.inc.u32 %r9, [%d0], 63; setp.eq.u32 %p1, %r9, 63; selp.u32 %r9, 1, 0, %p1; {STORE}",
                    f"atom.global.inc.u32 %r9, [%d0], 63; mov.u32 %r9, 1; {STORE}"),
    "through a shuffle": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; shfl.sync.idx.b32 %r9, %r9, 0, 31, -1; {STORE}",
                          f"atom.global.add.u32 %r9, [%d1+8192], 1; shfl.sync.idx.b32 %r9, %r9, 0, 31, -1; {STORE}"),
    "a branch": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; setp.eq.u32 %p1, %r9, 3; @%p1 bra X; {STORE} X:",
                 f"atom.global.add.u32 %r9, [%d0], 0; setp.eq.u32 %p1, %r9, 3; @%p1 bra X; {STORE} X:"),
    "all bits": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 1; and.b32 %r9, %r9, 0x3f; {STORE}",
                 f"atom.global.add.u32 %r9, [%d0], 1; and.b32 %r9, %r9, 0x80; {STORE}"),
    "a sign": ("atom.add.u32", f"atom.global.add.u32 %r9, [%d0], 0x7000000; setp.lt.s32 %p1, %r9, 0; selp.u32 %r9, 1, 0, %p1; {STORE}",
               f"atom.global.add.u32 %r9, [%d0], 0x1000000; setp.lt.s32 %p1, %r9, 0; selp.u32 %r9, 1, 0, %p1; {STORE}"),
    "generic": ("atom.add.u32", f"atom.add.u32 %r9, [%d0], 1; {STORE}", f"atom.add.u32 %r9, [%d1+8192], 1; {STORE}"),
    "generic and global": ("atom.add.u32", f"setp.eq.u32 %p1, %r2, 5; @%p1 atom.add.u32 %r9, [%d0], 1; setp.eq.u32 %p2, %r2, 70; @%p2 atom.global.add.u32 %r9, [%d0], 1; {STORE}",
                           f"setp.eq.u32 %p1, %r2, 5; @%p1 atom.add.u32 %r9, [%d0], 1; setp.eq.u32 %p2, %r2, 70; @%p2 atom.global.add.u32 %r9, [%d0+4], 1; {STORE}"),
    "shared memory": ("atom.add.u32", f"atom.shared.add.u32 %r9, [s], 1; {STORE}", f"setp.eq.u32 %p1, %r0, 5; @%p1 atom.shared.add.u32 %r9, [s], 1; {STORE}"),
    "64 bits": ("atom.add.u64", f"atom.global.add.u64 %d9, [%d0], 1; {WIDE}", "red.global.add.u64 [%d0], 1;"),
    "a maximum": ("atom.max.u32", f"atom.global.max.u32 %r9, [%d0], %r2; {STORE}", f"atom.global.max.u32 %r9, [%d0], 0; {STORE}"),
    "a maximum of floats": ("atom.max.noftz.v2.f16", "mov.b16 %h1, 0x3c00; mov.b16 %h2, 0x4000; atom.global.v2.f16.max.noftz {%h3, %h4}, [%d0], {%h1, %h2}; mov.b32 %r9, {%h3, %h4}; " + STORE,
                            "mov.b16 %h1, 0x3c00; mov.b16 %h2, 0x4000; red.global.v2.f16.max.noftz [%d0], {%h1, %h2}; mov.u32 %r9, 1; " + STORE),
    "a bit": ("atom.or.b32", f"and.b32 %r3, %r2, 31; mov.u32 %r4, 1; shl.b32 %r4, %r4, %r3; atom.global.or.b32 %r9, [%d0], %r4; {STORE}",
              f"and.b32 %r3, %r2, 15; mov.u32 %r4, 1; shl.b32 %r4, %r4, %r3; atom.global.or.b32 %r9, [%d0], %r4; shr.u32 %r9, %r9, 16; {STORE}"),
    "what is swapped in": ("atom.exch.b32", "atom.global.exch.b32 %r9, [%d0], %r2;", "atom.global.exch.b32 %r9, [%d0], 7;"),
    "what is swapped out": ("atom.exch.b32", f"atom.global.exch.b32 %r9, [%d0], 7; {STORE}", f"atom.global.exch.b32 %r9, [%d1+8192], 7; {STORE}"),
    "who gets it": ("atom.cas.b32", f"atom.global.cas.b32 %r9, [%d0], 0, 1; {STORE}", f"atom.global.cas.b32 %r9, [%d0], 3, 1; {STORE}"),
    "16 bits": ("atom.cas.b16", "cvt.u16.u32 %h1, %r2; atom.global.cas.b16 %h2, [%d0], 0, %h1;", "mov.u16 %h1, 5; atom.global.cas.b16 %h2, [%d0], 0, %h1;"),
    "two operations": ("atom.exch.b32", "setp.eq.u32 %p1, %r2, 5; @%p1 atom.global.exch.b32 %r9, [%d0], 7; @!%p1 red.global.add.u32 [%d0], 1;",
                       "setp.eq.u32 %p1, %r2, 5; @%p1 atom.global.exch.b32 %r9, [%d0+4], 7; @!%p1 red.global.add.u32 [%d0], 1;"),
    "a sum of floats, generic": ("atom.add.f32", "cvt.rn.f32.u32 %f1, %r2; add.rn.f32 %f1, %f1, 0f3DCCCCCD; setp.eq.u32 %p1, %r0, 3; @%p1 red.add.f32 [%d0], %f1; @%p1 red.add.f32 [%d0], 0f3F99999A;",
                                 "cvt.rn.f32.u32 %f1, %r2; add.rn.f32 %f1, %f1, 0f3DCCCCCD; red.add.f32 [%d1+8192], %f1;"),
    "lanes that came": ("activemask.b32", f"setp.gt.u32 %p1, %r0, 3; @%p1 bra X; activemask.b32 %r9; X: {STORE}", f"activemask.b32 %r9; {STORE}"),
    "time": ("mov.u32 %clock", f"mov.u32 %r9, %clock; {STORE}", f"mov.u32 %r9, %ntid.x; {STORE}"),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SHOWS)
def test_what_shows_the_order(name: str, schedule: str | int) -> None:
    instruction, shows, twin = SHOWS[name]
    assert instruction in ran(shows, schedule).inexact
    assert not ran(twin, schedule).inexact


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_of_a_cluster_have_shared_memory_together(schedule: str | int) -> None:
    body = "mov.u32 %r3, s; mapa.shared::cluster.u32 %r4, %r3, 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
    last = f"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; {STORE}"
    one = "setp.eq.u32 %p1, %r0, 0; @%p1 atom.shared::cluster.add.u32 %r9, [{}], 1; "
    assert "atom.add.u32" in ran(body + one.format("%r4") + last, schedule, cluster=(2, 1, 1)).inexact
    assert not ran(body + one.format("%r3") + last, schedule, cluster=(2, 1, 1)).inexact


WAIT = """
  setp.eq.u32 %p1, %r0, 0; @%p1 bra WRITE;
  LOOP: {turn} ld.acquire.gpu.global.u32 %r3, [%d0]; setp.eq.u32 %p2, %r3, 0; @%p2 bra LOOP;
  {behind} bra END;
  WRITE: st.release.gpu.global.u32 [%d0], 1;
  END:
"""
TURNS = {  # what each turn does, what is done behind the loop, whether the turns can be seen
    "none": ("", STORE, False),
    "a counter": ("add.u32 %r9, %r9, 1;", STORE, True),
    "a counter that nobody reads": ("add.u32 %r8, %r8, 1;", STORE, False),
    "a counter for a limit": ("add.u32 %r8, %r8, 1; setp.gt.u32 %p3, %r8, 100000; @%p3 trap;", STORE, False),
    "a moved counter": ("add.u32 %r8, %r8, 2; mov.u32 %r9, %r8;", STORE, True),
    "a sum in memory": ("red.global.add.u32 [%d1+8192], 1;", "", True),
    "a counter in memory": (
        "ld.global.u32 %r9, [%d1+8192]; add.u32 %r9, %r9, 1; st.global.u32 [%d1+8192], %r9;",
        "",
        True,
    ),
    "a stored number": ("st.global.u32 [%d1+8192], %r2;", "", False),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", TURNS)
def test_turns_of_a_loop_that_waits(name: str, schedule: str | int) -> None:
    turn, behind, shows = TURNS[name]
    run = ran(WAIT.format(turn=turn, behind=behind), schedule, grid=1, block=64)
    assert bool(run.inexact) == shows and set(run.inexact) <= {"bra of a loop that waits"}


ROUNDS = """
  st.shared.u32 [s], 0; bar.sync 0;
  LOOP: add.u32 %r9, %r9, 1; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s], %r9; {meet} ld.shared.u32 %r3, [s]; {meet}
  setp.lt.u32 %p2, %r3, 5; @%p2 bra LOOP;
"""


@pytest.mark.parametrize(("meet", "shows"), [("bar.sync 0;", False), ("bar.warp.sync -1;", True)])
def test_rounds_that_a_block_agrees_on_are_no_wait(meet: str, shows: bool) -> None:
    """A loop that runs until what one thread counts says so: with a barrier of the block all make the same turns."""
    for schedule in SCHEDULES:
        run = ran(ROUNDS.format(meet=meet) + STORE, schedule, grid=1, block=32, check=False)
        assert bool(run.inexact) == shows


ASKS = """
  mov.u32 %r3, s; setp.ne.u32 %p1, %r0, 0; @%p1 bra GO; mbarrier.init.shared::cta.b64 [%r3], 1; GO: bar.sync 0;
  setp.ne.u32 %p1, %r0, 0; @%p1 bra ASK; mbarrier.arrive.shared::cta.b64 _, [%r3]; ASK: {0} ret;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_answers_of_barriers(schedule: str | int) -> None:
    once = "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r3], 0; "
    assert any(
        "test_wait" in own for own in ran(ASKS.format(once + f"selp.u32 %r9, 1, 0, %p2; {STORE}"), schedule).inexact
    )
    for loop in (once + "@!%p2 bra ASK;", once + "selp.u32 %r9, 1, 0, %p2; setp.eq.u32 %p3, %r9, 0; @%p3 bra ASK;"):
        assert not ran(ASKS.format(loop + STORE.replace("%r9", "%r2")), schedule).inexact


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_who_takes_the_work_of_a_cluster_that_has_not_started(schedule: str | int) -> None:
    body = """
      mov.u32 %r3, s; setp.ne.u32 %p1, %r0, 0; @%p1 bra GO; mbarrier.init.shared::cta.b64 [%r3+16], 1;
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+16], 16;
      clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r3], [%r3+16];
      GO: bar.sync 0; WAITING: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3+16], 0; @!%p2 bra WAITING;
    """
    text = (HEAD + body + " ret; }").replace(".version 8.6", ".version 8.7").replace("sm_90a", "sm_100a")
    for grid, shows in ((4, True), (1, False)):
        memory = Memory()
        run = (
            parse(text)
            .kernel()
            .launch(memory, [memory.allocate(1 << 16)], grid=(grid, 1, 1), block=(32, 1, 1), schedule=schedule)
        )
        assert run.completed and ("clusterlaunchcontrol.try_cancel" in run.inexact) == shows


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sums_that_copies_make(schedule: str | int) -> None:
    """cp.reduce.async.bulk of two blocks to one place: fractions show who was first, whole numbers and places of their own do not."""
    copy = """
      mov.u32 %r3, s; cvt.rn.f32.u32 %f1, %r2; add.rn.f32 %f1, %f1, {0}; mad.lo.u32 %r4, %r0, 4, %r3; st.shared.f32 [%r4], %f1; bar.sync 0;
      fence.proxy.async.shared::cta; mad.wide.u32 %d2, %r1, {1}, %d0; setp.ne.u32 %p1, %r0, 0; @%p1 bra X;
      cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d2], [%r3], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; X:
    """
    assert any("reduce" in own for own in ran(copy.format("0f3DCCCCCD", 0), schedule, grid=3).inexact)
    assert not ran(copy.format("0f3F800000", 0), schedule, grid=3).inexact
    assert not ran(copy.format("0f3DCCCCCD", 128), schedule, grid=3).inexact
