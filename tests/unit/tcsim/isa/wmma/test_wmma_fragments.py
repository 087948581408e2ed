"""Fragments of wmma: which lane holds which element on every arch, against a slow model and what an H200 showed."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.errors import OperandError
from tcsim.core.targets import TARGETS
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.row import Row
from tests.exact import wmma as slow
from tests.support.tables import TABLES

ROWS = {row.mnemonic: row for row in catalog.rows().values() if row.family.startswith("wmma.")}


def runs_on(row: Row, arch: str) -> bool:
    """Some target of the arch takes the row."""
    return any(TARGETS[target].arch == arch for target in row.targets)


def shape_of(row: Row) -> str:
    """ "m16n16k16"."""
    return "m{}n{}k{}".format(*row.shape)


def test_every_fragment_on_every_arch_is_as_the_slow_model_says() -> None:
    """Every field of every lane, copies included; the layout of a product's operand is that of the load or store."""
    compared, seen = 0, set()
    for row in ROWS.values():
        for arch in tcsim.ARCHS:
            if not runs_on(row, arch):
                continue
            for name, operand in tcsim.instruction(row.mnemonic, arch=arch).operands.items():
                order = slow.parse_product(row.mnemonic).order(name) if row.family == "wmma.mma" else _order(row)
                key = (name.replace("d", "c"), row.shape, operand.format.name, order, arch, str(operand.layout))
                if key in seen:
                    continue
                seen.add(key)
                layout = operand.layout
                assert layout.registers == slow.register_words(name, shape_of(row), operand.format.name)
                lane, value = np.indices((32, layout.value.size))
                got = np.stack(np.divmod(layout.flat_element.reshape(lane.shape), layout.columns), -1)
                sm = int(arch.removeprefix("sm_"))
                want = [
                    [
                        slow.place(name, shape_of(row), operand.format.name, order, sm, x, i)
                        for i in range(layout.value.size)
                    ]
                    for x in range(32)
                ]
                assert (got == np.array(want)).all(), key
                register, slot = np.divmod(value * layout.element_bits, 32)
                rows, columns = layout(lane, register, slot // min(32, layout.element_bits))
                assert (np.stack([rows, columns], -1) == got).all()
                where = layout.where(*(np.indices((layout.rows, layout.columns))))
                assert (layout(*where)[0] == np.arange(layout.rows)[:, None]).all()
                compared += lane.size
    places = {key[:5] for key in seen}
    assert len(places) == len(seen)  # one layout for an operand, whatever the instruction
    assert (len(seen), compared) == (1198, 361_728)


def _order(row: Row) -> str:
    return slow.parse_move(row.mnemonic).order


def test_the_fragments_of_an_h200() -> None:
    """What loading the bits of the element index showed on the hardware, field by field."""
    text = (TABLES / "wmma_layouts_h200.csv").read_text().splitlines()
    lines = list(csv.DictReader(line for line in text if not line.startswith("#")))
    compared = 0
    for line in lines:
        load = tcsim.instruction(line["mnemonic"], arch="sm_90")
        layout = load.operand.layout
        lane, value = np.indices((32, layout.value.size))
        want = np.zeros_like(lane)
        for number, bits in ((lane, line["lane_bits"]), (value, line["field_bits"])):
            for place, step in enumerate(int(x) for x in bits.split()):
                want += (number >> place & 1) * step
        assert (layout.flat_element.reshape(lane.shape) == want).all(), line["mnemonic"]
        compared += want.size
    assert len(lines) == len({load for load in ROWS if ".load." in load and ".global." in load}) == 88
    assert compared == 26_112


@pytest.mark.parametrize(
    ("mnemonic", "arch", "text", "copies", "in_lanes"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "sm_90", "((4,8),(2,2,2,2)):((32,1),(16,8,128,0))", 2, False),
        ("wmma.load.b.sync.aligned.row.m16n16k16.f16", "sm_90", "((4,8),(2,2,2,2)):((32,1),(16,128,8,0))", 2, False),
        ("wmma.load.a.sync.aligned.col.m8n32k16.f16", "sm_75", "((4,8),(2,2,4)):((16,1),(8,64,0))", 4, False),
        ("wmma.load.b.sync.aligned.col.m8n32k16.f16", "sm_80", "((4,8),(2,2,2,2)):((64,1),(32,8,256,16))", 1, False),
        ("wmma.load.a.sync.aligned.row.m16n16k16.bf16", "sm_80", "((4,8),(2,2,2)):((32,1),(16,8,128))", 1, False),
        ("wmma.load.c.sync.aligned.row.m8n32k16.f32", "sm_90", "((4,8),(2,4)):((2,8),(1,64))", 1, False),
        ("wmma.load.c.sync.aligned.row.m8n32k16.s32", "sm_75", "((4,8),(2,4)):((16,1),(8,64))", 1, False),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "sm_70", "((4,2,2,2),16):((1,8,0,4),16)", 2, True),
        ("wmma.load.b.sync.aligned.row.m16n16k16.f16", "sm_70", "((4,2,2,2),(4,4)):((16,0,8,4),(1,64))", 2, True),
        ("wmma.load.a.sync.aligned.col.m8n32k16.f16", "sm_72", "((4,2,2,2),(4,4)):((8,0,0,4),(1,32))", 4, True),
    ],
)
def test_copies_are_modes_of_stride_0(mnemonic: str, arch: str, text: str, copies: int, in_lanes: bool) -> None:
    """As CuTe writes a repetition; `where` and `matrix` take the first, `registers` writes all."""
    load = tcsim.instruction(mnemonic, arch=arch)
    layout = load.operand.layout
    assert (str(layout), layout.copies, layout.copies_in_lanes) == (text, copies, in_lanes)
    element = layout.flat_element
    assert (np.bincount(element) == copies).all()
    first = [int(np.flatnonzero(element == e)[0]) for e in range(layout.rows * layout.columns)]
    assert layout.flat_holder.tolist() == first
    codes = (
        np.arange(layout.rows * layout.columns).reshape(layout.rows, layout.columns).astype(load.operand.format.dtype)
    )
    registers = load.registers(codes)
    assert (load.matrix(registers) == codes).all()
    fields = np.ascontiguousarray(registers).view(codes.dtype).reshape(-1)
    assert (fields == codes.reshape(-1)[element]).all()


def test_a_layout_with_the_wrong_number_of_copies_is_found_out() -> None:
    """Too few and too many."""
    for copies in (1, 4):
        layout = FragmentLayout(Layout((4, 8), (16, 1)), Layout((2, 2), (8, 0)), 8, 8, 16, copies=copies)
        with pytest.raises(OperandError, match=r"does not hold every element exactly (once|4 times)"):
            layout.where(0, 0)
    assert FragmentLayout(Layout((4, 8), (16, 1)), Layout((2, 2), (8, 0)), 8, 8, 16, copies=2).where(3, 1) == (12, 0, 1)
