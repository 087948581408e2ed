"""The families around a kernel: the inventory, the machine code of every probe, testbenches, mutants, mismatches."""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import slices, testbench_of
from conformance.isa.barrier_cluster import meet
from conformance.isa.setmaxnreg import pool_after
from conformance.stimuli.classes import digest
from hwkernels.device.sass import disassemble
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of, probe
from hwkernels.probes.probe import Probe
from hwkernels.probes.setmaxnreg import COUNTS
from tcsim import catalog
from tcsim.core.errors import InstructionError, OperandError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.setmaxnreg import FEWEST, MOST, STEP, RegisterPool
from tcsim.model.form import Form
from tests.support.tables import TABLES

SLICES = (
    "setmaxnreg",
    "elect",
    "barrier_cluster",
    "mapa",
    "st_async",
    "st_bulk",
    "clusterlaunchcontrol",
    "griddepcontrol",
)
FAMILIES = [family for name in SLICES for family in slices()[name]]
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FAMILIES}


def items(arch: str, family: str) -> list[Any]:
    """The instructions of a family on an arch."""
    return [tcsim.instruction(row.mnemonic, arch=arch) for row in catalog.on_arch(arch, family)]


# ---- the inventory


def extras(form: Form) -> list[str]:
    """What the inventory tells the forms of a spelling by: a name, or the values that were assembled of an immediate."""
    return [f"n={count}" for count in COUNTS if count in form["count"].values] if "count" in form else [form.name]


def test_the_registry_is_the_inventory() -> None:
    """Exactly these spellings and operand lists, with their targets and versions; 90 are those that coverage counts."""
    path = TABLES / "cluster_inventory.csv"
    text = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    lines = {(line["mnemonic"], line["extra"]): line for line in csv.DictReader(text)}
    found = {(name, extra): form for name, row in ROWS.items() for form in row.forms for extra in extras(form)}
    assert set(found) == set(lines)
    for (name, extra), line in lines.items():
        row, form = ROWS[name], found[name, extra]
        assert row.family == line["family"]
        assert list(form.targets) == list(row.targets) == line["targets"].split(), name
        assert form.ptx_version == line["min_ptx_isa"], name
        assert form.documented == row.documented == bool(int(line["documented"])), name
    for row in ROWS.values():
        assert row.ptx_version == min((form.ptx_version for form in row.forms), key=float)
        assert (dict(row.operands), row.shape, row.dropped) == ({}, (0, 0, 0), "")
    counted = Counter(line["family"] for line in lines.values() if line["counted"] == "1")
    assert counted.total() == 90
    assert counted == {
        "setmaxnreg": 12, "elect.sync": 2, "barrier.cluster": 10, "mapa": 2, "st.async": 40, "red.async": 12, "st.bulk": 1,
        "clusterlaunchcontrol": 9, "griddepcontrol": 2,
    }  # fmt: skip


def test_accepted_on_exactly_their_targets() -> None:
    """`tcsim.instruction` takes a spelling on the targets of the inventory and on no other (every fourth is refused)."""
    accepted = 0
    for place, (name, row) in enumerate(ROWS.items()):
        for target in TARGETS:
            if target in row.targets:
                found = tcsim.instruction(name, arch=target)
                assert found.lowering.opcodes or found.lowering.note
                assert str(found.evidence)
                accepted += 1
            elif place % 4:
                continue
            elif target not in ARCHS or not {t for t in row.targets if TARGETS[t].arch == target}:
                with pytest.raises(InstructionError, match="needs"):
                    tcsim.instruction(name, arch=target)
    assert accepted == sum(len(row.targets) for row in ROWS.values())


def test_evidence_elsewhere_than_on_an_h200() -> None:
    """The manual's word, or an inference that says from what; on sm_90 what can be compared was measured."""
    pairs = [(row, ARCHS[name]) for row in ROWS.values() for name in {TARGETS[target].arch for target in row.targets}]
    own = [
        (row.family, catalog.family(row.family).evidence(row, arch).level)
        for row, arch in pairs
        if arch.name == "sm_90"
    ]
    assert {family for family, level in own if level != "measured"} == {"griddepcontrol"}
    levels = Counter(
        (row.family, catalog.family(row.family).evidence(row, arch).level)
        for row, arch in pairs
        if arch.name != "sm_90"
    )
    assert {level for _, level in levels} == {"literature", "inferred"}
    assert {family for family, level in levels if level == "inferred"} == {"elect.sync"}


# ---- the machine code


@pytest.mark.parametrize(("target", "count"), [("sm_90a", 127), ("sm_107a", 140), ("sm_120a", 140)])
def test_every_form_assembles_to_what_is_claimed(target: str, count: int) -> None:
    """Each kernel holds the row's machine instruction and those around it; no note, no spill.

    Of st.async and red.async each type, vector and operation in one state space; a replay of the conformance suite assembles
    all.
    """
    rows = [row for row in ROWS.values() if target in row.targets]
    assert len(rows) == count
    # each type and vector once, in a space and an order that change from one to the next
    remote = sorted(
        (row for row in rows if "async" in row.family), key=lambda row: (row.arithmetic, row.modifiers["type"])
    )
    first = {(row.arithmetic, row.modifiers["type"]): row for row in (*remote[::2], *remote[1::3], *remote)[::-1]}
    checked = [row for row in rows if "async" not in row.family] + list(first.values())
    made = probe.build([tcsim.instruction(row.mnemonic, arch=target) for row in checked], target)
    for name, item in made.items():
        assert isinstance(item, Probe), (name, item)
        assert item.complaint == "", name
    assert len(made) == len(checked) > 50


@pytest.mark.parametrize(
    ("word", "count", "complaint"),
    [
        ("inc", MOST, ""),
        ("inc", FEWEST - STEP, r"value '16' out of range, expected to be in range \[24..256\]"),
        ("inc", MOST + STEP, r"value '264' out of range, expected to be in range \[24..256\]"),
        ("dec", FEWEST, ""),
        ("dec", FEWEST + 1, "unexpected value '25', expected to be multiple of 8"),
        (
            "dec",
            176,
            r"\(C7406\) .* register count \(176\) which is larger than the largest .* register count .* \(168\)",
        ),
    ],
)
def test_the_assembler_refuses_the_same_counts(word: str, count: int, complaint: str) -> None:
    """Of setmaxnreg: all but multiples of 8 from 24 to 256, and a .dec to more than the threads can own."""
    item = tcsim.instruction(f"setmaxnreg.{word}.sync.aligned.u32", arch="sm_90a")
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.maxnreg 168\n"
    text += f"{{\n{item.mnemonic} {count};\nret;\n}}\n"
    pool = RegisterPool((168,), 1000)
    if not complaint:
        assert assemble(text, "sm_90a").notes == ()
        assert item.execute(pool, 0, count)[0]
        return
    with pytest.raises(RuntimeError, match=complaint):
        assemble(text, "sm_90a")
    with pytest.raises(OperandError, match=f"count={count}"):
        item.execute(pool, 0, count)


def code(target: str, instruction: str) -> list[str]:
    """The machine code of one instruction between loads and stores: opcode and operands of what computes."""
    text = f""".version {"9.4" if target == "sm_107a" else "8.8"}\n.target {target}\n.address_size 64
.visible .entry k(.param .u64 p)
{{
.reg .pred %p<2>; .reg .u32 %r<4>; .reg .u64 %l<4>; .reg .b128 %q<1>;
ld.param.u64 %l0, [p];
ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%l0];
ld.global.v2.u64 {{%l1, %l2}}, [%l0+16];
{instruction}
st.global.v4.u32 [%l0], {{%r0, %r1, %r2, %r3}};
st.global.u64 [%l0+16], %l1;
ret;
}}
"""
    (function,) = disassemble(assemble(text, target).cubin)
    words = ("PRMT", "LOP3", "SHF", "ELECT", "WARPSYNC")
    return [f"{line.opcode} {line.operands}" for line in function.instructions if line.opcode.startswith(words)]


@pytest.mark.parametrize("target", ["sm_90a", "sm_107a"])
def test_mapa_sets_the_highest_byte(target: str) -> None:
    """One byte permutation: bytes 0 to 2 of the address, byte 0 of the rank; of 64 bits the high word stays. ELECT has no mask."""
    text = "mapa.shared::cluster.u32 %r0, %r1, %r2;\nmapa.u64 %l1, %l1, %r2;\nelect.sync %r3|%p0, %r1;\n@%p0 st.global.u32 [%l0+32], %r3;"
    lines = sorted(code(target, text))
    assert len(lines) == 3
    assert re.fullmatch(r"ELECT P\d, UR\d+, PT", lines[0])  # among the active lanes
    for line in lines[1:]:
        assert re.fullmatch(r"PRMT R\d+, R10, 0x654, R\d+", line)  # R10 is the rank


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_a_blocks_own_addresses_hold_its_rank(target: str) -> None:
    """ptxas adds the rank of the block, shifted by 24, to the place of a shared variable."""
    row = catalog.rows()["mapa.shared::cluster.u32"]
    (function,) = disassemble(assemble(probe.emit(row, target), target).cubin)
    lines = [f"{line.opcode} {line.operands}" for line in function.instructions]
    (rank,) = (match[1] for line in lines if (match := re.fullmatch(r"S2UR (UR\d+), SR_CgaCtaId", line)))
    assert [line for line in lines if re.fullmatch(rf"ULEA UR\d+, {rank}, UR\d+, 0x18", line)]


@pytest.mark.parametrize("target", ["sm_100a", "sm_107a", "sm_120a"])
def test_answers_are_read_with_plain_instructions(target: str) -> None:
    """Bit 0 of the third word; the first word as it is; the halves of the second. The answer is in R4 to R7."""
    name = "clusterlaunchcontrol.query_cancel"
    text = (
        f"mov.b128 %q0, {{%l1, %l2}};\n{name}.is_canceled.pred.b128 %p0, %q0;\n@%p0 st.global.u32 [%l0+32], %r3;\n"
        + "\n".join(
            f"{name}.get_first_ctaid::{dimension}.b32.b128 %r{place}, %q0;" for place, dimension in enumerate("xyz")
        )
    )
    lines = sorted(re.sub(r"\b(LOP3\.LUT|SHF\.R\.U32\.HI) [RP]\d+", r"\1", line) for line in code(target, text))
    assert lines == [
        "LOP3.LUT, R5, 0xffff, RZ, 0xc0, !PT", "LOP3.LUT, RZ, R6, 0x1, RZ, 0xc0, !PT", "SHF.R.U32.HI, RZ, 0x10, R5",
    ]  # fmt: skip


def test_machine_code_that_lacks_an_instruction_is_told() -> None:
    """A setmaxnreg that ptxas left out, a griddepcontrol that is not there."""
    item = tcsim.instruction("setmaxnreg.inc.sync.aligned.u32", arch="sm_90a")
    body: Any = body_of(item.row)
    assert body.complaint(item, "n232", "sm_90a", {"USETMAXREG.DEALLOC.CTAPOOL": 2}) == (
        "USETMAXREG.TRY_ALLOC.CTAPOOL 0 times instead of 2"
    )
    item = tcsim.instruction("griddepcontrol.wait", arch="sm_90")
    body = body_of(item.row)
    assert body.complaint(item, "", "sm_90", {}) == "ACQBULK 0 times instead of 1"
    assert testbench_of("griddepcontrol").classes(item) == []
    assert item.execute() is None


# ---- testbenches


def test_launches() -> None:
    """Every class of every family has a launch whose parameters are the kernel's; clusters where there are any; wrong shapes are refused."""
    checked = 0
    clusters = {"barrier.cluster": (2, 1, 1), "mapa": (4, 1, 1), "st.async": (2, 1, 1), "red.async": (2, 1, 1)}
    for family in FAMILIES[:-1]:
        for item in items("sm_100", family)[::7]:
            testbench = testbench_of(family)
            for name in testbench.classes(item):
                given = testbench.inputs(item, name, 0, 3)
                launch = Probe(item, item.targets[0], b"code", "ptxas 13.0.0", "", "0" * 64).launch(given, repeat=2)
                ((shape, dtype),) = launch.outputs
                assert shape == testbench.model(item, given).shape
                assert dtype == np.uint32
                if family != "clusterlaunchcontrol":
                    assert launch.cluster == clusters.get(family)
                head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", probe.emit(item.row, item.targets[0]))
                assert head is not None
                assert len(head[1].split(", ")) == len(launch.inputs) + 1 + len(launch.scalars)
                first = next(key for key in given if key != "form")
                with pytest.raises(ValueError, match=f"{first} is float64"):
                    body_of(item.row).plan(item.row, given | {first: given[first].astype(float)})
                checked += 1
    assert checked > 40


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_testbenches_and_mutants(arch: str) -> None:
    """Inputs are pure functions of their arguments; each mutant is contradicted; the model agrees with itself."""
    outputs, applied, every = 0, Counter[str](), set[str]()
    for family in FAMILIES[:-1]:
        testbench = testbench_of(family)
        every |= {mutant.name for mutant in testbench.mutants}
        for item in items(arch, family):
            alive, digests = [mutant for mutant in testbench.mutants if mutant.applies(item)], set()
            applied.update(mutant.name for mutant in alive)
            names = testbench.classes(item)
            assert names and all(re.fullmatch("[a-z]+", name) for name in names)
            for name in names:
                samples = testbench.samples(item, name)
                given = testbench.inputs(item, name, 0, samples)
                digests.add(digest(given))
                assert digest(testbench.inputs(item, name, 0, samples)) in digests
                answer = testbench.model(item, given)
                comparison = testbench.compare(item, given, answer, answer)
                assert (comparison.mismatches, tuple(comparison.first)) == (0, ())
                outputs += comparison.outputs
                for mutant in list(alive):
                    wrong = mutant.run(item, given)
                    if not np.array_equal(wrong, answer):
                        alive.remove(mutant)
                        assert testbench.compare(item, given, wrong, answer).mismatches
            assert not alive, (item.mnemonic, [mutant.name for mutant in alive])
    assert outputs > 2_900_000
    blackwell = {
        mutant.name for family in ("st.bulk", "clusterlaunchcontrol") for mutant in testbench_of(family).mutants
    }
    assert set(applied) == (every if arch == "sm_100" else every - blackwell)


def test_setmaxnreg_probes_never_wait_for_ever() -> None:
    """The pool has enough at every move of every class, and no move is undefined: the model says so."""
    checked = 0
    for item in items("sm_90", "setmaxnreg"):
        for count in COUNTS:
            if "dec" in item.mnemonic and count == MOST:
                continue  # assembled only: no thread can own more than 256 before
            pool = pool_after(item, count)
            assert pool.owned[0] == count
            assert pool.total == RegisterPool.at_launch(3, 168).total
            checked += 1
        log = assemble(probe.emit(item.row, "sm_90a"), "sm_90a").log
        assert re.findall(r"Used (\d+) registers", log) == ["168"] * 6  # so the pool is what the model takes it for
    assert checked == 11


def test_cluster_meetings_end_with_the_last_warp() -> None:
    """The testbench's own check: a barrier that lets a warp go early is an error."""
    item = tcsim.instruction("barrier.cluster.arrive.release.aligned", arch="sm_90")
    assert meet(item, 5).phase == 5


@pytest.mark.parametrize(
    ("mnemonic", "name", "place", "words"),
    [
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32",
            "spread",
            (1, 7),
            r"MISMATCH sample 1 address 0x1c: ",
        ),
        (
            "elect.sync",
            "masks",
            (2, 5, 1),
            r"MISMATCH sample 2 lane 5: predicate, membermask 0x\w{8}, hardware 0x\w+ model",
        ),
        (
            "barrier.cluster.wait",
            "rounds",
            (0, 1, 9),
            r"MISMATCH sample 0 block 1 thread 9: the number after 12 rounds",
        ),
        (
            "mapa.u64",
            "places",
            (3, 2, 8, 1),
            r"sample 3 block 2 lane 8: address less own, low word: offset 0x\w+ of block \d",
        ),
        ("setmaxnreg.inc.sync.aligned.u32", "many", (0, 130, 3), r"sample 0 thread 130: word 3 that it held"),
        ("st.bulk.weak.shared::cta", "ranges", (4, 9), r"sample 4 address 0x24: zeros from 0x\w+ to 0x\w+"),
        (
            "clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128",
            "answers",
            (5, 0),
            r"answer 5 word 0: of 0x\w{8} 0x",
        ),
    ],
)
def test_a_mismatch_is_explained(mnemonic: str, name: str, place: tuple[int, ...], words: str) -> None:
    """Where it is, what should have come there, both words; and how the model came to it."""
    item = tcsim.instruction(mnemonic, arch="sm_100")
    testbench = testbench_of(item.row.family)
    given = testbench.inputs(item, name, 0, 8)
    model = testbench.model(item, given)
    hardware = model.copy()
    hardware[place] ^= 0x10
    comparison = testbench.compare(item, given, hardware, model)
    assert comparison.mismatches == 1
    assert re.search(words, comparison.first[0].line())
    assert len(comparison.first[0].trace()) >= 1
    with pytest.raises(ValueError, match="the hardware's result has shape"):
        testbench.compare(item, given, hardware[:1], model)
