"""Tiles of one operand in the place of others: stages of another output tile, swizzles that nobody listed, matrices of a fragment, accumulators of half a tile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ROW, K = np.arange(64)[:, None], np.arange(64)[None]


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B at random."""
    random = np.random.default_rng(m + n + k)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((m, k), (k, n)))
    return a, b


def said_of(a: np.ndarray, b: np.ndarray, wrong_a: np.ndarray, wrong_b: np.ndarray) -> str:
    """What is said of the product of wrong operands; one explanation has every bit."""
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(wrong_a, wrong_b, instruction=MMA))
    assert found.verdict == "explained" and found.explanations[0].bits, str(found)
    assert not found.explanations[0].combined, str(found)
    return str(found.explanations[0])


SWIZZLES = {
    "chunks of 8 along K: they are rotated in each 4, by x, where x is 0, 1, 2, 3 for row % 4 = 0-3": lambda r, k: (r, k // 32 * 32 + (k + r % 4 * 8) % 32),
    "chunks of 4 along K: in the place of chunk c is chunk c ^ x, where x is 0, 1, 2, 3 for row % 4 = 0-3": lambda r, k: (r, k ^ r % 4 * 4),
    "chunks of 8 rows: in the place of chunk c is chunk c ^ x, where x is 0, 1, 2, 3, 4, 5, 6, 7 for k % 8 = 0-7": lambda r, k: (r ^ k % 8 * 8, k),
}  # fmt: skip


@pytest.mark.parametrize("said", SWIZZLES)
def test_swizzles_that_nobody_listed(said: str) -> None:
    """Rotated chunks, chunks of 8 bytes, and a tile that lies MN-major."""
    change: Callable[..., tuple[np.ndarray, np.ndarray]] = SWIZZLES[said]
    a, b = operands(64, 64, 64)
    assert f"a: swizzle wrong ({said}" in said_of(a, b, a[change(ROW, K)], b)


def test_matrices_of_a_fragment_in_another_order() -> None:
    """Of the four 8 x 8 matrices of A two are read twice, and two never."""
    a, b = operands(64, 64, 64)
    said = said_of(a, b, a[ROW // 16 * 16 + K // 8 % 2 * 8 + ROW % 8, K // 16 * 16 + K % 8], b)
    assert "a: 8 x 8 matrices in another order (in every 16 rows x 16 of K, tiles of 8 rows x 8 along K: " in said
    assert "rows 8-15 have in K 0-7 what lies 8 rows before" in said


def test_a_stage_of_the_output_tile_before() -> None:
    """In each 32 columns but the first, the first K tile of B is the last one of the columns before."""
    a, b = operands(64, 96, 96)
    wrong = b.copy()
    wrong[:32, 32:] = b[64:, :-32]
    said = said_of(a, b, a, wrong)
    assert "columns 32-95 have in K 0-31 what lies 32 columns before and 64 of K further on" in said
    assert "and each iteration read the tile of the iteration before" in said


def test_a_map_of_k_is_one_mistake() -> None:
    """Each 16 of K in reverse: not two rules, one in A and one in B, that give the same together."""
    a, b = operands(32, 32, 96)
    said = said_of(a, b, a[:, np.arange(96) ^ 15], b)
    assert "in each 16 along K the order is 15, 14, 13" in said


def test_an_order_of_parts_of_k() -> None:
    """Each 64 of K in parts of 16, which come in another order."""
    a, b = operands(32, 32, 128)
    order = np.array([2, 0, 3, 3])
    k = np.arange(128)
    said = said_of(a, b, a, b[k // 64 * 64 + order[k // 16 % 4] * 16 + k % 16])
    assert "K blocks of b mismatched (in each 64 along K the order of the parts of 16 is 2, 0, 3, 3)" in said


def test_half_of_the_accumulators_is_not_cleared() -> None:
    """In rows 8-15 of each 16 the sums go on from those of the 16 rows before."""
    a, b = operands(64, 16, 64)
    observed = tcsim.gemm(a, b, instruction=MMA)
    for row in range(24, 64, 16):
        observed[row : row + 8] = tcsim.gemm(a[row : row + 8], b, observed[row - 16 : row - 8], instruction=MMA)
    said = str(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "accumulators not cleared between output tiles (tiles of 8 x 16: " in said


def test_a_mistake_of_all_outputs_is_named_before_one_of_a_part() -> None:
    """Registers 1 and 3 of A hold rows 8-15 alone; of B there is no such mistake."""
    a, b = operands(64, 64, 64)
    found = tcsim.diagnose(
        MMA, a=a, b=b, observed=tcsim.gemm(a[ROW, np.where(ROW % 16 >= 8, K ^ 8, K)], b, instruction=MMA)
    )
    assert found.mistake == "a registers permuted" and found.verdict == "explained", str(found)
    said = said_of(a, b, a, b[np.where(K % 16 >= 8, ROW ^ 8, ROW), K])
    assert "the halves of every 16 along K, 0-7 and 8-15, are exchanged; in rows 0-63, columns 8-15 of every 16" in said


def test_rows_that_are_read_twice_were_not_stored_past_the_end() -> None:
    """Every second row of A is the row before, where the output is as wide as half a tile."""
    a, b = operands(32, 32, 64)
    assert "in every 2 rows the second is the first again" in said_of(a, b, a[np.arange(32) // 2 * 2], b)


def test_rows_that_are_wrong_in_a_part_of_k() -> None:
    """The last K tile of A comes from the row below: lines of A, and no sums that are stored elsewhere."""
    a, b = operands(48, 48, 112)
    wrong = a.copy()
    wrong[:, 96:] = np.vstack([a[1:, 96:], a[:1, 96:] * 0])
    said = said_of(a, b, wrong, b)
    assert "a: pointer off (by 112 elements (a line of K after another): 1 along M or N; in K 96-111 alone" in said


def test_matrices_that_are_exchanged_in_one_step_of_each_four() -> None:
    """The second and the third matrix of A, in K 48-63 of every 64."""
    a, b = operands(64, 64, 128)
    k = np.arange(128)[None]
    high, right, there = ROW // 8 % 2, k // 8 % 2, k % 64 >= 48
    wrong = a[np.where(there, ROW + 8 * (right - high), ROW), np.where(there, k + 8 * (high - right), k)]
    said = said_of(a, b, wrong, b)
    assert "a: 8 x 8 matrices exchanged" in said and "in K 48-63,112-127 alone" in said


def test_a_slice_of_one_operand_that_begins_a_tile_too_late() -> None:
    """From K 96 on A is a tile of 32 further on."""
    a, b = operands(64, 64, 192)
    said = said_of(a, b, np.hstack([a[:, :96], a[:, 128:], a[:, :32] * 0]), b)
    assert "K blocks of a mismatched (before iteration 3 the address has moved on once too often" in said
    assert "tiles of 32: iterations take 0, 1, 2, 4, 5, nothing" in said


SCALED = "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"


@pytest.mark.parametrize("rows", [32, 64])
def test_tiles_of_elements_whose_factors_are_right(rows: int) -> None:
    """Elements of A are a K tile late; or only those of the second rows, from the rows before: their scale factors are not."""
    random = np.random.default_rng(rows)
    a, b = (tcsim.encode(random.standard_normal(shape), "e2m1", saturate=True) for shape in ((64, 256), (256, 64)))
    scales = {
        name: tcsim.encode(2.0 ** random.integers(-3, 4, shape), "ue8m0")
        for name, shape in (("scale_a", (64, 8)), ("scale_b", (8, 64)))
    }
    wrong = a.copy()
    if rows == 64:
        wrong[:, 64:] = a[:, :-64]
    else:
        wrong[32:, :64] = a[:32, 192:]
    observed = tcsim.gemm(wrong, b, instruction=SCALED, arch="sm_120", **scales)
    found = tcsim.diagnose(SCALED, arch="sm_120", a=a, b=b, observed=observed, **scales)
    said = (
        "one block of 64 late"
        if rows == 64
        else "rows 32-63 have in K 0-63 what lies 32 rows before and 192 of K further on"
    )
    assert (
        found.verdict == "explained"
        and f"K blocks of a mismatched ({'' if rows == 64 else 'tiles of 32 rows x 64 along K: '}{said}" in str(found)
    ), str(found)


def test_k_that_is_rotated_by_one() -> None:
    """Every element of A is the next one along K, and the last the first."""
    a, b = operands(32, 32, 64)
    assert "K of a in another order (every k is that 1 further on, round the end: K 0 is K 1)" in said_of(
        a, b, np.roll(a, -1, axis=1), b
    )


def test_rows_that_move_on_with_each_k_tile() -> None:
    """For each K tile of 32 the pointer of A moves on by a row too much."""
    a, b = operands(64, 64, 96)
    row, k = ROW + np.arange(96)[None] // 32, np.arange(96)[None]
    wrong = np.where(row < 64, a[np.minimum(row, 63), k], 0).astype(a.dtype)
    assert "for each K tile of 32 the pointer moves on by 128 elements, not 32" in said_of(a, b, wrong, b)


SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize("reverse", [False, True])
def test_metadata_of_one_constant_or_in_reverse(reverse: bool) -> None:
    """Every group counts as positions 1 and 3, or each four groups are in reverse."""
    random = np.random.default_rng(3)
    dense = np.where(np.argsort(random.random((32, 32, 4)), axis=-1) < 2, random.standard_normal((32, 32, 4)), 0.0)
    kept, positions = tcsim.instruction(SPARSE, arch="sm_90").sparsity.compress_matrix(
        tcsim.encode(dense.reshape(32, 128), "f16"), "f16"
    )
    b = tcsim.encode(random.standard_normal((128, 16)), "f16")
    wrong = (
        positions[:, np.arange(64) ^ 6]
        if reverse
        else np.broadcast_to(np.resize(positions[:1, :1] * 0 + [1, 3], 64), positions.shape)
    )
    observed = tcsim.gemm(kept, b, instruction=SPARSE, metadata=wrong.astype(positions.dtype))
    found = tcsim.diagnose(SPARSE, a=kept, b=b, metadata=positions, observed=observed)
    said = (
        "metadata of another group (in each 4 groups along K they are in reverse order"
        if reverse
        else "metadata not read (every group counts as positions 1 and 3"
    )
    assert found.verdict == "explained" and said in str(found), str(found)
