"""Metadata of mma.sp: where it is, what it says, how a dense matrix is compressed, and what wrong use is told."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import FormatError, OperandError
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply
from tests.exact import sparse as slow
from tests.support.extent import examples
from tests.unit.tcsim.isa.mma.sparse_cases import (
    COMPARED_ARCHS,
    EQUAL,
    FP8,
    HALF,
    INT4,
    INT8,
    LAYOUTS,
    LONG_HALF,
    LONG_INT4,
    LONG_INT8,
    LONG_TF32,
    ORDERED,
    TF32,
    facts,
    instruction,
    on_arch,
    sparse_codes,
)

# ---- metadata


@pytest.mark.parametrize("mnemonic", LAYOUTS)
def test_every_group_has_a_place_of_its_own(mnemonic: str) -> None:
    """The lanes and bits of the exact model for every selector: 4 bits for each group of each row, none shared."""
    own, exact, checked = facts(mnemonic), slow.parse(mnemonic), 0
    for selector in own.selectors:
        lanes, bits = own.places(selector)
        taken = set()
        for row in range(16):
            for group in range(own.groups):
                place = int(lanes[row, group]), int(bits[row, group])
                assert place == slow.place(exact, row, group, selector)
                taken.add(place)
                checked += 1
        assert len(taken) == 16 * own.groups
    assert checked == 16 * own.groups * len(own.selectors)


def some_positions(exact: slow.Sparse, valid: tuple[int, ...], stream: random.Random) -> list[int]:
    """Positions of a row's kept elements, as random groups say them."""
    groups = [slow.kept_in_group(exact, stream.choice(valid)) for _ in range(exact.groups)]
    return [position for group in groups for position in group]


@pytest.mark.parametrize("mnemonic", LAYOUTS)
@examples(30)
@given(data=st.data())
def test_positions_to_words_and_back(mnemonic: str, data: st.DataObject) -> None:
    """decode(encode(positions)) is positions, of a batch too; the exact model reads the same columns from the words."""
    ins = instruction(mnemonic)
    own = ins.sparsity
    selector = data.draw(st.sampled_from(own.selectors), label="selector")
    stream = random.Random(data.draw(st.integers(0, 2**32), label="groups"))
    exact = slow.parse(mnemonic)
    positions = np.array([[some_positions(exact, own.valid, stream) for _ in range(16)] for _ in range(2)])
    words = ins.encode_metadata(positions, selector)
    assert words.dtype == np.uint32
    assert words.shape == (2, 32)
    assert (ins.decode_metadata(words, selector) == positions).all()
    for one, own_words in zip(positions.tolist(), words.tolist(), strict=True):
        columns = slow.columns_of_words(mnemonic, own_words, selector)
        assert columns == slow.columns_of_positions(mnemonic, one)
        assert columns == own.columns(np.array(one)).tolist()
        used = {slow.place(exact, row, group, selector)[0] for row in range(16) for group in range(own.groups)}
        assert not any(word for lane, word in enumerate(own_words) if lane not in used)


@pytest.mark.parametrize("mnemonic", LAYOUTS)
@examples(30)
@given(data=st.data())
def test_words_to_positions_and_back(mnemonic: str, data: st.DataObject) -> None:
    """encode(decode(words)) is words, but for the lanes that the selector does not name, which come back as zeros."""
    ins = instruction(mnemonic)
    selector = data.draw(st.sampled_from(ins.sparsity.selectors), label="selector")
    stream = random.Random(data.draw(st.integers(0, 2**32), label="words"))
    valid = ins.sparsity.valid
    words = np.array([sum(stream.choice(valid) << 4 * n for n in range(8)) for _ in range(32)], np.uint32)
    back = ins.encode_metadata(ins.decode_metadata(words, selector), selector)
    lanes = np.unique(ins.sparsity.places(selector)[0])
    assert (back[lanes] == words[lanes]).all()
    assert not np.delete(back, lanes).any()
    assert len(lanes) == 2 * 16 * ins.sparsity.groups // 16


def test_what_the_manual_defines() -> None:
    """Two different indices in any order; in increasing order only with ordered_metadata; whole elements of tf32."""
    increasing = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110}
    for mnemonic in (HALF, LONG_HALF, FP8, INT8, LONG_INT8, INT4, LONG_INT4):
        assert set(facts(mnemonic).valid) == set(range(16)) - set(EQUAL)
        assert set(facts(mnemonic.replace("mma.sp", "mma.sp::ordered_metadata")).valid) == increasing
    assert facts(TF32).valid == facts(LONG_TF32).valid == (0b0100, 0b1110)


# ---- compress


def test_compress_keeps_what_is_there() -> None:
    """f16, two nonzeros in every group: the kept values in order, and their positions."""
    ins = instruction(LONG_HALF)
    dense = np.tile(np.array([0, 1, 2, 0, 3, 0, 0, -4], np.float16), (16, 4))
    kept, positions = ins.compress(dense)
    assert (kept.view(np.float16) == np.tile(np.array([1, 2, 3, -4], np.float16), (16, 4))).all()
    assert (positions == np.tile([1, 2, 0, 3], (16, 4))).all()
    assert (ins.sparsity.columns(positions)[0, :4] == [1, 2, 4, 7]).all()


def test_compress_fills_up_with_zeros() -> None:
    """Fewer nonzeros than places: the lowest zeros are kept, so that indices increase; -0 is a zero, and keeps its sign."""
    ins = instruction(ORDERED)
    dense = np.zeros((16, 16), np.float16)
    dense[0, :12] = [0, 0, 0, 5, 6, 0, 0, 0, 0, -0.0, 7, -0.0]
    kept, positions = ins.compress(dense)
    assert positions[0].tolist() == [0, 3, 0, 1, 0, 2, 0, 1]
    assert kept[0].tolist() == tcsim.encode([0, 5, 6, 0, 0, 7, 0, 0], "f16").tolist()
    dense[0, 8] = -0.0
    assert ins.compress(dense)[0][0].tolist() == tcsim.encode([0, 5, 6, 0, -0.0, 7, 0, 0], "f16").tolist()
    ins.encode_metadata(positions)  # in increasing order, as ordered_metadata wants


def test_compress_of_tf32_keeps_one_of_two() -> None:
    """One of two; what the hardware ignores of a tf32 number does not make it nonzero."""
    ins = instruction(TF32)
    dense = np.zeros((16, 8), np.uint32)
    dense[3] = [0, 0x3F800000, 0x40000000, 0, 0x00000001, 0xBF800000, 0x80000000, 0x1FFF]
    kept, positions = ins.compress(dense)
    assert positions[3].tolist() == [1, 0, 1, 0]
    assert kept[3].tolist() == [0x3F800000, 0x40000000, 0xBF800000, 0x80000000]
    with pytest.raises(OperandError, match=r"row 3, columns 0 to 1: more than 1 of 2 elements are nonzero"):
        ins.compress(np.where(np.arange(8) == 0, np.uint32(0x3F800000), dense))


def test_compress_of_int4_keeps_pairs() -> None:
    """Four of eight, in two pairs of neighbours: three single nonzeros in three pairs are too many."""
    ins = instruction(INT4)
    dense = np.zeros((16, 64), np.uint8)
    dense[9, :8] = [0, 0, 0, 15, 0, 0, 7, 1]
    dense[9, 8:16] = [0, 0, 0, 0, 3, 0, 0, 0]
    kept, positions = ins.compress(dense)
    assert positions[9, :8].tolist() == [2, 3, 6, 7, 0, 1, 4, 5]
    assert kept[9, :8].tolist() == [0, 15, 7, 1, 0, 0, 3, 0]
    dense[9, 0] = 1
    with pytest.raises(OperandError, match=r"row 9, columns 0 to 7: more than 2 of 4 pairs are nonzero"):
        ins.compress(dense)
    signed = np.array(dense, np.int8).astype(ml_dtypes.int4)
    signed[9, 0] = 0
    assert (ins.compress(signed)[0] == kept).all()


def test_compress_of_fp8_and_int8() -> None:
    """Two of four; the third nonzero of a group is too many, also in the last product of a batch."""
    for mnemonic, one in ((FP8, ml_dtypes.float8_e4m3fn(1)), (LONG_INT8, np.uint8(1))):
        ins = instruction(mnemonic)
        dense = np.zeros((3, 16, 64), np.asarray(one).dtype)
        dense[:, :, 1::4] = dense[:, :, 2::4] = one
        kept, positions = ins.compress(dense)
        assert kept.shape == positions.shape == (3, 16, 32)
        assert (kept == np.asarray(one).view(np.uint8)).all()
        assert (positions == np.tile([1, 2], 16)).all()
        dense[2, 15, 63] = one
        complaint = r"\.compress: row 15, columns 60 to 63: more than 2 of 4 elements are nonzero"
        with pytest.raises(OperandError, match=complaint) as caught:
            ins.compress(dense)
        assert str(caught.value).startswith(repr(ins))


@pytest.mark.parametrize("mnemonic", LAYOUTS)
@examples(25)
@given(seed=st.integers(0, 2**32))
def test_compress_then_expand_is_the_dense_matrix(mnemonic: str, seed: int) -> None:
    """Any matrix of the right sparsity: kept codes at their columns and zeros elsewhere are what was given."""
    ins = instruction(mnemonic)
    dense = sparse_codes(ins, np.random.Generator(np.random.PCG64(seed)))
    dense[tcsim.decode(dense, ins.operands["a"].format) == 0] = 0  # a -0 that is not kept comes back as 0
    kept, positions = ins.compress(dense)
    assert (expanded(ins, kept, positions) == dense).all()


def expanded(ins: SparseMatrixMultiply, kept: npt.NDArray[Any], positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The dense A (M, K) of kept codes and their positions."""
    dense = np.zeros((ins.shape[0], ins.shape[2]), kept.dtype)
    columns = slow.columns_of_positions(ins.mnemonic, positions.tolist())
    for row, own in enumerate(columns):
        dense[row, own] = kept[row]
    return dense


# ---- batches, and what wrong use is told


def test_leading_dimensions_broadcast() -> None:
    """A batch of metadata over one A, a batch of B over all of it; registers and codes."""
    ins = instruction(INT8)
    generator = np.random.Generator(np.random.PCG64(3))

    def words(*shape: int) -> npt.NDArray[np.uint32]:
        return generator.integers(0, 2**32, shape, np.uint64).astype(np.uint32)

    registers = {"a": words(32, ins.operands["a"].registers), "b": words(5, 1, 32, ins.operands["b"].registers),
                 "c": words(32, 4)}  # fmt: skip
    metadata = words(3, 32)
    d = ins.execute(**registers, metadata=metadata, selector=1)
    assert d.shape == (5, 3, 32, 4)
    for i, j in np.ndindex(5, 3):
        one = ins.execute(registers["a"], registers["b"][i, 0], registers["c"], metadata=metadata[j], selector=1)
        assert (d[i, j] == one).all()
    positions = np.tile(np.array([[0, 1], [3, 1]])[:, None, :], (1, 16, 8))
    kept, b = ins.matrix("a", registers["a"]), ins.matrix("b", registers["b"])
    product = ins.matmul(kept, b, np.zeros((16, 8), np.uint32), metadata=positions)
    assert product.shape == (5, 2, 16, 8)


def good(mnemonic: str = HALF, arch: str = "sm_90") -> tuple[SparseMatrixMultiply, dict[str, Any]]:
    """An instruction and registers that it takes."""
    ins = instruction(mnemonic, arch)
    registers: dict[str, Any] = {name: np.zeros((32, ins.operands[name].registers), np.uint32) for name in "abc"}
    return ins, registers | {"metadata": np.full(32, 0x44444444, np.uint32)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"a": np.zeros((32, 4), np.uint32)}, r"\.execute: a is uint32 \(32, 4\); valid: uint32 \(\.\.\., 32, 2\)"),
        ({"b": np.zeros((32, 2), np.float32)}, r"\.execute: b is float32 \(32, 2\); valid: uint32 \(\.\.\., 32, 2\)"),
        ({"c": np.zeros((16, 8), np.uint32)}, r"\.execute: c is uint32 \(16, 8\); valid: uint32 \(\.\.\., 32, 4\)"),
        ({"metadata": None}, r"\.execute: metadata is object \(\); valid: uint32 \(\.\.\., 32\)"),
        ({"metadata": np.full(32, 0x44444444)}, r"\.execute: metadata is int64 \(32,\); valid: uint32 \(\.\.\., 32\)"),
        ({"metadata": np.zeros((32, 1), np.uint32)}, r"\.execute: metadata is uint32 \(32, 1\); valid: uint32 \(\.\.\., 32\)"),
        ({"metadata": np.full((3, 32), 0x44444444, np.uint32), "a": np.zeros((2, 32, 2), np.uint32)},
         r"\.execute: leading dimensions .* do not broadcast"),
        ({"selector": 4}, r"\.execute: selector 4 does not exist; valid: 0, 1, 2, 3$"),
        ({"selector": -1}, r"\.execute: selector -1 does not exist; valid: 0, 1, 2, 3$"),
        ({"selector": 1.0}, r"\.execute: selector 1\.0 is not one integer; valid: 0, 1, 2, 3$"),
        ({"selector": np.array([0, 1])}, r"\.execute: selector array\(\[0, 1\]\) is not one integer; valid: 0, 1, 2, 3$"),
    ],
)  # fmt: skip
def test_wrong_registers(change: dict[str, Any], complaint: str) -> None:
    """The call, what was given, and what would be valid."""
    ins, registers = good()
    ins.execute(**registers)
    ins.execute(**registers | {"selector": np.int64(3)})
    with pytest.raises(OperandError, match=complaint) as caught:
        ins.execute(**{**registers, **change})
    assert str(caught.value).startswith(repr(ins))


@pytest.mark.parametrize("selector", [2, 3])
def test_a_selector_that_the_hardware_stops_at(selector: int) -> None:
    """The assembler takes it; the model refuses it, everywhere, and says why."""
    for mnemonic in (LONG_HALF, LONG_HALF.replace("mma.sp", "mma.sp::ordered_metadata")):
        for arch in COMPARED_ARCHS:
            ins, registers = good(mnemonic, arch)
            complaint = (
                rf"selector {selector}: the assembler accepts it, but .*illegal-instruction error .*; valid: 0, 1$"
            )
            with pytest.raises(OperandError, match=complaint):
                ins.execute(**registers, selector=selector)
            with pytest.raises(OperandError, match=complaint):
                ins.encode_metadata(np.tile([0, 1], (16, 8)), selector)
            with pytest.raises(OperandError, match=complaint):
                ins.decode_metadata(registers["metadata"], selector)
    for neighbour in ("f32.bf16.bf16.f32", "f16.f16.f16.f16"):
        ins = instruction(LONG_HALF.replace("f32.f16.f16.f32", neighbour))
        with pytest.raises(OperandError, match=rf"selector {selector} does not exist; valid: 0, 1$"):
            ins.encode_metadata(np.tile([0, 1], (16, 8)), selector)


@pytest.mark.parametrize("mnemonic", [HALF, FP8, LONG_INT8, INT4])
def test_undefined_metadata_is_computed_on_sm_90_only(mnemonic: str) -> None:
    """Both indices 0: two kept elements meet the same row of B on sm_90; elsewhere an error names row, group and bits."""
    for arch in COMPARED_ARCHS:
        if mnemonic not in on_arch(arch):
            continue
        ins, registers = good(mnemonic, arch)
        lanes, bits = ins.sparsity.places(0)
        lane, bit = int(lanes[9, 2]), int(bits[9, 2])
        registers["metadata"][lane] &= np.uint32(~(15 << bit) & 0xFFFFFFFF)
        assert ins.takes_any_group == (arch == "sm_90")
        if arch == "sm_90":
            ins.execute(**registers)
        else:
            with pytest.raises(
                OperandError, match=r"\.execute: metadata 0b0000 of row 9, group 2 is undefined; valid: 0b0001, "
            ):
                ins.execute(**registers)
        with pytest.raises(OperandError, match=r"\.decode_metadata: metadata 0b0000 of row 9, group 2 is undefined"):
            ins.decode_metadata(registers["metadata"])


def test_what_equal_indices_compute() -> None:
    """On sm_90 each kept element meets the row of B that its own index names: twice the same row."""
    ins, registers = good()
    registers["metadata"][:] = 0xAAAAAAAA  # both indices 2
    a, b = np.arange(1, 129).reshape(16, 8).astype(np.float16), np.arange(128).reshape(16, 8).astype(np.float16)
    d = ins.execute(ins.registers("a", a), ins.registers("b", b), registers["c"], metadata=registers["metadata"])
    expected = (a.astype(np.float64).reshape(16, 4, 2).sum(-1)) @ b.astype(np.float64)[2::4]
    assert (tcsim.decode(ins.matrix("d", d), "f32") == expected).all()


def test_decreasing_indices() -> None:
    """Without ordered_metadata the product of the exchanged elements; with it refused, but in registers on sm_90."""
    positions, swapped = np.tile([1, 3], (16, 4)), np.tile([3, 1], (16, 4))
    generator = np.random.Generator(np.random.PCG64(5))
    kept, b = generator.integers(-9, 9, (2, 16, 8)).astype(np.float16)
    zero = np.zeros((16, 8), np.float32)
    for arch in COMPARED_ARCHS:
        plain, ordered = instruction(HALF, arch), instruction(ORDERED, arch)
        d = plain.matmul(kept, b, zero, metadata=swapped)
        exchanged = kept.reshape(16, 4, 2)[..., ::-1].reshape(16, 8)
        assert (d == plain.matmul(exchanged, b, zero, metadata=positions)).all()
        complaint = "metadata 0b0111 of row 0, group 0 is undefined; valid: 0b0100, 0b1000, "
        with pytest.raises(OperandError, match=rf"\.matmul: {complaint}"):
            ordered.matmul(kept, b, zero, metadata=swapped)
        codes = {"a": kept, "b": b, "c": zero}
        registers: dict[str, Any] = {name: plain.registers(name, codes[name]) for name in "abc"}
        registers["metadata"] = plain.encode_metadata(swapped)
        if arch == "sm_90":
            assert (plain.matrix("d", ordered.execute(**registers)) == d).all()
        else:
            with pytest.raises(OperandError, match=rf"\.execute: {complaint}"):
                ordered.execute(**registers)


@pytest.mark.parametrize("mnemonic", [TF32, LONG_TF32])
def test_metadata_that_splits_tf32_elements_is_refused(mnemonic: str) -> None:
    """All but 0b0100 and 0b1110, on every arch."""
    refused = 0
    for arch in COMPARED_ARCHS:
        ins, registers = good(mnemonic, arch)
        for bits in range(16):
            registers["metadata"][:] = bits * 0x11111111
            if bits in (0b0100, 0b1110):
                ins.execute(**registers)
                continue
            complaint = rf"metadata 0b{bits:04b} of row 0, group 0 is undefined; valid: 0b0100, 0b1110$"
            with pytest.raises(OperandError, match=complaint):
                ins.execute(**registers)
            with pytest.raises(ValueError, match="mixes the halves of two tf32 elements"):
                slow.columns_of_words(mnemonic, registers["metadata"].tolist(), 0)
            refused += 1
    assert refused == 14 * len(COMPARED_ARCHS)


@pytest.mark.parametrize(
    ("mnemonic", "positions", "complaint"),
    [
        (
            HALF,
            np.tile([0.0, 1.0], (16, 4)),
            r"\.encode_metadata: positions is float64 \(16, 8\); valid: integers, .* group of 4, \(\.\.\., 16, 8\)",
        ),
        (
            HALF,
            np.tile([0, 1], (1, 4)),
            r"\.encode_metadata: positions is int64 \(1, 8\); valid: integers, .*, \(\.\.\., 16, 8\)",
        ),
        (HALF, np.tile([0, 1], (16, 8)), r"\.encode_metadata: positions is int64 \(16, 16\); valid: integers, "),
        (HALF, None, r"\.encode_metadata: positions is object \(\); valid: integers, "),
        (HALF, np.tile([0, 4], (16, 4)), r"\.encode_metadata: positions must be 0 to 3, inside a group of 4 elements"),
        (HALF, np.tile([-1, 1], (16, 4)), r"positions must be 0 to 3, inside a group of 4 elements"),
        (HALF, np.tile([2, 2], (16, 4)), r"metadata 0b1010 of row 0, group 0 is undefined; valid: 0b0001, "),
        (ORDERED, np.tile([2, 1], (16, 4)), r"metadata 0b0110 of row 0, group 0 is undefined; valid: 0b0100, 0b1000, "),
        (TF32, np.tile([0, 2], (16, 2)), r"positions must be 0 to 1, inside a group of 2 elements"),
        (
            INT4,
            np.tile([0, 1, 3, 4], (16, 8)),
            r"4-bit elements are kept in pairs: positions must come as 2 p, 2 p \+ 1",
        ),
        (INT4, np.tile([0, 2, 4, 5], (16, 8)), r"4-bit elements are kept in pairs"),
        (INT4, np.tile([2, 3, 2, 3], (16, 8)), r"metadata 0b0101 of row 0, group 0 is undefined"),
    ],
)
def test_wrong_positions(mnemonic: str, positions: Any, complaint: str) -> None:
    """encode_metadata and matmul refuse what metadata cannot say; nothing is rounded, clipped or repeated."""
    ins = instruction(mnemonic)
    with pytest.raises(OperandError, match=complaint) as caught:
        ins.encode_metadata(positions)
    assert str(caught.value).startswith(f"{ins!r}.encode_metadata: ")
    zeros = {name: np.zeros(ins.operands[name].shape, ins.operands[name].format.dtype) for name in "abc"}
    complaint = complaint.replace("positions is", "metadata is").replace("encode_metadata", "matmul")
    with pytest.raises(OperandError, match=complaint):
        ins.matmul(**zeros, metadata=positions)


def test_wrong_matrices() -> None:
    """Shapes and dtypes of matmul, compress and decode_metadata."""
    ins, registers = good(INT8)
    positions = np.tile([0, 1], (16, 8))
    codes = {name: np.zeros(ins.operands[name].shape, ins.operands[name].format.dtype) for name in "abc"}
    ins.matmul(**codes, metadata=positions)
    for name, wrong, error, complaint in (
        (
            "a",
            np.zeros((16, 32), np.uint8),
            OperandError,
            r"\.matmul: a has shape \(16, 32\); valid: \(\.\.\., 16, 16\)",
        ),
        ("b", np.zeros((16, 8), np.uint8), OperandError, r"\.matmul: b has shape \(16, 8\); valid: \(\.\.\., 32, 8\)"),
        ("b", np.zeros((32, 8), np.int32), FormatError, r"\.matmul: b: dtype int32 does not hold codes of s8; valid: "),
        ("c", np.zeros((16, 8), np.float32), FormatError, r"\.matmul: c: dtype float32 does not hold codes of s32"),
    ):
        with pytest.raises(error, match=complaint):
            ins.matmul(**{**codes, name: wrong}, metadata=positions)
    with pytest.raises(OperandError, match=r"\.compress: shape \(16, 16\); valid: \(\.\.\., 16, 32\)"):
        ins.compress(np.zeros((16, 16), np.uint8))
    with pytest.raises(FormatError, match=r"\.compress: dtype float64 does not hold codes of s8"):
        ins.compress(np.zeros((16, 32)))
    with pytest.raises(
        OperandError, match=r"\.decode_metadata: metadata is int64 \(32,\); valid: uint32 \(\.\.\., 32\)"
    ):
        ins.decode_metadata(registers["metadata"].astype(np.int64))
    with pytest.raises(
        OperandError, match=r"\.decode_metadata: metadata is uint32 \(16,\); valid: uint32 \(\.\.\., 32\)"
    ):
        ins.decode_metadata(registers["metadata"][:16])
