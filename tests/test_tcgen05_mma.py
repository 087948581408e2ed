"""tcgen05.mma and its kin: rows against the assembler's inventory, execution against a slow model written independently."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import tensor_multiply as exact
from exact.steps import integer_dot
from hypothesis import given, settings
from hypothesis import strategies as st

import tcsim
from conformance import tensor_memory_tiles as tiles
from conformance.described import Described
from conformance.exercises import WrongModel
from conformance.exercises.tensor_memory_multiply import TENSOR_MEMORY, descriptors, executed, operands_of
from conformance.stream import Stream
from conformance.tensor_memory_mismatches import layout_of
from conformance.wrong_tensor_multiplies import WRONG_MODELS
from tcsim import registry
from tcsim.described_multiply import DescribedMultiply
from tcsim.errors import InstructionError
from tcsim.families.tcgen05_mma import opcode
from tcsim.targets import ARCHS, TARGETS
from tcsim.tcgen05_form import MultiplyForm
from tcsim.tensor_memory_multiply import TensorMemoryMultiply
from tcsim.trace import show_code, trace
from tcsim.zero_column_mask import FIELDS, ZeroColumnMask

INVENTORY = Path(__file__).parent / "data" / "tcgen05_mma_inventory.csv"
FAMILIES = {"tcgen05.mma": 992, "tcgen05.mma.sp": 938, "tcgen05.mma.ws": 340, "tcgen05.mma.ws.sp": 340}
ROWS = {name: row for name, row in registry.rows().items() if row.family in FAMILIES}
FORMS = {"disable-output-lane": "lanes", "scale-input-d": "scale", "zero-column-mask": "mask"}


def inventory() -> list[dict[str, str]]:
    """The assembler's inventory, a line for spellings and forms that are accepted alike."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def form_name(text: str) -> tuple[str, str]:
    """The registry's name of an inventory form, `A=desc;scale-input-d=3`, and the value of the immediate."""
    place, *rest = text.split(";")
    words = [place.removeprefix("A="), *(FORMS[word.partition("=")[0]] for word in rest)]
    value = next((word.partition("=")[2] for word in rest if "=" in word), "")
    return "_".join(words), value


def instruction(mnemonic: str, arch: str = "sm_100") -> TensorMemoryMultiply:
    """An instruction of these families."""
    found = tcsim.instruction(mnemonic, arch=arch)
    assert isinstance(found, TensorMemoryMultiply)
    return found


@cache
def plain(arch: str) -> tuple[TensorMemoryMultiply, ...]:
    """The instructions of an arch without collector hints, which change nothing, one for each set of operands."""
    rows = [row for row in registry.on_arch(arch) if row.family in FAMILIES and not row.facts.collectors]
    found = {}
    for row in rows:
        item = instruction(row.mnemonic, arch)
        facts = item.facts
        key = (row.family, facts.kind.name, facts.cta_group, facts.block, facts.ashift, facts.lookup)
        found.setdefault(key, item)
    return tuple(found.values())


# --- rows


def test_the_registry_is_the_inventory() -> None:
    pairs, seen = dict.fromkeys(FAMILIES, 0), set()
    for line in inventory():
        row = ROWS[line["mnemonic"]]
        forms = {form.name: form for form in row.facts.forms}
        for text in line["forms"].split("|"):
            name, _ = form_name(text)
            form = forms[name]
            seen.add((row.mnemonic, name))
            assert form.targets == tuple(line["targets"].split()), (row.mnemonic, text)
            assert (row.ptx_version, form.documented) == (line["min_ptx_isa"], line["documented"] == "1"), (
                row.mnemonic,
                text,
            )
            pairs[row.family] += 1
        for arch, column in (("sm_100", "sass_sm100a"), ("sm_107", "sass_sm107a")):
            if line[column]:
                assert opcode(row.facts, ARCHS[arch]) == line[column], row.mnemonic
    assert pairs == FAMILIES
    assert seen == {(row.mnemonic, form.name) for row in ROWS.values() for form in row.facts.forms}
    assert len(ROWS) == 892 and len(seen) == 2554


def test_every_target_takes_exactly_its_spellings() -> None:
    counts = {}
    for name in TARGETS:
        taken = [row for row in ROWS.values() if name in row.targets]
        counts[name] = len(taken)
        if name in ARCHS:  # the arch runs what its f and a targets take
            continue
        for row in list(ROWS.values())[::37]:
            if name in row.targets:
                assert instruction(row.mnemonic, name).targets == (name,)
            else:
                with pytest.raises(InstructionError, match="needs one of"):
                    instruction(row.mnemonic, name)
    listed = {
        name: len({line["mnemonic"] for line in inventory() if name in line["targets"].split()}) for name in TARGETS
    }
    assert counts == listed
    assert (counts["sm_100a"], counts["sm_107a"], counts["sm_120a"]) == (464, 826, 0)


def test_evidence_is_never_a_measurement() -> None:
    levels = {"literature": 0, "inferred": 0}
    for row in ROWS.values():
        for arch in {TARGETS[target].arch for target in row.targets}:
            levels[instruction(row.mnemonic, arch).evidence.level] += 1
    assert sum(levels.values()) == sum(len({TARGETS[t].arch for t in row.targets}) for row in ROWS.values())
    assert min(levels.values()) > 50
    dense = "tcgen05.mma.cta_group::1.kind::f16"
    assert instruction(dense).evidence.level == "literature"
    for other in (dense.replace("::1", "::2"), dense.replace(".mma", ".mma.ws"), dense.replace(".mma", ".mma.sp")):
        assert instruction(other).evidence.level == "inferred"
    assert instruction(dense, "sm_103").evidence.level == "inferred"


def test_every_row_executes() -> None:
    """All 892 spellings, on the newest arch that takes each: memories in, another Tensor Memory out."""
    executed_ = dict.fromkeys(FAMILIES, 0)
    for turn, row in enumerate(ROWS.values()):
        item = instruction(row.mnemonic, "sm_107" if "sm_107a" in row.targets else TARGETS[row.targets[-1]].arch)
        name = TENSOR_MEMORY.classes(item)[0]
        given_ = TENSOR_MEMORY.inputs(item, name, turn, 1)
        after = TENSOR_MEMORY.model(item, given_)
        assert (after != given_["tmem"]).any(), item.mnemonic
        executed_[row.family] += 1
    assert executed_ == {"tcgen05.mma": 366, "tcgen05.mma.sp": 356, "tcgen05.mma.ws": 85, "tcgen05.mma.ws.sp": 85}


# --- execution


def slow(item: TensorMemoryMultiply, given: dict[str, Any], sample: int) -> exact.Run:
    """One sample as the slow model takes it."""
    operands = {name: int(given[name][sample]) for name in given if given[name].ndim == 1}
    operands["a_is_descriptor"] = given["a"].dtype == np.uint64
    operands["enable_input_d"] = bool(given["enable_d"][sample])
    fields = asdict(item.descriptor(int(given["idesc"][sample])))
    return exact.Run(item.mnemonic, fields, operands, exact.Memories(given["image"][sample], given["tmem"][sample]))


def check_against_the_slow_model(item: TensorMemoryMultiply, name: str, seed: int, samples: int, elements: int) -> int:
    """Run a class of the exercise; compare elements of D with the slow model, and every other cell with what it was."""
    given_ = TENSOR_MEMORY.inputs(item, name, seed, samples)
    after = TENSOR_MEMORY.model(item, given_)
    stream = Stream("test_tcgen05_mma", item.mnemonic, name)
    compared = 0
    for sample in range(samples):
        idesc = int(given_["idesc"][sample])
        layout, half = layout_of(item, idesc), item.formats(idesc)["d"].bits == 16
        run = slow(item, given_, sample)
        rows, columns = stream.below(layout.rows, (elements,)), stream.below(layout.columns, (elements,))
        last = layout.rows_of_cta * (1 + columns % layout.ctas)  # of either CTA: .ashift treats their last rows apart
        rows[: elements // 4] = (last - 1 - rows % 2)[: elements // 4]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            (cta, lane, place), code = exact.element(run, row, column)
            word = int(after[sample, cta, lane, place])
            if "lanes" in given_ and int(given_["lanes"][sample][cta * 4 + lane // 32]) >> lane % 32 & 1:
                assert word == given_["tmem"][sample, cta, lane, place]
            else:
                assert word & (0xFFFF if half else 0xFFFFFFFF) == code, (item.mnemonic, name, sample, row, column)
            compared += 1
        untouched = np.ones(after.shape[1:], np.bool_)
        base = int(given_["d"][sample])
        cta, lane, column = (x[0, 0] for x in layout.cells[:3])
        untouched[cta, lane + (base >> 16), column + (base & 0xFFFF)] = False
        np.testing.assert_array_equal(after[sample][untouched], given_["tmem"][sample][untouched])
    return compared


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_107", "sm_110"])
def test_execution_is_that_of_the_slow_model(arch: str) -> None:
    """Every family, kind, cta_group, block and .ashift: each operand form, and a class of numbers that hurts."""
    compared = cases = 0
    for turn, item in enumerate(plain(arch)):
        if arch != "sm_100" and turn % 4 != int(arch[-1]) % 4:  # the others differ in little; every fourth will do
            continue
        names = TENSOR_MEMORY.classes(item)
        forms = [name for name in names if name.startswith(("desc", "tmem"))]
        hard = [
            name
            for name in (
                "uniform",
                "tiny",
                "cancellation",
                "cancelled",
                "edges",
                "floor",
                "boundaries",
                "scales",
                "subnormals",
            )
            if name in names
        ]
        for name in [*forms, *hard[turn % 2 :: 2]]:
            compared += check_against_the_slow_model(item, name, turn, 1 if name in hard else 2, 4)
            cases += 1
    assert cases > (200 if arch == "sm_100" else 30)
    assert compared >= 4 * cases


NEWEST: dict[str, Callable[[MultiplyForm], bool]] = {
    "ti16": lambda facts: facts.kind.name == "ti16",
    "lookup": lambda facts: facts.lookup,
    "unpaired": lambda facts: facts.sparse and facts.kind.table == "mxf4",
    "deeper": lambda facts: facts.kind.block_scaled and not facts.lookup,
}


@pytest.mark.parametrize(("what", "least"), [("ti16", 800), ("lookup", 450), ("unpaired", 700), ("deeper", 1900)])
def test_what_only_sm_107_has_is_that_of_the_slow_model(what: str, least: int) -> None:
    """Every class of inputs, every K that a descriptor may ask for, both scale layouts."""
    compared, depths = 0, set()
    for turn, item in enumerate(one for one in plain("sm_107") if NEWEST[what](one.facts)):
        names = TENSOR_MEMORY.classes(item)
        for place, name in enumerate(names):
            compared += check_against_the_slow_model(item, name, turn + place, 1, 4)
        for seed in range(6):
            given_ = TENSOR_MEMORY.inputs(item, names[0], seed, 2)
            depths |= {(item.facts.sparse, item.descriptor(int(idesc)).k) for idesc in given_["idesc"]}
            compared += check_against_the_slow_model(item, names[0], seed, 2, 4)
    assert compared > least
    assert (
        depths
        == {
            "ti16": {(False, 16), (True, 32)},
            "lookup": {(False, 64)},
            "unpaired": {(True, 128), (True, 192)},
            "deeper": {(False, 32), (False, 64), (False, 96), (False, 128), (True, 64), (True, 128), (True, 192)},
        }[what]
    )


def test_every_shape_and_every_mix_of_formats() -> None:
    compared = 0
    for item in plain("sm_100"):
        if item.facts.ashift:
            continue
        for name in ("shapes", "formats"):
            count = TENSOR_MEMORY.samples(item, name)
            for seed, samples in ((0, min(count, 6)), (1, 1)):
                compared += check_against_the_slow_model(item, name, seed, samples, 2)
    assert compared > 500


def test_execution_is_matmul() -> None:
    """The same matrices through memories and descriptors, and directly."""
    outputs = 0
    for turn, item in enumerate(plain("sm_100")):
        stream = Stream("execution is matmul", item.mnemonic)
        desc = list(descriptors(item))[turn % 7]
        outputs += _both_ways(item, desc, stream, turn)
    assert outputs > 100_000


def _both_ways(item: TensorMemoryMultiply, desc: tcsim.InstructionDescriptor, stream: Stream, turn: int) -> int:
    facts = item.facts
    simple = [form for form in facts.forms if not (form.lanes or form.scale or form.mask)]
    form = simple[turn % len(simple)]
    described = tiles.placeable(Described(item, desc), form)
    captured: dict[str, Any] = {}
    make = Described.make

    def keep(self: Described, *arguments: Any) -> Any:
        captured.update(make(self, *arguments))
        return dict(captured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Described, "make", keep)
        name = "wide" if item.formats(desc)["a"].kind == "float" else "uniform"
        given_ = {key: array[None] for key, array in tiles.filled(described, form, name, stream, turn).items()}
    given_["enable_d"] = np.ones(1, np.uint32)
    after = executed(item, given_)[0]
    layout = layout_of(item, described.desc.encode())
    base = int(given_["d"][0])
    cta, lane, column = (x[0, 0] for x in layout.cells[:3])
    found = after[cta, lane + (base >> 16), column + (base & 0xFFFF)]
    extra = {key: captured[key][0] for key in ("scale_a", "scale_b", "metadata") if key in captured}
    want = item.matmul(*(captured[key][0] for key in "abc"), idesc=described.desc, **extra)
    np.testing.assert_array_equal(found.astype(want.dtype), want)
    return int(want.size)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.data())
def test_products_are_those_of_the_slow_model(seed: int, data: st.DataObject) -> None:
    """Any codes, any mix of formats, any scales, any scale-input-d."""
    item = data.draw(st.sampled_from([one for one in plain("sm_100") if not one.facts.ashift]))
    desc = data.draw(st.sampled_from(list(descriptors(item))))
    desc = replace(desc, transpose_a=False, transpose_b=False)
    described, stream = Described(item, desc), Stream("products", seed)
    name = data.draw(st.sampled_from(described.classes))
    matrices = {key: codes[0] for key, codes in described.make(name, stream, 1).items()}
    scaled = any(form.scale for form in item.facts.forms) and item.facts.kind.name != "i8"
    scale_d = data.draw(st.integers(0, 15)) if scaled else None
    extra = {key: codes for key, codes in matrices.items() if key not in "abc"}
    d = item.matmul(matrices["a"], matrices["b"], matrices["c"], idesc=desc, scale_input_d=scale_d, **extra)
    assert _same_products(item, desc, matrices, d, scale_d or 0, stream) == 8


def test_k_of_96() -> None:
    """sm_103's K = 96 of the 4-bit kinds: six groups of 16."""
    compared = 0
    for vector, blocks, scale in ((".block16", 6, "ue4m3"), (".block32", 3, "ue8m0")):
        item = instruction(f"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale{vector}", "sm_103")
        desc = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=16, scale_format=scale, k=96, arch="sm_103")
        assert item.shapes(desc)["scale_a"] == (128, blocks)
        assert item.evidence.level == "inferred"
        matrices = {key: x[0] for key, x in Described(item, desc).make("uniform", Stream("k96"), 1).items()}
        scales = {key: matrices[key] for key in ("scale_a", "scale_b")}
        d = item.matmul(matrices["a"], matrices["b"], matrices["c"], idesc=desc, **scales)
        compared += _same_products(item, desc, matrices, d, 0, Stream("places"))
    assert compared == 16


def _same_products(
    item: TensorMemoryMultiply,
    desc: tcsim.InstructionDescriptor,
    given_: dict[str, Any],
    d: Any,
    scale_d: int,
    stream: Stream,
) -> int:
    """Compare eight outputs of matmul with the slow model."""
    fields = asdict(desc)
    for row, column in zip(stream.below(desc.m, (8,)).tolist(), stream.below(desc.n, (8,)).tolist(), strict=True):
        a = [exact.negated(x, desc.a_format, desc.negate_a) for x in given_["a"][row].tolist()]
        met = item.sparsity(desc).columns(given_["metadata"])[row] if desc.sparse else slice(None)
        b = [exact.negated(x, desc.b_format, desc.negate_b) for x in given_["b"][met, column].tolist()]
        c = int(given_["c"][row, column])
        if desc.d_format == "s32":
            want = integer_dot(a, b, c, a_format=desc.a_format, b_format=desc.b_format, saturate=desc.saturate)
        else:
            blocks = []
            if "scale_a" in given_:
                blocks = list(zip(given_["scale_a"][row].tolist(), given_["scale_b"][:, column].tolist(), strict=True))
            want = exact.fused(a, b, c, fields, blocks, scale_d)
        assert int(d[row, column]) == want, (item.mnemonic, row, column)
    return 8


def test_ashift_keeps_the_last_row_of_each_cta() -> None:
    for group, kept in ((1, [127]), (2, [127, 255])):
        item = instruction(f"tcgen05.mma.cta_group::{group}.kind::tf32.ashift")
        desc = tcsim.InstructionDescriptor(kind="tf32", m=128 * group, n=32)
        a = np.zeros((desc.m, 8), np.float32)
        a[:, 0] = np.arange(desc.m)
        d = item.matmul(
            a.view(np.uint32),
            np.ones((8, 32), np.float32).view(np.uint32),
            np.zeros((desc.m, 32), np.float32),
            idesc=desc,
        )
        rows = d.view(np.float32)[:, 7].astype(int)
        assert rows.tolist() == [row if row in kept else row + 1 for row in range(desc.m)]


def test_each_bank_multiplies_its_own_copy() -> None:
    """Copies of A in Tensor Memory and of metadata that differ (layouts B, E and G), against the slow model."""
    compared = 0
    for mnemonic, sizes in (
        ("tcgen05.mma.cta_group::2.kind::f16", [(128, 32)]),
        ("tcgen05.mma.ws.cta_group::1.kind::f16", [(64, 64), (32, 64)]),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16", [(64, 64), (32, 64)]),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4", [(64, 64), (32, 64)]),
    ):
        item = instruction(mnemonic)
        kind = item.facts.kind
        form = next(form for form in item.facts.forms if form.name == "tmem")
        for turn, (m, n) in enumerate(sizes):
            desc = tcsim.InstructionDescriptor(
                kind=kind.name, a_format=next(iter(kind.ab_formats)), m=m, n=n, sparse=item.facts.sparse
            )
            stream = Stream("copies", mnemonic, m)
            filled_ = tiles.filled(Described(item, desc), form, "wide", stream, turn)
            given_ = {name: array[None] for name, array in filled_.items()} | {"enable_d": np.ones(1, np.uint32)}
            base = int(given_["a"][0]) & 0xFFFF
            # another row of A and of the metadata in each bank: whole words of lanes change places
            area = given_["tmem"][0, :, :, base : base + 64]
            width = (item.facts.cta_group == 2 and 64) or m
            for bank in range(1, 128 // width):
                lanes = slice(bank * width, (bank + 1) * width)
                area[:, lanes] = np.roll(area[:, lanes], 16 * bank, axis=1)
            after = executed(item, given_)[0]
            run = slow(item, given_, 0)
            for row, column in itertools.product((0, 9, m - 1), range(0, n, 5)):
                (cta, lane, place), code = exact.element(run, row, column)
                assert int(after[cta, lane, place]) == code, (mnemonic, m, row, column)
                compared += 1
    assert compared > 150


def two_terms(kind: str, low: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Fields of a descriptor and operands of a product of two terms, 2**-149 (2**-25 for f16) and a small one; and D's format.

    To f32, the small one is -2**low: it takes 2**-149 away if it is not cut. To f16, it is 2**low and breaks a tie upward.
    """
    power = {"f16": "f16"}.get(kind, "bf16")
    if kind in ("f16", "bf16"):
        high = -25 if kind == "f16" else -149
        a, b = np.zeros((128, 16)), np.zeros((16, 16))
        a[:, 0], b[0] = 2.0 ** (high // 2), 2.0 ** (high - high // 2)
        a[:, 1], b[1] = (1 if kind == "f16" else -1) * 2.0 ** (low // 2), 2.0 ** (low - low // 2)
        fields = {"kind": "f16", "a_format": power, "d_format": "f16" if kind == "f16" else "f32"}
        return fields, {"a": tcsim.encode(a, power), "b": tcsim.encode(b, power)}, fields["d_format"]
    if kind == "mxf8f6f4":
        a = np.zeros((128, 32))
        a[:, 0], a[:, 1] = 2.0**4, -(2.0 ** (low + 153))
        scales = {"scale_a": np.full((128, 1), 127 - 76, np.uint8), "scale_b": np.full((1, 16), 127 - 77, np.uint8)}
        operands = {"a": tcsim.encode(a, "e4m3"), "b": tcsim.encode(np.ones((32, 16)), "e4m3"), **scales}
        return {"kind": kind, "a_format": "e4m3"}, operands, "f32"
    a = np.zeros((128, 64))
    a[:, 0], a[:, 32] = 1, -1  # one of each block of 32
    exponents = np.array([-149, low])
    scales = {
        "scale_a": np.tile(127 + exponents // 2, (128, 1)),
        "scale_b": np.tile(127 + exponents - exponents // 2, (16, 1)).T,
    }
    operands = {"a": tcsim.encode(a, "e2m1"), "b": tcsim.encode(np.ones((64, 16)), "e2m1")}
    return {"kind": kind}, operands | {name: x.astype(np.uint8) for name, x in scales.items()}, "f32"


@pytest.mark.parametrize(("kind", "lowest"), [("f16", -46), ("bf16", -158), ("mxf8f6f4", -158), ("mxf4", -174)])
def test_the_floor_is_where_it_is_said_to_be(kind: str, lowest: int) -> None:
    """A term of 2**lowest, the last place below the floor, counts; half of it does not. The addend is zero."""
    for low, counts in ((lowest + 1, True), (lowest, True), (lowest - 1, False)):
        fields, operands, output = two_terms(kind, low)
        desc = tcsim.InstructionDescriptor(**fields, m=128, n=16)
        item = instruction(f"tcgen05.mma.cta_group::1.kind::{desc.kind}{'.block_scale' * ('scale_a' in operands)}")
        d = item.matmul(c=np.zeros((128, 16), item.formats(desc)["c"].dtype), idesc=desc, **operands)
        assert (d == (counts if output == "f16" else not counts)).all(), low


def test_collectors_change_nothing() -> None:
    base = instruction("tcgen05.mma.cta_group::1.kind::f16")
    given_ = TENSOR_MEMORY.inputs(base, "desc", 0, 2)
    want = executed(base, given_)
    kin = [f"{base.mnemonic}.collector::a::{use}" for use in ("fill", "use", "lastuse", "discard")]
    for name in kin:
        np.testing.assert_array_equal(executed(instruction(name), given_), want)
    newest = instruction(base.mnemonic + ".collector::a::fill.collector::b::use", "sm_107")
    np.testing.assert_array_equal(executed(newest, given_), want)


def test_batches_run_as_their_parts() -> None:
    item = instruction("tcgen05.mma.cta_group::1.kind::tf32")
    desc = tcsim.InstructionDescriptor(kind="tf32", m=64, n=8)
    tile_a, tile_b = (tcsim.MatrixDescriptor.for_tile(rows, 8, "tf32", arch="sm_100", swizzle="NONE", start_address=at)
                      for rows, at in ((64, 0), (8, 4096)))  # fmt: skip
    numbers = np.arange(3, dtype=np.float32)[:, None, None]
    smem = np.zeros((3, 8192), np.uint8)
    smem[:, : tile_a.bytes] = tile_a.image(np.broadcast_to(numbers, (3, 64, 8)).view(np.uint32))
    smem[:, 4096 : 4096 + tile_b.bytes] = tile_b.image(np.ones((8, 8), np.float32).view(np.uint32))
    operands = {"d": 0, "a": np.uint64(tile_a.descriptor.encode()), "b": tile_b.descriptor.encode(), "idesc": desc}
    after = item.execute(tcsim.TensorMemory.allocated((3,)), smem, **operands, enable_input_d=False)
    lane = np.arange(16)
    assert after.read(lane, 5).view(np.float32).tolist() == [[8.0 * i] * 16 for i in range(3)]
    # the same of one memory and three images, and of one memory and one image with descriptors of three tiles
    one = item.execute(tcsim.TensorMemory.allocated(), smem, **operands, enable_input_d=False)
    np.testing.assert_array_equal(one.read(lane, 5), after.read(lane, 5))
    operands["a"] = operands["a"] + np.arange(3, dtype=np.uint64) * np.uint64(8192 >> 4)
    operands["b"] = np.array(operands["b"], np.uint64)
    three = item.execute(tcsim.TensorMemory.allocated((2, 1)), smem.reshape(-1), **operands, enable_input_d=False)
    assert three.batch == (2, 3)
    np.testing.assert_array_equal(three.read(lane, 5), np.stack([after.read(lane, 5)] * 2))


@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf4"])
def test_metadata_whose_indices_fall(kind: str) -> None:
    """The PTX ISA lists 0b0110 beside the six that rise: the first kept element is the third, the second the second."""
    scaled = ".block_scale" * (kind == "mxf4")
    item = instruction(f"tcgen05.mma.sp.cta_group::1.kind::{kind}{scaled}")
    formats = {"f16": "f16", "f8f6f4": "e4m3", "i8": "s8", "mxf4": "e2m1"}
    desc = tcsim.InstructionDescriptor(kind=kind, a_format=formats[kind], m=128, n=16, sparse=True)
    assert item.sparsity(desc).valid == (0b0100, 0b0110, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
    group = [2, 1] if kind != "mxf4" else [4, 5, 2, 3]
    kept = desc.k // 2
    positions = np.tile(group, (128, kept // len(group)))
    one = 1 if kind == "i8" else int(tcsim.encode(np.ones(1), formats[kind])[0])
    dtype = item.formats(desc)["a"].dtype
    a = np.zeros((128, kept), dtype)
    a[:, 0] = one  # belongs to dense column 2, or 4
    b = np.zeros((desc.k, 16), dtype)
    b[group[0]] = one
    c = np.zeros((128, 16), item.formats(desc)["c"].dtype)
    scales = {"scale_a": np.full((128, 2), 127, np.uint8), "scale_b": np.full((2, 16), 127, np.uint8)} if scaled else {}
    d = item.matmul(a, b, c, idesc=desc, metadata=positions, **scales)
    assert (d == (1 if kind == "i8" else 0x3F800000)).all()


@given(st.integers(0, 2**62 - 1), st.sampled_from([32, 64, 128]), st.sampled_from([64, 128, 256]))
def test_zero_column_masks(value: int, m: int, n: int) -> None:
    value &= sum(field.mask for field in FIELDS) & ~(3 << 60)
    mask = ZeroColumnMask.decode(value)
    assert mask.encode() == value
    runs = 128 // m
    fits = all(
        getattr(mask, f"start_{i}") < 1 + (mask.skip_span if getattr(mask, f"first_{i}") else mask.use_span)
        for i in range(runs)
    )
    if mask.shift > (16 if m == 32 else 32):
        with pytest.raises(tcsim.OperandError, match="shift"):
            mask.columns(m, n)
    elif mask.nonzero and not fits:
        with pytest.raises(tcsim.OperandError, match="first span"):
            mask.columns(m, n)
    else:
        assert mask.columns(m, n).tolist() == [exact.zeroed(value, m, n, column) for column in range(n)]


def test_zero_column_masks_shift_only_so_far() -> None:
    for m, limit in ((32, 16), (64, 32), (128, 32)):
        assert not ZeroColumnMask(shift=limit).columns(m, 64).any()
        with pytest.raises(tcsim.OperandError, match=rf"M = {m}: shift={limit + 1}; valid: 0 to {limit}"):
            ZeroColumnMask(shift=limit + 1).columns(m, 64)


# --- what the cases can see


@pytest.mark.parametrize("wrong", WRONG_MODELS, ids=lambda wrong: wrong.name)
def test_every_wrong_model_is_contradicted(wrong: WrongModel) -> None:
    """Of seven instructions where it could show, each has a case with another answer."""
    items = [item for item in plain("sm_100") if wrong.applies(item)]
    items = items or [item for item in plain("sm_107") if wrong.applies(item)]
    first = {
        "addend last": ("cancellation",), "lanes all written": ("desclanes",), "negations ignored": ("shapes",),
        "floor-1": ("floor", "tiny"), "floor+1": ("floor", "tiny"),
    }.get(wrong.name, ())  # fmt: skip
    for item in items[:: -(-len(items) // 7)]:
        names = TENSOR_MEMORY.classes(item)
        for name in sorted(names, key=lambda name: name not in first):
            given_ = TENSOR_MEMORY.inputs(item, name, 0, 2)
            if not np.array_equal(wrong.run(item, given_), TENSOR_MEMORY.model(item, given_)):
                break
        else:
            pytest.fail(f"{item.mnemonic}: no case contradicts {wrong.name!r}")
    assert items


def test_a_difference_is_shown() -> None:
    item = instruction("tcgen05.mma.cta_group::1.kind::f16")
    given_ = TENSOR_MEMORY.inputs(item, "desc", 0, 2)
    model = TENSOR_MEMORY.model(item, given_)
    hardware = model.copy()
    hardware[1, 0, 3, 2] ^= 1
    hardware[0, 0, 127, 100] ^= 0x80000000
    found = TENSOR_MEMORY.compare(item, given_, hardware, model)
    assert (found.outputs, found.mismatches) == (model.size, 2)
    assert "outside D" in found.first[0].line(item) and "lane 127 column 100" in found.first[0].line(item)
    assert "of D" in found.first[1].line(item)
    assert any("d_format" in line for line in found.first[1].trace(item))
    assert any(line.startswith("step 1: fused dot-add of k 0-15") for line in found.first[1].trace(item))
    assert not any(line.startswith("step ") for line in found.first[0].trace(item))


def test_a_trace_ends_with_the_result() -> None:
    """Of an element of D of every family, kind and operand form: the codes as `execute` reads them, and what comes of them."""
    traced = 0
    for turn, item in enumerate(plain("sm_100")):
        for name in TENSOR_MEMORY.classes(item)[:6]:
            given_ = TENSOR_MEMORY.inputs(item, name, turn, 1)
            operands = operands_of(item, given_, 0)
            bound = DescribedMultiply(item, item.descriptor(operands["idesc"]), operands.get("scale_input_d") or 0)
            row, column = (turn * 37 + 5) % bound.desc.m, (turn * 11 + 3) % bound.desc.n
            codes = item.operands_of(row, column, **operands)
            lines = trace(bound, **codes)
            operands.pop("disable_output_lane", None)
            after = item.execute(**operands)
            layout, base = layout_of(item, operands["idesc"]), operands["d"]
            cta, lane, place, _ = layout.where(row, column)
            word = int(after.read(lane + (base >> 16), place + (base & 0xFFFF), cta=cta))
            assert lines[-1].startswith(f"  d = {show_code(word, bound.formats['d'])} ("), (item.mnemonic, name)
            traced += 1
    assert traced > 200
    with pytest.raises(tcsim.OperandError, match=r"no element \(999, 0\) of D; valid: 0 to"):
        item.operands_of(999, 0, **operands)
