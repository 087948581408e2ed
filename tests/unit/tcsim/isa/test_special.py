"""Special functions as instructions: rows, forms, effects, probes, and every spelling against the slow model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.suite import recordings
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Hardware
from conformance.suite.proofs import proofs, survivors
from hwkernels.probes import probe
from tcsim import catalog
from tcsim.core.errors import OperandError
from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.special.rows import FUNCTIONS, rows
from tcsim.isa.special.trace import trace_special
from tcsim.ptx import Memory, parse
from tests.exact.special import special
from tests.support.suite_runs import GPU

ROWS = {row.mnemonic: row for name in FUNCTIONS for row in rows(name)}
SHARE = 400
"""Inputs of each class that the slow model computes; of two packed numbers, of f64 and of roots a quarter of them."""


def on(mnemonic: str, arch: str = "sm_90") -> Any:
    """An instruction."""
    return tcsim.instruction(mnemonic, arch=arch)


def test_there_are_72_spellings_of_nine_functions() -> None:
    """As ptxas takes them: tests/unit/tcsim/isa/test_scalar_rows.py compares all with its inventory."""
    assert len(ROWS) == 72 and {row.family for row in ROWS.values()} == set(FUNCTIONS)
    assert [row.mnemonic for row in catalog.on_arch("sm_90", "tanh")] == [
        "tanh.approx.f32", "tanh.approx.f16", "tanh.approx.f16x2", "tanh.approx.bf16", "tanh.approx.bf16x2",
    ]  # fmt: skip
    assert not list(catalog.on_arch("sm_70", "tanh"))


@pytest.mark.parametrize("mnemonic", ROWS)
def test_every_spelling_is_the_slow_model(mnemonic: str) -> None:
    """On a share of every input class of the suite, whole for the lists."""
    ins = on(mnemonic)
    testbench, slow = testbench_of(ins.row.family), ins.row.type in ("f64", "f16x2", "bf16x2") or "sqrt" in mnemonic
    compared = 0
    for name in testbench.every_class(ins):
        inputs = testbench.inputs(ins, name, 7, testbench.samples(ins, name))
        count = len(inputs["a"])
        take = np.unique(np.linspace(0, count - 1, min(count, SHARE // 4 if slow else SHARE)).astype(int))
        given = {key: array[take] for key, array in inputs.items()}
        found = ins.execute(**given).tolist()
        for place, code in enumerate(found):
            operands = [int(array[place]) for array in given.values()]
            want = special(mnemonic, *operands)
            assert code == want, (name, *map(hex, operands), hex(code), hex(want))
        compared += len(found)
    assert compared >= 100


@pytest.mark.parametrize("mnemonic", ROWS)
def test_the_executor_has_the_same_function(mnemonic: str) -> None:
    """One table: what `tcsim.ptx` computes for a spelling is the row's."""
    ins, own = on(mnemonic), scalar(mnemonic)
    assert own is not None and own.targets == frozenset(ins.row.targets)
    assert own.inexact == (ins.row.unit is not None) == on(mnemonic, "sm_100").inexact
    inputs = testbench_of(ins.row.family).inputs(
        ins, "exhaustive" if ins.registers["a"].format.bits == 16 else "bits", 3, 2048
    )
    assert np.array_equal(own.compute(*inputs.values()), ins.execute(**inputs))
    effects = ins.effects(ins.forms[0], inputs, None)
    assert np.array_equal(effects.now.registers["d"], ins.execute(**inputs)) and not effects.reads


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_103", "sm_120"])
def test_probes_hold_what_the_steps_claim(arch: str) -> None:
    """Every row assembles, and its machine code has the operations of the unit and the products around them."""
    instructions = [on(row.mnemonic, arch) for name in FUNCTIONS for row in catalog.on_arch(arch, name)]
    made = probe.build(instructions, instructions[0].targets[-1])
    assert [(name, one) for name, one in made.items() if isinstance(one, Exception) or one.complaint] == []
    assert len(made) == {"sm_75": 66, "sm_80": 66}.get(arch, 70)


def test_evidence() -> None:
    """The unit was asked on sm_90 alone; what is correctly rounded does not depend on it."""
    for mnemonic in ROWS:
        for arch in ("sm_90", "sm_100"):
            ins = on(mnemonic, arch)
            assert (ins.evidence.level == "inferred") == ins.inexact, ins
    assert on("div.full.f32", "sm_89").inexact and not on("div.rn.f32", "sm_89").inexact


def test_wrong_operands() -> None:
    """A missing operand, one too many, another type."""
    for mnemonic, operands, said in (
        ("div.full.f32", {"a": np.zeros(1, np.float32)}, "operands a; valid: a, b"),
        ("ex2.approx.f32", {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}, "operands a, b; valid: a"),
        ("ex2.approx.f32", {"a": np.zeros(1, np.float64)}, "a is float64"),
        ("rcp.approx.ftz.f64", {"a": np.zeros(1, np.uint32)}, "valid: uint64, float64"),
    ):
        with pytest.raises(OperandError, match=said):
            on(mnemonic).execute(**operands)


@pytest.mark.parametrize("mnemonic", [name for name, row in ROWS.items() if row.unit is not None])
def test_the_trace_ends_in_the_result(mnemonic: str) -> None:
    """Its last value is what execute gives; and of f32 by itself, the bits left of the bar are the mantissa."""
    ins = on(mnemonic)
    name = "exhaustive" if ins.registers["a"].format.bits == 16 else "domain"
    every = testbench_of(ins.row.family).inputs(ins, name, 5, 1 << 16)
    inputs = {key: array[15_000:18_000:70] for key, array in every.items()}  # among the codes of f16 and bf16 near 1
    interpolated = 0
    for place, want in enumerate(ins.execute(**inputs).tolist()):
        lines = trace_special(ins, {key: int(array[place]) for key, array in inputs.items()})
        digits = ins.registers["d"].format.bits // 4
        shown = [line.rpartition("0x")[2][:digits] for line in lines if not line.startswith("  ") and "0x" in line]
        assert f"{want:0{2 * ins.registers['d'].dtype.itemsize}x}".endswith(shown[-1])
        cut = [line for line in lines if line.startswith("  cut to")]
        interpolated += len(cut)
        if cut and len(ins.row.steps) == 1 and ins.row.type == "f32":
            kept = cut[0].split()[-1].partition("|")[0].lstrip("0")
            assert len(kept) in (24, 25) and int(kept, 2) & 0x7FFFFF == want & 0x7FFFFF, lines
    assert interpolated > 10


def test_every_coefficient_is_seen_by_the_cases() -> None:
    """One unit more or less in any of the 627 x 3 integers of the tables changes a result that the suite records."""
    asked = 0
    spelled = {
        name: f"{name}.approx{'' if name == 'tanh' else '.ftz'}.f32" for name in FUNCTIONS if name not in ("div", "cos")
    }
    for function, mnemonic in spelled.items():
        ins = on(mnemonic)
        testbench, own = testbench_of(ins.row.family), ins.unit.functions[function]
        cases = [testbench.inputs(ins, name, 0, testbench.samples(ins, name))["a"] for name in testbench.classes(ins)]
        codes = np.concatenate(cases)
        given = codes
        for step in ins.lowering.steps[:-1]:  # what the unit is given
            values = {"a": codes}
            step.run(values, ins.unit)
            given = values["x"]
        right = ins.unit.compute(function, given)
        rows_of = np.where(ins.unit.interpolated(function, given), ins.unit.argument(function, given).row, -1)
        table = ins.unit.tables[own.table]
        for row in range(len(table)):
            mine = given[rows_of == row]
            assert len(mine) >= 8, (function, row, len(mine))
            for column, change in ((0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)):
                changed = table.copy()
                changed[row, column] += change
                other = replace(ins.unit, tables={**ins.unit.tables, own.table: changed})
                same = np.array_equal(other.compute(function, mine), right[rows_of == row])
                assert not same, (function, row, column, change, len(mine))
                asked += 1
    assert asked == 6 * 627


def test_mutants_are_killed_by_the_cases_if_the_model_is_the_hardware() -> None:
    """Every mutant of every row, by at least one class; most by several."""
    killed = 0
    for mnemonic in ROWS:
        ins = on(mnemonic)
        testbench = testbench_of(ins.row.family)
        alive = [mutant for mutant in testbench.mutants if mutant.applies(ins)]
        count = len(alive)
        assert count
        for name in testbench.classes(ins):
            inputs = testbench.inputs(ins, name, 0, testbench.samples(ins, name))
            right = testbench.model(ins, inputs)
            alive = [mutant for mutant in alive if np.array_equal(mutant.run(ins, inputs), right)]
        assert not [mutant.name for mutant in alive], mnemonic
        killed += count
    assert killed > 500


class TheModel(Hardware):
    """A GPU that the model describes exactly."""

    def run(self, made: Any, inputs: Any, repeat: int = 1) -> list[Any]:
        """The model's answer, as the probe writes it."""
        ins = made.instruction
        return [testbench_of(ins.row.family).model(ins, inputs) for _ in range(repeat)]


@pytest.mark.parametrize("mnemonic", ["ex2.approx.f32", "rcp.rz.f64", "tanh.approx.f16x2", "div.full.ftz.f32"])
def test_a_recording_replays_and_contradicts_the_mutants(mnemonic: str, tmp_path: Path) -> None:
    """What a live run would write, with the model in the GPU's place; one bit changed is a mismatch."""
    live = Suite(Settings("sm_90", "live", record=True, root=tmp_path), TheModel(GPU))
    ins = on(mnemonic)
    names = testbench_of(ins.row.family).every_class(ins)
    assert {live.run(Case(mnemonic, name, 0)).verdict for name in names} == {"PASS"}
    (file,) = tmp_path.rglob("*.npz")
    assert file.stat().st_size < 24_000
    replay = Suite(Settings("sm_90", "replay", root=tmp_path))
    outcomes = [replay.run(Case(mnemonic, name, 0)) for name in names]
    assert {outcome.verdict for outcome in outcomes} == {"REPLAYED"}
    assert sum(outcome.outputs for outcome in outcomes) > 4000
    (proof,) = [proof for proof in proofs(replay) if proof.mnemonic == mnemonic]
    assert proof.mutants and not survivors(proof, replay)
    recording = recordings.read(mnemonic, "sm_90", tmp_path)
    assert recording is not None
    results = recording.results[names[0], 0]
    results[(5, *(0,) * (results.ndim - 1))] ^= 1
    again = Suite(Settings("sm_90", "replay", root=tmp_path))
    again._recordings[mnemonic] = recording
    wrong = again.run(Case(mnemonic, names[0], 0))
    assert wrong.verdict == "FAIL" and "1 of" in wrong.text and f"{mnemonic} on sm_90" in wrong.text


PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry power(.param .u64 out)
{
  .reg .b32 %r<2>; .reg .f32 %f<3>; .reg .b64 %a<3>;
  ld.param.u64 %a0, [out];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %a1, %r0, 4, %a0;
  ld.global.f32 %f0, [%a1];
  ex2.approx.ftz.f32 %f1, %f0;
  st.global.f32 [%a1], %f1;
  ret;
}
"""


def test_a_kernel_computes_the_rows_function() -> None:
    """Of a launch on sm_90 the bits are known; on another arch the instruction is listed as inexact."""
    memory, given = Memory(), np.linspace(-3, 3, 32, dtype=np.float32)
    memory.map(0x10000, given.view(np.uint8))
    run = parse(PTX).kernel("power").launch(memory, [0x10000], grid=(1, 1, 1), block=(32, 1, 1), arch="sm_90")
    assert run.completed and not run.inexact
    found = memory.read(0x10000, 128).view(np.uint32)
    assert np.array_equal(found, on("ex2.approx.ftz.f32").execute(given))
