"""Probes and testbenches of wmma: machine code, launches, input classes, mutants.

Like the tests of the assemblers these need ptxas 13.5 or later, ptxas 12.9 and nvdisasm, and fail without them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import slices, testbench_of
from conformance.isa.wmma.load_store import CLASSES
from conformance.isa.wmma.mma import COPIES_CLASS, FRAGMENT, TIES_CLASS
from conformance.suite.cases import Case
from hwkernels.device.driver import POISON
from hwkernels.device.sass import SassFunction, disassemble
from hwkernels.device.toolchain import assemble
from hwkernels.probes import TENSOR_OPCODES, probe
from hwkernels.probes.probe import Probe
from hwkernels.probes.wmma import MEMORY_BYTES
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row
from tests.support.extent import WHOLE, part

FAMILIES = tuple(slices()["wmma"])
COUNTS = {"sm_70": 192, "sm_72": 384, "sm_75": 445}  # rows that a target accepts; every other one accepts 594
MOST = ("sm_75", "sm_80", "sm_90", "sm_100")  # targets of whose probes a third is taken apart here
PART = 9  # of the other targets, each takes one row of so many, in turn
UNREAD = ("sm_70", "sm_72")  # no nvdisasm wheel reads their code
ACCESSES = ("LD", "ST", "LDSM", "MOVM")
LOAD = "wmma.load.b.sync.aligned.row.m16n16k16.shared.s8"
STORE = "wmma.store.d.sync.aligned.col.m8n32k16.global.f32"
MIXED = "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32"


def rows_of(target: str) -> list[Row]:
    """The rows of a target."""
    return [row for family in FAMILIES for row in catalog.on_arch(target, family) if target in row.targets]


def kernels(functions: tuple[SassFunction, ...]) -> dict[str, Counter[str]]:
    """The opcodes of each kernel with the helpers beside it, by section."""
    found: dict[str, Counter[str]] = {}
    for function in functions:
        found.setdefault(function.section, Counter()).update(line.opcode for line in function.instructions)
    return found


# ---- machine code


def check(target: str, rows: list[Row]) -> int:
    """Assemble rows for a target without a note and compare their machine code with what they claim."""
    assembly = assemble(probe.emit(rows, target), target)
    assert assembly.notes == ()
    if target in UNREAD:
        for row in rows:
            assert probe.kernel_name(row, "stride" if row.family != "wmma.mma" else "").encode() in assembly.cubin
        return len(rows)
    functions = disassemble(assembly.cubin)
    opcodes = kernels(functions)
    for row in rows:
        item = tcsim.instruction(row.mnemonic, arch=target)
        own = [function for function in functions if function.section.startswith(f".text.{probe.kernel_name(row)}")]
        assert probe.opcode_complaint(item, own) == "", (row.mnemonic, target)
        for variant in ("stride", "packed") if row.family == "wmma.load" else ():
            found = opcodes[f".text.{probe.kernel_name(row, variant)}"].keys()
            loads = {name for name in found if name.startswith(("LD", "MOVM")) and not name.startswith("LDC")}
            own = {name for name in loads if ".CONSTANT" in name}  # of the address, the stride and the memory
            assert loads - own == dict(item.lowering.opcodes).keys(), (row.mnemonic, target)
    return len(rows)


@pytest.mark.parametrize("target", TARGETS)
def test_every_probe_does_what_its_row_claims(target: str) -> None:
    """A third of the probes of some targets; of the others a part each, other ones for every target; with TCSIM_WHOLE=1 all."""
    rows = rows_of(target)
    assert len(rows) == COUNTS.get(target, 594)
    if target in MOST:
        rows = part(rows, len(rows) // 3, target)
    elif target not in UNREAD and not WHOLE:
        rows = rows[list(TARGETS).index(target) % PART :: PART]
    assert check(target, rows) == len(rows)


def test_every_claim_names_an_access_or_a_tensor_opcode() -> None:
    """No row passes because nothing is claimed of it."""
    checked = 0
    for target in TARGETS:
        for row in rows_of(target):
            claimed = tcsim.instruction(row.mnemonic, arch=target).lowering.opcodes
            wanted = TENSOR_OPCODES if row.family == "wmma.mma" else ACCESSES
            assert any(opcode.startswith(wanted) and count > 0 for opcode, count in claimed), (row.mnemonic, target)
            checked += 1
    assert checked == 192 + 384 + 445 + 25 * 594


def test_wrong_claims_are_found_out() -> None:
    """Another count, another opcode, one that is missing."""
    rows = [catalog.rows()[name] for name in (LOAD, STORE, MIXED)]
    functions = disassemble(assemble(probe.emit(rows, "sm_90"), "sm_90").cubin)
    for row, wrong, complaint in (
        (rows[0], (("LDS.U8", 4),), "LDS.U8 8 times instead of 4"),
        (rows[1], (("STG.E", 8),), "STG.E 0 times instead of 8"),
        (rows[2], (("HMMA.16816.F16", 2),), "HMMA.16816.F32 2 times, which is not claimed"),
        (rows[2], (("HMMA.16816.F32", 2), ("F2FP.F16.F32.PACK_AB", 8)), "PACK_AB 4 times instead of 8"),
    ):
        item = tcsim.instruction(row.mnemonic, arch="sm_90")
        assert probe.opcode_complaint(item, functions) == ""
        changed = replaced(item, wrong)
        assert complaint in probe.opcode_complaint(changed, functions)


def replaced(item: Instruction, opcodes: tuple[tuple[str, int], ...]) -> Instruction:
    """The instruction with another claim."""
    return replace(item, lowering=replace(item.lowering, opcodes=opcodes))


# ---- launches


@pytest.mark.parametrize("mnemonic", [LOAD, STORE])
@pytest.mark.parametrize("name", CLASSES)
def test_launches_of_loads_and_stores(mnemonic: str, name: str) -> None:
    """One block of a warp for each sample; the form without a stride where the class gives none."""
    item = tcsim.instruction(mnemonic, arch="sm_90")
    testbench = testbench_of(item.row.family)
    samples = testbench.samples(item, name)
    given = testbench.inputs(item, name, 0, samples)
    launch = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64).launch(given, repeat=2)
    form = "stride" if "stride" in given else "packed"
    assert launch.kernel == probe.kernel_name(item.row, form)
    assert (launch.grid, launch.block, launch.poison) == ((samples, 1, 1), (32, 1, 1), POISON)
    assert len(launch.inputs) == len(given)
    ((shape, dtype),) = launch.outputs
    answer = testbench.model(item, given)
    assert (answer.shape, answer.dtype) == (shape, dtype)
    entry = probe.emit(item.row, "sm_90").split(f".visible .entry {launch.kernel}(")[1].split(")")[0]
    assert entry.count(".param .u64") == len(launch.inputs) + 1
    assert entry.count("stride") == (form == "stride")


def test_a_load_probe_takes_the_memory_it_has_room_for() -> None:
    """Another size is refused."""
    item = tcsim.instruction(LOAD, arch="sm_90")
    made = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64)
    with pytest.raises(ValueError, match=f"this probe takes uint8 .samples, {MEMORY_BYTES}."):
        made.launch({"memory": np.zeros((1, 64), np.uint8), "address": np.zeros(1, np.uint32)})


def test_forms_and_spaces_are_written_out() -> None:
    """The instruction stands once in each form; shared memory is declared where the row names it."""
    for family, own in (("wmma.load", 352), ("wmma.store", 104)):
        rows = list(catalog.on_arch("sm_90", family))
        assert len(rows) == own
        for row in rows:
            stride, packed = probe.emit(row, "sm_90").split(".visible .entry ")[1:]
            for text, end in ((stride, ", %stride;"), (packed, ";")):
                lines = [line for line in text.splitlines() if row.mnemonic in line]
                assert len(lines) == 1
                assert lines[0].endswith(end)
                assert ("%stride;" in lines[0]) == (text is stride)
                assert (".shared .align" in text) == (".shared" in row.mnemonic)
                assert ("cvta.to.global.u64 %base_memory" in text) == (not re.search(r"k\d+\.\w+$", row.mnemonic))


# ---- testbenches


def some_rows() -> list[Row]:
    """A part of the rows, so that every mutant applies to some."""
    loads, stores, products = (list(catalog.on_arch("sm_90", family)) for family in FAMILIES)
    rare = [row for row in products if row.arithmetic in ("tf32", "b1")]
    return [*loads[::9], *stores[::5], *products[::7], *rare]


NEVER = {  # mutants that no wmma instruction of sm_90 can show
    "wmma.load": set(),
    "wmma.store": set(),
    "wmma.mma": {"whole f32", "fp8 as in wgmma", "fp8 as one step", "m8n8k4 on a tensor core"},
}


def test_the_default_cases_kill_every_mutant() -> None:
    """Each mutant that applies to a row disagrees with the model in some class; each applies to some row."""
    killed: Counter[tuple[str, str]] = Counter()
    for row in some_rows():
        item, testbench = tcsim.instruction(row.mnemonic, arch="sm_90"), testbench_of(row.family)
        alive = {mutant.name: mutant for mutant in testbench.mutants if mutant.applies(item)}
        for name in testbench.classes(item):
            given = testbench.inputs(item, name, 0, testbench.samples(item, name))
            right = testbench.model(item, given)
            for mutant in list(alive.values()):
                if not np.array_equal(mutant.run(item, given), right):
                    killed[row.family, mutant.name] += 1
                    del alive[mutant.name]
        assert not alive, (row.mnemonic, list(alive))
    for family in FAMILIES:
        never = {mutant.name for mutant in testbench_of(family).mutants} - {
            name for own, name in killed if own == family
        }
        assert never == NEVER[family], family


@pytest.mark.parametrize("mnemonic", [LOAD, STORE, MIXED])
def test_cases_are_reproducible(mnemonic: str) -> None:
    """The same key gives the same inputs, another seed others; ids are made of letters and can be parsed."""
    item = tcsim.instruction(mnemonic, arch="sm_90")
    testbench = testbench_of(item.row.family)
    names = testbench.classes(item)
    assert len(names) == len(set(names)) >= 4
    differ = 0
    for name in names:
        case = Case(mnemonic, name, 0)
        assert Case.parse(case.id) == case
        first, again, other = (testbench.inputs(item, name, seed, 2) for seed in (0, 0, 1))
        assert first.keys() == again.keys()
        assert all((first[key] == again[key]).all() for key in first)
        assert all(len(array) == 2 for array in first.values())
        differ += any((first[key] != other[key]).any() for key in first)
    assert differ >= len(names) - 1  # what spells out an index has no use for a seed


def test_extra_classes_of_products() -> None:
    """`duplicates` where a lane has copies, `ties` where f32 becomes f16; both give every operand."""
    names = {
        row.mnemonic: FRAGMENT.classes(tcsim.instruction(row.mnemonic, arch="sm_90"))
        for row in rows_of("sm_90")
        if row.family == "wmma.mma"
    }
    assert sum(COPIES_CLASS in found for found in names.values()) == 48
    assert sum(TIES_CLASS in found for found in names.values()) == 12
    assert COPIES_CLASS not in FRAGMENT.classes(tcsim.instruction(MIXED, arch="sm_70"))
    item = tcsim.instruction(MIXED, arch="sm_90")
    given = FRAGMENT.inputs(item, COPIES_CLASS, 0, 1)
    assert (given["a"][..., :4] != given["a"][..., 4:]).any()
    assert (item.execute(**given) == FRAGMENT.model(item, given)).all()


@pytest.mark.parametrize(
    ("mnemonic", "name", "place", "texts"),
    [
        (
            LOAD,
            "wide",
            (1, 5, 1),
            ["sample 1 lane 5 register 1 slot 0: row 4, column 9 at ", "4 * stride 32 + 9) * 8 bits"],
        ),
        (
            STORE,
            "wide",
            (0, 40),
            ["no element covers it, hardware 0xa4 model 0xa5", "outside the lines of the tile stays"],
        ),
        (MIXED, "normal", (0, 3, 2), ["warp 0 lane 3 register 2", "convert of acc="]),
    ],
)
def test_a_mismatch_is_one_line_and_a_trace(mnemonic: str, name: str, place: Any, texts: list[str]) -> None:
    """One wrong bit: everything about it in a line, and how the model came to its bits."""
    item = tcsim.instruction(mnemonic, arch="sm_90")
    testbench = testbench_of(item.row.family)
    given = testbench.inputs(item, name, 0, testbench.samples(item, name))
    model = testbench.model(item, given)
    hardware = model.copy()
    hardware[place] ^= 1
    found = testbench.compare(item, given, hardware, model)
    assert found.mismatches == 1
    line, trace = found.first[0].line(), found.first[0].trace()
    assert line.startswith("MISMATCH ")
    assert "\n" not in line
    text = "\n".join([line, *trace])
    assert [part for part in texts if part not in text] == [], text
    assert testbench.compare(item, given, model, model).mismatches == 0
    with pytest.raises(ValueError, match="shape"):
        testbench.compare(item, given, hardware[:, :1], model)


def test_a_byte_of_an_element_is_traced_to_its_lane() -> None:
    """A stored byte names row, column, lane and register."""
    item = tcsim.instruction(STORE, arch="sm_90")
    testbench = testbench_of("wmma.store")
    given = testbench.inputs(item, "packed", 0, 1)
    model = testbench.model(item, given)
    hardware = model.copy()
    hardware[0, 8 * 3 + 5] ^= 0x100
    (mismatch,) = testbench.compare(item, given, hardware, model).first
    lane, register, _ = item.operands["d"].layout.where(5, 3)
    assert f"byte 1 of row 5, column 3 from lane {lane} register {register}, hardware" in mismatch.line()
    assert mismatch.trace()[1] == "address 0x0 + (3 * stride 8 + 5) * 32 bits = 0x74"
