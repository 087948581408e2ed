"""Kernels of CUDA, Triton, Gluon and CuTe DSL on the CPU: every byte of memory as an H200 left it.

`python -m tests.kernels.corpora.replay` prints the same as a table.
"""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.launchers.recording import from_fields, read
from tcsim.ptx import Memory, parse
from tests.kernels.corpora import recording
from tests.kernels.corpora.replay import DEFECTS, replayed

SCHEDULES = ("late", "early", 0, 1, 2)
GIVEN = sorted(path.stem for path in recording.GIVEN.glob("*.npz"))
KEPT = recording.read() | recording.read(recording.WIDE)
LAUNCHED = recording.read(recording.LAUNCHERS)


def test_all_launches_are_here() -> None:
    assert len(GIVEN) == 19 and len(KEPT) == 240
    wide = [own for name, own in KEPT.items() if recording.kept_in(name) == recording.WIDE]
    assert len(wide) == 21 and all(65 <= np.prod(own["grid"]) <= 8448 for own in wide)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_is_the_hardwares(name: str, schedule: str | int) -> None:
    own = replayed(read(recording.GIVEN / f"{name}.npz"), schedule)
    assert own.run.completed and not own.errors and own.run.instructions > 0
    assert own.compared >= 2_000 and own.differing == 0, f"{own.differing} of {own.compared} bytes differ"


INEXACT = {
    "cuda_atomics": {"atom.cas.b32"}, "cuda_functions": {"mul + add.f32", "mul + sub.f32"}, "cuda_spin_lock": {"atom.cas.b32", "atom.exch.b32"},
    "cuda_votes": {"activemask.b32"}, "cuda_wide_first_visits": {"atom.add.u32", "atom.or.b32"}, "triton_layer_norm_backward": {"atom.cas.b32", "atom.exch.b32", "bra of a loop that waits"},
}  # fmt: skip
"""What launches that ran as on an H200 cannot claim: who takes a lock, swaps, or marks a place, first; which lanes of a warp that parted come together; a product that
is needed on one side of a branch on an integer, where the assembler could know that nobody goes there, or a product and a sum with a subroutine between them."""


@pytest.mark.parametrize("name", KEPT)
def test_our_own_launches(name: str) -> None:
    own = replayed(from_fields(KEPT[name], name))
    assert own.run.completed and own.errors == DEFECTS.get(name, set()) and own.printed
    assert own.compared > 0 and own.differing == 0, f"{own.differing} of {own.compared} bytes differ"
    assert set(own.run.inexact) <= INEXACT.get(KEPT[name]["case"], set())


@pytest.mark.parametrize("name", LAUNCHED)
def test_launches_through_each_launcher(name: str) -> None:
    """Recorded by `hwkernels.capture`. A layer norm of torch.compile has quotients that the assembler fuses with sums, which is counted."""
    own = replayed(from_fields(LAUNCHED[name], name))
    assert own.run.completed and own.compared > 0 and own.differing == 0
    assert not own.run.inexact or ("norm" in name and all(entry.startswith("mul + ") for entry in own.run.inexact))


def test_there_are_launches_of_five_launchers() -> None:
    assert len(LAUNCHED) == 18
    assert {name.split("_0")[0] for name in LAUNCHED} == {"cuda_bindings", "cuda_core", "cupy", "triton", "torch"}


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
