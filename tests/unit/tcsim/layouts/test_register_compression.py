"""spcompress and spdecompress: the slow model, the manual's examples, what is up to the hardware, wrong use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcsim import OperandError
from tcsim.layouts.compression import ELEMENTS, OPERATIONS, Selection
from tests.exact import tensor_memory as exact
from tests.support.extent import examples
from tests.support.tmem_cases import anywhere, of_family, random_words

NAMES = of_family("spcompress")
COMPRESS = [name for name in NAMES if name.startswith("spcompress")]
DECOMPRESS = [name for name in NAMES if name.startswith("spdecompress")]


def data_of(form_bits: int, kind: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Random registers whose codes fit the format: fp6 leaves the upper bits of its byte clear."""
    words = random_words(shape, seed)
    return words & np.uint32(0x3F3F3F3F) if kind in ("e3m2", "e2m3") else words


@pytest.mark.parametrize("mnemonic", COMPRESS)
def test_compression_agrees_with_the_slow_model(mnemonic: str) -> None:
    """Every element type and operation."""
    ins, compared = anywhere(mnemonic), 0
    row = ins.row
    for descriptor in range(4 * len(ELEMENTS[row.bits])):
        selection = Selection.decode(descriptor, row.bits)
        threads = 3 if row.count > 4 else 24
        data = data_of(row.bits, selection.format, (threads, row.width("data")), descriptor)
        data[0] &= np.uint32(0x80FF00FF)  # zeros of both signs, and equal elements
        mdata, cdata = ins.execute(data, descriptor)
        assert (mdata.shape[1], cdata.shape[1]) == (row.width("mdata"), row.width("cdata"))
        for thread in range(threads):
            want = exact.compress(
                data[thread].tolist(), row.bits, row.index_bits, selection.format, selection.operation
            )
            assert (mdata[thread].tolist(), cdata[thread].tolist()) == want
            compared += 1
    assert compared >= 24


@pytest.mark.parametrize("mnemonic", DECOMPRESS)
def test_decompression_agrees_with_the_slow_model(mnemonic: str) -> None:
    """Any indices that the group has, also the same twice."""
    ins = anywhere(mnemonic)
    row = ins.row
    rng = np.random.Generator(np.random.PCG64(len(mnemonic)))
    for _ in range(4):
        indices = rng.integers(0, row.target, row.source * row.count)
        stream = sum(int(index) << row.index_bits * i for i, index in enumerate(indices))
        mdata = np.array([stream >> 32 * i & 0xFFFFFFFF for i in range(row.width("mdata"))], np.uint32)
        cdata = random_words((row.width("cdata"),), int(indices.sum()))
        got = ins.execute(mdata, cdata)
        assert got.shape == (row.width("data"),)
        want = exact.decompress(
            mdata.tolist(), cdata.tolist(), row.bits, row.index_bits, row.source, row.target, row.count
        )
        assert got.tolist() == want


def test_the_manuals_example() -> None:
    """MAXABS of s8 keeps -7, 3 and 5, 6 of (0, -7, 3, 0) and (0, 5, 3, 6), in order; decompression puts them back."""
    data = np.array([0x0003F900, 0x06030500], np.uint32)
    mdata, cdata = anywhere("spcompress.b8.b4.sp::2:4.x1").execute(data, 5)
    assert [hex(int(word[0])) for word in (mdata, cdata)] == ["0x3121", "0x60503f9"]
    back = anywhere("spdecompress.b8.b4.sp::2:4.x2").execute(mdata, cdata)
    assert back.tolist() == [0x0003F900, 0x06000500]


@pytest.mark.parametrize("bits", [8, 16])
def test_there_and_back(bits: int) -> None:
    """What compression keeps, decompression leaves where it was; the rest is zero."""
    compress, expand = (
        anywhere(f"{name}.b{bits}.b2.sp::2:4.x{count}")
        for name, count in (("spcompress", 8), ("spdecompress", 8 * 32 // bits // 2))
    )
    assert expand.row.width("data") == compress.row.width("data")
    data = random_words((40, 16), bits)
    mdata, cdata = compress.execute(data, 0)
    dense = expand.execute(mdata, cdata)
    codes, back = (x.view(f"<u{bits // 8}").reshape(40, -1, 4) for x in (data, dense))
    assert ((back == codes) | (back == 0)).all()
    assert (np.count_nonzero(back, axis=-1) <= 2).all()
    assert np.count_nonzero(back) > 0.9 * back.size / 2


def test_nans_stay_and_zeros_have_an_order() -> None:
    """Of f16: a NaN whatever the operation; -0 below +0."""
    ins = anywhere("spcompress.b16.b4.sp::2:4.x1")
    for operation in range(4):
        mdata, _ = ins.execute(np.array([0x7E003C00, 0x38004000], np.uint32), operation)
        assert 1 in (int(mdata[0]) & 15, int(mdata[0]) >> 4)
    high, _ = ins.execute(np.array([0x80000000, 0xC000BC00], np.uint32), 0)  # +0, -0, -1, -2
    assert int(high[0]) == 0x10
    low, _ = ins.execute(np.array([0x80000000, 0x3C003C00], np.uint32), 2)  # +0, -0, 1, 1: the two smallest
    assert int(low[0]) == 0x10
    one, _ = ins.execute(np.array([0x00008000, 0x8000BC00], np.uint32), 0)  # -0, +0, -1, -0: +0 and the first -0
    assert int(one[0]) == 0x10


def test_ambiguous_groups_are_told() -> None:
    """Where the second and third best are equal, and nowhere else."""
    ins = anywhere("spcompress.b8.b2.sp::2:4.x1")
    assert ins.ambiguous(np.array([0x03020201, 0x01010203], np.uint32), 0).tolist() == [True, False]
    assert ins.ambiguous(np.array([0xFF01FF01, 0x04030201], np.uint32), 5).tolist() == [True, False]  # |-1| is 1
    assert ins.ambiguous(np.array([0xFF01FE02, 0x7F7F7F01], np.uint32), 5).tolist() == [False, True]
    nans = np.array([0x7F7F7F01, 0x7F7F0201], np.uint32)
    assert ins.ambiguous(nans, 3 << 2).tolist() == [True, False]  # three NaNs of e4m3, two


@given(codes=st.lists(st.integers(0, 255), min_size=4, max_size=4), kind=st.sampled_from(ELEMENTS[8]),
       operation=st.sampled_from(OPERATIONS))  # fmt: skip
@examples(300)
def test_any_four_codes(codes: list[int], kind: str, operation: str) -> None:
    """The two that stay are the slow model's."""
    if kind in ("e3m2", "e2m3"):
        codes = [code & 63 for code in codes]
    got = Selection(operation, kind).keep(np.array(codes, np.uint8))
    assert got.tolist() == exact.kept_of_four(codes, kind, operation)


def test_descriptors_go_both_ways() -> None:
    """Every operation and type that an element size has."""
    seen = set()
    for bits in (8, 16):
        for descriptor in range(4 * len(ELEMENTS[bits])):
            selection = Selection.decode(descriptor, bits)
            assert selection.encode() == descriptor
            seen.add(selection)
    assert len(seen) == 32


def test_wrong_use_is_named() -> None:
    """Descriptors, shapes, dtypes, indices, fp6 codes of more than 6 bits."""
    ins = anywhere("spcompress.b16.b2.sp::2:4.x1")
    data = np.zeros(2, np.uint32)
    for descriptor in (8, 32, -1, 1 << 31):
        with pytest.raises(OperandError, match=r"sparsity descriptor .*bits 4:2 for \.b16 0 f16, 1 bf16"):
            ins.execute(data, descriptor)
    for bad in (data.astype(np.int32), np.zeros(3, np.uint32)):
        with pytest.raises(OperandError, match=r"data is .*valid: uint32 \(\.\.\., 2\)"):
            ins.execute(bad, 0)
    with pytest.raises(OperandError, match="codes of e3m2 have 6 bits"):
        anywhere("spcompress.b8.b2.sp::2:4.x1").execute(np.array([0x40, 0], np.uint32), 4 << 2)
    expand = anywhere("spdecompress.b8.b4.sp::1:8.x4")
    with pytest.raises(OperandError, match=r"metadata index 8: a group has 8 elements.*valid: 0 to 7"):
        expand.execute(np.array([0x0008], np.uint32), np.zeros(1, np.uint32))
    with pytest.raises(OperandError, match="do not broadcast"):
        expand.execute(np.zeros((2, 1), np.uint32), np.zeros((3, 1), np.uint32))
