"""Probes and testbenches of ldmatrix, stmatrix and movmatrix: machine code, launches, input classes, mutants.

Like the tests of the assemblers these need ptxas 13.5 or later and nvdisasm, and fail without them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import slices, testbench_of
from conformance.isa.matrix.moves import CLASSES
from conformance.stimuli import classes as conformance_inputs
from hwkernels.device import sass
from hwkernels.device.toolchain import assemble
from hwkernels.probes import probe
from hwkernels.probes.matrix import LOAD_BYTES, STORE_BYTES
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.model.instruction import Instruction
from tests.support.extent import part

FAMILIES = tuple(slices()["matrix"])
MOVERS = ("LDSM", "STSM", "MOVM")
COUNTS = {
    "sm_70": 0, "sm_72": 0, "sm_75": 19, "sm_80": 19, "sm_86": 19, "sm_87": 19, "sm_88": 19, "sm_89": 19, "sm_90": 37,
    "sm_90a": 46,
} | {target: 91 if TARGETS[target].suffix else 37 for target in TARGETS if TARGETS[target].number >= 100}  # fmt: skip
STORE = "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16"
LOAD = "ldmatrix.sync.aligned.m8n8.x2.b16"
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16"


def instructions(target: str) -> list[Instruction]:
    """The instructions of a target."""
    rows = [row for family in FAMILIES for row in catalog.on_arch(target, family) if target in row.targets]
    return [tcsim.instruction(row.mnemonic, arch=target) for row in rows]


# ---- machine code


@pytest.mark.parametrize("target", part((target for target, count in COUNTS.items() if count), 8))
def test_every_probe_holds_its_instruction_once_and_no_other(target: str) -> None:
    """One module assembles without a note; each kernel has exactly the claimed LDSM, STSM or MOVM."""
    wanted = instructions(target)
    assert len(wanted) == COUNTS[target]
    assembly = assemble(probe.emit([item.row for item in wanted], target), target)
    assert assembly.notes == ()
    functions = sass.disassemble(assembly.cubin)
    kernels = {function.section: function for function in functions}
    sections = dict(sass._sections(assembly.cubin))
    for item in wanted:
        assert probe.opcode_complaint(item, functions) == ""
        section = f".text.{probe.kernel_name(item.row)}"
        moving = [line.opcode for line in kernels[section].instructions if line.opcode.startswith(MOVERS)]
        unprinted = unprinted_words(kernels[section], sections[section])
        if item.mnemonic.endswith(".s8.s4"):
            assert moving == []
            modifier = {1: 0x9000, 2: 0x9100, 4: 0x9200}[item.operands["d"].registers]
            assert [(low & 0xFFFF, high & 0xFFFF) for low, high in unprinted] == [(0x783B, modifier)]
            assert item.lowering.opcodes == ()
            assert f"0x{modifier:x}" in item.lowering.note
        else:
            assert unprinted == []
            ((opcode, times),) = item.lowering.opcodes
            assert times == 1
            assert moving == [opcode]


def unprinted_words(function: sass.SassFunction, code: bytes) -> list[tuple[int, int]]:
    """The instructions (low and high word) that nvdisasm has no name for and leaves out of its listing."""
    printed = {line.address for line in function.instructions}
    places = [place for place in range(0, max(printed), 16) if place not in printed]
    return [
        (int.from_bytes(code[place : place + 8], "little"), int.from_bytes(code[place + 8 : place + 16], "little"))
        for place in places
    ]


def test_all_targets_are_covered() -> None:
    """1,511 probes on 26 targets."""
    assert set(COUNTS) == set(TARGETS)
    assert sum(COUNTS.values()) == 1511
    assert not instructions("sm_70") + instructions("sm_72")


# ---- the text and the launch


def test_the_address_is_of_shared_memory_or_generic() -> None:
    """Only a spelling without a state space converts the address."""
    checked = 0
    for item in instructions("sm_100a"):
        if item.row.family == "movmatrix":
            continue
        text = probe.emit(item.row, "sm_100a")
        generic = not item.row.modifiers["space"]
        assert ("cvta.shared.u64 %generic, %generic;" in text) == generic
        assert text.count(item.mnemonic) == 1
        assert f"[{'%generic' if generic else '%row'}]" in text
        checked += 1
    assert checked == 90


@pytest.mark.parametrize(("mnemonic", "arch"), [(LOAD, "sm_90"), (STORE, "sm_90"), (MOVE, "sm_75")])
def test_a_launch_is_one_warp_a_block(mnemonic: str, arch: str) -> None:
    """Inputs in the order of the parameters, and an output that the model's answer fits."""
    item = tcsim.instruction(mnemonic, arch=arch)
    testbench = testbench_of(item.row.family)
    given = testbench.inputs(item, "uniform", 0, 5)
    launch = Probe(item, arch, b"code", "ptxas 13.0.0", "", "0" * 64).launch(given, repeat=2)
    assert (launch.grid, launch.block, launch.repeat, launch.scalars) == ((5, 1, 1), (32, 1, 1), 2, ())
    assert [array.tobytes() for array in launch.inputs] == [array.tobytes() for array in given.values()]
    ((shape, dtype),) = launch.outputs
    assert (shape, dtype) == (testbench.model(item, given).shape, np.uint32)
    head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", probe.emit(item.row, arch))
    assert head is not None
    assert [word.split()[-1] for word in head[1].split(", ")][: len(given)] == list(given)


def test_a_launch_of_another_size_is_refused() -> None:
    """The kernel copies a fixed image."""
    item = tcsim.instruction(LOAD, arch="sm_90")
    made = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64)
    address = np.zeros((1, 32), np.uint32)
    with pytest.raises(ValueError, match=rf"smem is uint8 \(1, 64\); this probe takes uint8 \(1, {LOAD_BYTES}\)"):
        made.launch({"smem": np.zeros((1, 64), np.uint8), "address": address})
    with pytest.raises(ValueError, match=r"address is uint32 \(1, 16\); this probe takes integers \(1, 32\)"):
        made.launch({"smem": np.zeros((1, LOAD_BYTES), np.uint8), "address": address[:, :16]})


# ---- input classes


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_input_classes(arch: str) -> None:
    """Pure functions of their arguments, different by class, valid, and the model agrees with itself."""
    outputs = 0
    for item in (tcsim.instruction(row.mnemonic, arch=arch) for f in FAMILIES for row in catalog.on_arch(arch, f)):
        testbench, digests = testbench_of(item.row.family), set()
        names = testbench.classes(item)
        assert all(re.fullmatch("[a-z]+", name) for name in names)
        if item.row.family != "movmatrix":
            stray = item.address_lanes < 32 and arch != "sm_75"  # type: ignore[attr-defined]
            assert names == [name for name in CLASSES if name != "ignored" or stray]
        for name in names:
            samples = testbench.samples(item, name)
            given = testbench.inputs(item, name, 0, samples)
            digests.add(conformance_inputs.digest(given))
            again = testbench.inputs(item, name, 0, samples)
            assert conformance_inputs.digest(again) == conformance_inputs.digest(given)
            assert conformance_inputs.digest(testbench.inputs(item, name, 1, samples)) not in digests
            answer = testbench.model(item, given)
            assert (answer.dtype, len(answer)) == (np.uint32, samples)
            comparison = testbench.compare(item, given, answer, answer)
            assert (comparison.mismatches, comparison.first) == (0, ())
            outputs += comparison.outputs
        assert len(digests) == len(names)
    assert outputs > 50_000


def test_what_the_classes_are_for() -> None:
    """Distinct elements, stray addresses, shared rows, the end of the memory."""
    load, store = tcsim.instruction(LOAD, arch="sm_90"), tcsim.instruction(STORE, arch="sm_90")
    loads, stores = testbench_of("ldmatrix"), testbench_of("stmatrix")
    given = loads.inputs(load, "identity", 0, 2)
    assert {len(set(image.tolist())) for image in given["smem"].view("<u2")} == {LOAD_BYTES // 2}
    given = loads.inputs(load, "ignored", 0, 4)
    assert (given["address"][:, :16] < LOAD_BYTES).all()
    assert (given["address"][:, 16:] >= LOAD_BYTES).all()
    assert (given["address"][:, 16:] % 16 != 0).any()
    given = loads.inputs(load, "overlapping", 0, 4)
    assert all(len(set(rows.tolist())) <= 4 for rows in given["address"])
    for testbench, item, size in ((loads, load, LOAD_BYTES), (stores, store, STORE_BYTES)):
        given = testbench.inputs(item, "end", 0, 3)
        assert {int(rows.max()) for rows in given["address"]} == {size - 16}
    given = stores.inputs(store, "identity", 0, 2)
    assert {len(set(codes.reshape(-1).tolist())) for codes in store.matrix("registers", given["registers"])} == {128}
    given = stores.inputs(store, "overlapping", 0, 4)
    assert all(1 < len(set(rows[:16].tolist())) <= 4 for rows in given["address"])


# ---- mutants


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_the_default_cases_kill_every_mutant(arch: str) -> None:
    """Each one that applies to an instruction answers differently somewhere, and the difference is explained."""
    killed: dict[str, set[str]] = {family: set() for family in FAMILIES}
    for item in (tcsim.instruction(row.mnemonic, arch=arch) for f in FAMILIES for row in catalog.on_arch(arch, f)):
        testbench = testbench_of(item.row.family)
        alive = [mutant for mutant in testbench.mutants if mutant.applies(item)]
        killed[item.row.family] |= {mutant.name for mutant in alive}
        for name in testbench.classes(item):
            given = testbench.inputs(item, name, 0, testbench.samples(item, name))
            right = testbench.model(item, given)
            for mutant in list(alive):
                wrong = mutant.run(item, given)
                assert (wrong.shape, wrong.dtype) == (right.shape, right.dtype)
                if not np.array_equal(wrong, right):
                    alive.remove(mutant)
                    comparison = testbench.compare(item, given, wrong, right)
                    assert comparison.mismatches
                    assert 0 < len(comparison.first) <= 5
        assert not alive, (item.mnemonic, [mutant.name for mutant in alive])
    every = {family: {mutant.name for mutant in testbench_of(family).mutants} for family in FAMILIES}
    assert all(len(names) == len(testbench_of(family).mutants) for family, names in every.items())
    if arch == "sm_100":
        assert killed == every


# ---- what a mismatch says


def first_mismatch(mnemonic: str, arch: str, spoil: Any) -> tuple[str, list[str]]:
    """The line and the trace of one spoilt result."""
    item = tcsim.instruction(mnemonic, arch=arch)
    testbench = testbench_of(item.row.family)
    given = testbench.inputs(
        item, "scattered" if "smem" in testbench.inputs(item, "uniform", 0, 1) else "uniform", 0, 3
    )
    model = testbench.model(item, given)
    hardware = model.copy()
    spoil(hardware, given)
    comparison = testbench.compare(item, given, hardware, model)
    assert comparison.mismatches == 1
    return comparison.first[0].line(), comparison.first[0].trace()


def test_a_wrong_element_of_a_load_is_explained() -> None:
    """Where it is, where it should have come from, both bits."""

    def spoil(hardware: Any, given: Any) -> None:
        hardware[2, 9, 3] ^= 0x100

    line, steps = first_mismatch("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b6x16_p32", "sm_100", spoil)
    assert line.startswith(
        "MISMATCH sample 2 lane 9 register 3 slot 1 (matrix 1, row 10, column 5): element 10 of the column at 0x"
    )
    assert re.search(r"\(lane 21\), bytes [0-9a-f]{32}, hardware 0x[0-9a-f]{2} model 0x[0-9a-f]{2}$", line)
    assert steps[0] == "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b6x16_p32 on sm_100"
    assert "the column of lane 21, element 10" in steps[1]
    assert steps[2] == "b6x16_p32: element 10 is bits 60 to 65 of those bytes"


def test_a_wrong_byte_of_a_store_is_explained() -> None:
    """Whether a row covers it, and which register it comes from."""

    def covered(hardware: Any, given: Any) -> None:
        place = int(given["address"][1, 11]) + 6
        hardware.view(np.uint8)[1, place] ^= 4

    line, steps = first_mismatch(STORE, "sm_90", covered)
    assert re.search(
        r"element 3 of the column at 0x[0-9a-f]+ \(lane 11\), before 0x[0-9a-f]{2}, "
        r"from lane 13 register 1 slot 1 \(matrix 1, row 3, column 3\), hardware 0x[0-9a-f]{2} model 0x[0-9a-f]{2}$",
        line,
    )
    assert steps[1].startswith("matrix 1, row 3, column 3: .trans")

    def uncovered(hardware: Any, given: Any) -> None:
        free = set(range(0, STORE_BYTES, 16)) - set(given["address"][1].tolist())
        hardware.view(np.uint8)[1, min(free)] ^= 1

    line, steps = first_mismatch(STORE, "sm_90", uncovered)
    assert re.search(r"MISMATCH sample 1 address 0x[0-9a-f]+: no row covers it, before 0x", line)
    assert steps[1] == "a byte that no row covers stays"


def test_a_wrong_element_of_a_move_is_explained() -> None:
    """Which element of a it is."""

    def spoil(hardware: Any, given: Any) -> None:
        hardware[0, 9, 0] ^= 1

    line, steps = first_mismatch(MOVE, "sm_90", spoil)
    assert "sample 0 lane 9 register 0 slot 0 (matrix 0, row 2, column 2): row 2, column 2 of a in lane 9" in line
    assert steps[1] == "d[2][2] = a[2][2]"


def test_results_of_another_shape_are_refused() -> None:
    """A hardware result that does not fit is not a mismatch."""
    for mnemonic in (LOAD, STORE, MOVE):
        item = tcsim.instruction(mnemonic, arch="sm_90")
        testbench = testbench_of(item.row.family)
        given = testbench.inputs(item, "uniform", 0, 2)
        model = testbench.model(item, given)
        with pytest.raises(ValueError, match="the hardware's result has shape"):
            testbench.compare(item, given, model[:1], model)
