"""Cases and comparison: inputs that follow from an id alone, mismatches that are located."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.stimuli import classes as inputs
from conformance.suite.cases import Case, Settings, Suite
from tests.support.suite_runs import CLASSES, MNEMONIC, OTHER

DENSE = testbench_of("mma.sync")


def test_a_case_is_its_id() -> None:
    """There and back, for every case there is; other text is refused."""
    checked = 0
    for case in Suite(Settings("sm_90", "live")).cases():
        assert Case.parse(case.id) == case
        checked += case.mnemonic.startswith("mma.sync.")
    assert checked == 1104
    for text in ("", MNEMONIC, f"{MNEMONIC}-wide", f"{MNEMONIC}-wide-", f"{MNEMONIC}-wide-x", f"-wide-0 {MNEMONIC}"):
        with pytest.raises(ValueError, match="no case id"):
            Case.parse(text)


def test_inputs_depend_on_the_case_alone() -> None:
    """The same registers every time; others for another seed or number of samples, by their digest."""
    compared = 0
    for mnemonic in (MNEMONIC, "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32"):
        instruction = tcsim.instruction(mnemonic, arch="sm_90")
        seen = set()
        for item in inputs.classes_for(instruction):
            first, second = (inputs.registers(instruction, item, 0, 4) for _ in range(2))
            assert list(first) == list("abc")
            assert all((first[name] == second[name]).all() for name in first)
            digests = [
                inputs.digest(inputs.registers(instruction, item, seed, n)) for seed, n in ((0, 4), (1, 4), (0, 5))
            ]
            assert digests[0] == inputs.digest(first)
            if item.name != "zeros" or instruction.operands["a"].format.kind == "float":
                assert len({*digests}) == 3, item.name
            seen.add(digests[0])
            compared += 1
        assert len(seen) == len(inputs.classes_for(instruction))
    assert compared == len(CLASSES) + 8


@pytest.mark.parametrize(
    ("mnemonic", "place", "where"),
    [
        (MNEMONIC, (3, 31, 1), "warp 3 lane 31 register 1 (row 7, column 7)"),
        (OTHER, (0, 4, 1), "warp 0 lane 4 register 1 slot 1 (row 9, column 1)"),
        ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", (1, 0, 5), "warp 1 lane 0 register 4 (row 8, column 0)"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
            (2, 20, 6),
            "warp 2 lane 20 register 6 matrix 1 (row 6, column 4)",
        ),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", (0, 9, 1), "warp 0 lane 9 register 1 (row 2, column 3)"),
        (
            "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc",
            (0, 0, 0),
            "warp 0 lane 0 register 0 (row 0, column 0)",
        ),
    ],
)
def test_a_mismatch_is_located(mnemonic: str, place: tuple[int, int, int], where: str) -> None:
    """One bit of one register: lane, register, slot, matrix, row and column; that result's inputs and trace."""
    instruction = tcsim.instruction(mnemonic, arch="sm_90")
    registers = inputs.registers(instruction, inputs.CLASSES["boundaries"], 1, 4)
    model = instruction.execute(**registers)
    assert DENSE.compare(instruction, registers, model, model.copy()).mismatches == 0
    hardware = model.copy()
    hardware[place] ^= np.uint32(1 << 20)
    comparison = DENSE.compare(instruction, registers, hardware, model)
    outputs = 4 * instruction.matrices * 8 * instruction.shape[0]
    assert (comparison.outputs, comparison.mismatches, len(comparison.first)) == (outputs, 1, 1)
    (mismatch,) = comparison.first
    line = mismatch.line()
    assert line.startswith(f"MISMATCH {where}: a=")
    assert "\n" not in line
    a, b, c = (shown(line, name, instruction) for name in "abc")
    m = instruction.shape[0]
    one = instruction.matmul(np.tile(a, (m, 1)), np.tile(b[:, None], (1, 8)), np.tile(c, (m, 8)))
    code = f"0x{int(one[0, 0]):0{instruction.operands['d'].format.bits // 4}x}"
    assert mismatch.model == code  # the inputs shown are those of the result shown
    assert line.endswith(f" hardware {mismatch.hardware} model {code}") and mismatch.hardware != code
    assert mismatch.trace()[-1].startswith(f"  d = {code}")


def shown(line: str, name: str, instruction: Any) -> Any:
    """The codes of an operand in a line: K of a and b, one of c."""
    format = instruction.operands[name].format
    text = re.findall(rf" {name}=(\[[^]]*\]|\S+)", line)[0]
    numbers = [int(code, 16) for code in re.findall("0x[0-9a-f]+", text)]
    if format.kind == "bit":
        numbers = [numbers[0] >> k & 1 for k in range(instruction.shape[2])]
    return np.array(numbers, format.dtype)


def test_many_mismatches_are_counted_and_few_shown() -> None:
    """Every differing element counts once, in order; a comparison of other shapes is refused."""
    instruction = tcsim.instruction(MNEMONIC, arch="sm_90")
    registers = inputs.registers(instruction, inputs.CLASSES["wide"], 1, 4)
    model = instruction.execute(**registers)
    comparison = DENSE.compare(instruction, registers, ~model, model)
    assert (comparison.outputs, comparison.mismatches, len(comparison.first)) == (512, 512, 5)
    places = [line.split(":")[0] for line in (item.line() for item in comparison.first)]
    assert places[1] == "MISMATCH warp 0 lane 0 register 1 (row 0, column 1)"
    with pytest.raises(ValueError, match=r"the hardware's result has shape \(3, 32, 4\), the model's \(4, 32, 4\)"):
        DENSE.compare(instruction, registers, model[:3], model)
