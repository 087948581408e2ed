"""The tensor copies and tensormap: their rows are the inventory's, and what each executes."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import catalog
from tcsim.core.errors import InstructionError, OperandError
from tcsim.core.targets import ARCHS
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorCopyRow
from tcsim.isa.tensormap import TensorMapRow
from tcsim.tma.types import NotModelledError, TensorMapError
from tests.support.extent import examples
from tests.support.tables import TABLES
from tests.unit.tcsim.tma.test_tensor_map_bits import TARGETS, replaced, replacements

INVENTORY = TABLES / "tensor_copy_inventory.csv"
COUNTS = {
    "cp.async.bulk.tensor": 716,
    "cp.reduce.async.bulk.tensor": 292,
    "cp.async.bulk.prefetch.tensor": 104,
    "tensormap": 166,
}
SASS = {"sm_90": "sass_sm90a", "sm_100": "sass_sm100a", "sm_107": "sass_sm107a", "sm_120": "sass_sm120a"}


def inventory() -> list[dict[str, str]]:
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def test_the_rows_are_the_inventory():
    known = inventory()
    assert Counter(item["family"] for item in known) == COUNTS
    forms = defaultdict(list)
    for item in known:
        forms[item["mnemonic"]].append(item)
    rows = {row.mnemonic: row for family in COUNTS for row in catalog.family(family).rows()}
    assert rows.keys() == forms.keys()
    for mnemonic, items in forms.items():
        row = rows[mnemonic]
        assert row.family == items[0]["family"]
        assert set(row.targets) == {target for item in items for target in item["targets"].split()}, mnemonic
        assert row.ptx_version == min(item["min_ptx_isa"] for item in items), mnemonic
        assert row.documented == any(item["documented"] == "1" for item in items), mnemonic


def test_operand_forms_of_tensormap_are_the_inventorys():
    checked = 0
    for item in inventory():
        row = catalog.rows()[item["mnemonic"]]
        if not isinstance(row, TensorMapRow) or row.operation != "replace":
            continue
        kind, _, number = item["extra"].partition("=")
        name = {"val": "new_value", "ord": "ordinal"}.get(kind)
        (form,) = [form for form in row.forms if name is None or int(number) in form[name].values]
        assert form.targets == tuple(item["targets"].split())
        assert form.ptx_version == item["min_ptx_isa"]
        assert form.documented == (item["documented"] == "1")
        if kind == "ord":
            assert (int(number) in row.ordinals) == form.documented
        checked += 1
    assert checked == 163 - 7


def test_opcodes_are_those_of_the_inventory():
    compared = 0
    for item in inventory():
        row = catalog.rows()[item["mnemonic"]]
        for arch, column in SASS.items():
            for opcode, _ in catalog.family(row.family).lowering(row, ARCHS[arch]).opcodes if item[column] else ():
                assert opcode in item[column].split("+"), (row.mnemonic, arch)
                compared += 1
    assert compared > 2000


def one_pixel(dim: int, **more: object) -> dict[str, object]:
    return {
        "data_type": "UINT32", "global_dim": (4,) * dim, "global_strides": tuple(4**place for place in range(2, dim + 1)),
        "channels_per_pixel": 4, "pixels_per_column": 1, **more,
    }  # fmt: skip


def test_every_row_executes_or_says_why_not():
    outcomes = Counter()
    maps = {}
    for dim in range(1, 6):
        maps[dim, ""] = tcsim.TensorMap(
            "UINT32", (4,) * dim, (16,) * (dim - 1), (4,) + (1,) * (dim - 1), swizzle="NONE"
        )
    for dim in range(3, 6):
        corner = (0,) * (dim - 2)
        more = {"swizzle": "NONE", "pixel_box_lower_corner": corner, "pixel_box_upper_corner": corner}
        maps[dim, "im2col", ""] = tcsim.TensorMap.im2col(**one_pixel(dim, **more))
        for mode in ("W", "W128"):
            maps[dim, "im2col_wide", mode] = tcsim.TensorMap.im2col_wide(**one_pixel(dim, mode=mode))
    memory, smem = np.arange(4096, dtype=np.uint32).view(np.uint8)[:4096], np.full(128, 7, np.uint8)
    for row in catalog.rows().values():
        if not isinstance(row, TensorCopyRow):
            continue
        copy = tcsim.instruction(row.mnemonic, arch=row.first_arch.name)
        tmap = maps[(row.dim, row.map_mode, row.wide_mode) if row.map_mode else (row.dim, "")]
        at = (0, *range(row.coordinates - 1)) if row.rows4 else (0,) * row.coordinates
        shared = np.resize(smem, 128 * (128 if row.wide_mode == "W128" else 1))
        if row.unmodelled:
            with pytest.raises(NotModelledError, match="not modelled"):
                copy.check_map(tmap)
            outcomes["not modelled"] += 1
        elif row.operation == "prefetch":
            assert copy.execute(tmap) is None
            outcomes["hint"] += 1
        else:
            out = copy.execute(tmap, memory, at, shared)
            assert out.shape == (shared if row.operation == "load" else memory).shape
            outcomes["executed", row.wide_mode] += 1
    assert outcomes == {
        ("executed", ""): 630, ("executed", "W"): 135, ("executed", "W128"): 81, "hint": 84, "not modelled": 182,
    }  # fmt: skip


def test_sm_120_has_sub_byte_stores_but_no_loads():
    """PTX ISA, restrictions on tensor copies; swizzle atomicity alike."""
    store = tcsim.instruction(STORE, arch="sm_120")
    nibbles = tcsim.TensorMap("16U4_ALIGN8B", (32, 1), (16,), (32, 1), swizzle="NONE")
    atoms = tcsim.TensorMap("UINT8", (16, 1), (16,), (16, 1), swizzle="128B_ATOM_32B")
    for tmap in (nibbles, atoms):
        assert store.check_map(tmap) is tmap
        with pytest.raises(TensorMapError, match="on sm_120 loads take no sub-byte types"):
            tcsim.instruction(LOAD, arch="sm_120").check_map(tmap)


def test_gather4_counts_four_rows():
    tmap = tcsim.TensorMap("FLOAT16", (64, 9), (128,), (24, 1), swizzle="NONE")
    counts = [tcsim.instruction(name, arch="sm_100").transaction_bytes(tmap) for name in (LOAD, GATHER)]
    assert counts == [48, 192]


def test_an_instruction_counts_its_halos():
    name = "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w{}.mbarrier::complete_tx::bytes"
    compared = 0
    for ending, mode, halos in (("", "W", 1), ("::128", "W128", 4)):
        ins = tcsim.instruction(name.format(ending), arch="sm_100")
        tmap = tcsim.TensorMap.im2col_wide(**one_pixel(3, mode=mode))
        pixels = 128 if mode == "W128" else 1
        assert ins.transaction_bytes(tmap) == 16 * pixels
        assert ins.transaction_bytes(tmap, halo=5) == 16 * (pixels + 5 * halos)
        compared += 1
    assert compared == 2
    plain = tcsim.TensorMap.im2col_wide(**one_pixel(3, mode="W"))  # whose pixels .im2col::w::128 ignores
    memory, smem = np.arange(4096, dtype=np.uint16).view(np.uint8), np.zeros(1 << 14, np.uint8)
    assert ins.transaction_bytes(plain, halo=5) == ins.transaction_bytes(tmap, halo=5)
    assert (ins.execute(plain, memory, (0, 0, 0), smem) == ins.execute(tmap, memory, (0, 0, 0), smem)).all()


LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
GATHER = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
COLUMN = "cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("mnemonic", "arch", "tmap", "words"),
    [
        (LOAD, "sm_90", tcsim.TensorMap("UINT8", (16,), (), (16,)), "1 dimensions; .2d needs 2"),
        (COLUMN, "sm_90", tcsim.TensorMap("UINT8", (16, 1, 1), (16, 16), (16, 1, 1)), "TensorMap.im2col"),
        (LOAD, "sm_90", tcsim.TensorMap("16U4_ALIGN8B", (32, 1), (16,), (32, 1)), "16U4_ALIGN8B needs sm_100"),
        (LOAD, "sm_90", tcsim.TensorMap("UINT8", (16, 1), (16,), (16, 1), swizzle="128B_ATOM_32B"), "needs sm_100"),
        (LOAD, "sm_120", tcsim.TensorMap("16U4_ALIGN8B", (32, 1), (16,), (32, 1)), "no sub-byte types"),
        (LOAD, "sm_90", {"rank": 2}, "is a dict"),
    ],
)
def test_maps_that_an_instruction_does_not_take(mnemonic, arch, tmap, words):
    with pytest.raises(TensorMapError, match=words):
        tcsim.instruction(mnemonic, arch=arch).check_map(tmap)


def test_targets_are_exact():
    with pytest.raises(InstructionError, match="needs sm_100 or later"):
        tcsim.instruction(GATHER, arch="sm_90")
    with pytest.raises(InstructionError, match="needs one of sm_90a"):
        tcsim.instruction("tensormap.replace.tile.rank.global.b1024.b32", arch="sm_89")


@pytest.mark.parametrize("target", TARGETS)
def test_replacements_do_what_the_machine_code_does(target):
    """Every spelling and operand form, in shared memory, on three different maps."""
    random = np.random.default_rng(8)
    compared = 0
    for name, kind, ordinal, immediate in replacements(target):
        ins = tcsim.instruction(f"tensormap.replace.tile.{name}.shared::cta.b1024.{kind}", arch=target)
        for old in (bytes(128), bytes([255] * 128), random.bytes(128)):
            value = immediate if immediate is not None else int(random.integers(1, 1 << 31))
            if name == "global_stride":
                value = value << 5 & (1 << 40) - 16
            got = ins.execute(np.frombuffer(old, np.uint8), value, ordinal)
            assert got.tobytes() == replaced(target, (name, ordinal, immediate), old, value), (name, ordinal, value)
            compared += 1
    assert compared == 3 * len(replacements(target))


@examples(20)
@given(st.integers(1, 2**32 - 1), st.integers(0, 4))
def test_a_batch_of_maps(size, place):
    ins = tcsim.instruction("tensormap.replace.tile.global_dim.b1024.b32", arch="sm_90")
    data = np.random.default_rng(size).integers(0, 256, (3, 1, 128), np.uint8)
    sizes = np.array([size, 1, 77])
    got = ins.execute(data, sizes, ordinal=place)
    assert got.shape == (3, 3, 128)
    assert (got[2, 0] == ins.execute(data[2, 0], size, ordinal=place)).all()


def test_wrong_replacements():
    data = np.zeros(128, np.uint8)
    kinds = "tensormap.replace.tile.{}.global.b1024.{}"
    stride = tcsim.instruction(kinds.format("global_stride", "b64"), arch="sm_90")
    with pytest.raises(NotModelledError, match="overwrites bits"):
        stride.execute(data, 64, ordinal=4)
    with pytest.raises(TensorMapError, match="global_stride has 0 to 3"):
        stride.execute(data, 64, ordinal=5)
    for field, kind, count in (("global_dim", "b32", 5), ("box_dim", "b32", 5), ("element_stride", "b32", 5)):
        item = tcsim.instruction(kinds.format(field, kind), arch="sm_90")
        assert item.execute(data, 7, ordinal=count - 1).any()
        for ordinal in (count, -1, None):
            with pytest.raises(TensorMapError, match=f"{field} has 0 to {count - 1}"):
                item.execute(data, 7, ordinal=ordinal)
    with pytest.raises(TensorMapError, match="rank has none"):
        tcsim.instruction(kinds.format("rank", "b32"), arch="sm_90").execute(data, 2, ordinal=0)
    element = kinds.format("elemtype", "b32")
    with pytest.raises(TensorMapError, match="elemtype takes one of"):
        tcsim.instruction(element, arch="sm_90").execute(data, 13)
    assert tcsim.instruction(element, arch="sm_100").execute(data, 13).any()
    with pytest.raises(OperandError, match=r"uint8 \(..., 128\)"):
        stride.execute(data[:64], 64, ordinal=0)
    with pytest.raises(OperandError, match=r"below 2\*\*32"):
        tcsim.instruction(kinds.format("rank", "b32"), arch="sm_90").execute(data, 1 << 32)


def test_fences_copy_and_prefetches_do_nothing():
    data = np.arange(128, dtype=np.uint8)
    fence = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    assert (tcsim.instruction(fence, arch="sm_90").execute(data) == data).all()
    with pytest.raises(OperandError):
        tcsim.instruction(fence, arch="sm_90").execute(data[:4])
    assert tcsim.instruction("prefetch.tensormap", arch="sm_90").execute() is None
