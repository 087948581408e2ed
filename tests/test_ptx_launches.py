"""Kernels of Triton and nvcc on the CPU: every byte of memory as an H200 left it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse

LAUNCHES = Path(__file__).parent / "data" / "launches"
SCHEDULES = ("late", "early", 0, 1, 2)
NAMES = sorted(path.stem for path in LAUNCHES.glob("*.npz"))


def launched(name: str, schedule: str | int = "late") -> tuple[Run, int, int]:
    """The run, how many bytes were compared, and how many of them differ."""
    with np.load(LAUNCHES / f"{name}.npz") as file:
        data = dict(file)
    memory, buffers = Memory(), [key for key in data if key.startswith("buf") and key.endswith("_address")]
    for key in buffers:
        memory.map(int(data[key]), data[key.replace("address", "before")].view(np.uint8).reshape(-1))
    params = [data[f"param{i}"].tobytes() for i in range(sum(key.startswith("param") for key in data))]
    run = parse(str(data["ptx"])).kernel(str(data["entry"])).launch(
        memory, params, data["grid"], data["block"], dynamic_smem=int(data["smem"]), arch="sm_90", schedule=schedule
    )  # fmt: skip
    compared = wrong = 0
    for key in buffers:
        after = data[key.replace("address", "after")].view(np.uint8).reshape(-1)
        compared += len(after)
        wrong += int((memory.read(int(data[key]), len(after)) != after).sum())
    return run, compared, wrong


def test_all_launches_are_here() -> None:
    assert len(NAMES) == 19


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_is_the_hardwares(name: str, schedule: str | int) -> None:
    run, compared, wrong = launched(name, schedule)
    assert run.completed and not run.hazards and run.instructions > 0
    assert not run.inexact, run.inexact
    assert compared >= 2_000 and wrong == 0, f"{wrong} of {compared} bytes differ"


VECTOR = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 out, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %a<4>;
  ld.param.u64 %a0, [out];
  ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x;
  setp.ge.u32 %p, %r1, %r0;
  @%p bra END;
  cvta.to.global.u64 %a1, %a0;
  mul.wide.u32 %a2, %r1, 4;
  add.s64 %a3, %a1, %a2;
  ld.global.u32 %r2, [%a3];
  add.u32 %r3, %r2, 1;
  st.global.u32 [%a3], %r3;
END:
  ret;
}
"""


def test_a_kernel_of_ones_own() -> None:
    memory, before = Memory(), np.arange(40, dtype=np.uint32)
    memory.map(0x10000, before.view(np.uint8))
    run = parse(VECTOR).kernel().launch(memory, [0x10000, 35], block=(64, 1, 1))
    after = memory.read(0x10000, 160).view(np.uint32)
    assert run.completed and (after[:35] == before[:35] + 1).all() and (after[35:] == before[35:]).all()
