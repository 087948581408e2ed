"""Machine code executed: listings as nvdisasm prints them, with counts of lines of PTX."""

from __future__ import annotations

import pytest

from tcsim.core.errors import OperandError
from tcsim.ptx.counters.machine import machine

HEAD = "//--------------------- .text.k --------------------------\n\t.section .text.k\nk:\n.text.k:\n"


def code(*rows: tuple[int | str, str]) -> str:
    """A listing: lines of PTX with an instruction each; a label stands alone."""
    text, address = HEAD, 0
    for line, own in rows:
        if isinstance(line, str):
            text += f"{line}:\n"
            continue
        text += f'\t//## File ".nv_debug_ptx_txt", line {line}\n        /*{address:04x}*/                   {own} ;\n'
        address += 16
    return text


def counts(text: str, lines: dict[int, int], warps: int) -> list[int]:
    return [count for _, count in machine(text, "k", lines, warps).instructions]


def test_a_loop_is_executed_as_often_as_its_loads():
    text = code(
        (1, "S2R R0, SR_TID.X"),
        (".L_x_0", ""),
        (2, "LDG.E R1, desc[UR4][R2.64]"),
        (3, "IADD3 R0, R0, 0x1, RZ"),
        (4, "@P0 BRA `(.L_x_0)"),
        (5, "EXIT"),
    )
    assert counts(text, {1: 4, 2: 40, 3: 40, 4: 40, 5: 4}, 4) == [4, 40, 40, 40, 4]


def test_an_unrolled_loop_and_its_rest_share_the_iterations():
    text = code(
        (1, "@P1 BRA `(.L_x_1)"),
        (".L_x_0", ""),
        *[(2, "LDS R1, [R2]")] * 4,
        (3, "@P0 BRA `(.L_x_0)"),
        (".L_x_1", ""),
        (2, "LDS R1, [R2]"),
        (3, "@P2 BRA `(.L_x_1)"),
        (4, "EXIT"),
    )
    found = counts(text, {1: 2, 2: 22, 3: 22, 4: 2}, 2)
    assert 4 * found[1] + found[6] == 22


def test_warps_go_the_same_way_through_an_unrolled_loop_where_nothing_speaks_against_it():
    text = code(
        (1, "@!P1 BRA `(.L_x_1)"),
        (".L_x_0", ""),
        *[(2, "LDS R1, [R2]")] * 4,
        (3, "@P0 BRA `(.L_x_0)"),
        (".L_x_1", ""),
        (3, "@!P2 BRA `(.L_x_2)"),
        *[(2, "LDS R1, [R2]")] * 2,
        (".L_x_2", ""),
        (3, "@!P3 BRA `(.L_x_3)"),
        (2, "LDS R1, [R2]"),
        (".L_x_3", ""),
        (4, "EXIT"),
    )
    found = machine(text, "k", {1: 20, 2: 60, 3: 60, 4: 20}, 20, single={2}).instructions  # three iterations each
    assert [count for own, count in found if own.opcode == "LDS"] == [0] * 4 + [20] * 3


def test_what_stands_behind_a_label_that_nothing_goes_to_is_executed_with_what_is_before():
    rows = [row for number in range(4) for row in ((f".L_x_{number + 1}", ""), (2, "SHFL.IDX PT, R1, R2, R3, 0x1f"))]
    text = code((1, "S2R R0, SR_TID.X"), (".L_x_0", ""), *rows, (3, "@P0 BRA `(.L_x_0)"), (4, "EXIT"))
    assert counts(text, {1: 4, 2: 16, 3: 16, 4: 4}, 4) == [4, *[16] * 5, 4]


def test_what_was_moved_counts_where_it_is():
    text = code(
        (5, "IADD3 R9, R9, 0x1, RZ"),
        (1, "BAR.SYNC.DEFER_BLOCKING 0x0"),
        (2, "@P0 EXIT"),
        (3, "STG.E desc[UR4][R2.64], R1"),
        (4, "EXIT"),
    )
    assert counts(text, {1: 8, 2: 8, 3: 3, 4: 3, 5: 3}, 8) == [8, 8, 8, 3, 3]


def test_what_a_branch_became_counts_though_nobody_takes_it():
    text = code(
        (1, "BAR.SYNC.DEFER_BLOCKING 0x0"),
        (2, "@!P0 LDG.E R1, desc[UR4][R2.64]"),
        (3, "STG.E desc[UR4][R2.64], R1"),
        (4, "EXIT"),
    )
    assert counts(text, {1: 8, 2: 0, 3: 8, 4: 8}, 8) == [8, 8, 8, 8]


def test_padding_and_what_only_parted_warps_do_are_not_executed():
    text = code(
        (1, "BRA.DIV UR6, `(.L_x_1)"),
        (2, "SHFL.BFLY PT, R1, R2, 0x1, 0x1f"),
        (3, "EXIT"),
        (".L_x_1", ""),
        (2, "WARPSYNC.COLLECTIVE R10, `(.L_x_2)"),
        (3, "EXIT"),
        (".L_x_3", ""),
        (3, "BRA `(.L_x_3)"),
        (3, "NOP"),
    )
    assert counts(text, {1: 8, 2: 8, 3: 8}, 8) == [8, 8, 8, 0, 0, 0, 0]


def test_as_many_warps_go_on_as_came_to_where_their_parts_meet():
    text = code(
        (1, "BSSY B0, `(.L_x_2)"),
        (1, "STS [R2], R1"),
        (2, "@P0 BRA `(.L_x_1)"),
        (3, "FADD R1, R1, R2"),
        (".L_x_1", ""),
        (4, "BSYNC B0"),
        (".L_x_2", ""),
        (9, "FADD R1, R1, R3"),
        (9, "EXIT"),
    )
    assert machine(text, "k", {1: 8, 2: 8, 3: 5}, 8, parted={2: 5}).instructions[-2][1] == 8


def test_loops_that_ptxas_makes_of_one_line_and_questions_to_mbarriers_are_unknown():
    text = code(
        (1, "STS [R2], R1"),
        (".L_x_1", ""),
        (2, "ATOMS.CAST.SPIN R1, [R2], R4, R5"),
        (2, "@!P0 BRA `(.L_x_1)"),
        (".L_x_2", ""),
        (3, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R6"),
        (4, "@!P0 BRA `(.L_x_2)"),
        (".L_x_3", ""),
        (5, "LDS R1, [R2]"),
        (6, "@P0 BRA `(.L_x_3)"),
        (7, "EXIT"),
    )
    own = machine(text, "k", {1: 4, 2: 4, 3: 4, 4: 4, 5: 8, 6: 8, 7: 4}, 4)
    assert [number for number, (said, _) in enumerate(own.instructions) if said.address in own.unknown] == [1, 2, 3, 4]
    assert [row["executed"] for row in own.as_dict()["instructions"]] == [4, *[None] * 4, 8, 8, 4]


def test_what_the_order_of_threads_decides_is_unknown_where_its_accesses_are():
    text = code(
        (1, "LDG.E R1, desc[UR4][R2.64]"),
        (3, "IADD3 R4, R5, 0x1, RZ"),
        (".L_x_1", ""),
        (2, "ATOMG.E.CAS.STRONG.GPU PT, R1, [R2], R4, R5"),
        (3, "@P0 BRA `(.L_x_1)"),
        (4, "EXIT"),
    )
    own = machine(text, "k", {1: 4, 2: 4, 3: 4, 4: 4}, 4, undecided={2, 3})
    assert own.unknown == {32, 48} and machine(text, "k", {1: 4, 2: 4, 3: 4, 4: 4}, 4).unknown == frozenset()


def test_encodings_say_how_many_cycles_an_instruction_takes():
    row = "        /*0000*/                   FADD R1, R1, R2 ;                 /* 0x0000000205057221 */\n"
    text = code((1, "EXIT")).replace("        /*0000*/", row + " " * 50 + "/* 0x001fe40000000000 */\n        /*0010*/")
    (first, count), (last, _) = machine(text, "k", {1: 2}, 2).instructions
    assert (first.text, first.cycles, last.cycles, count) == ("FADD R1, R1, R2 ", 2, 1, 2)


def test_the_mix_and_a_kernel_that_is_not_there():
    own = machine(code((1, "FADD R1, R1, R2"), (2, "FADD R1, R1, R2"), (3, "EXIT")), "k", {1: 2, 2: 2, 3: 2}, 2)
    assert own.executed == 6 and own.mix == {"FADD": 4, "EXIT": 2}
    with pytest.raises(OperandError, match="no kernel 'other'; it has k"):
        machine(code((1, "EXIT")), "other", {}, 1)
