"""TMA copies: the fast model against the exact one, and the batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim.core.addresses import ContestedRowError
from tcsim.tma.reduce import REDUCTIONS, reduce_codes
from tcsim.tma.types import DATA_TYPES
from tests.exact import tensor_copy as exact
from tests.support.extent import examples
from tests.support.tensor_cases import Case, columns, interleaved, interleaved_columns, tiled, wide

STORABLE = tuple(name for name, facts in DATA_TYPES.items() if not facts.load_only)


def agree_on_load(case: Case, got: np.ndarray) -> int:
    want = exact.load(case.slow, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address)
    assert got.tolist() == want, (case.tmap, case.coordinates, case.address)
    return len(want)


def agree_on_store(case: Case, got: np.ndarray, op: str = "") -> int:
    want = exact.store(case.slow, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address, op)
    assert got.tolist() == want, (case.tmap, case.coordinates, case.address, op)
    return len(want)


@examples(1200)
@given(tiled())
def test_tiled_loads_of_every_type_are_the_exact_models(case):
    assert agree_on_load(case, case.tmap.load(case.memory, case.coordinates, case.smem, case.address))


@examples(100)
@given(tiled(rows4=True))
def test_gather4_takes_four_rows(case):
    assert agree_on_load(case, case.tmap.gather4(case.memory, case.coordinates, case.smem, case.address))


@examples(1000)
@given(columns())
def test_im2col_loads_are_the_exact_models(case):
    got = case.tmap.load(case.memory, case.coordinates, case.smem, case.address, offsets=case.offsets)
    assert agree_on_load(case, got)


def agree_on_bytes(case: Case) -> None:
    """A load's transaction count is the payload: no gaps, no padding."""
    halo = 0 if case.offsets is None or not case.tmap.wide_mode else case.offsets[0]
    counted = case.tmap.transaction_bytes + halo * case.tmap.halo_bytes
    assert 8 * counted == exact.payload_bits(case.slow, case.coordinates), case.tmap


@examples(300)
@given(interleaved())
def test_interleaved_loads_are_the_exact_models(case):
    assert agree_on_load(case, case.tmap.load(case.memory, case.coordinates, case.smem, case.address))
    agree_on_bytes(case)


@examples(300)
@given(interleaved_columns())
def test_interleaved_im2col_loads_are_the_exact_models(case):
    got = case.tmap.load(case.memory, case.coordinates, case.smem, case.address, offsets=case.offsets)
    assert agree_on_load(case, got)
    agree_on_bytes(case)


@examples(120)
@given(wide())
def test_im2col_wide_loads_are_the_exact_models(case):
    got = case.tmap.load(case.memory, case.coordinates, case.smem, case.address, offsets=case.offsets)
    assert agree_on_load(case, got)
    agree_on_bytes(case)


@examples(150)
@given(st.one_of(tiled(), columns()))
def test_transaction_counts_are_the_payload(case):
    agree_on_bytes(case)


@examples(100)
@given(interleaved(direction="store"))
def test_interleaved_stores_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@examples(40)
@given(interleaved_columns(direction="store", types=("UINT8", "FLOAT32", "INT64")))
def test_interleaved_im2col_stores_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@examples(60)
@given(interleaved(direction="store", types=("UINT32", "FLOAT32", "FLOAT16")))
def test_interleaved_reductions_are_the_exact_models(case):
    got = case.tmap.reduce("add", case.memory, case.coordinates, case.smem, case.address)
    assert agree_on_store(case, got, "add")


@examples(60)
@given(wide(direction="store", mode="W"))
def test_im2col_wide_stores_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@examples(200)
@given(tiled(types=tuple(name for name in STORABLE), direction="store"))
def test_tiled_stores_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@examples(40)
@given(tiled(types=("16U6_ALIGN16B", "16U4_ALIGN8B"), direction="store"))
def test_stores_of_packed_types_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@examples(20)
@given(tiled(types=("FLOAT16", "UINT8", "UINT64"), direction="store", rows4=True))
def test_scatter4_writes_four_rows(case):
    assert agree_on_store(case, case.tmap.scatter4(case.memory, case.coordinates, case.smem, case.address))


def test_one_row_twice_is_refused():
    """Which of the rows would stay is not defined; the first contested byte is that of the row's first element."""
    tmap = tcsim.TensorMap("FLOAT16", (8, 9), (16,), (8, 1), swizzle="NONE")
    for row in (0, 3):
        with pytest.raises(ContestedRowError, match=f"one place of the tensor, byte {16 * row}:"):
            tmap.scatter4(np.zeros(144, np.uint8), (0, row, 1, row, 2), np.zeros(64, np.uint8))


@examples(120)
@given(columns(direction="store", types=("UINT16", "FLOAT32", "INT64")))
def test_im2col_stores_are_the_exact_models(case):
    assert agree_on_store(case, case.tmap.store(case.memory, case.coordinates, case.smem, case.address))


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, names in REDUCTIONS.items() for name in names])
def test_reductions_are_the_exact_models(op, name):
    compared = 0

    @examples(10)
    @given(tiled(types=(name,), direction="store"))
    def compare(case):
        nonlocal compared
        compared += agree_on_store(
            case, case.tmap.reduce(op, case.memory, case.coordinates, case.smem, case.address), op
        )

    compare()
    assert compared


EDGES = {
    "FLOAT16": [0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7FFF, 0x1400, 0x1000],
    "BFLOAT16": [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7F81, 0x7FFF, 0x3B80, 0x0100],
    "FLOAT32": [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x1000000, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000,
                0x7F800001, 0x7FFFFFFF, 0x33800000, 0x33800001],
    "FLOAT32_FTZ": [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x1000000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF],
    "TFLOAT32": [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x33800001, 0x7F800000, 0x7F800001, 0x7FFFFFFF],
    "FLOAT64": [0, 1, (1 << 52) - 1, 1 << 52, 0x3FF0000000000000, 0x3FF0000000000001, 0x3CA0000000000001, 0x7FEFFFFFFFFFFFFF,
                0x7FF0000000000000, 0x7FF0000000000001, 0x7FF8000000000005],
    "UINT32": [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 5],
    "INT64": [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op, names in REDUCTIONS.items() for name in names if name in EDGES]
)
def test_reductions_of_edge_values(op, name):
    bits = DATA_TYPES[name].bits
    codes = EDGES[name] + ([code | 1 << bits - 1 for code in EDGES[name]] if DATA_TYPES[name].floating else [])
    old, new = np.meshgrid(np.array(codes, f"u{bits // 8}"), np.array(codes, f"u{bits // 8}"))
    got = reduce_codes(op, DATA_TYPES[name], old, new)
    want = [
        [exact.reduced(op, name, int(o), int(n)) for o, n in zip(*rows, strict=True)]
        for rows in zip(old, new, strict=True)
    ]
    assert got.tolist() == want
    assert got.size == len(codes) ** 2


def test_a_batch_is_its_members():
    tmap = tcsim.TensorMap("FLOAT16", (40, 9), (80,), (32, 4), (1, 2), swizzle="64B")
    random = np.random.default_rng(3)
    memory = random.integers(0, 256, (3, 1, 720), np.uint8)
    smem = random.integers(0, 256, (2, 2048), np.uint8)
    coordinates = random.integers(-3, 9, (3, 2, 2)) * (8, 1)
    address = np.array([128, 256])
    got = tmap.load(memory, coordinates, smem, address)
    assert got.shape == (3, 2, 2048)
    compared = 0
    for i in range(3):
        for j in range(2):
            assert (got[i, j] == tmap.load(memory[i, 0], coordinates[i, j], smem[j], address[j])).all()
            compared += 1
    assert compared == 6
    positive = np.abs(coordinates)
    stored = tmap.store(memory, positive, smem, address)
    assert (stored[2, 1] == tmap.store(memory[2, 0], positive[2, 1], smem[1], 256)).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from(("FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")))
def test_converted_types_are_the_exact_models(code, name):
    tmap = tcsim.TensorMap(name, (4,), (), (4,), swizzle="NONE")
    codes = np.array([code, code & 0xFFFFE000 | 0x1000, code | 0x7F800000, code & 0x807FFFFF], "<u4")
    got = tmap.load(codes.view(np.uint8), (0,), np.zeros(128, np.uint8)).view("<u4")[:4]
    assert got.tolist() == [exact.converted(name, int(c)) for c in codes]
