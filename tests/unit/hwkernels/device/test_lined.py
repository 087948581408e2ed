"""Machine code with lines of PTX, and what `tcsim profile --machine` makes of it; needs the assembler of the extra `assemble`, as the tests of the toolchain do."""

from __future__ import annotations

import pytest

from hwkernels.device.lined import lined
from tcsim.launchers.profile import Profile
from tcsim.ptx import Memory, parse

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [data];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d2, %d0, %d1;
  mov.u32 %r1, 0;
AGAIN:
  ld.volatile.global.f32 %f0, [%d2];
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, %r0;
  @%p bra AGAIN;
  st.global.f32 [%d2], %f0;
  ret;
}
"""


def test_a_kernel_is_assembled_and_its_loads_are_executed_about_as_often_as_their_line():
    made = lined(TEXT, "k", "sm_90")
    assert 4 <= made.registers <= 32 and made.spilled == 0 and made.assembler.startswith("ptxas")
    memory = Memory()
    run = (
        parse(TEXT)
        .kernel()
        .launch(memory, [memory.allocate(512)], (3, 1, 1), (64, 1, 1), arch="sm_90", check=False, counters=True)
    )
    profile = Profile("k.ptx", run, (3, 1, 1), (64, 1, 1)).executed(made.listing, made.registers, "registers")
    assert profile.machine is not None and profile.counters.occupancy is not None
    loads = sum(count for code, count in profile.machine.instructions if code.opcode == "LDG")
    line = next(own for line, _, own in profile.counters.by_line() if line == 13)
    assert line["ptx__inst_executed.sum"] == line["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 282
    assert loads == pytest.approx(
        282, rel=0.05
    )  # an estimate: ptxas unrolls the loop, and how often its parts run is not known
    assert profile.as_dict()["machine"]["executed"] == profile.machine.executed
    assert "Machine instructions" in [getattr(part, "title", "") for part in profile.report().parts]


def test_a_kernel_that_is_not_there():
    with pytest.raises(ValueError, match="ptxas says nothing of 'other'"):
        lined(TEXT, "other", "sm_90")
