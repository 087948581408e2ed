"""Cooperative launches: grid.sync of cooperative groups as nvcc compiles it, by every way of starting a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcsim.launchers import job, recording
from tcsim.launchers.recording import Buffer, Recording
from tcsim.ptx import Memory, Run, parse
from tests.support.cli_runs import data, refusal

# nvcc 13.0 of: for (s = 0; s < steps; ++s) { b[i] = a[(i + n - 1) % n] + a[(i + 1) % n]; this_grid().sync(); swap(a, b); }
PTX = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry halo(.param .u64 a, .param .u64 b, .param .u32 steps)
{
  .reg .pred %p<7>; .reg .b32 %r<42>; .reg .b64 %rd<24>;
  ld.param.u64 %rd10, [a]; ld.param.u64 %rd11, [b]; ld.param.u32 %r7, [steps];
  mov.u32 %r8, %envreg2; cvt.u64.u32 %rd12, %r8;
  mov.u32 %r9, %envreg1; cvt.u64.u32 %rd13, %r9;
  bfi.b64 %rd1, %rd13, %rd12, 32, 32;
  mov.u32 %r11, %ntid.x; mov.u32 %r12, %nctaid.x; mul.lo.s32 %r13, %r12, %r11;
  mov.u32 %r14, %ctaid.x; mov.u32 %r15, %tid.x; mad.lo.s32 %r16, %r14, %r11, %r15;
  cvta.to.global.u64 %rd22, %rd10; cvta.to.global.u64 %rd23, %rd11;
  add.s32 %r17, %r13, %r16; add.s32 %r18, %r17, -1; rem.s32 %r19, %r18, %r13; cvt.s64.s32 %rd4, %r19;
  add.s32 %r20, %r16, 1; rem.s32 %r21, %r20, %r13; cvt.s64.s32 %rd5, %r21; cvt.s64.s32 %rd6, %r16;
  add.s64 %rd7, %rd1, 4;
  mov.u32 %r22, %tid.y; add.s32 %r1, %r15, %r22; mov.u32 %r23, %tid.z; neg.s32 %r2, %r23;
  mov.u32 %r41, 0;
  mov.u32 %r24, %nctaid.y; mul.lo.s32 %r25, %r12, %r24; mov.u32 %r26, %nctaid.z; mul.lo.s32 %r27, %r25, %r26;
  mov.u32 %r28, %ctaid.y; add.s32 %r29, %r14, %r28; mov.u32 %r30, %ctaid.z; neg.s32 %r31, %r30;
  setp.eq.s32 %p2, %r29, %r31;
  mov.u32 %r32, -2147483647; sub.s32 %r33, %r32, %r27; selp.b32 %r3, %r33, 1, %p2;
  shl.b64 %rd14, %rd5, 2; shl.b64 %rd16, %rd4, 2; shl.b64 %rd18, %rd6, 2;
$L2:
  mov.u64 %rd8, %rd22;
  add.s64 %rd15, %rd8, %rd14; ld.global.u32 %r34, [%rd15];
  add.s64 %rd17, %rd8, %rd16; ld.global.u32 %r35, [%rd17];
  add.s32 %r36, %r34, %r35;
  add.s64 %rd19, %rd23, %rd18; st.global.u32 [%rd19], %r36;
  setp.ne.s64 %p3, %rd1, 0;
  @%p3 bra $L4;
  trap;
$L4:
  setp.ne.s32 %p4, %r1, %r2;
  barrier.sync 0;
  @%p4 bra $L7;
  atom.add.release.gpu.u32 %r37, [%rd7], %r3;
$L6:
  ld.acquire.gpu.u32 %r39, [%rd7];
  xor.b32 %r40, %r39, %r37;
  setp.gt.s32 %p5, %r40, -1;
  @%p5 bra $L6;
$L7:
  barrier.sync 0;
  add.s32 %r41, %r41, 1; setp.lt.s32 %p6, %r41, %r7;
  mov.u64 %rd22, %rd23; mov.u64 %rd23, %rd8;
  @%p6 bra $L2;
  ret;
}
"""
BLOCKS, THREADS, STEPS = 5, 64, 4
START = np.arange(BLOCKS * THREADS, dtype=np.int32) ** 2
GRID, BLOCK = (BLOCKS, 1, 1), (THREADS, 1, 1)


def stepped(numbers: np.ndarray, steps: int) -> np.ndarray:
    """What NumPy makes of it."""
    for _ in range(steps):
        numbers = np.roll(numbers, 1) + np.roll(numbers, -1)
    return numbers


WANTED = stepped(START, STEPS)  # an even number of steps ends in a


def laid_out() -> tuple[Memory, list[int]]:
    memory = Memory()
    return memory, [memory.allocate(START.view(np.uint8)), memory.allocate(START.nbytes), STEPS]


def correct(run: Run, memory: Memory, params: list[int]) -> None:
    assert run.completed and not run.hazards and not run.inexact, run.hazards
    assert np.array_equal(memory.read(params[0], START.nbytes).view(np.int32), WANTED)
    assert [own.address for own in memory.segments] == params[:2]  # the workspace is gone


@pytest.mark.parametrize("schedule", ["late", "early", 3])
def test_the_blocks_of_a_grid_meet_at_every_step(schedule: str | int) -> None:
    memory, params = laid_out()
    kernel = parse(PTX).kernel()
    for _ in range(2):  # the second launch has a fresh workspace
        run = kernel.launch(memory, params, GRID, BLOCK, schedule=schedule, cooperative=True)
    assert run.completed and not run.hazards and not run.inexact
    assert np.array_equal(memory.read(params[0], START.nbytes).view(np.int32), stepped(START, 2 * STEPS))


def test_the_work_grows_with_the_blocks_and_not_with_their_square() -> None:
    """They begin together: none is looked at again for each that comes."""

    def instructions(blocks: int) -> int:
        memory = Memory()
        pointers = [memory.allocate(4 * 32 * blocks) for _ in range(2)]
        run = (
            parse(PTX)
            .kernel()
            .launch(memory, [*pointers, STEPS], grid=(blocks, 1, 1), block=(32, 1, 1), cooperative=True, check=False)
        )
        assert run.completed
        return run.instructions

    few, more, most = map(instructions, (4, 8, 16))
    assert most - more == 2 * (more - few)


def test_another_launch_has_no_workspace() -> None:
    """The address is null, and cooperative groups trap."""
    memory, params = laid_out()
    run = parse(PTX).kernel().launch(memory, params, GRID, BLOCK)
    assert [own.name for own in run.hazards] == ["TRAP"]


def test_a_session_steps_through_it() -> None:
    memory, params = laid_out()
    session = parse(PTX).kernel().session(memory, params, GRID, BLOCK, cooperative=True)
    session.step(count=200)
    session.back(150)
    session.run()
    assert session.result is not None
    correct(session.result, memory, params)


def test_a_launch_file_says_it(tmp_path: Path) -> None:
    (tmp_path / "halo.ptx").write_text(PTX)
    launch = tmp_path / "halo.toml"
    text = (
        f"grid = {BLOCKS}\nblock = {THREADS}\ncooperative = true\nparams = [{{ pointer = 'a' }}, {{ pointer = 'b' }}, {{ value = {STEPS} }}]\n"
        f"arrays.a = {{ format = 's32', shape = [{len(START)}], values = {START.tolist()} }}\n"
        f"arrays.b = {{ format = 's32', shape = [{len(START)}], distribution = 'zeros' }}\n"
        f"expected.a = {{ format = 's32', shape = [{len(START)}], values = {WANTED.tolist()} }}\n"
    )
    launch.write_text(text)
    assert data("exec", tmp_path / "halo.ptx", "--launch", launch)["equal"] is True
    launch.write_text(text.replace("true", "1"))
    assert "cooperative=1; valid: true or false" in refusal("exec", tmp_path / "halo.ptx", "--launch", launch)


def test_a_recorded_launch_says_it(tmp_path: Path) -> None:
    params = tuple(number.to_bytes(size, "little") for number, size in ((0x1000, 8), (0x9000, 8), (STEPS, 4)))
    zeros = np.zeros(START.nbytes, np.uint8)
    between = stepped(START, STEPS - 1).view(np.uint8)
    buffers = (
        Buffer("a", 0x1000, START.view(np.uint8), WANTED.view(np.uint8)),
        Buffer("b", 0x9000, zeros, between),
    )
    written = tmp_path / "halo.npz"
    recording.write(written, Recording(PTX.encode(), "halo", GRID, BLOCK, params, buffers, cooperative=True))
    found = job.execute(recording.read(written).job())
    assert found.passed and found.equal and found.job.cooperative
