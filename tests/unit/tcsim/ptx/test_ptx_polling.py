"""Polls that write: whatever a loop that waits stores in each turn, asynchronous work goes on, under every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Limits, Memory, Run, parse
from tcsim.ptx.machine import cluster, polling

SCHEDULES = ("late", "early", 0, 1, 2)
TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.func (.reg .u32 %r) asked(.reg .u32 %b)
{{ .reg .pred %p; mbarrier.test_wait.parity.shared::cta.b64 %p, [%b], 0; selp.u32 %r, 1, 0, %p; ret; }}
.func (.param .u32 r) noted(.param .u32 b)
{{
  .reg .pred %p; .reg .u32 %x<3>; .reg .u64 %t, %sp; .local .align 8 .b8 own[8];
  ld.param.u32 %x0, [b]; mov.u64 %t, %globaltimer; st.local.u64 [own], %t;
  mbarrier.test_wait.parity.shared::cta.b64 %p, [%x0], 0; selp.u32 %x1, 1, 0, %p; st.param.u32 [r], %x1; ret;
}}
.visible .entry k(.param .u64 p)
{{
  .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
  .shared .align 16 .b8 s[2048]; .local .align 8 .b8 l[64];
  ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mov.u32 %r8, 0; mad.wide.u32 %d1, %r0, 4, %d0;
  mad.lo.u32 %r2, %r0, 8, %r1;
  st.local.u32 [l+16], %r8; st.global.u32 [%d1+4096], %r8; st.shared.u32 [%r2+1024], %r8;
  setp.ne.u32 %p1, %r0, 0;
  {start}
  {wait}
  ld.shared.u32 %r9, [s+64]; st.global.u32 [%d1+512], %r9; ret;
}}
"""
BULK = """
  @%p1 bra BEGIN; mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
  add.u32 %r3, %r1, 64; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d0], 128, [%r1];
  BEGIN: bar.sync 0;
"""
COPY = """
  @%p1 bra BEGIN; mbarrier.init.shared::cta.b64 [%r1], 32; BEGIN: bar.sync 0;
  add.u32 %r3, %r1, 64; mad.lo.u32 %r3, %r0, 4, %r3; cp.async.ca.shared.global [%r3], [%d1], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];
"""
STARTS = {"bulk copy": BULK, "cp.async": COPY}
ASK = "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0; "
WAITS = {
    "nothing": "LOOP: " + ASK + "@!%p2 bra LOOP;",
    "clock to local": "LOOP: mov.u64 %d3, %clock64; st.local.u64 [l], %d3; " + ASK + "@!%p2 bra LOOP;",
    "time to local": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; " + ASK + "@!%p2 bra LOOP;",
    "clock to shared": "LOOP: mov.u64 %d3, %clock64; st.shared.u64 [%r2+1024], %d3; " + ASK + "@!%p2 bra LOOP;",
    "clock to global": "LOOP: mov.u32 %r4, %clock; st.global.u32 [%d1+4096], %r4; " + ASK + "@!%p2 bra LOOP;",
    "counter in a register": "LOOP: add.u32 %r5, %r5, 1; " + ASK + "@!%p2 bra LOOP;",
    "counter in local": "LOOP: ld.local.u32 %r4, [l+16]; add.u32 %r4, %r4, 1; st.local.u32 [l+16], %r4; " + ASK + "@!%p2 bra LOOP;",
    "counter in shared": "LOOP: ld.shared.u32 %r4, [%r2+1024]; add.u32 %r4, %r4, 1; st.shared.u32 [%r2+1024], %r4; " + ASK + "@!%p2 bra LOOP;",
    "counter in global": "LOOP: ld.global.u32 %r4, [%d1+4096]; add.u32 %r4, %r4, 1; st.global.u32 [%d1+4096], %r4; " + ASK + "@!%p2 bra LOOP;",
    "sum in global": "LOOP: red.global.add.u32 [%d1+4096], 1; " + ASK + "@!%p2 bra LOOP;",
    "out by a branch": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; " + ASK + "@%p2 bra DONE; bra LOOP; DONE:",
    "answer in local": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; " + ASK + "selp.u32 %r4, 1, 0, %p2; st.local.u32 [l+8], %r4; "
                       "ld.local.u32 %r5, [l+8]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOP;",
    "answer in local behind an address": "LOOP: mov.u64 %d4, l; cvta.local.u64 %d4, %d4; mov.u64 %d3, %globaltimer; st.u64 [%d4], %d3; " + ASK
                                         + "selp.u32 %r4, 1, 0, %p2; st.u32 [%d4+8], %r4; ld.u32 %r5, [%d4+8]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOP;",
    "in a function": "LOOP: mov.u32 %r4, %clock; st.local.u32 [l], %r4; call (%r5), asked, (%r1); setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOP;",
    "in a function that writes": "LOOP: { .param .u32 b; .param .u32 r; st.param.u32 [b], %r1; call (r), noted, (b); ld.param.u32 %r5, [r]; } "
                                 "setp.ne.u32 %p3, %r5, 0; @%p3 bra DONE; bra.uni LOOP; DONE:",
    "sleeping": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; nanosleep.u32 64; " + ASK + "@!%p2 bra LOOP;",
    "try_wait": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra LOOP;",
    "try_wait for some time": "LOOP: mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3; mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0, 1000; @!%p2 bra LOOP;",
}  # fmt: skip


def ran(text: str, schedule: str | int, blocks: int = 1, instructions: int = 400_000) -> tuple[Run, np.ndarray]:
    memory = Memory()
    data = memory.allocate(1 << 14)
    memory.write(data, np.arange(7, 71, dtype=np.uint32).view(np.uint8))
    run = parse(text).kernel().launch(
        memory, [data], grid=(blocks, 1, 1), block=(32, 1, 1), schedule=schedule, limits=Limits(seconds=120, instructions=instructions)
    )  # fmt: skip
    return run, memory.read(data + 512, 128).view(np.uint32)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("start", STARTS)
def test_pending_work_goes_on(start: str, wait: str, schedule: str | int) -> None:
    run, found = ran(TEXT.format(start=STARTS[start], wait=WAITS[wait]), schedule)
    assert run.completed and not [own for own in run.hazards if own.severity == "error"], run.hazards
    assert found[0] == 7


@pytest.mark.parametrize("schedule", ["late", 1])
@pytest.mark.parametrize(
    "turn", ["", "mov.u64 %d3, %globaltimer; st.local.u64 [l], %d3;", "red.global.add.u32 [%d1+4096], 1;"]
)
def test_another_block_that_has_not_started(turn: str, schedule: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block waits for what the second one writes, and writes in each turn itself."""
    monkeypatch.setattr(cluster, "MANY_TURNS", 1 << 9)  # the same, sooner
    wait = f"""
      mov.u32 %r4, %ctaid.x; setp.ne.u32 %p4, %r4, 0; @%p4 bra WRITE;
      LOOP: {turn} ld.acquire.gpu.global.u32 %r5, [%d0+8192]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOP; bra DONE;
      WRITE: mov.u32 %r5, 1; st.release.gpu.global.u32 [%d0+8192], %r5; DONE:
    """
    run, _ = ran(TEXT.format(start="", wait=wait), schedule, blocks=2)
    assert run.completed, run.hazards


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_that_nobody_ends_is_still_found(schedule: str | int) -> None:
    """A barrier that gets too few bytes: the launch stops, in a deadlock or at its limit."""
    text = TEXT.format(start=BULK.replace("_, [%r1], 128", "_, [%r1], 256"), wait=WAITS["time to local"])
    run, _ = ran(text, schedule, instructions=20_000)
    assert not run.completed and {own.name for own in run.hazards} & {"LIMIT", "DEADLOCK"}


TWO_PLACES = """
  mov.u64 %d5, %d0; ld.volatile.global.u32 %r4, [%d5]; add.u64 %d5, %d0, 256; ld.volatile.global.u32 %r5, [%d5]; or.b32 %r6, %r4, %r5;
"""
BESIDE = """
.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
  .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra COUNT;
  POLL: {poll} setp.eq.u32 %p1, %r6, 0; @%p1 bra POLL;
  mov.u32 %r1, 1; st.global.u32 [%d0+512], %r1; ret;
  COUNT: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 20000; @%p1 bra COUNT;
  {write}
  WAIT: add.u32 %r2, %r2, 1; ld.volatile.global.u32 %r3, [%d0+512]; setp.eq.u32 %p1, %r3, 0; @%p1 bra WAIT; ret;
}}
"""
"""The first block only spins when the second one writes, and the second one goes on only when the first one has seen it."""


def beside(poll: str, write: str, wakes: bool = False) -> Run:
    memory = Memory()
    data = memory.allocate(1024)

    def progress(ended: int, clusters: int, instructions: int) -> None:
        if wakes and instructions > 60_000:
            memory.write(data + 3, b"\1")

    return parse(BESIDE.format(poll=poll, write=write)).kernel().launch(
        memory, [data], grid=(2, 1, 1), block=(32, 1, 1), cooperative=True, limits=Limits(instructions=400_000), progress=progress
    )  # fmt: skip


@pytest.mark.parametrize("place", ["%d0", "%d0+256"])
def test_a_cluster_that_polls_two_places_through_one_register(place: str) -> None:
    run = beside(TWO_PLACES, f"mov.u32 %r3, 1; st.global.u32 [{place}], %r3;")
    assert run.completed, run.hazards


def test_a_cluster_that_the_caller_wakes() -> None:
    run = beside("ld.volatile.global.u32 %r6, [%d0];", "", wakes=True)
    assert run.completed, run.hazards


def test_a_cluster_that_polls_more_than_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "MOST_POLLED", 1)
    run = beside(TWO_PLACES, "mov.u32 %r3, 1; st.global.u32 [%d0+256], %r3;")
    assert run.completed, run.hazards


def test_nothing_is_watched_when_a_launch_has_ended() -> None:
    memory = Memory()
    data = memory.allocate(1024)
    text = BESIDE.format(poll="ld.volatile.global.u32 %r6, [%d0];", write="ret;")
    run = parse(text).kernel().launch(memory, [data], grid=(2, 1, 1), block=(32, 1, 1), cooperative=True)
    assert [own.name for own in run.hazards] == ["DEADLOCK"] and not memory.watches


def test_what_a_loop_reads_is_not_kept_access_for_access() -> None:
    """A loop that reads much and stores nothing is at work: what it read is no longer told."""
    polled = polling.Polled()
    for at in range(0, 1 << 26, 1 << 14):
        polled.note(np.arange(at, at + (1 << 14), 4, np.uint64))
    assert polled.many and not polled._noted


POLLED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry polled(.param .u64 flag) {
  .reg .pred %p<4>; .reg .b32 %r<5>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [flag]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; add.u32 %r2, %r2, -1;
  setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT;
  mul.wide.u32 %d2, %r1, 64; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r1;
  setp.eq.u32 %p2, %r1, %r2; @%p2 st.global.u32 [%d1], %r1; ret;
WAIT:
  ld.volatile.global.u32 %r3, [%d1]; setp.eq.u32 %p3, %r3, 0; @%p3 bra WAIT; ret; }"""


def test_a_cluster_that_polls_rests_while_others_write_elsewhere() -> None:
    """Each block more costs what it executes itself: the first one is not looked at for it."""

    def instructions(blocks: int) -> int:
        memory = Memory()
        flag = memory.allocate(64 * blocks)
        run = parse(POLLED).kernel().launch(memory, [flag], grid=(blocks, 1, 1), block=(32, 1, 1), check=False)
        assert run.completed
        return run.instructions

    assert instructions(33) - instructions(17) == 16 * 12
