"""Addresses and strides of wmma.load and wmma.store: what an H200 took, and what the machine code computes on each arch."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.addresses import AddressError, ContestedRowError, MisalignedAddressError
from tcsim.isa.wmma.tile import FragmentMove, MisalignedStrideError
from tests.unit.tcsim.isa.wmma.wmma_code import line_offsets

A, C = "wmma.load.a.sync.aligned.row.m16n16k16", "wmma.load.c.sync.aligned.row.m16n16k16"
MEMORY = np.random.default_rng(12).integers(0, 256, 8192, np.uint8)

# Asked of an H200 (sm_90a, 2026-11-22): strides and offsets of the pointer, in elements. Each that is taken gave
# base + row * stride + column, element by element; each of the others ended with a misaligned address.
MEASURED = {
    f"{A}.global.f16": {"taken": (0, 8, 16, 18, 20, 24, 72, 136), "offsets": (4, 8), "faults": (), "bad": ()},
    f"{A}.shared.f16": {"taken": (0, 8, 24, 72, 136), "offsets": (8,), "faults": (18, 20), "bad": (4,)},
    f"{A}.global.s8": {"taken": (0, 8, 20, 24, 40, 48), "offsets": (4, 8, 16), "faults": (17,), "bad": ()},
    f"{A}.shared.s8": {"taken": (0, 16, 48), "offsets": (), "faults": (8, 17, 20, 24, 40), "bad": (4, 8)},
    f"{C}.global.f32": {"taken": (0, 8, 18, 20), "offsets": (2, 4), "faults": (), "bad": ()},
    f"{C}.shared.f32": {"taken": (0, 8, 18, 20), "offsets": (2, 4), "faults": (), "bad": ()},
}


def plain(ins: FragmentMove, address: int, stride: int) -> np.ndarray:
    """The tile at base + line * stride + place."""
    bits, (rows, columns) = ins.operand.layout.element_bits, ins.operand.shape
    row, column = np.indices((rows, columns))
    line, place = (row, column) if ins.row_major else (column, row)
    at = address + (line * stride + place) * bits // 8
    return MEMORY[at[..., None] + np.arange(bits // 8)].view(f"<u{bits // 8}")[..., 0]


@pytest.mark.parametrize("mnemonic", MEASURED)
def test_what_an_h200_takes(mnemonic: str) -> None:
    """Strides and offsets that it took give the plain tile; those that faulted are refused."""
    load, asked = tcsim.instruction(mnemonic, arch="sm_90"), MEASURED[mnemonic]
    size, default = load.operand.layout.element_bits // 8, load.default_stride
    places = [(0, stride) for stride in asked["taken"]] + [(size * offset, default) for offset in asked["offsets"]]
    for address, stride in places:
        got = load.matrix(load.execute(memory=MEMORY, address=address, stride=stride))
        assert (got.view(f"u{size}") == plain(load, address, stride)).all(), (address, stride)
    for stride in asked["faults"]:
        with pytest.raises(MisalignedStrideError, match=f"stride={stride}: rows of a start at multiples of"):
            load.execute(memory=MEMORY, address=0, stride=stride)
    for offset in asked["bad"]:
        with pytest.raises(MisalignedAddressError, match="rows of a start at multiples of 16 bytes"):
            load.execute(memory=MEMORY, address=size * offset)


def test_an_odd_stride_of_f32_does_not_fault() -> None:
    """The H200 gave 240 of 256 elements that are not at row * 17: the machine code halves the stride."""
    for space in ("global", "shared"):
        load = tcsim.instruction(f"{C}.{space}.f32", arch="sm_90")
        got = load.matrix(load.execute(memory=MEMORY, address=0, stride=17)).view(np.uint32)
        assert (got != plain(load, 0, 17)).sum() == 240
        assert (got == plain(load, 0, 16)).all()
        assert any("drops the remainder" in sentence for sentence in load.check(0, 17))


def test_the_manual_s_word_is_a_note() -> None:
    """`check` says what the manual leaves undefined, and raises what the hardware does not take."""
    load = tcsim.instruction(f"{A}.global.f16", arch="sm_90")
    assert load.check(0) == load.check(64, 48) == ()
    assert [sentence.split(":")[0] for sentence in load.check(8, 24)] == ["address 0x8", "stride 24"]
    assert len(load.check(np.array([4, 8]), np.array([24, 40]))) == 4
    assert "the rows overlap" in load.check(0, 8)[-1]
    assert "except from one block of 8 lines to the next" in load.check(0, 17)[0]
    with pytest.raises(AddressError, match="address=0x2"):
        load.check(2)


def test_stores_take_what_loads_take() -> None:
    """Strides of 20 and 17 write where the machine code writes; rows that overlap stay refused."""
    store = tcsim.instruction("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", arch="sm_90")
    codes = np.arange(256, dtype=np.uint32).reshape(16, 16)
    for stride, kept in ((20, 20), (18, 18), (17, 16)):
        got = store.execute(np.zeros(2048, np.uint8), 8, store.registers(codes.view(np.float32)), stride=stride)
        lines = got.view("<u4")[2 : 2 + 15 * kept + 16]
        assert all((lines[row * kept : row * kept + 16] == codes[row]).all() for row in range(16)), stride
    for stride in (15, 8, 0):
        with pytest.raises(ContestedRowError, match=f"stride={stride}: rows of 16 elements overlap"):
            store.execute(np.zeros(2048, np.uint8), 0, store.registers(codes.view(np.float32)), stride=stride)


STRIDES = (*range(10), 12, 13, 16, 17, 20, 31)
"""What is added to a tile's own stride: every remainder of every unit."""


@pytest.mark.parametrize(("target", "share"), [("sm_75", 4), ("sm_80", 4), ("sm_90", 1), ("sm_100", 4), ("sm_120", 4)])
def test_the_machine_code_computes_these_addresses(target: str, share: int) -> None:
    """Every row (sm_90), or every fourth: the width of its accesses, and each line's address for strides of every remainder."""
    rows = [row for row in catalog.rows().values() if row.family in ("wmma.load", "wmma.store")]
    rows = [row for row in rows if target in row.targets and "::cta" not in row.mnemonic][::share]
    compared = refused = dropped = 0
    for row, found in line_offsets(rows, target, STRIDES):
        ins = tcsim.instruction(row.mnemonic, arch=target)
        assert isinstance(ins, FragmentMove)
        assert found.size == ins.alignment, row.mnemonic
        for extra, offsets in found.offsets.items():
            stride = ins.default_stride + extra
            want = ins.accesses.offsets(np.asarray(stride), ins.lines)
            assert offsets == {line: int(want[line]) for line in offsets}, (row.mnemonic, stride)
            compared += len(offsets)
            try:
                ins.check(0, stride)
            except MisalignedStrideError:
                assert any(offset % found.size for offset in offsets.values()), (row.mnemonic, stride)
                refused += 1
            else:
                assert not any(offset % found.size for offset in offsets.values()), (row.mnemonic, stride)
                dropped += bool(stride % ins.accesses.stride_unit)
    assert len(rows) > 60
    assert min(compared, refused, dropped) > 100
