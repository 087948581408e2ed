"""A grid in several processes leaves what the grid in order leaves, whatever its blocks do; and it did run in several where they are independent."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcsim.launchers.recording import read
from tcsim.ptx import Limits, Memory, Run, parse
from tcsim.ptx.compile.regions import VARIABLE
from tcsim.ptx.launch import processes
from tcsim.ptx.launch.processes import Range
from tests.kernels.corpora import recording
from tests.kernels.corpora.replay import replayed
from tests.support.ptx_copies import text
from tests.unit.tcsim.ptx.test_ptx_barriers import CANCEL

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="grids run in order where there is no fork"
)

OUT, WORDS = 0x10000, 256
HEAD = """
    ld.param.u64 %rd0, [out]; mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 5; add.u32 %r2, %r2, %r0;
    mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %rd0, %rd1; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd0, %rd2;
"""
"""%r1: the block; %r2: the thread in the grid; %rd1: the address of its word; %rd2: that of its block's word."""
Told = tuple[Any, ...]


def told(run: Run, memory: Memory) -> Told:
    """All that a launch says and leaves."""
    words = memory.read(OUT, 4 * WORDS).view(np.uint32)
    hazards = [item.as_dict() for item in run.hazards]
    return run.completed, hazards, run.inexact, run.output, run.instructions, words.tolist(), memory.heap


def ran(
    source: str, processes: int, grid: int = 4, cluster: int = 1, block: int = 32, **options: Any
) -> tuple[Run, Told]:
    """A launch of a kernel over 256 words, of which the last 128 hold their numbers."""
    limits = options.pop("limits", Limits())
    memory = Memory()
    memory.map(OUT, np.where(np.arange(WORDS) < 128, 0, np.arange(WORDS)).astype(np.uint32).view(np.uint8))
    run = parse(source).kernel().launch(
        memory, [OUT], (grid, 1, 1), (block, 1, 1), (cluster, 1, 1), limits=replace(limits, processes=processes), **options
    )  # fmt: skip
    return run, told(run, memory)


def kernel(body: str, before: str = "") -> str:
    """A module of a kernel with one pointer."""
    return text(".param .u64 out", HEAD + body).replace(".visible", before + "\n.visible", 1)


INDEPENDENT = "ld.global.u32 %r3, [%rd1+512]; mad.lo.u32 %r3, %r3, %r3, %r1; st.global.u32 [%rd1], %r3;"
PRINTF = ".extern .func (.param .b32 n) vprintf(.param .b64 f, .param .b64 v);\n.global .b8 said[5] = {37, 117, 59, 0};"
PRINTS = """
    .local .align 8 .b8 list[8]; st.local.u32 [list], %r1; mov.u64 %rd5, list; cvta.local.u64 %rd5, %rd5; mov.u64 %rd6, said;
    setp.eq.u32 %p0, %r0, 0;
    { .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %rd6; st.param.b64 [v], %rd5; @%p0 call (n), vprintf, (f, v); }
    st.global.u32 [%rd1], %r1;
"""
HEAP = ".extern .func (.param .b64 r) malloc(.param .b64 n);"
MALLOC = """
    mov.u64 %rd4, 64; { .param .b64 n; .param .b64 p; st.param.b64 [n], %rd4; call (p), malloc, (n); ld.param.b64 %rd5, [p]; }
    cvt.u32.u64 %r3, %rd5; st.global.u32 [%rd1], %r3;
"""
FROM_BEFORE = "ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd2+4], %r3;"
FROM_BEHIND = "ld.global.u32 %r3, [%rd2+4]; mad.lo.u32 %r3, %r1, 3, 5; st.global.u32 [%rd2], %r3;"
SAME_WORD = "st.global.u32 [%rd0], %r2; st.global.u32 [%rd1+4], %r2;"
BYTES = "cvt.u64.u32 %rd3, %r1; add.s64 %rd3, %rd0, %rd3; st.global.u8 [%rd3], %r2;"
WIDE = "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd0+512]; mul.wide.u32 %rd3, %r1, 8; add.s64 %rd3, %rd0, %rd3; st.global.v2.u32 [%rd3], {%r6, %r1};"
WIDE_BEFORE = """
    sub.u32 %r3, %r1, 1; max.s32 %r3, %r3, 0; mul.wide.u32 %rd3, %r3, 16; add.s64 %rd3, %rd0, %rd3; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3];
    add.u32 %r7, %r7, 1; st.global.u32 [%rd3+28], %r7;
"""
COUNTER = "atom.global.add.u32 %r3, [%rd0+1000], 1; st.global.u32 [%rd1], %r3;"
SUMS = "mov.f32 %f0, 0f3DCCCCCD; red.global.add.f32 [%rd2], %f0; red.global.add.f32 [%rd2+512], %f0;"
FLAG = """
    setp.eq.u32 %p0, %r1, 3; @%p0 bra SET;
    WAIT: ld.acquire.gpu.global.u32 %r3, [%rd0+508]; setp.eq.u32 %p1, %r3, 0; @%p1 bra WAIT;
    bra END; SET: mov.u32 %r3, 9; st.release.gpu.global.u32 [%rd0+508], %r3; END: st.global.u32 [%rd2], %r3;
"""
TURNS = """
    mov.u32 %r4, smem; add.u32 %r5, %r1, 1;
    TURN: st.shared.u32 [%r4], %r1; atom.acq_rel.gpu.global.cas.b32 %r3, [%rd0+508], %r1, %r1; setp.ne.u32 %p1, %r3, %r1; @%p1 bra TURN;
    st.global.u32 [%rd1], %r1; st.release.gpu.global.u32 [%rd0+508], %r5;
"""
CLOCK = "mov.u32 %r3, %clock; st.global.u32 [%rd1], %r3;"
ACROSS = """
    mov.u32 %r3, smem; mov.u32 %r4, %cluster_ctarank; st.shared.u32 [%r3], %r1; xor.b32 %r4, %r4, 1; mapa.shared::cluster.u32 %r5, %r3, %r4;
    barrier.cluster.arrive; barrier.cluster.wait; ld.shared::cluster.u32 %r6, [%r5]; st.global.u32 [%rd1], %r6;
    barrier.cluster.arrive; barrier.cluster.wait;
"""
PARAMETER = "add.s64 %rd3, %rd0, 16; mov.u64 %rd4, 0xF2000000000000; st.u64 [%rd4], %rd3; st.global.u32 [%rd0], %r2;"
FAULT = "setp.eq.u32 %p0, %r1, 2; st.global.u32 [%rd1], %r1; @%p0 ld.global.u32 %r3, [%rd0+4096];"

KERNELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "each block has words of its own": (kernel(INDEPENDENT), {}, 3),
    "fewer clusters than processes": (kernel(INDEPENDENT), {"grid": 2}, 2),
    "one block": (kernel(INDEPENDENT), {"grid": 1}, 1),
    "clusters": (kernel(ACROSS), {"cluster": 2}, 2),
    "a read of what the block before wrote": (kernel(FROM_BEFORE), {}, 1),
    "a read of what the block behind writes later": (kernel(FROM_BEHIND), {}, 3),
    "all blocks write one word": (kernel(SAME_WORD), {}, 3),
    "bytes beside each other": (kernel(BYTES), {}, 3),
    "16 bytes are read, 8 written": (kernel(WIDE), {}, 3),
    "16 bytes are read of which 4 were written": (kernel(WIDE_BEFORE), {}, 1),
    "a counter": (kernel(COUNTER), {}, 1),
    "sums of each block": (kernel(SUMS), {}, 3),
    "sums of all blocks": (kernel(SUMS.replace("%rd2", "%rd0")), {}, 1),
    "a parameter that each block changes": (kernel(PARAMETER), {}, 1),
    "a flag of the last block": (kernel(FLAG), {}, 1),
    "each block waits for its turn, and writes as it waits": (kernel(TURNS), {"block": 8, "limits": Limits(seconds=10)}, 1),
    "clocks": (kernel(CLOCK), {}, 3),
    "printf": (kernel(PRINTS, PRINTF), {}, 3),
    "malloc": (kernel(MALLOC, HEAP), {}, 1),
    "a fault": (kernel(FAULT), {}, 1),
    "trap everywhere": (kernel("st.global.u32 [%rd1], %r1; trap;"), {}, 1),
    "not all instructions": (kernel(INDEPENDENT), {"limits": Limits(instructions=45)}, 1),
    "a grid of 2**31 - 1 blocks": (kernel("ld.global.u32 %r3, [%rd0];"), {"grid": 2**31 - 1, "limits": Limits(instructions=3000, seconds=60)}, 1),
    "no memory for three": (kernel(INDEPENDENT), {"limits": Limits(memory=40_000)}, 1),
}  # fmt: skip
"""By what is told apart: the kernel, the launch, and how many of three processes run it (1: in order)."""


@pytest.mark.parametrize("name", KERNELS)
def test_as_in_order(name: str) -> None:
    source, options, processes = KERNELS[name]
    expected, before = ran(source, 1, **options)
    run, after = ran(source, 3, **options)
    assert expected.processes == 1 and after == before
    assert run.processes == processes


def test_instructions_whose_bits_are_not_known() -> None:
    """The counts of `inexact`, those of sums in memory included, come from every process."""
    source = kernel(CLOCK + SUMS.replace("[%rd2]", "[%rd2+768]"))
    _, alone = ran(source, 1)
    run, both = ran(source, 2)
    assert run.processes == 2 and both == alone
    assert run.inexact == {"atom.add.f32": 2 * 32 * 4, "mov.u32 %clock": 32 * 4}


@pytest.mark.parametrize(("schedule", "processes"), [("early", 2), ("late", 1), (3, 1)])
def test_work_that_is_taken_from_clusters_that_have_not_started(schedule: str | int, processes: int) -> None:
    """clusterlaunchcontrol asks which clusters are left; early, all have started."""
    runs, left = [], []
    for count in (1, 2):
        memory = Memory()
        memory.map(OUT, np.zeros(5 * 128, np.uint8))
        limits = Limits(processes=count)
        runs.append(
            parse(CANCEL).kernel().launch(memory, [OUT], (5, 1, 1), (32, 1, 1), schedule=schedule, limits=limits)
        )
        left.append(memory.read(OUT, 5 * 128).tolist())
    assert runs[1].completed and runs[1].processes == processes
    assert left[0] == left[1] and runs[0].instructions == runs[1].instructions


@pytest.mark.parametrize("schedule", ["late", "early", 5])
@pytest.mark.parametrize("name", ["triton_matmul_f16_sm90_even", "triton_matmul_f16_sm80_ragged", "triton_softmax"])
def test_recorded_kernels(name: str, schedule: str | int) -> None:
    """Products of matrices with wgmma and mma.sync, and a softmax: every byte as an H200 left it."""
    own = replayed(read(recording.GIVEN / f"{name}.npz"), schedule, Limits(processes=2))
    assert own.run.processes == 2 and own.equal and own.compared > 2_000


# --- where nothing is said of processes


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left of a grid is worth two processes, whoever else runs here."""
    monkeypatch.setattr(processes, "WORTH", -1.0)
    monkeypatch.setattr(processes, "_alone", lambda: True)
    monkeypatch.setenv("TCSIM_THREADS", "2")


@pytest.mark.parametrize("seconds", [-1.0, 0.0], ids=["from the beginning", "behind the first batch"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.usefixtures("worth")
def test_what_is_left(name: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters at a time: the first two in order, or none."""
    monkeypatch.setattr(processes, "WORTH", seconds)
    source, options, _ = KERNELS[name]
    limits = replace(options.get("limits", Limits()), batch=2 * options.get("cluster", 1))
    options = options | {"limits": limits}
    expected, before = ran(source, 1, **options)
    run, after = ran(source, 0, **options)
    assert after == before
    assert run.processes == 2 or name not in ("each block has words of its own", "bytes beside each other")


@pytest.mark.parametrize("name", ["a counter", "sums of all blocks"])
@pytest.mark.usefixtures("worth")
def test_blocks_that_depend_on_others_are_not_tried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run one by one: it is known that processes would be in vain."""
    monkeypatch.setattr(processes, "WORTH", 0.0)
    monkeypatch.setattr(processes, "_shared", lambda grid, count: pytest.fail("processes"))
    run, _ = ran(KERNELS[name][0], 0)
    assert run.alone and run.processes == 1


def test_a_short_grid_runs_in_order() -> None:
    """What takes no second is not worth a process; nor is what takes long where other threads run."""
    run, _ = ran(kernel(INDEPENDENT), 0)
    assert run.processes == 1


@pytest.mark.usefixtures("worth")
def test_later_launches_know_how_long_earlier_ones_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks fit in one batch, so that there is nothing left to share; two launches in order, then as is faster."""
    module, found = parse(kernel(INDEPENDENT + "mov.u32 %r3, 77;")), []
    monkeypatch.setattr(processes, "WORTH", 0.0)
    compiled: Any = None
    for _ in range(4):
        memory = Memory()
        memory.map(OUT, np.arange(WORDS, dtype=np.uint32).view(np.uint8))
        own = module.kernel()
        found.append(own.launch(memory, [OUT], (4, 1, 1), (32, 1, 1), check=False).processes)
        compiled = own.compiled(memory, "sm_90")
        compiled.took.shared = min(compiled.took.shared, compiled.took.alone / 2)  # as if it had been worth it
        if len(found) == 3:
            compiled.took.shared = 2 * compiled.took.alone  # as if not
    assert found == [1, 1, 2, 1]


def test_a_launch_that_compiles_regions_says_nothing_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of the compiler; the next one counts."""
    monkeypatch.setenv(VARIABLE, "all")
    module, counted = parse(kernel(INDEPENDENT + "mov.u32 %r3, 78;")), []
    for _ in range(3):
        memory = Memory()
        memory.map(OUT, np.arange(WORDS, dtype=np.uint32).view(np.uint8))
        own = module.kernel()
        assert own.launch(memory, [OUT], (4, 1, 1), (32, 1, 1), check=False).processes == 1
        program = own.compiled(memory, "sm_90")
        counted.append((program.lowered > 0, program.took.launches))
    assert counted == [(True, 0), (True, 1), (True, 2)]


@pytest.mark.usefixtures("worth")
def test_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(processes, "WORTH", -1.0)
    monkeypatch.setenv("TCSIM_THREADS", "2")
    ready = threading.Event()
    other = threading.Thread(target=ready.wait)
    other.start()
    try:
        run, _ = ran(kernel(INDEPENDENT), 0)
    finally:
        ready.set()
        other.join()
    assert run.processes == 1


@pytest.mark.usefixtures("worth")
def test_progress_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported while the processes run, and never goes back."""
    monkeypatch.setattr(processes, "_LOOK", 0.0)
    told_of = list[tuple[int, int, int]]()
    run, _ = ran(kernel(INDEPENDENT), 0, progress=lambda *now: told_of.append(now))
    assert run.processes == 2 and told_of == sorted(told_of) and {own[1] for own in told_of} == {4}


# --- processes that fail


def _kill(self: Range) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def _end_without_result(self: Range) -> bool:
    os._exit(3)


def _raise(self: Range) -> bool:
    raise RuntimeError


@pytest.mark.parametrize("wrong", [_kill, _end_without_result, _raise])
def test_a_process_that_dies(wrong: Callable[[Range], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last range fails: the grid runs in order."""
    expected, before = ran(kernel(INDEPENDENT), 1)
    right = Range.run
    monkeypatch.setattr(Range, "run", lambda self: wrong(self) if self.behind == 4 else right(self))
    run, after = ran(kernel(INDEPENDENT), 2)
    assert expected.completed and run.processes == 1 and after == before


def test_half_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, before = ran(kernel(INDEPENDENT), 1)
    monkeypatch.setattr(processes.pickle, "dumps", lambda found, protocol: _Short(pickle.dumps(found, protocol)))
    run, after = ran(kernel(INDEPENDENT), 2)
    assert expected.completed and run.processes == 1 and after == before


class _Short(bytes):
    """Bytes that say that one more of them will come."""

    def __len__(self) -> int:
        return super().__len__() + 1


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, before = ran(kernel(INDEPENDENT), 1)
    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", _refuse)
    run, after = ran(kernel(INDEPENDENT), 2)
    assert expected.completed and run.processes == 1 and after == before
    assert len(os.listdir("/proc/self/fd")) == files


def _refuse() -> int:
    raise BlockingIOError


def test_the_clock_goes_on_for_a_process_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds are those of the whole launch; nothing is left of the processes."""
    files, forked, fork = len(os.listdir("/proc/self/fd")), list[int](), os.fork
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork()) or forked[-1])
    monkeypatch.setattr(Range, "run", lambda self: time.sleep(600))
    start = time.monotonic()
    run, _ = ran(kernel(INDEPENDENT), 2, limits=Limits(seconds=0.5))
    assert [item.detail for item in run.hazards] == [{"limit": "seconds"}] and time.monotonic() - start < 60
    assert len(os.listdir("/proc/self/fd")) == files
    assert len(forked) == 2
    for process in forked:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
