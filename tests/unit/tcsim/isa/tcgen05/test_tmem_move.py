"""tcgen05.ld, .ld.red, .ld.spcompress and .st: fragments both ways, the slow model, which warp may touch what, wrong use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import OperandError, TensorMemory
from tcsim.isa.tcgen05.fragments import SHAPES
from tcsim.isa.tcgen05.ld_red import Reduction
from tcsim.memory.tensor_memory import LaneAccessError, UnallocatedError, UnwrittenError
from tests.exact import tensor_memory as exact
from tests.support.extent import examples
from tests.support.tmem_cases import ROWS, anywhere, cells, filled, of_family, random_words

LOADS, STORES = of_family("tcgen05.ld"), of_family("tcgen05.st")
REDUCTIONS, COMPRESSIONS = of_family("tcgen05.ld.red"), of_family("tcgen05.ld.spcompress")
SMALL = 8
"""Counts up to this are compared on several addresses, larger ones on one."""


def count_of(mnemonic: str) -> int:
    """The repetitions."""
    return int(ROWS[mnemonic].modifiers["count"][2:])


def places(ins: Any, seed: int) -> list[dict[str, Any]]:
    """Some addresses, warps and splits that an instruction may have."""
    choose = np.random.Generator(np.random.PCG64(seed))
    width = ins.row.half_columns
    found = []
    for _ in range(3 if count_of(ins.mnemonic) <= SMALL else 1):
        warp = int(choose.integers(0, 8))
        lane = warp % 4 * 32 + (int(choose.integers(0, 2)) * 16 if ins.row.layout.rows == 16 else 0)
        split = {}
        reach = width
        if ins.row.movement.halves == 2:
            offset = width + int(choose.integers(0, max(1, min(9, 512 - 2 * width + 1))))
            split, reach = {"half_split_offset": offset}, width + offset
        column = int(choose.integers(0, 512 - reach + 1))
        found.append({"address": lane << 16 | column, "warp": warp, **split})
    return found


def slow_arguments(ins: Any, place: dict[str, Any]) -> tuple[str, int, bool, tuple[int, ...]]:
    """What the slow model takes: shape, count, packed, addresses."""
    first = place["address"]
    addresses = (first,) if "half_split_offset" not in place else (first, first + place["half_split_offset"])
    return ins.row.movement.name, count_of(ins.mnemonic), ins.row.packed, addresses


WORDS = random_words((1, 128, 512), 1)
SLOW = cells(WORDS)


@pytest.mark.parametrize("mnemonic", LOADS)
def test_loads_agree_with_the_slow_model(mnemonic: str) -> None:
    """Every register of every lane."""
    ins, compared = anywhere(mnemonic), 0
    for place in places(ins, len(mnemonic)):
        got = ins.execute(filled(WORDS), **place)
        want = np.array(exact.load(SLOW, *slow_arguments(ins, place)), np.uint32)
        assert got.dtype == np.uint32
        assert got.shape == want.shape == (32, ins.operands["d"].registers)
        assert (got == want).all()
        compared += got.size
    assert compared >= 32


@pytest.mark.parametrize("mnemonic", STORES)
def test_stores_agree_with_the_slow_model(mnemonic: str) -> None:
    """Every cell; the memory that was given stays as it was."""
    ins, compared = anywhere(mnemonic), 0
    for place in places(ins, len(mnemonic)):
        registers = random_words((32, ins.operands["registers"].registers), 2)
        tmem = filled(WORDS)
        got = ins.execute(tmem, registers=registers, **place)
        want = exact.store(SLOW, *slow_arguments(ins, place), registers.tolist())
        different = {place for place in want if want[place] != SLOW[place]}
        image = np.array([want[0, i, j] for i in range(128) for j in range(512)], np.uint32).reshape(128, 512)
        assert (got.words[0] == image).all()
        assert (tmem.words == WORDS).all()
        compared += len(different)
    assert compared >= 30


@pytest.mark.parametrize("mnemonic", REDUCTIONS)
def test_reductions_agree_with_the_slow_model(mnemonic: str) -> None:
    """Of random words, and of zeros, subnormals, infinities and NaNs."""
    ins = anywhere(mnemonic)
    width = ins.row.layout.columns
    special = np.array(
        [0, 1 << 31, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F800001], np.uint32
    )
    rng = np.random.Generator(np.random.PCG64(width))
    words = random_words((128, width), width)
    words[16:] = special[rng.integers(0, len(special), (112, width))]
    words[20:24] = special[rng.integers(6, 9, (4, width))]  # nothing but NaNs
    tmem = filled(words[None])
    slow, compared = cells(words[None]), 0
    for warp in (0, 1):
        place: dict[str, Any] = {"address": warp << 21, "warp": warp}
        if ins.row.movement.halves == 2:
            place["half_split_offset"] = width // 2
        d, redval = ins.execute(tmem, **place)
        rows = exact.load(slow, *slow_arguments(ins, place))
        assert (d == np.array(rows, np.uint32)).all()
        r = ins.row.reduction
        want = [exact.reduce(row, r.operation, r.type, r.absolute, r.nan) for row in rows]
        assert redval.shape == (32, 1)
        assert redval[:, 0].tolist() == want
        compared += 32
    assert compared == 64


@pytest.mark.parametrize("mnemonic", COMPRESSIONS)
def test_compressions_agree_with_the_slow_model(mnemonic: str) -> None:
    """Metadata, what stays, and the reduction; with ties and NaNs, of which the first stay."""
    ins = anywhere(mnemonic)
    count = count_of(mnemonic)
    rng = np.random.Generator(np.random.PCG64(count))
    few = np.array([0, 1 << 31, 0x3F800000, 0xBF800000, 0x40000000, 0x7FC00000, 0xFF800000], np.uint32)
    words = random_words((128, count), 3)
    words[8:] = few[rng.integers(0, len(few), (120, count))]
    result = ins.execute(filled(words[None]), address=0)
    selection, reduction = ins.row.selection, ins.row.reduction
    assert [array.shape[1] for array in result] == [operand.registers for operand in ins.operands.values()]
    for lane in range(32):
        row = words[lane].tolist()
        metadata, kept = exact.compress(row, 32, 2, "f32", selection.operation)
        assert result[0][lane].tolist() == metadata
        assert result[1][lane].tolist() == kept
        if reduction:
            want = exact.reduce(row, reduction.operation, "f32", reduction.absolute, reduction.nan)
            assert result[2][lane].tolist() == [want]


@given(words=st.lists(st.integers(0, 0xFFFFFFFF) | st.sampled_from([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001]), min_size=1),
       operation=st.sampled_from(["min", "max"]), kind=st.sampled_from(["f32", "u32", "s32"]), absolute=st.booleans(),
       nan=st.booleans())  # fmt: skip
@examples(300)
def test_reduction_of_any_words(words: list[int], operation: Any, kind: Any, absolute: bool, nan: bool) -> None:
    """The fast reduction is the slow one."""
    absolute, nan = absolute and kind == "f32", nan and kind == "f32"
    got = Reduction(operation, kind, absolute, nan)(np.array(words, np.uint32))
    assert int(got) == exact.reduce(words, operation, kind, absolute, nan)


# ---- layouts


@pytest.mark.parametrize("mnemonic", LOADS + STORES)
def test_layouts_go_both_ways(mnemonic: str) -> None:
    """Every element of the fragment has one place, and the place has the element; it is the slow model's."""
    ins = anywhere(mnemonic)
    ((_, operand),) = ins.operands.items()
    layout = operand.layout
    lane, register, slot = (
        x.reshape(-1)
        for x in np.meshgrid(np.arange(32), np.arange(layout.registers), np.arange(layout.slots), indexing="ij")
    )
    row, column = layout(lane, register, slot)
    assert len({*zip(row.tolist(), column.tolist(), strict=True)}) == len(row) == layout.rows * layout.columns
    back = layout.where(row, column)
    assert all((a == b).all() for a, b in zip(back, (lane, register, slot), strict=True))
    step = max(1, len(lane) // 200)
    half = layout.columns // ins.row.movement.halves
    for i in range(0, len(lane), step):
        access, r, c = exact.cell_of(
            ins.row.movement.name, count_of(mnemonic), ins.row.packed, int(lane[i]), int(register[i]), int(slot[i])
        )
        assert (int(row[i]), int(column[i])) == (r, c + access * half)


def test_registers_are_those_of_table_59() -> None:
    """1, 2 or 4 registers for x1, 128 at most."""
    counts = {name: [shape.counts[0], shape.counts[-1]] for name, shape in SHAPES.items()}
    assert counts == {
        "16x64b": [1, 128], "16x128b": [1, 64], "16x256b": [1, 32], "32x32b": [1, 128], "16x32bx2": [1, 128],
    }  # fmt: skip
    for mnemonic in LOADS:
        ins = anywhere(mnemonic)
        assert ins.operands["d"].registers == exact.registers_of(ins.row.movement.name, count_of(mnemonic))


def test_a_reduced_value_belongs_to_its_row() -> None:
    """Of .16x32bx2 a row has two: one for each half of its columns."""
    one = anywhere("tcgen05.ld.red.sync.aligned.32x32b.x4.max.u32").operands["redval"].layout
    two = anywhere("tcgen05.ld.red.sync.aligned.16x32bx2.x4.max.u32").operands["redval"].layout
    assert [one(lane, 0, 0) for lane in (0, 31)] == [(0, 0), (31, 0)]
    assert [two(lane, 0, 0) for lane in (0, 15, 16, 31)] == [(0, 0), (15, 0), (0, 1), (15, 1)]
    assert two.where(3, 1) == (19, 0, 0)


def test_a_round_trip_of_every_shape() -> None:
    """What st writes, ld of the same spelling reads."""
    checked = 0
    for mnemonic in STORES:
        store = anywhere(mnemonic)
        load = anywhere(mnemonic.replace("tcgen05.st", "tcgen05.ld").replace("unpack", "pack"))
        registers = random_words((2, 32, store.operands["registers"].registers), 4)
        place = {"half_split_offset": store.row.layout.columns // 2} if store.row.movement.halves == 2 else {}
        tmem = store.execute(TensorMemory.allocated((2,)), 0x400000, registers, warp=2, **place)
        assert (load.execute(tmem, 0x400000, warp=2, **place) == registers).all()
        checked += 1
    assert checked == 74


# ---- wrong use


LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32"
HALF = "tcgen05.ld.sync.aligned.16x64b.x2.b32"
SPLIT = "tcgen05.ld.sync.aligned.16x32bx2.x2.b32"


@pytest.mark.parametrize("warp", range(8))
def test_a_warp_reaches_its_own_lanes(warp: int) -> None:
    """Warp w of a warpgroup lanes 32w to 32w + 31, at a multiple of what it moves; nothing else."""
    first, refused = warp % 4 * 32, 0
    for mnemonic, valid in ((HALF, {first, first + 16}), (LOAD, {first})):
        ins = anywhere(mnemonic)
        for lane in range(128):
            if lane in valid:
                lanes, _ = ins.cells(lane << 16, warp)
                assert {int(x) for x in lanes.reshape(-1)} == set(range(lane, lane + ins.row.layout.rows))
                continue
            text = rf"warp {warp} \(number {warp % 4} of its warpgroup\) may touch lanes {first} to {first + 31}"
            with pytest.raises(LaneAccessError, match=text):
                ins.cells(lane << 16, warp)
            refused += 1
    assert refused == 2 * 128 - 3


def test_cells_that_hold_nothing_are_named() -> None:
    """Not allocated, never written, out of bounds: with the call, the cell and what would be valid."""
    ins = anywhere(LOAD)
    tmem = TensorMemory()
    with pytest.raises(
        UnallocatedError, match=r"execute: read of lane 0, column 0: that column is not allocated; .* none"
    ):
        ins.execute(tmem, 0)
    tmem.alloc(32)
    with pytest.raises(UnwrittenError, match="read of lane 0, column 30: nothing has written that cell"):
        ins.execute(tmem, 30)
    with pytest.raises(UnallocatedError, match="column 32: that column is not allocated"):
        ins.execute(tmem, 31)
    with pytest.raises(UnallocatedError, match="column 512: out of bounds"):
        ins.execute(TensorMemory.allocated(), 511)
    with pytest.raises(UnallocatedError, match="lane 128"):
        ins.execute(tmem, 128 << 16)
    store = anywhere(STORES[0])
    with pytest.raises(UnallocatedError, match=r"execute: write of lane 0, column 32"):
        store.execute(tmem, 31, np.zeros((32, 1), np.uint32))


def test_the_split_is_given_where_there_are_two_addresses() -> None:
    """And nowhere else; a store must not write a cell twice."""
    with pytest.raises(OperandError, match="half_split_offset=None; valid: an integer"):
        anywhere(SPLIT).execute(TensorMemory.allocated(), 0)
    with pytest.raises(OperandError, match="half_split_offset=4; valid: None"):
        anywhere(LOAD).execute(TensorMemory.allocated(), 0, half_split_offset=4)
    store = anywhere(SPLIT.replace(".ld.", ".st."))
    with pytest.raises(OperandError, match=r"both halves of 2 columns write the same cells.*valid: 2 or more"):
        store.execute(TensorMemory.allocated(), 0, np.zeros((32, 2), np.uint32), half_split_offset=1)
    with pytest.raises(LaneAccessError):
        anywhere(SPLIT).execute(TensorMemory.allocated(), 0, half_split_offset=32 << 16)


@pytest.mark.parametrize(
    "registers", [np.zeros((32, 3), np.uint32), np.zeros((32, 2), np.int32), np.zeros((31, 2), np.uint32)]
)
def test_registers_of_another_shape_are_refused(registers: Any) -> None:
    """uint32 (..., 32, n)."""
    with pytest.raises(OperandError, match=r"valid: uint32 \(\.\.\., 32, 2\)"):
        anywhere("tcgen05.st.sync.aligned.32x32b.x2.b32").execute(TensorMemory.allocated(), 0, registers)


def test_batches_broadcast() -> None:
    """Registers of more memories than there are make more memories; what does not fit is refused."""
    store = anywhere("tcgen05.st.sync.aligned.32x32b.x2.b32")
    registers = random_words((5, 32, 2), 8)
    tmem = store.execute(TensorMemory.allocated(), 0, registers)
    assert tmem.batch == (5,)
    assert (anywhere(LOAD).execute(tmem, 0) == registers).all()
    with pytest.raises(OperandError, match="do not broadcast"):
        store.execute(TensorMemory.allocated((3,)), 0, registers)


def test_reductions_are_not_of_sm_100() -> None:
    """The manual and the assembler: sm_103, sm_107 and sm_110."""
    with pytest.raises(tcsim.InstructionError, match="needs one of sm_103f, sm_103a"):
        tcsim.instruction(REDUCTIONS[0], arch="sm_100")
