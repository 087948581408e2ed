"""Counters with machine code: what ptxas removed, joined, and moved through the tensor core."""

from __future__ import annotations

from dataclasses import replace

from tcsim.ptx import Memory, parse
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.assembled import CONSTANTS, JOINED, UNROLLED, accesses, assembled
from tcsim.ptx.counters.machine import Code
from tcsim.ptx.counters.tally import Tally

HMMA = "smsp__inst_executed_pipe_tensor_op_hmma.sum"
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {
  .reg .b32 %r<9>; .reg .b64 %d<4>; .shared .align 16 .b8 s[64];
  ld.param.u64 %d0, [data]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; mov.u32 %r8, s;
  ld.shared.b32 %r1, [%r8];
  ld.shared.b32 %r2, [%r8+4];
  ld.global.b32 %r3, [%d2];
  ld.global.b32 %r4, [%d2];
  st.global.b32 [%d2], %r4;
  ret; }"""


def code(*rows: tuple[int, str]) -> list[tuple[Code, int]]:
    return [(Code(16 * place, text, "", line), 2) for place, (line, text) in enumerate(rows)]


def tally() -> Tally:
    memory = Memory()
    run = parse(TEXT).kernel().launch(memory, [memory.allocate(256)], block=(64, 1, 1), check=False, counters=True)
    assert run.completed and run.counters is not None
    return run.counters.tally


MADE = code(
    (7, "LDS.64 R2, [R8]"),
    (9, "LDG.E R3, desc[UR4][R2.64]"),
    (11, "STG.E desc[UR4][R2.64], R4"),
    (11, "HFMA2.MMA R0, -RZ, RZ, 0, 0"),
)


def test_what_was_removed_counts_nothing_and_what_was_joined_counts_once():
    before = tally()
    after, doubts = assembled(before, MADE)
    assert before.lines[7][rules.LOAD_WAVES] == before.lines[8][rules.LOAD_WAVES] == 2
    assert after.lines[7][rules.LOAD_WAVES] == 2 and rules.LOAD_WAVES not in after.lines[8]
    assert after.by_block[rules.LOAD_WAVES].tolist() == [2] and doubts[rules.LOAD_WAVES] == {JOINED}
    requests = f"{rules.REQUESTS}ld.sum"
    assert after.lines[9][requests] == 2 and requests not in after.lines[10]
    assert before.lines[10][requests] == 2


def test_constants_that_pass_through_the_tensor_core_count_there():
    after, doubts = assembled(tally(), MADE)
    assert after.lines[11][HMMA] == 2 and after.lines[11][rules.TENSOR_CYCLES] == 4
    assert doubts[HMMA] == doubts[rules.TENSOR_CYCLES] == {CONSTANTS}
    brought = [*MADE, (Code(64, "HFMA2.MMA R0, -RZ, RZ, 0, 0", "", 0), 3)]
    assert sum(own.get(HMMA, 0) for own in assembled(tally(), brought)[0].lines.values()) == 5


def test_constants_take_longer_a_few_cycles_behind_the_first_load_of_a_line_of_the_constant_bank():
    def cycles(*texts: str, stall: int = 1, blocks: int = 1) -> int:
        rows = [(replace(own, cycles=stall), count) for own, count in code(*((11, text) for text in texts))]
        moved = code((11, "HFMA2.MMA R0, -RZ, RZ, 0, 0"))
        after, _ = assembled(replace(tally(), blocks=blocks), rows + moved)
        return after.lines[11][rules.TENSOR_CYCLES]

    first, same, other = (f"ULDC UR4, c[0x0][{at}]" for at in ("0x220", "0x208", "0x240"))
    near, far = ["BSSY B0, `(.L_x_0)"] * 3, ["BSSY B0, `(.L_x_0)"] * 4
    assert cycles(first) == cycles(first, same) == cycles(first, *near) == cycles(first, stall=4) == 8
    assert cycles(first, other) == 12
    assert (
        cycles(first, *far)
        == cycles(first, *far, same)
        == cycles("LDC R1, c[0x0][0x28]")
        == cycles(first, stall=5)
        == 4
    )
    assert cycles(first, blocks=4 * 132) == 8 and cycles(first, blocks=4 * 132 + 1) == 4  # later blocks find the line


def test_copies_of_tma_count_as_often_as_their_machine_instruction():
    before = tally()
    copies = {"smsp__inst_executed_op_tma_ld.sum": 2, "smsp__inst_executed_op_tma_st.sum": 2}
    before.lines[9].update(copies)
    before.lines[10].update(copies)
    made = [(own, 7) for own, _ in code((9, "UTMALDG.2D [UR8], [UR14]"), (9, "UBLKCP.S.S [UR6], [UR4], UR5"))]
    after, _ = assembled(before, made)
    assert [after.lines[line][name] for line in (9, 10) for name in copies] == [7, 7, 2, 2]


def test_loads_of_an_unrolled_loop_are_doubted_where_lanes_part():
    requests = f"{rules.REQUESTS}ld.sum"
    before, twice = tally(), code((9, "LDG.E R3, desc[UR4][R2.64]"), (9, "LDG.E R3, desc[UR4][R2.64]"))
    rest = [(own, count - place) for place, (own, count) in enumerate(twice)]
    assert requests not in assembled(before, rest)[1]
    before.lines[9][rules.THREADS] -= 1
    assert requests not in assembled(before, twice)[1] and assembled(before, rest)[1][requests] == {UNROLLED}


def test_loads_that_are_never_executed_are_none():
    assert accesses([(Code(0, "LDS RZ, [RZ]", "@!PT", 3), 1)]) == {3: {}}


def test_a_load_that_fewer_warps_execute_in_machine_code_counts_in_proportion():
    fewer = [(own, 1 if own.line == 9 else count) for own, count in MADE]
    after, doubts = assembled(tally(), fewer)
    requests = f"{rules.REQUESTS}ld.sum"
    assert after.lines[9][requests] == 1 and requests not in doubts
    more = [(own, 3 if own.line == 9 else count) for own, count in MADE]
    assert assembled(tally(), more)[0].lines[9][requests] == 2
