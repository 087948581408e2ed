"""wgmma.mma_async.sp: its rows, fragments and metadata, the fast model against the slow one, its probes and its cases.

No GPU ran it yet. What is shown here is that the model is the manual's, that its cases would find mistakes, and that they run.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa.wgmma.images import MODES
from conformance.isa.wgmma.sparse import SPARSE_WARPGROUP
from conformance.suite import recordings
from hwkernels.probes import probe
from tcsim import catalog
from tcsim.core.errors import InstructionError, OperandError
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.isa.wgmma.sparse_multiply import SparseWarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout, Layout
from tests.exact import sparse_warpgroup as slow
from tests.support.extent import examples
from tests.support.tables import TABLES

INVENTORY = TABLES / "wgmma_sp_inventory.csv"
ROWS = {name: row for name, row in catalog.rows().items() if row.family == "wgmma.sp"}
FULL = [name for name, row in ROWS.items() if row.shape[1] == 64]
PREFIX = "wgmma.mma_async.sp.sync.aligned."
F16, TF32 = PREFIX + "m64n64k32.f32.f16.f16", PREFIX + "m64n64k16.f32.tf32.tf32"
FP8, INT8 = PREFIX + "m64n64k64.f32.e4m3.e5m2", PREFIX + "m64n64k64.satfinite.s32.s8.u8"
KINDS = (F16, TF32, FP8, INT8)
SEED = 20_003  # of the inputs: not one that will be recorded


def sparse(mnemonic: str) -> SparseWarpgroupMultiply:
    """An instruction of this family."""
    found = tcsim.instruction(mnemonic, arch="sm_90a")
    assert isinstance(found, SparseWarpgroupMultiply)
    return found


# ---- the rows


def test_the_registry_is_the_inventory() -> None:
    """528 spellings with their targets, versions and machine code; every operand form that was tried has a kernel."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    inventory = {line["mnemonic"]: line for line in csv.DictReader(lines)}
    assert set(ROWS) == set(inventory)
    assert len(inventory) == 528
    forms = 0
    for mnemonic, line in inventory.items():
        row, ins = ROWS[mnemonic], sparse(mnemonic)
        assert (row.targets, row.ptx_version) == (tuple(line["targets"].split()), line["min_ptx_isa"])
        assert (row.documented, row.dropped) == (True, "")
        assert ins.lowering.kind + ":" + ins.lowering.opcodes[0][0] == line["sass_sm90a"]
        own = line["forms"].split()
        assert set(own) <= set(probe.body_of(row).variants(row))
        forms += len(own)
    assert forms == 1_144


def test_rows_are_the_dense_ones_with_twice_the_k() -> None:
    """Every dense spelling but those of b1 has a sparse one: the same types, half of A's row, the same accumulator."""
    dense = {name: row for name, row in catalog.rows().items() if row.family == "wgmma" and row.arithmetic != "b1"}
    compared = 0
    for name, row in dense.items():
        m, n, k = row.shape
        own = ROWS[name.replace("mma_async.", "mma_async.sp.").replace(f"n{n}k{k}", f"n{n}k{2 * k}")]
        assert own.shape == (m, n, 2 * k)
        assert {x: str(o.layout) for x, o in own.operands.items()} == {
            x: str(o.layout) for x, o in row.operands.items()
        }
        compared += 1
    assert compared == len(ROWS)


def test_every_spelling_was_measured() -> None:
    """A recording for each."""
    for mnemonic in ROWS:
        assert sparse(mnemonic).evidence.level == "measured"
        assert recordings.read(mnemonic, "sm_90") is not None
    with pytest.raises(InstructionError, match="needs one of sm_90a"):
        tcsim.instruction(F16, arch="sm_100a")


# ---- fragments and metadata

# CUTLASS's (thread, logical value) layouts of a sparse A in registers, index m + 64 k: ALayout_64x32, _64x16 and _64x64
CUTLASS_A = {
    16: Layout((4, 8, 4, 4, 2, 2), (256, 1, 16, 64, 8, 1024)),
    32: Layout((4, 8, 4, 2, 2, 2), (128, 1, 16, 64, 8, 512)),
    8: Layout((4, 8, 4, 8, 2, 2), (512, 1, 16, 64, 8, 2048)),
}


@pytest.mark.parametrize("mnemonic", KINDS)
def test_fragments_of_a_keep_the_chunks_of_cutlass(mnemonic: str) -> None:
    """Kept element j of a lane belongs to the chunk that CUTLASS gives logical values 2 j and 2 j + 1 of that lane."""
    ins, compared = sparse(mnemonic), 0
    layout, sparsity = ins.operands["a"].layout, ins.sparsity
    theirs = CUTLASS_A[sparsity.element_bits]
    for lane in range(128):
        for value in range(layout.value.size):
            row, column = layout(lane, value // layout.slots, value % layout.slots)
            index = theirs(lane + 128 * 2 * value)
            assert row == index % 64
            assert column // (sparsity.group // 2) == index // 64 // sparsity.group
            compared += 1
    assert compared == 64 * sparsity.kept


def test_metadata_lies_where_the_slow_model_has_it() -> None:
    """Row and chunk of every 4 bits of every thread, for every type and selector; other threads are not read."""
    compared = 0
    for mnemonic in KINDS:
        own, instruction = sparse(mnemonic).sparsity, slow.parse(mnemonic)
        for selector in own.selectors:
            lane, bit = own.places(selector)
            ours = {
                (int(lane[row, group]), int(bit[row, group])): (row, group * own.group)
                for row in range(64)
                for group in range(own.groups)
            }
            theirs = {
                (thread, 4 * nibble): place
                for thread in range(128)
                for nibble in range(8)
                if (place := slow.chunk_of(instruction, thread, nibble, selector)) is not None
            }
            assert ours == theirs
            compared += len(theirs)
    assert compared == 2 * 64 * 8 + 2 * 64 * 8 + 64 * 16 + 64 * 16


def test_a_warp_holds_what_a_warp_of_mma_sp_holds() -> None:
    """The layout that was measured for mma.sp with the same K, once for each 16 rows."""
    for mnemonic, warp in (
        (F16, "m16n8k32.row.col.f32.f16.f16.f32"),
        (TF32, "m16n8k16.row.col.f32.tf32.tf32.f32"),
        (FP8, "m16n8k64.row.col.f32.e4m3.e5m2.f32"),
        (INT8, "m16n8k64.row.col.s32.s8.u8.s32"),
    ):
        own, small = sparse(mnemonic), tcsim.instruction(f"mma.sp.sync.aligned.{warp}", arch="sm_90")
        assert own.sparsity.selectors == small.sparsity.selectors
        assert own.sparsity.valid == small.sparsity.valid
        generator = np.random.default_rng(7)
        groups = generator.choice(np.array(own.sparsity.valid, np.uint8), (64, own.sparsity.groups))
        for selector in own.sparsity.selectors:
            words = own.sparsity.words_of(groups, selector)
            parts = [small.sparsity.words_of(part, selector) for part in groups.reshape(4, 16, -1)]
            np.testing.assert_array_equal(words, np.concatenate(parts))
            np.testing.assert_array_equal(own.decode_metadata(words, selector), own.sparsity.positions_of(groups))


def test_the_slow_model_reads_back_what_encode_metadata_writes() -> None:
    """Positions to words and back, through the other model."""
    compared = 0
    for mnemonic in KINDS:
        ins, generator = sparse(mnemonic), np.random.default_rng(8)
        groups = generator.choice(np.array(ins.sparsity.valid, np.uint8), (64, ins.sparsity.groups))
        positions = ins.sparsity.positions_of(groups)
        for selector in ins.sparsity.selectors:
            words = ins.encode_metadata(positions, selector).tolist()
            assert slow.columns_of_words(mnemonic, words, selector) == ins.sparsity.columns(positions).tolist()
            compared += positions.size
    assert compared == 64 * (2 * 16 + 2 * 8 + 32 + 32)


# ---- the fast model against the slow one


def slow_kept(
    mnemonic: str, layout: FragmentLayout, inputs: dict[str, npt.NDArray[Any]], sample: int, row: int
) -> list[int]:
    """The kept codes of a row of A, read from the raw inputs."""
    instruction = slow.parse(mnemonic)
    if inputs["a"].ndim == 1:
        image, descriptor = inputs["image"][sample].tobytes(), int(inputs["a"][sample])
        mn_major = bool(inputs["trans_a"][sample])
        return [slow.read(instruction, image, descriptor, row, k, mn_major) for k in range(instruction.k // 2)]
    codes = []
    for k in range(instruction.k // 2):
        lane, register, slot = layout.where(row, k)
        word = int(inputs["a"][sample, lane, register])
        codes.append(word >> slot * instruction.bits & (1 << instruction.bits) - 1)
    return codes


@pytest.mark.parametrize("mnemonic", [*FULL, *(name for name, row in ROWS.items() if row.shape[1] in (24, 256))])
def test_the_models_agree(mnemonic: str) -> None:
    """Elements of the result of every class, from the raw bytes, descriptors, registers and metadata words."""
    ins, compared = sparse(mnemonic), 0
    instruction, n = slow.parse(mnemonic), ins.shape[1]
    stream = random.Random(mnemonic)
    for name in SPARSE_WARPGROUP.classes(ins):
        inputs = SPARSE_WARPGROUP.inputs(ins, name, SEED, 2)
        fast = ins.matrix("d", SPARSE_WARPGROUP.model(ins, inputs))
        c, selector = ins.matrix("c", inputs["c"]), int(inputs["selector"][0])
        for sample in range(2):
            columns = slow.columns_of_words(mnemonic, inputs["metadata"][sample, :, 0].tolist(), selector)
            image, descriptor = inputs["image"][sample].tobytes(), int(inputs["b"][sample])
            for _ in range(4):
                row, column = stream.randrange(64), stream.randrange(n)
                kept = slow_kept(mnemonic, ins.operands["a"].layout, inputs, sample, row)
                mn_major = bool(inputs["trans_b"][sample])
                met = [slow.read(instruction, image, descriptor, column, k, mn_major) for k in columns[row]]
                if inputs["scale_a"][sample] < 0:
                    kept = [slow.negated(code, instruction.a) for code in kept]
                if inputs["scale_b"][sample] < 0:
                    met = [slow.negated(code, instruction.b) for code in met]
                addend = int(c[sample, row, column]) if inputs["scale_d"][sample] else 0
                exact = slow.element(mnemonic, kept, met, addend)
                assert int(fast[sample, row, column]) == exact, (name, sample, row, column)
                compared += 1
    assert compared == 8 * len(SPARSE_WARPGROUP.classes(ins)) > 0


@examples(25)
@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.booleans())
def test_a_compressed_matrix_multiplies_as_the_dense_one(mnemonic: str, seed: int, in_registers: bool) -> None:
    """Small integers: compress, lay out, encode the metadata, execute: exactly the product of the dense matrices."""
    ins, generator = sparse(mnemonic), np.random.default_rng(seed)
    _, n, k = ins.shape
    own, formats = ins.sparsity, ins.formats
    order = np.argsort(generator.random((64, own.groups, own.group)), axis=-1)
    values = np.where((order < own.group // 2).reshape(64, k), generator.integers(0, 4, (64, k)), 0)
    b = generator.integers(0, 4, (k, n))
    codes = {name: tcsim.encode(x, formats[name]) for name, x in (("a", values), ("b", b))}
    kept, positions = ins.compress(codes["a"])
    tiles = {
        "a": MatrixDescriptor.for_tile(64, k // 2, formats["a"], swizzle="32B"),
        "b": MatrixDescriptor.for_tile(n, k, formats["b"], swizzle="64B", start_address=2048),
    }
    smem = np.concatenate([tiles["a"].image(kept), tiles["b"].image(codes["b"].T)])
    selector = int(generator.choice(own.selectors))
    zero = ins.registers("c", np.zeros((64, n), formats["c"].dtype))
    d = ins.execute(
        smem=smem,
        a=ins.registers("a", kept) if in_registers else tiles["a"].descriptor.encode(),
        b=tiles["b"].descriptor.encode(),
        c=zero,
        metadata=ins.encode_metadata(positions, selector),
        selector=selector,
    )
    np.testing.assert_array_equal(tcsim.decode(ins.matrix("d", d), formats["d"]).astype(int), values @ b)
    product = ins.matmul(kept, codes["b"], ins.matrix("c", zero), metadata=positions)
    np.testing.assert_array_equal(ins.matrix("d", d), product)


def test_a_batch_is_its_members() -> None:
    """Leading dimensions broadcast: one image, two descriptors of A, three metadata words."""
    ins, generator = sparse(F16), np.random.default_rng(5)
    smem = generator.integers(0, 60, 16384).astype(np.uint8)
    a = np.array([[MatrixDescriptor(s, 128, 256).encode()] for s in (0, 4096)], np.uint64)
    b = MatrixDescriptor(8192, 128, 512).encode()
    c = generator.integers(0, 2**30, (128, 32), dtype=np.uint32)
    words = generator.integers(0, 2**32, (3, 128), dtype=np.uint32)
    d = ins.execute(smem=smem, a=a, b=b, c=c, metadata=words, selector=1)
    assert d.shape == (2, 3, 128, 32)
    for i in range(2):
        for j in range(3):
            one = ins.execute(smem=smem, a=a[i, 0], b=b, c=c, metadata=words[j], selector=1)
            np.testing.assert_array_equal(d[i, j], one)
    assert len(np.unique(d.reshape(6, -1), axis=0)) == 6


# ---- wrong use


def test_wrong_use() -> None:
    """Each mistake is told what would be valid."""
    ins = sparse(F16)
    words = np.full(128, 0x44444444, np.uint32)
    a, b = MatrixDescriptor(0, 128, 256).encode(), MatrixDescriptor(2048, 128, 512).encode()
    good: dict[str, Any] = {
        "smem": np.zeros(8192, np.uint8), "a": a, "b": b, "c": np.zeros((128, 32), np.uint32), "metadata": words
    }  # fmt: skip
    assert ins.execute(**good).shape == (128, 32)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"metadata": None}, r"metadata is object \(\); valid: uint32 \(\.\.\., 128\)"),
        ({"metadata": words[:32]}, r"metadata is uint32 \(32,\); valid: uint32 \(\.\.\., 128\)"),
        ({"selector": 2}, "selector 2 does not exist; valid: 0, 1"),
        ({"smem": np.zeros(2048, np.uint8)}, "b: element .* outside the 2048 bytes of smem"),
        ({"a": np.zeros((128, 8), np.uint32)}, r"valid: uint32 \(\.\.\., 128, 4\)"),
        ({"scale_b": 0}, "scale_b=0; valid: 1, -1"),
        ({"trans_a": 2}, "trans_a=2; valid: 0, 1"),
    ]
    for change, text in cases:
        with pytest.raises(OperandError, match=text):
            ins.execute(**{**good, **change})
    for mnemonic, selector in ((FP8, 1), (INT8, 1), (TF32, 2)):
        with pytest.raises(OperandError, match=f"selector {selector} does not exist"):
            sparse(mnemonic).decode_metadata(words, selector)
    with pytest.raises(OperandError, match="metadata 0b0101 of row 0, group 0 is undefined; valid: 0b0100, 0b1110"):
        sparse(TF32).execute(**{**good, "metadata": np.full(128, 0x55555555, np.uint32)})
    with pytest.raises(OperandError, match=r"a has shape \(64, 32\); valid: \(\.\.\., 64, 16\)"):
        ins.matmul(np.zeros((64, 32), np.uint16), np.zeros((32, 64), np.uint16), np.zeros((64, 64), np.uint32))
    with pytest.raises(InstructionError, match=r"no such instruction; nearest: .*wgmma\.mma_async\.sp"):
        tcsim.instruction(F16.replace("n64k32", "n64k16"), arch="sm_90a")


# ---- probes


def test_probes_assemble_with_the_claimed_instruction() -> None:
    """N = 8 and 64 of every type, every operand form and selector: no C75xx note, one sparse warpgroup instruction."""
    chosen = [name for name, row in ROWS.items() if row.shape[1] in (8, 64)]
    forms: Counter[int] = Counter()
    for start in range(0, len(chosen), 20):
        made = probe.build([sparse(name) for name in chosen[start : start + 20]], "sm_90a")
        for name, item in made.items():
            assert not isinstance(item, RuntimeError), f"{name}: {item}"
            assert not item.complaint, f"{name}: {item.complaint}"
            assert ".SP." in item.instruction.lowering.opcodes[0][0]
            forms[ROWS[name].shape[1]] += len(probe.body_of(ROWS[name]).variants(ROWS[name]))
    assert len(chosen) == 40
    # selectors x (signs and majors of A in shared memory, in registers): 16-bit, tf32, fp8, integers
    assert forms == {64: 3 * 2 * (16 + 8) + 2 * (4 + 4) + 8 * (4 + 4) + 8 * 2, 8: 4 * 2 * 2 + 16 * 2}


def test_a_batch_of_inputs_finds_its_kernel() -> None:
    """Of every class of every type: a form that exists, with the metadata among the parameters."""
    planned = set()
    for mnemonic in FULL:
        ins = sparse(mnemonic)
        for name in SPARSE_WARPGROUP.classes(ins):
            plan = probe.body_of(ins.row).plan(ins.row, SPARSE_WARPGROUP.inputs(ins, name, 0, 2))
            assert plan.variant in probe.body_of(ins.row).variants(ins.row)
            assert [x.shape for x in plan.inputs[4:]] == [(2,), (2, 128, 1)]
            planned.add(plan.variant)
    assert {form.split("_")[0] for form in planned} == {"ss", "rs"}
    assert {form.split("_")[1] for form in planned} == {"s0", "s1"}


# ---- the cases that wait for a GPU


def test_every_mutant_would_be_seen() -> None:
    """Of each full instruction: were the hardware as the model says, some case contradicts each mutant that applies.

    Whether the hardware is so, only recordings can say: conformance/test_mutants.py asks again as soon as there are any.
    """
    checked: Counter[str] = Counter()
    for mnemonic in FULL:
        ins = sparse(mnemonic)
        alive = {mutant.name: mutant for mutant in SPARSE_WARPGROUP.mutants if mutant.applies(ins)}
        checked.update(alive.keys())
        for name in SPARSE_WARPGROUP.classes(ins):
            inputs = SPARSE_WARPGROUP.inputs(ins, name, 0, min(8, SPARSE_WARPGROUP.samples(ins, name)))
            right = SPARSE_WARPGROUP.model(ins, inputs)
            for mutant in list(alive.values()):
                if not np.array_equal(mutant.run(ins, inputs), right):
                    del alive[mutant.name]
        assert not alive, f"{mnemonic}: {', '.join(alive)}"
    assert len(checked) == len(SPARSE_WARPGROUP.mutants)
    metadata = {"metadata nibbles swapped", "metadata of the next warp", "metadata rows exchanged", "selector ignored"}
    assert {name: checked[name] for name in metadata} == dict.fromkeys(metadata, 20) | {"selector ignored": 4}


def test_enough_random_descriptors() -> None:
    """At least 200 pairs for each swizzle, combination of majors and class of types, all different."""
    pairs: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for mnemonic in FULL:
        ins = sparse(mnemonic)
        for name in SPARSE_WARPGROUP.classes(ins):
            if name.startswith("descriptors"):
                inputs = SPARSE_WARPGROUP.inputs(ins, name, 0, SPARSE_WARPGROUP.samples(ins, name))
                own = pairs.setdefault((name, ins.row.arithmetic), set())
                own |= set(zip(inputs["a"].tolist(), inputs["b"].tolist(), strict=True))
    assert {arithmetic for _, arithmetic in pairs} == {"half", "tf32", "fp8_wgmma", "int8"}
    assert len(pairs) == len(MODES) * (4 + 1 + 1 + 1)
    assert min(len(found) for found in pairs.values()) >= 200
