"""Mistakes in a part of K alone, in every slice of split-K, and in outputs that are kept in a narrow format."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
BYTES = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


def operands(m: int, n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A and B in f16, C in f32."""
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, random.standard_normal((m, n)).astype(np.float32)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Of the instruction, in f32."""
    return tcsim.gemm(a, b, c, instruction=MMA).view(np.float32)


@pytest.mark.parametrize(("rows", "columns", "said"), [(12, 0, "12 rows"), (0, 5, "by 5 elements"), (-7, 0, "7 rows")])
def test_partial_sums_at_another_place(rows: int, columns: int, said: str) -> None:
    """The second slice's partial sums are added some rows or columns further on, and nothing before or behind them."""
    a, b, c = operands(64, 48, 128, 16 + rows + columns)
    second = product(a[:, 64:], b[64:])
    row, column = np.indices(second.shape)
    place = (row - rows) * 48 + column - columns
    moved = np.where((place >= 0) & (place < second.size), second.reshape(-1)[np.clip(place, 0, second.size - 1)], 0)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=product(a[:, :64], b[:64], c) + moved.astype(np.float32))
    assert found.verdict == "explained", str(found)
    assert "pointer off in a part of K" in str(found) and "in K 64-127 alone" in str(found)
    assert said in str(found), str(found)


def test_partial_sums_of_scaled_products_are_transposed() -> None:
    """The rules of factors and of elements alone say nothing of a part of K."""
    random = np.random.default_rng(0)
    a, b = (tcsim.encode(random.standard_normal(shape), "e4m3") for shape in ((64, 128), (128, 64)))
    scale_a, scale_b = (tcsim.encode(2.0 ** random.integers(-2, 3, shape), "ue8m0") for shape in ((64, 4), (4, 64)))
    first, second = (
        tcsim.gemm(
            a[:, k], b[k], None, instruction=SCALED, arch="sm_120a", scale_a=scale_a[:, block], scale_b=scale_b[block]
        ).view(np.float32)
        for k, block in ((np.s_[:64], np.s_[:2]), (np.s_[64:], np.s_[2:]))
    )
    given = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    found = tcsim.diagnose(SCALED, arch="sm_120a", observed=first + second.T, **given)
    assert (found.verdict, found.mistake) == ("explained", "d transposed in a part of K"), str(found)


def test_a_part_that_is_right_is_not_said_to_be_wrong() -> None:
    """Outputs that have nothing to do with the operands have no part of K that is right."""
    a, b, _ = operands(48, 48, 128, 5)
    noise = np.random.default_rng(6).standard_normal((48, 48)).astype(np.float32) * 11
    found = tcsim.diagnose(MMA, a=a, b=b, observed=noise)
    assert found.verdict == "not explained", str(found)


@pytest.mark.parametrize(("slices", "turns"), [(2, False), (3, False), (2, True)])
def test_an_activation_in_every_slice(slices: int, turns: bool) -> None:
    """ReLU of each slice's sums, before these are added."""
    a, b, _ = operands(32, 40, 192, 8)
    tile = np.arange(192) // 32
    of_k = tile % slices if turns else tile // (6 // slices)
    observed = sum(np.maximum(product(a[:, of_k == one], b[of_k == one]), 0) for one in range(slices))
    found = tcsim.diagnose(MMA, a=a, b=b, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", "ReLU applied"), str(found)
    assert f"in each of {slices} slices of split-K" in str(found)


def test_c_alone_in_a_narrow_output_is_not_a_function_of_the_product() -> None:
    """Some rows hold C rounded to bf16: how far bf16 rounds is not how far the sums may be off."""
    a, b, c = operands(48, 128, 160, 9)
    observed = product(a, b, 4 * c)
    observed[:16] = 4 * c[:16]
    found = tcsim.diagnose(MMA, a=a, b=b, c=4 * c, observed=observed.astype(ml_dtypes.bfloat16))
    assert found.verdict == "explained" and found.explanations[0].bits, str(found)
    assert found.mistake == "a: rows not loaded" and "rows 0-15" in str(found)


@pytest.mark.parametrize(("height", "pad"), [(32, 8), (16, 4)])
def test_a_staging_tile_of_narrow_outputs(height: int, pad: int) -> None:
    """D goes through shared memory in rows that are padded on one side only; f16 outputs are too coarse to be looked up."""
    a, b, _ = operands(64, 64, 96, 10)
    right = product(a, b).astype(np.float16)
    row, column = np.indices(right.shape)
    place = row % height * 64 + column
    line, at = place // (64 + pad), place % (64 + pad)
    observed = np.where(at < 64, right[row // height * height + line, np.minimum(at, 63)], 0)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=observed.astype(np.float16))
    assert found.verdict == "explained", str(found)
    assert found.mistake == "d: pitch of the staging tile in shared memory wrong"
    assert f"written with {64 + pad} elements from row to row, and read with 64" in str(found)


def test_pairs_of_bytes_that_ldmatrix_moves() -> None:
    """B of bytes that lie N after N is brought by ldmatrix.trans: 16 bits are two elements."""
    random = np.random.default_rng(11)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((32, 64), (64, 32)))
    k, n = np.indices(b.shape)
    at = 16 * (n // 8 % 2) + 8 * (k // 16 % 2) + k // 4 % 4 * 2 + k // 2 % 2
    read = b[k // 32 * 32 + at, n // 16 * 16 + n % 8 * 2 + k % 2]
    found = tcsim.diagnose(BYTES, a=a, b=b, observed=tcsim.gemm(a, read, instruction=BYTES).view(np.int32))
    assert (found.verdict, found.mistake) == ("explained", "b: transposed in pairs of bytes"), str(found)


@pytest.mark.parametrize(("written", "read"), [(40, 48), (48, 40)])
def test_a_tile_that_is_padded_differently_on_both_sides(written: int, read: int) -> None:
    """Rows of 32 elements of A are written with one padded pitch and read with another."""
    a, b, _ = operands(32, 32, 128, 12)
    row, k = np.indices(a.shape)
    place = row * read + k % 32
    line, at = place // written, place % written
    held = np.where((at < 32) & (line < 32), a[np.minimum(line, 31), k // 32 * 32 + np.minimum(at, 31)], 0)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=product(held.astype(np.float16), b))
    assert (found.verdict, found.mistake) == ("explained", "a: pitch in shared memory wrong"), str(found)
    assert f"written with {written} elements from row to row, read with {read}" in str(found)


@pytest.mark.parametrize("stages", [3, 4])
def test_copies_at_the_end_that_are_not_awaited(stages: int) -> None:
    """Of five tiles of K the last two still hold those of the turn before, or nothing."""
    a, b, _ = operands(48, 40, 160, 13)
    tiles = [tile if tile < 3 else tile - stages for tile in range(5)]
    held = np.concatenate([b[32 * tile : 32 * tile + 32] if tile >= 0 else 0 * b[:32] for tile in tiles])
    found = tcsim.diagnose(MMA, a=a, b=b, observed=product(a, held))
    assert (found.verdict, found.mistake) == ("explained", "K blocks of b mismatched"), str(found)
    assert "not awaited" in str(found), str(found)


def test_one_mistake_is_named_before_two() -> None:
    """Both boxes of each K tile of A are copied to the place of the first; two other mistakes at once would do the same."""
    a, b, _ = operands(32, 64, 64, 14)
    tiles = a.reshape(32, 2, 32).copy()
    tiles[:, :, :16], tiles[:, :, 16:] = tiles[:, :, 16:].copy(), 0
    found = tcsim.diagnose(MMA, a=a, b=b, observed=product(tiles.reshape(32, 64), b))
    assert (found.verdict, found.mistake) == ("explained", "a: tile in boxes"), str(found)


def test_scale_factors_stay_where_a_pointer_is_off() -> None:
    """B of block-scaled fp8 is read three elements too early, its scale factors are right."""
    mnemonic = "mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
    random = np.random.default_rng(15)
    a, b = (tcsim.encode(random.standard_normal(shape), "e4m3") for shape in ((48, 128), (128, 40)))
    scale_a, scale_b = (random.integers(124, 131, shape).astype(np.uint8) for shape in ((48, 4), (4, 40)))
    read = np.concatenate([np.zeros(3, b.dtype), b.reshape(-1)[:-3]]).reshape(b.shape)
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    observed = tcsim.gemm(a, read, instruction=mnemonic, arch="sm_120", **scales).view(np.float32)
    found = tcsim.diagnose(mnemonic, arch="sm_120", a=a, b=b, observed=observed, **scales)
    assert (found.verdict, found.mistake) == ("explained", "b: pointer off"), str(found)
    assert "by -3 elements" in str(found)
