"""Sparse mma.sp: its rows, its metadata, the fast model against the slow one, its probes, its recordings."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa.mma.sparse import SPARSE
from conformance.stimuli.classes import LEVEL_2
from conformance.suite import recordings
from conformance.suite.cases import Case, Settings, Suite
from hwkernels.probes import mma as probe_bodies
from hwkernels.probes import probe
from hwkernels.probes.probe import Probe
from tcsim import InstructionError, catalog
from tcsim.core.evidence import LEVELS
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply
from tests.exact import sparse as slow
from tests.support.extent import examples
from tests.support.suite_runs import copy_recording
from tests.support.tables import TABLES
from tests.unit.tcsim.isa.mma.sparse_cases import (
    COMPARED_ARCHS,
    EQUAL,
    FP8,
    HALF,
    INT8,
    LAYOUTS,
    LONG_HALF,
    LONG_INT8,
    LONG_TF32,
    ROWS,
    TF32,
    facts,
    instruction,
    on_arch,
    some_words,
    sparse_codes,
)

INVENTORY = TABLES / "mma_sp_inventory.csv"
ON_ARCH = {"sm_80": 80, "sm_89": 88, "sm_90": 88, "sm_100": 92, "sm_120": 142}  # rows
SEED = 20_002  # of the inputs: not one that is recorded

# ---- the rows


class Accepted(NamedTuple):
    """One spelling that the assembler accepts."""

    selectors: tuple[int, ...]
    targets: tuple[str, ...]
    ptx_version: str
    documented: bool


def accepted() -> dict[str, Accepted]:
    """The inventory by mnemonic."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    table = {}
    for line in csv.DictReader(lines):
        selectors = tuple(int(digit) for digit in re.fullmatch(r"sel=\{([\d,]+)\}", line["extra"])[1].split(","))  # type: ignore[index]
        documented = {"0": False, "1": True}[line["documented"]]
        table[line["mnemonic"]] = Accepted(selectors, tuple(line["targets"].split()), line["min_ptx_isa"], documented)
    assert len(table) == len(lines) - 1
    return table


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings that ptxas accepts, with exactly their targets, versions and selectors."""
    inventory = accepted()
    assert set(ROWS) == set(inventory)
    assert len(inventory) == 142
    pairs = 0
    for mnemonic, (selectors, targets, ptx_version, documented) in inventory.items():
        row = ROWS[mnemonic]
        assert set(row.targets) == set(targets), mnemonic
        assert len(row.targets) == len(targets)
        assert row.ptx_version == ptx_version, mnemonic
        assert row.documented == documented, mnemonic
        assert not row.dropped
        assert facts(mnemonic).selectors + facts(mnemonic).refused == selectors, mnemonic
        pairs += len(targets)
    assert pairs == sum(len(row.targets) for row in ROWS.values())
    assert {target for row in inventory.values() for target in row.targets} == set(TARGETS) - {
        "sm_70",
        "sm_72",
        "sm_75",
    }


def test_two_spellings_have_selectors_that_the_hardware_stops_at() -> None:
    """ptxas takes 0 to 3 of m16n8k32 f32.f16, and only 0 and 1 of its bf16 and f16-accumulating neighbours."""
    refused = {mnemonic: facts(mnemonic).refused for mnemonic in ROWS if facts(mnemonic).refused}
    assert refused == {
        LONG_HALF: (2, 3),
        LONG_HALF.replace("mma.sp", "mma.sp::ordered_metadata"): (2, 3),
    }


def test_shape_formats_and_sparsity_are_those_of_the_spelling() -> None:
    """m, n, k and the formats, read back from the mnemonic; A has K / 2 columns, and the groups of the exact model."""
    checked = 0
    for mnemonic, row in ROWS.items():
        words, own, exact = mnemonic.split("."), facts(mnemonic), slow.parse(mnemonic)
        shape = next(word for word in words if re.fullmatch(r"m\d+n\d+k\d+", word))
        m, n, k = row.shape
        assert shape == f"m{m}n{n}k{k}"
        assert [row.operands[name].format.name for name in "dabc"] == words[-4:]
        assert list(row.operands) == ["d", "a", "b", "c"]
        shapes = {"d": (m, n), "a": (m, k // 2), "b": (k, n), "c": (m, n)}
        assert {name: operand.shape for name, operand in row.operands.items()} == shapes
        assert set(row.modifiers.values()) == {word for word in (".satfinite",) if f"{word}." in mnemonic}
        assert own.ordered == ("::ordered_metadata" in mnemonic)
        assert (own.rows, own.k, own.kept) == (m, k, k // 2)
        assert (own.unit_bits, own.group, own.groups) == (exact.unit_bits, exact.group_columns, exact.groups)
        checked += 1
    assert checked == 142


def test_every_row_has_a_lowering_and_evidence_on_every_arch_that_runs_it() -> None:
    """Measured on sm_90, where every row has a recording, and nowhere else; floats elsewhere are inferred."""
    counts = {}
    for name in ARCHS:
        for mnemonic in on_arch(name):
            ins = instruction(mnemonic, name)
            assert ins.lowering.steps[-1].result == "d"  # type: ignore[union-attr]
            assert ins.evidence.level in LEVELS
            assert (ins.evidence.level == "measured") == (name == "sm_90")
            if name == "sm_90":
                assert recordings.read(mnemonic, name) is not None, mnemonic
            elif ins.operands["a"].format.kind == "float":
                assert ins.evidence.level == "inferred"
        counts[name] = len(on_arch(name))
    assert {arch: counts[arch] for arch in COMPARED_ARCHS} == ON_ARCH
    assert [arch for arch in ARCHS if not counts[arch]] == ["sm_70", "sm_72", "sm_75"]


def test_an_instruction_that_the_arch_lacks() -> None:
    """The call, what it needs, and what the arch has."""
    for mnemonic, arch, complaint in (
        (HALF, "sm_75", r"m16n8k16 with f16 needs sm_80 or later; sm_75 has no instruction of this family"),
        (FP8, "sm_80", r"m16n8k64 with e4m3 x e5m2 needs sm_89 or later; sm_80 has tf32, f16, bf16, s8, u8, s4, u4"),
    ):
        with pytest.raises(InstructionError, match=complaint) as caught:
            instruction(mnemonic, arch)
        assert str(caught.value).startswith(f'tcsim.instruction("{mnemonic}", arch="{arch}"): ')


# ---- the fast model against the slow one


class Task(NamedTuple):
    """One class of inputs on one instruction."""

    instruction: SparseMatrixMultiply
    name: str


ELEMENTS = 12  # result elements compared of each task
SAMPLES = 3


def tasks(mnemonic: str) -> Iterator[Task]:
    """What there is to compare of a mnemonic."""
    for arch in COMPARED_ARCHS:
        if mnemonic in on_arch(arch):
            ins = instruction(mnemonic, arch)
            yield from (Task(ins, name) for name in SPARSE.classes(ins))


@pytest.mark.parametrize("mnemonic", ROWS)
def test_the_models_agree(mnemonic: str) -> None:
    """A few random elements of the result of every class of inputs, on every arch that has the instruction."""
    compared = planned = 0
    for ins, name in tasks(mnemonic):
        inputs = SPARSE.inputs(ins, name, SEED, SAMPLES)
        fast = ins.matrix("d", SPARSE.model(ins, inputs))
        a, b, c = (ins.matrix(operand, inputs[operand]) for operand in "abc")
        stream = random.Random(f"{mnemonic} {ins.arch.name} {name}")
        columns = [
            slow.columns_of_words(mnemonic, inputs["metadata"][warp, :, 0].tolist(), int(inputs["selector"][warp]))
            for warp in range(SAMPLES)
        ]
        for _ in range(ELEMENTS):
            warp, row, n = stream.randrange(SAMPLES), stream.randrange(16), stream.randrange(8)
            kept, met, addend = a[warp, row].tolist(), b[warp, :, n].tolist(), int(c[warp, row, n])
            exact = slow.element(mnemonic, ins.arch.name, kept, columns[warp][row], met, addend)
            assert int(fast[warp, row, n]) == exact, (ins.arch.name, name, warp, row, n)
            compared += 1
        planned += ELEMENTS
    assert compared == planned > 0


def test_what_is_compared_covers_everything() -> None:
    """Every row, arch and selector takes part, with metadata in order, out of order and equal: over 50,000 elements."""
    plan = [task for mnemonic in ROWS for task in tasks(mnemonic)]
    pairs = {(task.instruction.arch.name, task.instruction.mnemonic) for task in plan}
    assert len(pairs) == sum(ON_ARCH.values())
    assert len(plan) * ELEMENTS > 50_000
    seen: dict[str, set[int]] = {"selectors": set(), "sm_90": set(), "sm_80": set()}
    for ins, name in plan:
        if ins.mnemonic == HALF and ins.arch.name in seen:
            inputs = SPARSE.inputs(ins, name, SEED, SAMPLES)
            selector = int(inputs["selector"][0])
            seen["selectors"].add(selector)
            words = inputs["metadata"][1, :, 0].tolist()
            groups = (slow.group_of_word(HALF, words, row, group, selector) for row in range(16) for group in range(4))
            seen[ins.arch.name].update(groups)
    assert seen["selectors"] == {0, 1, 2, 3}
    assert seen["sm_90"] == set(range(16))
    assert seen["sm_80"] == set(range(16)) - set(EQUAL)


@pytest.mark.parametrize("mnemonic", LAYOUTS)
@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_whole_tiles_agree(mnemonic: str, arch: str) -> None:
    """Every element of one tile for each selector, from metadata words of which every lane holds something else."""
    ins, compared = instruction(mnemonic, arch), 0
    for selector in ins.sparsity.selectors:
        stream = random.Random(f"tile {mnemonic} {selector}")
        words = some_words(ins, stream)
        inputs = SPARSE.inputs(ins, "wide" if ins.operands["a"].format.kind == "float" else "uniform", SEED, 1)
        registers = {name: inputs[name] for name in "abc"}
        fast = ins.matrix("d", ins.execute(**registers, metadata=words, selector=selector))[0]
        codes = {name: ins.matrix(name, array)[0].tolist() for name, array in registers.items()}
        columns = slow.columns_of_words(mnemonic, words.tolist(), selector)
        exact = slow.mma(mnemonic, arch, codes["a"], columns, codes["b"], codes["c"])
        assert fast.tolist() == exact, selector
        compared += fast.size
    assert compared == 128 * len(ins.sparsity.selectors)


@pytest.mark.parametrize(
    ("mnemonic", "arch"),
    [
        (HALF, "sm_80"),
        (LONG_HALF, "sm_90"),
        (LONG_TF32, "sm_100"),
        (FP8, "sm_89"),
        (FP8, "sm_90"),
        (LONG_INT8, "sm_90"),
    ],
)
@examples(25)
@given(data=st.data())
def test_any_register_bits(mnemonic: str, arch: str, data: st.DataObject) -> None:
    """Registers of any bits, those of a few lanes drawn one by one and repeated over the warp; several elements each."""
    ins = instruction(mnemonic, arch)
    registers = {}
    for name in "abc":
        operand = ins.operands[name]
        size = 4 * operand.registers * 8
        drawn = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size), label=name), np.uint32)
        registers[name] = np.resize(drawn.reshape(8, operand.registers), (32, operand.registers))
    words = some_words(ins, random.Random(data.draw(st.integers(0, 2**32), label="metadata")))
    selector = data.draw(st.sampled_from(ins.sparsity.selectors), label="selector")
    fast = ins.matrix("d", ins.execute(**registers, metadata=words, selector=selector))
    a, b, c = (ins.matrix(name, registers[name]) for name in "abc")
    columns = slow.columns_of_words(mnemonic, words.tolist(), selector)
    for row, n in ((0, 0), (1, 7), (15, 3)):
        exact = slow.element(mnemonic, arch, a[row].tolist(), columns[row], b[:, n].tolist(), int(c[row, n]))
        assert int(fast[row, n]) == exact, (row, n)


# ---- the same as dense


INTEGERS = [mnemonic for mnemonic in ROWS if ".s32." in mnemonic and mnemonic in on_arch("sm_90")]


@pytest.mark.parametrize("mnemonic", INTEGERS)
def test_integers_are_those_of_the_dense_multiply(mnemonic: str) -> None:
    """The dense mma.sync of the expanded matrix, in two halves of K where there is none as long; or exact integers."""
    ins = instruction(mnemonic)
    m, n, k = ins.shape
    generator = np.random.Generator(np.random.PCG64(len(mnemonic)))
    a_format, b_format = (ins.operands[name].format for name in "ab")
    dense_k = min(k, {8: 32, 4: 64}[a_format.bits])
    spelling = re.sub(r"^mma\.sp(::ordered_metadata)?", "mma", mnemonic).replace(f"k{k}.", f"k{dense_k}.")
    dense = tcsim.instruction(spelling, arch="sm_90")
    compared = 0
    for near_the_end in (False, True):
        a = sparse_codes(ins, generator)
        b = generator.integers(0, 1 << b_format.bits, (k, n)).astype(b_format.dtype)
        c = generator.integers(-(2**31), 2**31, (m, n))
        if near_the_end:
            c = np.where(c > 0, 2**31 - 1 - c % 500, -(2**31) + c % 500)
        c = c.astype(np.int32)
        kept, positions = ins.compress(a)
        d = ins.matmul(kept, b, c, metadata=positions)
        total = tcsim.decode(a, a_format) @ tcsim.decode(b, b_format) + c
        whole = np.clip(total, -(2**31), 2**31 - 1) if ".satfinite" in mnemonic else total
        assert (tcsim.decode(d, "s32") == whole.astype(np.int64).astype(np.int32)).all()
        compared += d.size
        if near_the_end and ".satfinite" in mnemonic and dense_k < k:
            assert (whole != total).any()
            continue  # two dense instructions may clamp between them; one sparse instruction does not
        partial: npt.NDArray[Any] = c
        for start in range(0, k, dense_k):
            part = slice(start, start + dense_k)
            partial = dense.matmul(a[:, part], b[part], partial)
        assert (d == partial).all()
        selector = ins.sparsity.selectors[-1]
        registers = {"a": ins.registers("a", kept), "b": ins.registers("b", b), "c": ins.registers("c", c)}
        words = ins.encode_metadata(positions, selector)
        assert (ins.matrix("d", ins.execute(**registers, metadata=words, selector=selector)) == d).all()
    assert compared == 2 * m * n


def test_every_integer_row_of_sm_90_was_compared_with_dense() -> None:
    """Two shapes of int8 and of int4, four pairs of types, clamped or not, two spellings."""
    assert len(INTEGERS) == 2 * 2 * 4 * 2 * 2


@pytest.mark.parametrize("mnemonic", [HALF, LONG_HALF, TF32, LONG_TF32, FP8, HALF.replace("f16.f16", "bf16.bf16")])
@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_120"])
def test_small_integers_in_floats_are_exact(mnemonic: str, arch: str) -> None:
    """Where nothing is rounded, a sparse multiply is the exact product of the expanded matrix."""
    ins = instruction(mnemonic, arch)
    m, n, k = ins.shape
    generator = np.random.Generator(np.random.PCG64(7))
    values = generator.integers(-4, 5, (m, k)) * (sparse_codes(ins, generator, (1, 2)) != 0)
    other, c = generator.integers(-4, 5, (k, n)), generator.integers(-50, 51, (m, n))
    kept, positions = ins.compress(tcsim.encode(values, ins.operands["a"].format))
    d = ins.matmul(kept, tcsim.encode(other, ins.operands["b"].format), c.astype(np.float32), metadata=positions)
    assert (tcsim.decode(d, "f32") == values @ other + c).all()
    assert np.count_nonzero(values) > m * k // 4


# ---- probes

PROBES = {  # rows that each target accepts
    "sm_80": 80, "sm_86": 80, "sm_87": 80, "sm_88": 80, "sm_89": 88, "sm_90": 88, "sm_90a": 88, "sm_100": 88, "sm_100f": 92,
    "sm_100a": 92, "sm_103": 88, "sm_103f": 92, "sm_103a": 92, "sm_107": 88, "sm_107f": 92, "sm_107a": 92, "sm_110": 88,
    "sm_110f": 92, "sm_110a": 92, "sm_120": 88, "sm_120f": 142, "sm_120a": 142, "sm_121": 88, "sm_121f": 142, "sm_121a": 142,
}  # fmt: skip


def of_target(target: str) -> list[SparseMatrixMultiply]:
    """Every sparse instruction of a target."""
    rows = [row for row in catalog.on_arch(target, "mma.sp") if target in row.targets]
    return [instruction(row.mnemonic, target) for row in rows]


def test_the_targets_that_have_sparse_instructions() -> None:
    """All from sm_80 on."""
    assert {target: len(of_target(target)) for target in TARGETS if of_target(target)} == PROBES


@pytest.mark.parametrize("target", PROBES)
def test_every_probe_of_a_target_does_what_its_row_claims(target: str) -> None:
    """One kernel for each selector; the machine code is as claimed, and the same for both spellings before sm_100."""
    made = probe.build(of_target(target), target)
    assert len(made) == PROBES[target]
    different = set()
    for mnemonic, one in made.items():
        assert isinstance(one, Probe), one
        assert one.complaint == "", mnemonic
        other = made.get(mnemonic.replace("mma.sp.", "mma.sp::ordered_metadata."))
        assert other is None or isinstance(other, Probe)
        if other is not None and other.code_sha256 != one.code_sha256:
            different.add((one.instruction.operands["a"].format.name, one.instruction.row.shape[2]))
    helped = {
        ("f16", 16),
        ("f16", 32),
        ("s8", 32),
        ("u8", 32),
        ("s8", 64),
        ("u8", 64),
    }  # docs/sparsity.md, Both spellings
    assert different == (helped if TARGETS[target].number >= 100 else set())


def test_the_probe_has_a_kernel_for_every_selector() -> None:
    """The last operand is the selector, the one before the metadata register; refused selectors have no kernel."""
    checked = 0
    for mnemonic, row in ROWS.items():
        text = probe.emit(row, row.targets[-1])
        lines = re.findall(rf"^    {re.escape(mnemonic)} .*;$", text, re.MULTILINE)
        assert [re.sub(r".*\}, ", "", line) for line in lines] == [
            f"%metadata0, {s};" for s in facts(mnemonic).selectors
        ]
        checked += len(lines)
    assert checked == 10 * 4 - 2 * 2 + 38 * 2 + 94


def test_a_launch_takes_one_selector() -> None:
    """The kernel of the batch's selector, with the metadata after c; mixed or unknown selectors are refused."""
    ins = instruction(INT8)
    inputs = SPARSE.inputs(ins, "uniform", 0, 5)
    launch = Probe(ins, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64).launch(inputs)
    assert launch.kernel == f"{probe.kernel_name(ins.row)}__selector{inputs['selector'][0]}"
    assert [array.shape for array in launch.inputs] == [(5, 32, 2), (5, 32, 2), (5, 32, 4), (5, 32, 1)]
    assert launch.outputs == (((5, 32, 4), np.dtype(np.uint32)),)
    with pytest.raises(ValueError, match=r"a batch has one selector, not \[0, 1\]"):
        probe_bodies.SPARSE.plan(ins.row, inputs | {"selector": np.array([0, 1, 0, 1, 1], np.uint32)})
    with pytest.raises(ValueError, match=r"has no probe of selector2; valid: selector0, selector1"):
        probe_bodies.SPARSE.plan(ins.row, inputs | {"selector": np.full(5, 2, np.uint32)})


# ---- recordings


def test_a_planted_fault_in_a_recording_is_found(tmp_path: Path) -> None:
    """One flipped bit: one mismatch, in its place, with the inputs that really met; without it the case is REPLAYED."""
    copy_recording(tmp_path, LONG_HALF)
    case = Case(LONG_HALF, "repeated", 0)
    right = Suite(Settings("sm_90", "replay", root=tmp_path)).run(case)
    assert (right.verdict, right.outputs, right.mismatches) == ("REPLAYED", 1024, 0)
    recording = recordings.read(LONG_HALF, "sm_90", tmp_path)
    assert recording is not None
    results = recording.results["repeated", 0].copy()
    results[5, 13, 2] ^= np.uint32(1 << 7)
    recording.results["repeated", 0] = results
    recordings.write(recording, tmp_path)
    wrong = Suite(Settings("sm_90", "replay", root=tmp_path)).run(case)
    assert (wrong.verdict, wrong.outputs, wrong.mismatches) == ("FAIL", 1024, 1)
    ins = instruction(LONG_HALF)
    row, n = ins.operands["d"].layout(13, 2, 0)
    lines = wrong.text.splitlines()
    assert lines[1].startswith(f"MISMATCH warp 5 lane 13 register 2 (row {row}, column {n}): a=[0x")
    assert f"hardware 0x{int(results[5, 13, 2]):08x} model 0x{int(results[5, 13, 2]) ^ 1 << 7:08x}" in lines[1]
    assert lines[2].startswith("rerun: ") and f"/test_cases.py::test_case[{LONG_HALF}-repeated-0]" in lines[2]
    inputs = SPARSE.inputs(ins, "repeated", 0, 8)
    columns = slow.columns_of_words(LONG_HALF, inputs["metadata"][5, :, 0].tolist(), int(inputs["selector"][5]))[row]
    met = ins.matrix("b", inputs["b"])[5][columns, n]
    assert f"b=[{' '.join(f'0x{code:04x}' for code in met)}]" in lines[1]
    assert lines[-1].strip().startswith(f"d = 0x{int(results[5, 13, 2]) ^ 1 << 7:08x}")


def test_the_figures_in_the_documentation_are_current() -> None:
    """What docs/sparsity.md says of how much was compared is what the recordings hold."""
    variants = cases = outputs = 0
    for mnemonic in on_arch("sm_90"):
        recording = recordings.read(mnemonic, "sm_90")
        assert recording is not None, mnemonic
        bits = ROWS[mnemonic].operands["d"].layout.element_bits
        results = [own for (name, seed), own in recording.results.items() if seed == 0 and name not in LEVEL_2]
        variants, cases = variants + 1, cases + len(results)
        outputs += sum(own.size for own in results) * 32 // bits
    page = " ".join((Path(__file__).parents[5] / "docs/sparsity.md").read_text(encoding="utf-8").split())
    assert f"{variants} instructions, {cases} cases, {outputs:,} outputs were compared on an NVIDIA H200" in page
