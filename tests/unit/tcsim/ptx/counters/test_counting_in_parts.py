"""Single rules of what is counted, said and derived, each on the few numbers that decide it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.counters import machine, rules
from tcsim.ptx.counters.advice import better
from tcsim.ptx.counters.bound import bound_of
from tcsim.ptx.counters.cycles import CHIPS, tensor_cycles
from tcsim.ptx.counters.occupancy import occupancy

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
PRODUCT = """
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f0, %f1, %f2, %f3};"""


def counted(body: str) -> Any:
    """Counters of one warp; data is read and written with 128 bytes between lanes and 4."""
    text = f"""{HEAD}.file 1 "k.py"
.visible .entry k(.param .u64 data)
{{
  .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .f32 %f<4>;
  ld.param.u64 %d0, [data];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 128;
  mul.wide.u32 %d2, %r0, 4;
  add.u64 %d1, %d0, %d1;
  add.u64 %d2, %d0, %d2;
{body}
  ret;
}}"""
    memory = Memory()
    run = (
        parse(text)
        .kernel()
        .launch(memory, [memory.allocate(1 << 13)], (1, 1, 1), (32, 1, 1), check=False, counters=True)
    )
    assert run.completed and run.counters is not None
    return run.counters


def test_what_is_derived() -> None:
    """Sectors for each request of loads and of stores; operations of tensor cores only where there are some."""
    found = counted("  ld.global.b32 %r1, [%d1];\n  st.global.b32 [%d2], %r1;").derived
    assert found["global load: sectors per request"] == 32 and found["global store: sectors per request"] == 4
    assert found["L1 and L2: bytes"] == 36 * 32
    assert not [name for name in found if name.startswith("tensor")]
    found = counted(f"  ld.global.b32 %r1, [%d1];{PRODUCT}").derived
    assert found["tensor: operations"] == 2 * 16 * 8 * 16
    assert found["tensor: operations per byte"] == 2 * 16 * 8 * 16 / (32 * 32)


def test_by_source() -> None:
    """Lines with a .loc, counters of the same line together; others are left out."""
    found = counted(
        "  .loc 1 7 0\n  ld.global.b32 %r1, [%d1];\n  .loc 1 9 0\n  ld.global.b32 %r2, [%d2];\n  .loc 1 7 0\n  st.global.b32 [%d1], %r1;"
    ).by_source()
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum".format
    assert [place for place, _ in found] == [("k.py:7",), ("k.py:9",)]
    assert found[0][1][sectors("ld")] == found[0][1][sectors("st")] == 32 and found[1][1][sectors("ld")] == 4


@pytest.mark.parametrize(
    ("operation", "stride", "width", "waves"),
    [("ld.shared", 128, 4, 32), ("ld.shared", 64, 4, 16), ("st.shared", 128, 16, 32)],
)
def test_a_better_place(operation: str, stride: int, width: int, waves: int) -> None:
    """A column of rows of 128 bytes takes a wavefront for each lane; padded or swizzled, as few as its bytes need. One that does is left alone."""
    rows = np.arange(32)[None, :] * stride
    found = better(operation, width, (rows,))
    assert found is not None and found[1:] == (waves, width // 4)
    assert better(operation, width, (np.arange(32)[None, :] * width,)) is None


def test_a_better_place_is_one_of_fewer_wavefronts_in_all() -> None:
    """A loop of compare and swap loads and swaps: both count."""
    rows = np.arange(32)[None, :] * 128
    waves = next(own for own in rules.OPERATIONS["atom.shared.loop"].rules if own.counter == rules.SHARED_WAVES)
    found = better("atom.shared.loop", 4, (rows,))
    assert found is not None and found[1] == int(waves.count(rows, 4)[0]) > 32


@pytest.mark.parametrize(
    ("opcode", "row"),
    [("HMMA.1684.F32.TF32", 4 * 32), ("HMMA.1688.F32.TF32", 8 * 32), ("HMMA.1688.F32", 8 * 16), ("HMMA.16816.F32", 16 * 16),
     ("IMMA.8816.S8.S8", 16 * 8), ("IMMA.16816.S8.S8", 16 * 8), ("IMMA.16832.S8.S8", 32 * 8), ("BMMA.168128.XOR.POPC", 128), ("BMMA.168256.XOR.POPC", 256)],
)  # fmt: skip
def test_how_long_a_product_of_a_warp_takes(opcode: str, row: int) -> None:
    """A tensor core of an H200 is busy by the bits of a row of A, whatever their format: 4 cycles for 128, 6 for 256."""
    assert tensor_cycles(opcode, "sm_90") == {128: 4, 256: 6}[row]


@pytest.mark.parametrize(
    ("totals", "unit"), [({}, "shared memory"), ({rules.DATA: 1}, "L1 data"), ({rules.DATA: 2, rules.SHARED_WAVES: 2}, "shared memory"), ({rules.SHARED_WAVES: 2}, "shared memory")]
)  # fmt: skip
def test_the_pipe_that_global_and_shared_memory_share(totals: dict[str, int], unit: str) -> None:
    """It is called by the one that needs more of it."""
    found = bound_of(totals, {rules.SHARED_WAVES: np.array([10**9])}, 1, "sm_90")
    assert found is not None and found.unit == unit and unit in found.shares


@pytest.mark.parametrize(("more", "unit"), [(0, "launch"), (1, "shared memory")])
def test_what_a_launch_is_bound_by(more: int, unit: str) -> None:
    """By its own start, unless a unit has more to do than that takes."""
    found = bound_of({}, {rules.SHARED_WAVES: np.array([CHIPS["sm_90"].start + more])}, 1, "sm_90")
    assert found is not None and found.unit == unit


def test_blocks_that_are_seldom_executed() -> None:
    """One that calls the slow path, and what follows it if that is short; not what follows that."""
    name = next(
        name
        for name in ("__internal_trig_reduction_slowpath", "$__internal_0_$__cuda_sm20_div_f64_slowpath_v2")
        if machine._SELDOM.search(name)
    )

    def block(length: int, *calls: str) -> Any:
        return SimpleNamespace(calls=calls, code=[None] * length)

    assert machine._slow([block(9), block(9, name), block(3), block(3), block(9, name)]) == {1, 2, 4}
    assert machine._slow([block(9, name), block(4)]) == {0}


@pytest.mark.parametrize(
    ("arch", "warps", "blocks", "kilobytes"),
    [("sm_80", 64, 32, 164), ("sm_86", 48, 16, 100), ("sm_89", 48, 24, 100), ("sm_90", 64, 32, 228), ("sm_100", 64, 32, 228), ("sm_120", 48, 24, 100)],
)  # fmt: skip
def test_what_a_multiprocessor_holds(arch: str, warps: int, blocks: int, kilobytes: int) -> None:
    """Warps, blocks and shared memory as CUDA's table of compute capabilities has them; the system takes 1 KiB of each block."""
    whole, small = occupancy(arch, 1024), occupancy(arch, 32)
    assert whole is not None and small is not None
    assert (whole.most, whole.blocks) == (warps, warps // 32) and small.blocks == blocks
    half = (kilobytes << 10) // 2 - 1024
    assert [occupancy(arch, 32, 0, bytes).blocks for bytes in (half, half + 1)] == [2, 1]  # type: ignore[union-attr]
