"""Probes and testbenches of the instructions on Tensor Memory, and of spcompress: machine code, launches, mutants.

Like the tests of the assemblers these need ptxas 13.5 or later and nvdisasm, and fail without them. Every spelling is assembled
for one target; for the other targets the smallest and the largest repetition of every shape, and one in twenty of the rest.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from hwkernels.device import sass
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of, probe
from hwkernels.probes.probe import Probe
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row
from tests.support.extent import part
from tests.support.tmem_cases import FAMILIES, ROWS, anywhere

WHOLE = {
    "tcgen05.alloc": "sm_100a", "tcgen05.commit": "sm_107a", "tcgen05.fence": "sm_100a", "tcgen05.wait": "sm_100a",
    "tcgen05.ld": "sm_100a", "tcgen05.st": "sm_100a", "tcgen05.ld.red": "sm_103a", "tcgen05.ld.spcompress": "sm_107a",
    "tcgen05.cp": "sm_100a", "tcgen05.shift": "sm_100a", "spcompress": "sm_107a",
}  # fmt: skip
"""The target for which every spelling of a family is assembled."""
TARGETS = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_107a", "sm_107f", "sm_110a", "sm_110f")
SAMPLED = {
    "sm_100a": 205, "sm_100f": 40, "sm_103a": 208, "sm_103f": 49, "sm_107a": 323, "sm_107f": 50, "sm_110a": 49, "sm_110f": 49,
}  # fmt: skip


def sample(target: str) -> list[Row]:
    """The rows that are assembled for a target."""
    rows = [row for row in ROWS.values() if target in row.targets]
    chosen = []
    for number, row in enumerate(rows):
        large = row.modifiers.get("count") in (".x1", ".x128") and row.family in ("tcgen05.ld", "tcgen05.st")
        if WHOLE[row.family] == target or large or number % 20 == 0:
            chosen.append(row)
    return chosen


@pytest.mark.parametrize("target", TARGETS)
def test_every_probe_holds_its_instruction_and_its_scaffold(target: str) -> None:
    """One module assembles without a note; each kernel has exactly the claimed opcodes and those around them."""
    assert len(sample(target)) == SAMPLED[target]
    rows = part(sample(target), SAMPLED[target] // 5, target)
    assembly = assemble(probe.emit(rows, target), target)
    assert assembly.notes == ()
    functions = sass.disassemble(assembly.cubin)
    by_section: dict[str, list[sass.SassFunction]] = {}
    for function in functions:
        by_section.setdefault(function.section, []).append(function)
    for row in rows:
        item = tcsim.instruction(row.mnemonic, arch=target)
        kernels = [f".text.{probe.kernel_name(row, variant)}" for variant in body_of(row).variants(row)]
        own = [function for name in kernels for function in by_section[name]]
        assert probe.opcode_complaint(item, own) == "", row.mnemonic


def test_all_spellings_are_assembled_somewhere() -> None:
    """Of every family."""
    assert set(WHOLE) == set(FAMILIES)
    seen = {row.mnemonic for target in TARGETS for row in sample(target)}
    assert seen == set(ROWS)


def test_a_missing_instruction_is_noticed() -> None:
    """The same kernel for another instruction: what is missing, and what nobody claimed."""
    small, large = (anywhere(f"tcgen05.ld.sync.aligned.32x32b.{count}.b32") for count in ("x2", "x4"))
    text = probe.emit(small.row, "sm_110a").replace(probe.kernel_name(small.row), probe.kernel_name(large.row))
    functions = sass.disassemble(assemble(text, "sm_110a").cubin)
    complaint = probe.opcode_complaint(large, functions)
    assert complaint == "LDTM.x4 0 times instead of 1; LDTM.x2 1 times, which is not claimed"


def test_the_scaffold_is_counted_with_the_instruction() -> None:
    """tcgen05.st.32x32b.x32 fills and is probed: twice."""
    row = ROWS["tcgen05.st.sync.aligned.32x32b.x32.b32"]
    assert body_of(row).scaffold(row)["STTM.x32"] == 1
    functions = sass.disassemble(assemble(probe.emit(row, "sm_110a"), "sm_110a").cubin)
    assert sass.opcode_counts(functions)["STTM.x32"] == 2


# ---- launches


@pytest.mark.parametrize("family", FAMILIES)
def test_a_launch_has_what_the_kernel_takes(family: str) -> None:
    """Inputs in the order of the parameters, and an output that the model's answer fits; for each class."""
    checked = 0
    for row in [row for row in ROWS.values() if row.family == family][::7]:
        item = anywhere(row.mnemonic)
        testbench = testbench_of(family)
        for name in testbench.classes(item):
            given = testbench.inputs(item, name, 3, 3)
            launch = Probe(item, row.targets[-1], b"code", "ptxas 13.0.0", "", "0" * 64).launch(given)
            ((shape, dtype),) = launch.outputs
            assert (shape, dtype) == (testbench.model(item, given).shape, np.uint32)
            text = probe.emit(row, row.targets[-1])
            head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", text)
            assert head is not None
            pointers = head[1].count(".param .u64")
            assert pointers == len(launch.inputs) + 1
            assert head[1].count(".param") == pointers + len(launch.scalars)
            pair = (
                f".entry {launch.kernel}(" in text
                and ".reqnctapercluster 2" in text.split(f".entry {launch.kernel}(")[1][:300]
            )
            assert (launch.cluster == (2, 1, 1)) == pair
            checked += 1
    assert checked >= 1


def test_commits_and_pairs_run_in_clusters() -> None:
    """Everything of .cta_group::2, and every commit."""
    clusters = {
        row.mnemonic
        for row in ROWS.values()
        if ".reqnctapercluster 2, 1, 1" in body_of(row).kernel(row, "probe", body_of(row).variants(row)[0])
    }
    assert clusters == {name for name, row in ROWS.items() if "cta_group::2" in name or row.family == "tcgen05.commit"}


# ---- testbenches


def item_sample(family: str) -> list[Instruction]:
    """Every instruction of the small families, one in three of those with many repetitions."""
    rows = [row for row in ROWS.values() if row.family == family]
    return [anywhere(row.mnemonic) for row in (rows[::3] if len(rows) > 100 else rows)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mutant_is_contradicted(family: str) -> None:
    """By the inputs of the classes, on each instruction to which it applies; the right model is not."""
    testbench, compared = testbench_of(family), 0
    for item in item_sample(family):
        alive = {mutant.name: mutant for mutant in testbench.mutants if mutant.applies(item)}
        for name in testbench.classes(item):
            given = testbench.inputs(item, name, 0, testbench.samples(item, name))
            right = testbench.model(item, given)
            same = testbench.compare(item, given, right, right)
            assert same.outputs
            assert same.mismatches == 0
            for mutant in list(alive.values()):
                comparison = testbench.compare(item, given, np.asarray(mutant.run(item, given)), right)
                if comparison.mismatches:
                    assert comparison.first[0].line().startswith("MISMATCH ")
                    assert comparison.first[0].trace()
                    del alive[mutant.name]
            compared += same.outputs
        assert not alive, (item.mnemonic, list(alive))
    assert compared


def test_every_mutant_applies_somewhere() -> None:
    """None is listed for nothing."""
    unused: dict[str, set[str]] = {}
    for family in FAMILIES:
        names = {mutant.name for mutant in testbench_of(family).mutants}
        for row in ROWS.values():
            if row.family == family:
                item: Any = anywhere(row.mnemonic)
                names -= {mutant.name for mutant in testbench_of(family).mutants if mutant.applies(item)}
        unused[family] = names
    loads = unused["tcgen05.ld"] & unused["tcgen05.ld.red"] & unused["tcgen05.ld.spcompress"]
    assert not loads
    assert not any(names for family, names in unused.items() if not family.startswith("tcgen05.ld"))


def test_inputs_are_a_function_of_the_case() -> None:
    """The same twice, others for another seed."""
    changed = 0
    for family in FAMILIES:
        item = next(anywhere(row.mnemonic) for row in ROWS.values() if row.family == family)
        testbench = testbench_of(family)
        for name in testbench.classes(item):
            first, again, other = (testbench.inputs(item, name, seed, 3) for seed in (0, 0, 1))
            assert all((first[key] == again[key]).all() for key in first)
            changed += any((first[key] != other[key]).any() for key in first)
    assert changed >= len(FAMILIES)
