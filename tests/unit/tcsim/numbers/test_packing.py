"""Codes in registers: where every bit goes, for each width of element that an operand can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import catalog
from tcsim.numbers.packing import field_shift, pack, unpack

WIDTHS: dict[str, int] = {
    "f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
"""Bits that an element of each format takes in a register of mma.sync: fp6 and fp4 take a byte."""

WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2)


def code_by_hand(register: int, name: str, slot: int) -> int:
    """The code in a slot of a 32-bit register, by shift and mask."""
    width = WIDTHS[name]
    field = register >> slot * width & (1 << width) - 1
    if name in ("e3m2", "e2m3"):
        return field & 0x3F  # bits 5:0
    return field >> 2 & 0xF if name == "e2m1" else field  # fp4: bits 5:2


def registers_of(words: list[int]) -> npt.NDArray[np.uint32]:
    """Registers of one lane."""
    return np.array(words, np.uint32)


def test_the_registry_uses_these_widths() -> None:
    """Every operand of every row has the width that these tests check."""
    seen = set()
    for row in catalog.rows().values():
        if row.family != "mma.sync":
            continue
        for operand in row.operands.values():
            assert operand.layout.element_bits == WIDTHS[operand.format.name], (row.mnemonic, operand.name)
            seen.add(operand.format.name)
    assert seen == set(WIDTHS)


@pytest.mark.parametrize("name", [name for name in WIDTHS if name != "f64"])
@given(words=WORDS)
def test_unpack_reads_slots_from_the_lowest_bits_up(name: str, words: list[int]) -> None:
    """Registers of any bits, read by shift and mask; packing them again changes padding bits only."""
    format, width = tcsim.format(name), WIDTHS[name]
    slots = 32 // width
    codes = unpack(registers_of(words), format, width)
    assert codes.dtype == format.dtype
    assert codes.tolist() == [code_by_hand(word, name, slot) for word in words for slot in range(slots)]
    padding = {"e3m2": 0xC0C0C0C0, "e2m3": 0xC0C0C0C0, "e2m1": 0xC3C3C3C3}.get(name, 0)
    assert pack(codes, format, width).tolist() == [word & ~padding for word in words]


@given(words=WORDS)
def test_a_64_bit_element_takes_two_registers_low_word_first(words: list[int]) -> None:
    """The only element wider than a register."""
    format = tcsim.format("f64")
    codes = unpack(registers_of(words), format, 64)
    assert codes.dtype == np.uint64
    assert codes.tolist() == [words[0] | words[1] << 32]
    assert pack(codes, format, 64).tolist() == words


@pytest.mark.parametrize("name", WIDTHS)
def test_pack_then_unpack_gives_every_code_back(name: str) -> None:
    """All codes of the narrow formats, samples of the wide ones, in a batch of lanes; padding is zero."""
    format, width = tcsim.format(name), WIDTHS[name]
    count = 1 << min(format.bits, 16)
    codes: npt.NDArray[Any] = np.arange(count).astype(format.dtype)
    if format.bits > 16:
        codes = codes * format.dtype.type(0x9E3779B97F4A7C15 & ((1 << format.bits) - 1))
    per_lane = max(64, 64 // width)
    lanes = np.resize(codes, (-(-count // per_lane), per_lane)).reshape(1, -1, per_lane)
    registers = pack(lanes, format, width)
    assert registers.dtype == np.uint32
    assert registers.shape == (*lanes.shape[:2], per_lane * width // 32)
    back = unpack(registers, format, width)
    assert back.shape == lanes.shape
    assert (back == lanes).all()
    assert len(np.unique(back)) == count


@pytest.mark.parametrize(
    ("name", "codes", "register"),
    [
        ("f16", [0x4000, 0x3C00], 0x3C004000),
        ("bf16", [0x3F80, 0xBF80], 0xBF803F80),
        ("e4m3", [0x01, 0x02, 0x03, 0x84], 0x84030201),
        ("s8", [0xFF, 0x00, 0x7F, 0x80], 0x807F00FF),
        ("s4", [1, 2, 3, 4, 5, 6, 7, 8], 0x87654321),  # the first element in the low half of the first byte
        ("u4", [0xF, 0, 0, 0, 0, 0, 0, 0xA], 0xA000000F),
        ("e3m2", [0x3F, 0x01, 0x20, 0x15], 0x1520013F),
        ("e2m3", [0x00, 0x3F, 0x00, 0x3F], 0x3F003F00),
        ("e2m1", [0xF, 0x1, 0x8, 0x0], 0x0020043C),
        ("b1", [1, *[0] * 30, 1], 0x80000001),
        ("b1", [0, 1, *[0] * 14, 1, *[0] * 15], 0x00010002),
        ("f32", [0x3F800000], 0x3F800000),
    ],
)
def test_registers_written_out(name: str, codes: list[int], register: int) -> None:
    """A few registers in hexadecimal, as a reader of the PTX manual would write them."""
    format, width = tcsim.format(name), WIDTHS[name]
    array = np.array(codes, format.dtype)
    assert pack(array, format, width).tolist() == [register]
    assert unpack(registers_of([register]), format, width).tolist() == codes


def test_bytes_of_fp6_and_fp4_drop_their_padding() -> None:
    """Whatever lies outside bits 5:0 (fp6) or 5:2 (fp4) of a byte does not reach the code."""
    noisy = registers_of([0xFFFFFFFF])
    assert unpack(noisy, tcsim.format("e3m2"), 8).tolist() == [0x3F] * 4
    assert unpack(noisy, tcsim.format("e2m3"), 8).tolist() == [0x3F] * 4
    assert unpack(noisy, tcsim.format("e2m1"), 8).tolist() == [0xF] * 4
    padding = registers_of([0xC3C3C3C3])
    assert unpack(padding, tcsim.format("e2m1"), 8).tolist() == [0] * 4
    assert {
        name: field_shift(tcsim.format(name), WIDTHS[name])
        for name in WIDTHS
        if field_shift(tcsim.format(name), WIDTHS[name])
    } == {"e2m1": 2}


def test_arrays_of_any_order_in_memory() -> None:
    """Transposed, strided and broadcast register arrays mean what they say."""
    stream = np.random.Generator(np.random.PCG64(1))
    whole = stream.integers(0, 2**32, (4, 32, 6), np.uint64).astype(np.uint32)
    checked = 0
    for view in (whole[::2, :, 1::2], whole.transpose(2, 1, 0), np.broadcast_to(whole[0, 0], (3, 6)), whole[..., ::-1]):
        for name in ("f16", "s4", "b1", "e2m1", "s8"):
            format, width = tcsim.format(name), WIDTHS[name]
            want = unpack(view.copy(), format, width)
            got = unpack(view, format, width)
            assert (got == want).all()
            assert got.shape == (*view.shape[:-1], view.shape[-1] * 32 // width)
            strided = np.repeat(want, 2, axis=-1)[..., ::2]
            assert (pack(strided, format, width) == pack(want, format, width)).all()
            checked += 1
    assert checked == 20
