"""Where every element of a fragment lives: the PTX manual's formulas and CuTe's MMA traits against the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.errors import OperandError
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.operand import Fragment
from tcsim.model.row import Row

Formula = Callable[[int, int, int], tuple[int, int]]
"""(groupID, threadID_in_group, i) to (row, column) of element i of a fragment: a_i, b_i or c_i in the PTX manual."""
LaneFormula = Callable[[int, int], tuple[int, int]]
"""The same with the lane itself."""


# ---- the PTX manual, section Matrix Fragments for mma: one entry for each of its tables, in its own words


def pairs_of_rows(g: int, t: int, i: int) -> tuple[int, int]:
    """C and D of every m16n8 shape."""
    return g + (8 if i >= 2 else 0), t * 2 + (i & 1)


def one_row(g: int, t: int, i: int) -> tuple[int, int]:
    """C and D of every m8n8 shape but m8n8k4 f16."""
    return g, t * 2 + i


@dataclass(frozen=True)
class Fragments:
    """The formulas of A, B and C (or D), and how many elements a lane holds of each."""

    a: Formula
    b: Formula
    c: Formula
    elements: tuple[int, int, int]


MANUAL: dict[tuple[str, str], Fragments] = {
    ("m8n8k4", "f64"): Fragments(
        lambda g, t, i: (g, t),
        lambda g, t, i: (t, g),
        one_row,
        (1, 1, 2),
    ),
    ("m8n8k16", "8-bit"): Fragments(
        lambda g, t, i: (g, t * 4 + i),
        lambda g, t, i: (t * 4 + i, g),
        one_row,
        (4, 4, 2),
    ),
    ("m8n8k32", "4-bit"): Fragments(
        lambda g, t, i: (g, t * 8 + i),
        lambda g, t, i: (t * 8 + i, g),
        one_row,
        (8, 8, 2),
    ),
    ("m8n8k128", "b1"): Fragments(
        lambda g, t, i: (g, t * 32 + i),
        lambda g, t, i: (t * 32 + i, g),
        one_row,
        (32, 32, 2),
    ),
    ("m16n8k4", "tf32"): Fragments(
        lambda g, t, i: (g + (0 if i == 0 else 8), t),
        lambda g, t, i: (t, g),
        pairs_of_rows,
        (2, 1, 4),
    ),
    ("m16n8k4", "f64"): Fragments(
        lambda g, t, i: (g + (0 if i == 0 else 8), t),
        lambda g, t, i: (t, g),
        pairs_of_rows,
        (2, 1, 4),
    ),
    ("m16n8k8", "16-bit"): Fragments(
        lambda g, t, i: (g + (0 if i in (0, 1) else 8), t * 2 + (i & 1)),
        lambda g, t, i: (t * 2 + i, g),
        pairs_of_rows,
        (4, 2, 4),
    ),
    ("m16n8k8", "tf32"): Fragments(
        lambda g, t, i: (g + (0 if i in (0, 2) else 8), t + (0 if i in (0, 1) else 4)),
        lambda g, t, i: (t + (0 if i == 0 else 4), g),
        pairs_of_rows,
        (4, 2, 4),
    ),
    ("m16n8k8", "f64"): Fragments(
        lambda g, t, i: (g + (0 if i in (0, 2) else 8), t + (0 if i in (0, 1) else 4)),
        lambda g, t, i: (t + (0 if i == 0 else 4), g),
        pairs_of_rows,
        (4, 2, 4),
    ),
    ("m16n8k16", "16-bit"): Fragments(
        lambda g, t, i: (
            g + (0 if 0 <= i < 2 or 4 <= i < 6 else 8),
            t * 2 + (i & 1) + (0 if i < 4 else 8),
        ),
        lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
        pairs_of_rows,
        (8, 4, 4),
    ),
    ("m16n8k16", "f64"): Fragments(
        lambda g, t, i: (
            g + (0 if i % 2 == 0 else 8),
            i * 2 + t if i % 2 == 0 else i * 2 - 2 + t,
        ),
        lambda g, t, i: (t + i * 4, g),
        pairs_of_rows,
        (8, 4, 4),
    ),
    ("m16n8k16", "8-bit"): Fragments(
        lambda g, t, i: (g + (0 if i < 4 else 8), t * 4 + (i & 3)),
        lambda g, t, i: (t * 4 + i, g),
        pairs_of_rows,
        (8, 4, 4),
    ),
    ("m16n8k32", "8-bit"): Fragments(
        lambda g, t, i: (
            g + (0 if 0 <= i < 4 or 8 <= i < 12 else 8),
            t * 4 + (i & 3) + (0 if i < 8 else 16),
        ),
        lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
        pairs_of_rows,
        (16, 8, 4),
    ),
    ("m16n8k32", "4-bit"): Fragments(
        lambda g, t, i: (g + (0 if i < 8 else 8), t * 8 + (i & 7)),
        lambda g, t, i: (t * 8 + (i & 7), g),
        pairs_of_rows,
        (16, 8, 4),
    ),
    ("m16n8k64", "4-bit"): Fragments(
        lambda g, t, i: (
            g + (0 if 0 <= i < 8 or 16 <= i < 24 else 8),
            t * 8 + (i & 7) + (0 if i < 16 else 32),
        ),
        lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g),
        pairs_of_rows,
        (32, 16, 4),
    ),
    ("m16n8k128", "b1"): Fragments(
        lambda g, t, i: (g + (0 if i < 32 else 8), t * 32 + (i & 0x1F)),
        lambda g, t, i: (t * 32 + i, g),
        pairs_of_rows,
        (64, 32, 4),
    ),
    ("m16n8k256", "b1"): Fragments(
        # for i < 64 the manual prints i where its figure, and every other table, has i & 0x1F
        lambda g, t, i: (
            g + (0 if 0 <= i < 32 or 64 <= i < 96 else 8),
            t * 32 + (i & 0x1F) + (0 if i < 64 else 128),
        ),
        lambda g, t, i: (t * 32 + (i & 0x1F) + (0 if i < 32 else 128), g),
        pairs_of_rows,
        (128, 64, 4),
    ),
}


def high(lane: int) -> int:
    """m8n8k4 f16: 4 for the lanes of the high group, 16 to 31."""
    return 0 if lane < 16 else 4


def quad_pair_c_f32(lane: int, i: int) -> tuple[int, int]:
    """m8n8k4 f16: C and D of f32."""
    return (lane & 0b1) + (i & 0b10) + high(lane), (i & 0b100) + (lane & 0b10) + (i & 0b1)


QUAD_PAIR: dict[str, LaneFormula] = {
    "a row": lambda lane, i: (lane % 4 + high(lane), i),
    "a col": lambda lane, i: (i % 4 + high(lane), lane % 4),
    "b row": lambda lane, i: (lane % 4, i + high(lane)),
    "b col": lambda lane, i: (i, lane % 4 + high(lane)),
    "f16": lambda lane, i: (lane % 4 + high(lane), i),
    "f32": quad_pair_c_f32,
}
"""m8n8k4 f16: A and B by their layout in the mnemonic, C and D by their format."""


def computation(lane: int) -> int:
    """m8n8k4 f16: which of the four products a lane takes part in: lanes 0-3 and 16-19 the first, and so on."""
    return lane % 16 // 4


WIDTHS = {
    "f16": "16-bit", "bf16": "16-bit", "tf32": "tf32", "f64": "f64", "s8": "8-bit", "u8": "8-bit", "e4m3": "8-bit",
    "e5m2": "8-bit", "e3m2": "8-bit", "e2m3": "8-bit", "e2m1": "8-bit", "s4": "4-bit", "u4": "4-bit", "b1": "b1",
}  # fmt: skip
"""The table of the manual that a format of A is in. fp6 and fp4 take a byte here."""


def manual(row: Row, operand: Fragment) -> tuple[LaneFormula, int, Callable[[int], int]]:
    """The formula of an operand, how many elements a lane holds, and which matrix a lane's elements belong to."""
    shape = "m{}n{}k{}".format(*row.shape)
    if shape == "m8n8k4" and row.operands["a"].format.name in ("f16", "bf16"):
        layouts = dict(zip("ab", row.mnemonic.split(".")[4:6], strict=True))
        key = f"{operand.name} {layouts[operand.name]}" if operand.name in "ab" else operand.format.name
        return QUAD_PAIR[key], 4 if operand.name in "ab" else 8, computation
    table = MANUAL[shape, WIDTHS[row.operands["a"].format.name]]
    place = "abc".index(operand.name.replace("d", "c"))
    formula = (table.a, table.b, table.c)[place]
    return lambda lane, i: formula(lane >> 2, lane % 4, i), table.elements[place], lambda lane: 0


ROWS = [row for row in catalog.rows().values() if row.family == "mma.sync"]


def test_every_fragment_of_every_row_is_as_the_manual_says() -> None:
    """layout(lane, register, slot) for every lane, register and slot of every operand; and no table is left over."""
    compared, used = 0, set()
    for row in ROWS:
        for operand in row.operands.values():
            formula, elements, _ = manual(row, operand)
            layout = operand.layout
            words = 2 if operand.format.bits == 64 else 1  # registers an element takes
            assert layout.lanes == 32
            assert layout.registers * layout.slots == elements * words, (row.mnemonic, operand.name)
            lane, register, slot = np.indices((32, layout.registers, layout.slots)).reshape(3, -1)
            rows, columns = layout(lane, register, slot)
            i = register // 2 if words == 2 else register * layout.slots + slot
            want = [formula(*place) for place in zip(lane.tolist(), i.tolist(), strict=True)]
            assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == want, (row.mnemonic, operand.name)
            compared += len(want)
        used.add((f"m{row.shape[0]}n{row.shape[1]}k{row.shape[2]}", WIDTHS[row.operands["a"].format.name]))
    assert used == {*MANUAL, ("m8n8k4", "16-bit")}
    assert len(ROWS) == 172
    assert compared == 170_144


def test_where_is_the_inverse() -> None:
    """Every element of every operand is found where the manual puts it, and in one place only."""
    compared = 0
    for row in ROWS:
        for operand in row.operands.values():
            formula, elements, which = manual(row, operand)
            layout = operand.layout
            want = np.full((layout.matrices, *operand.shape, 3), -1)
            for lane in range(32):
                for i in range(elements):
                    bit = i * layout.element_bits
                    place = (lane, bit // 32, bit % 32 // layout.element_bits)
                    r, c = formula(lane, i)
                    assert (want[which(lane), r, c] == -1).all()
                    want[which(lane), r, c] = place
            matrix, r, c = np.indices(want.shape[:3])
            got = np.stack(layout.where(r, c, matrix), -1)
            assert (got == want).all(), (row.mnemonic, operand.name)
            compared += matrix.size
            m, n, k = row.shape
            assert operand.shape == {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[operand.name]
            assert layout.matrices == (4 if which is computation else 1)
    assert compared == 161_984


def test_plain_integers_in_plain_integers_out() -> None:
    """The scalar calls of the public API, on one instruction of each kind."""
    compared = 0
    for mnemonic, arch in (
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "sm_90"),
        ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", "sm_70"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32", "sm_80"),
    ):
        ins = tcsim.instruction(mnemonic, arch=arch)
        for operand in ins.operands.values():
            formula, _, which = manual(ins.row, operand)
            layout = operand.layout
            for lane in range(32):
                for register in range(layout.registers):
                    for slot in range(layout.slots):
                        element = layout(lane, register, slot)
                        assert [type(x) for x in element] == [int, int]
                        i = register // 2 if layout.element_bits == 64 else register * layout.slots + slot
                        assert element == formula(lane, i)
                        back = layout.where(*element, which(lane))
                        assert [type(x) for x in back] == [int, int, int]
                        assert back == (lane, register - register % 2 if layout.element_bits == 64 else register, slot)
                        compared += 1
    assert compared == 32 * (4 + 8 + 4 + 4) + 32 * (8 + 16 + 8 + 8) + 32 * (8 + 4 + 4 + 8) + 32 * (4 + 16 + 8 + 4)


def test_arrays_broadcast() -> None:
    """lane, register and slot, and row, column and matrix, broadcast as in NumPy."""
    layout = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_80").operands["a"].layout
    rows, columns = layout(np.arange(32)[:, None], 0, np.arange(2))
    assert rows.shape == columns.shape == (32, 2)
    assert (rows == np.arange(32)[:, None] // 4).all()
    lane, register, slot = layout.where(np.arange(16)[:, None], [0, 9])
    assert lane.shape == register.shape == slot.shape == (16, 2)
    assert (layout(lane, register, slot)[0] == np.arange(16)[:, None]).all()


# ---- CuTe (NVIDIA CUTLASS, include/cute/atom/mma_traits_sm70.hpp, _sm75, _sm80, _sm89, _sm90 and _sm120)

ROW_16X8 = "((4,8),(2,2)):((32,1),(16,8))"  # SM80_16x8_Row
ROW_8X8 = "((4,8),2):((16,1),8)"  # SM80_8x8_Row
ROW_8X16 = "((4,8),4):((32,1),8)"  # SM80_8x16_Row
FLAT_8X4 = "((4,8),1):((8,1),0)"  # SM80_8x4
CUTE: dict[str, tuple[str, str, str]] = {
    "m8n8k4.row.col.f64.f64.f64.f64": (FLAT_8X4, FLAT_8X4, ROW_8X8),
    "m8n8k16.row.col.s32.s8.s8.s32": (ROW_8X16, ROW_8X16, ROW_8X8),
    "m8n8k32.row.col.s32.s4.s4.s32": ("((4,8),8):((64,1),8)", "((4,8),8):((64,1),8)", ROW_8X8),
    "m8n8k128.row.col.s32.b1.b1.s32.xor.popc": ("((4,8),32):((256,1),8)", "((4,8),32):((256,1),8)", ROW_8X8),
    "m16n8k4.row.col.f32.tf32.tf32.f32": ("((4,8),2):((16,1),8)", FLAT_8X4, ROW_16X8),
    "m16n8k8.row.col.f32.tf32.tf32.f32": ("((4,8),(2,2)):((16,1),(8,64))", "((4,8),2):((8,1),32)", ROW_16X8),
    "m16n8k8.row.col.f16.f16.f16.f16": (ROW_16X8, ROW_8X8, ROW_16X8),
    "m16n8k8.row.col.f32.bf16.bf16.f32": (ROW_16X8, ROW_8X8, ROW_16X8),
    "m16n8k16.row.col.f32.f16.f16.f32": (
        "((4,8),(2,2,2)):((32,1),(16,8,128))", "((4,8),(2,2)):((16,1),(8,64))", ROW_16X8,
    ),
    "m16n8k16.row.col.s32.s8.u8.s32": ("((4,8),(4,2)):((64,1),(16,8))", ROW_8X16, ROW_16X8),
    "m16n8k32.row.col.s32.s8.s8.s32": (
        "((4,8),(4,2,2)):((64,1),(16,8,256))", "((4,8),(4,2)):((32,1),(8,128))", ROW_16X8,
    ),
    "m16n8k32.row.col.f16.e4m3.e5m2.f16": (
        "((4,8),(4,2,2)):((64,1),(16,8,256))", "((4,8),(4,2)):((32,1),(8,128))", ROW_16X8,
    ),
    "kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32": (
        "((4,8),(4,2,2)):((64,1),(16,8,256))", "((4,8),(4,2)):((32,1),(8,128))", ROW_16X8,
    ),
    "m16n8k32.row.col.s32.u4.u4.s32": ("((4,8),(8,2)):((128,1),(16,8))", "((4,8),8):((64,1),8)", ROW_16X8),
    "m16n8k64.row.col.s32.s4.s4.s32": (
        "((4,8),(8,2,2)):((128,1),(16,8,512))", "((4,8),(8,2)):((64,1),(8,256))", ROW_16X8,
    ),
    "m16n8k128.row.col.s32.b1.b1.s32.xor.popc": (
        "((4,8),(32,2)):((512,1),(16,8))", "((4,8),32):((256,1),8)", ROW_16X8,
    ),
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc": (
        "((4,8),(32,2,2)):((512,1),(16,8,2048))", "((4,8),(32,2)):((256,1),(8,1024))", ROW_16X8,
    ),
    "m16n8k4.row.col.f64.f64.f64.f64": ("((4,8),2):((16,1),8)", FLAT_8X4, ROW_16X8),
    "m16n8k8.row.col.f64.f64.f64.f64": ("((4,8),(2,2)):((16,1),(8,64))", "((4,8),2):((8,1),32)", ROW_16X8),
    "m16n8k16.row.col.f64.f64.f64.f64": ("((4,8),(2,4)):((16,1),(8,64))", "((4,8),4):((8,1),32)", ROW_16X8),
}  # fmt: skip
"""ALayout, BLayout and CLayout; a mode of one element of CuTe's (such as Shape<_8>) is written without its brackets."""


@pytest.mark.parametrize("rest", CUTE)
def test_layouts_are_spelled_as_in_cute(rest: str) -> None:
    """str(layout) is CuTe's (thread, value) layout to m + M * k, n + N * k and m + M * n."""
    operands = catalog.rows()[f"mma.sync.aligned.{rest}"].operands
    assert tuple(str(operands[name].layout) for name in "abc") == CUTE[rest]
    assert str(operands["d"].layout) == CUTE[rest][2]


# CuTe describes m8n8k4 for the eight threads of a quad pair, with SM70_QuadPair as the lanes they are
SM70_QUAD_PAIR = Layout((4, 2), (1, 16))
SM70: dict[str, tuple[Layout, Layout]] = {
    "SM70_8x4_Row": (Layout(8, 1), Layout(4, 8)),
    "SM70_8x4_Col": (Layout((4, 2), (8, 4)), Layout(4, 1)),
    "SM70_8x8_16b": (Layout(8, 1), Layout(8, 8)),
    "SM70_8x8_32b": (Layout((2, 2, 2), (1, 16, 4)), Layout((2, 2, 2), (8, 2, 32))),
}


@pytest.mark.parametrize("format", ["f16", "f32"])
@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
def test_m8n8k4_is_laid_out_as_in_cute(layouts: str, format: str) -> None:
    """Every quad pair: thread t and value v go where CuTe's SM70 traits say. CuTe's T is row for A, column for B."""
    operands = catalog.rows()[f"mma.sync.aligned.m8n8k4.{layouts}.{format}.f16.f16.{format}"].operands
    row_a, row_b = (word == "row" for word in layouts.split("."))
    accumulator = {"f16": "SM70_8x8_16b", "f32": "SM70_8x8_32b"}[format]
    traits = {
        "a": "SM70_8x4_Row" if row_a else "SM70_8x4_Col",
        "b": "SM70_8x4_Col" if row_b else "SM70_8x4_Row",  # CuTe sees B as N x K
        "c": accumulator,
        "d": accumulator,
    }
    compared = 0
    for name, trait in traits.items():
        layout, (thread_layout, value_layout) = operands[name].layout, SM70[trait]
        for quad_pair in range(4):
            for t in range(8):
                lane = int(SM70_QUAD_PAIR(t)) + 4 * quad_pair
                for v in range(value_layout.size):
                    index = int(thread_layout(t) + value_layout(v))
                    element = (index // 8, index % 8) if name == "b" else (index % 8, index // 8)
                    assert layout(lane, v // layout.slots, v % layout.slots) == element
                    assert layout.where(*element, quad_pair) == (lane, v // layout.slots, v % layout.slots)
                    compared += 1
    assert compared == 32 * (4 + 4 + 8 + 8)


# ---- Layout


@pytest.mark.parametrize(
    ("shape", "stride", "text", "indices"),
    [
        (4, 2, "4:2", [0, 2, 4, 6]),
        ((2, 3), (3, 1), "(2,3):(3,1)", [0, 3, 1, 4, 2, 5]),
        ((2, (2, 2)), (1, (8, 2)), "(2,(2,2)):(1,(8,2))", [0, 1, 8, 9, 2, 3, 10, 11]),
        (((2, 2), 2), ((0, 1), 4), "((2,2),2):((0,1),4)", [0, 0, 1, 1, 4, 4, 5, 5]),
        (1, 0, "1:0", [0]),
    ],
)
def test_a_layout_counts_its_first_mode_fastest(shape: Any, stride: Any, text: str, indices: list[int]) -> None:
    """Index, size and spelling, for plain and nested shapes."""
    layout = Layout(shape, stride)
    assert str(layout) == text
    assert layout.size == len(indices)
    assert layout(np.arange(layout.size)).tolist() == indices
    assert [int(layout(i)) for i in range(layout.size)] == indices
    assert layout == Layout(shape, stride)


@pytest.mark.parametrize(("shape", "stride"), [((2, 3), (1,)), ((2, 3), 5), (4, (1, 2)), ((2, (2, 2)), (1, 2))])
def test_shape_and_stride_nest_alike(shape: Any, stride: Any) -> None:
    """A layout whose shape and stride differ in structure is refused when it is made."""
    with pytest.raises(OperandError, match="shape and stride must nest alike"):
        Layout(shape, stride)


def test_layouts_reach_up_to_62_bits() -> None:
    """Size and reach, the sum of extent times stride, stay below 2**62; a stride that leads nowhere counts once."""
    assert int(Layout(2, 2**61 - 1)(1)) == 2**61 - 1
    assert int(Layout(1, 2**62 - 1)(0)) == 0
    for shape, stride in ((2, 2**61), (2, -(2**61)), (0, 2**62), ((2, 2), (2**60, 2**60)), (2**62, 0)):
        with pytest.raises(OperandError, match="beyond 62 bits"):
            Layout(shape, stride)


# ---- errors


def test_places_that_do_not_exist() -> None:
    """The error says which of the three is wrong and what is valid; arrays are checked element by element."""
    layout = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_80").operands["a"].layout
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
        (layout, (32, 0, 0), "lane 32 does not exist: valid are 0 to 31"),
        (layout, (-1, 0, 0), "lane -1 does not exist"),
        (layout, (0, 4, 0), "register 4 does not exist: valid are 0 to 3"),
        (layout, (0, 0, 2), "slot 2 does not exist: valid are 0 to 1"),
        (layout, ([0, 40], 0, 0), "lane 40 does not exist: valid are 0 to 31"),
        (layout.where, (16, 0), "row 16 does not exist: valid are 0 to 15"),
        (layout.where, (0, 16), "column 16 does not exist: valid are 0 to 15"),
        (layout.where, (0, -1), "column -1 does not exist"),
        (layout.where, (0, 0, 1), "matrix 1 does not exist: valid are 0 to 0"),
    ]
    for call, arguments, complaint in calls:
        with pytest.raises(OperandError, match=complaint):
            call(*arguments)


def test_a_layout_that_loses_elements_is_found_out() -> None:
    """Two places for one element, or none: `where` cannot be answered."""
    twice = FragmentLayout(Layout((4, 8), (0, 1)), Layout(2, 8), 8, 8, 32)
    with pytest.raises(OperandError, match="does not hold every element exactly once"):
        twice.where(0, 0)
    short = FragmentLayout(Layout((4, 8), (16, 1)), Layout(1, 0), 8, 8, 32)
    with pytest.raises(OperandError, match="does not hold every element exactly once"):
        short.where(0, 0)
