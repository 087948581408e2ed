"""An address that moves on along K by a wrong number of elements: from tile to tile, inside a tile in shared memory, of one operand or both."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B at random."""
    random = np.random.default_rng(m + n + k)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((m, k), (k, n)))
    return a, b


def stepped(lines: np.ndarray, part: int, by: int) -> np.ndarray:
    """Lines (lines, K) whose tiles of `part` begin `by` apart, zeros behind K."""
    k = np.arange(lines.shape[1])
    at = k // part * by + k % part
    return np.where(at < len(k), lines[:, np.minimum(at, len(k) - 1)], 0).astype(lines.dtype)


def said_of(a: np.ndarray, b: np.ndarray, wrong_a: np.ndarray, wrong_b: np.ndarray) -> str:
    """Everything that is said of the product of other operands."""
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(wrong_a, wrong_b, instruction=MMA))
    assert (found.verdict, len(found.explanations), found.explanations[0].bits) == ("explained", 1, True), str(found)
    return str(found)


@pytest.mark.parametrize(("part", "by"), [(48, 1), (32, 12)])
def test_tiles_that_begin_any_number_of_elements_apart(part: int, by: int) -> None:
    """Of one operand, and of both."""
    a, b = operands(32, 24, 96)
    said = said_of(a, b, a, stepped(b.T, part, by).T)
    assert f"b: K advance wrong (each K tile of {part} begins {by} further on along K" in said
    assert ("one element" in said, "in units" in said) == (by == 1, False)
    said = said_of(a, b, stepped(a, part, by), stepped(b.T, part, by).T)
    assert "a: K advance wrong + b: K advance wrong" in said
    assert (
        said.count(f"each K tile of {part} begins {by} further on along K") == 1
        and "b: K advance wrong: the same" in said
    )


def test_the_end_of_every_tile_left_out() -> None:
    """Tiles of 24, of which the loop takes one step of 16: the k that neither operand reads are named."""
    a, b = operands(32, 24, 96)
    kept = np.arange(96) % 24 < 16
    said = said_of(a, b, a[:, kept], b[kept])
    assert "K 16-23 of every 24 is left out" in said and "the K loop takes too few" in said


def test_a_step_inside_a_tile_that_wraps() -> None:
    """Step s of each tile of 64 is step 2 s, modulo the tile's four."""
    a, b = operands(32, 24, 128)
    k = np.arange(128)
    said = said_of(a, b, a, b[k // 64 * 64 + (k % 64 // 16 * 32 + k % 16) % 64])
    assert "b: K advance wrong (inside each K tile of 64 step s begins at 32 s modulo 64, not at 16 s" in said


@pytest.mark.parametrize("both", [False, True])
def test_lines_that_begin_at_a_multiple_of_16_bytes(both: bool) -> None:
    """K = 52 halves are 104 bytes: every second row begins 8 bytes before one."""
    a, b = operands(32, 24, 52)
    row, k = np.indices((32, 52))
    early = [x.reshape(-1)[(row * 52 // 8 * 8 + k)[: len(x)]] for x in (a, np.ascontiguousarray(b.T))]
    said = said_of(a, b, early[0], early[1].T if both else b)
    assert "a: addresses rounded down" in said and ("b: addresses rounded down" in said) == both
    assert "each line begins at the multiple of 8 elements (16 bytes) before it" in said


def through(lines: np.ndarray, tile: tuple[int, int], by: int, k_major: bool) -> np.ndarray:
    """Lines (lines, K) read from tiles in shared memory in which the address moves on by `by` for each 16 along K, zeros behind the tile."""
    rows, deep = tile
    out = np.zeros_like(lines)
    for top in range(0, len(lines), rows):
        for left in range(0, lines.shape[1], deep):
            part = lines[top : top + rows, left : left + deep]
            shared = np.append(part.ravel() if k_major else part.T.ravel(), np.zeros(4 * part.size, lines.dtype))
            row, k = np.indices(part.shape)
            first = row * deep + k % 16 if k_major else k % 16 * rows + row
            out[top : top + rows, left : left + deep] = shared[first + k // 16 * by]
    return out


@pytest.mark.parametrize(("k_major", "by"), [(True, 24), (False, 16)])
def test_descriptors_that_move_on_by_other_units(k_major: bool, by: int) -> None:
    """In a K-major tile, and in an MN-major one as if it were K-major."""
    a, b = operands(64, 48, 128)
    said = said_of(a, b, through(a, (32, 64), by, k_major), b)
    order, right = ("K-major", 16) if k_major else ("MN-major", 512)
    assert f"a: K advance wrong (inside each tile of 32 x 64, {order}, the address moves on by {by} elements" in said
    assert f"where its right step is {right} elements ({2 * right} bytes)" in said


@pytest.mark.parametrize(("written", "read"), [(72, 64), (64, 88)])
def test_a_padding_on_one_side_of_a_tile_with_more_rows_than_there_are(written: int, read: int) -> None:
    """60 rows in tiles of 64: written and read with two pitches."""
    a, b = operands(60, 16, 96)
    out = np.zeros_like(a)
    for left in (0, 64):  # the second one ends after 32
        shared = np.zeros(64 * 128, a.dtype)
        row, k = np.indices((60, min(64, 96 - left)))
        shared[row * written + k] = a[:, left : left + 64]
        out[:, left : left + 64] = shared[row * read + k]
    said = said_of(a, b, out, b)
    assert (
        f"a: pitch in shared memory wrong (tiles of 64 x 64 written with {written} elements from row to row, read with {read})"
        in said
    )


def test_a_sparse_operand_whose_metadata_are_right() -> None:
    """The kept elements move on by 7 for each 32, and the metadata are those of the right ones."""
    random = np.random.default_rng(1)
    kept, b = operands(32, 24, 64)[0], tcsim.encode(random.standard_normal((128, 24)), "f16")
    positions = np.sort(np.argsort(random.random((32, 32, 4)), axis=2)[:, :, :2], axis=2).reshape(32, 64)
    observed = tcsim.gemm(stepped(kept, 32, 7), b, metadata=positions, instruction=SPARSE, arch="sm_90")
    found = tcsim.diagnose(SPARSE, a=kept, b=b, metadata=positions, observed=observed)
    assert found.verdict == "explained" and "each K tile of 32 begins 7 further on along K" in str(found)


def test_a_sparse_operand_of_other_rows() -> None:
    """Rows 8-15 of each 16 are rows 0-7 again, with metadata of their own: not a pointer that is off."""
    random = np.random.default_rng(2)
    kept, b = operands(32, 24, 32)[0], tcsim.encode(random.standard_normal((64, 24)), "f16")
    positions = np.sort(np.argsort(random.random((32, 16, 4)), axis=2)[:, :, :2], axis=2).reshape(32, 32)
    row = np.arange(32)
    observed = tcsim.gemm(kept[row // 16 * 16 + row % 8], b, metadata=positions, instruction=SPARSE, arch="sm_90")
    found = tcsim.diagnose(SPARSE, a=kept, b=b, metadata=positions, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", "a: rows of another block"), str(found)
    assert (
        "in every block of 16 the part of 8 is always the first, repeated: 8-15 are 0-7, both halves are the first; metadata or scale"
        in str(found)
    )


def test_lines_of_random_numbers_have_no_step() -> None:
    """Nothing is named where nothing moves evenly."""
    a, b = operands(32, 24, 96)
    other = operands(32, 16, 96)[0]
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(other, b, instruction=MMA))
    assert found.verdict == "not explained" and not any("K advance" in one.mistake for one in found.nearest)


def test_steps_of_every_tile_that_are_not_multiplied() -> None:
    """The last of the four steps of each tile of 64: that says less than a tile of 48 that begins every 64."""
    a, b = operands(32, 24, 128)
    kept = np.arange(128) % 64 < 48
    assert "K block missing (K 48-63,112-127 not added)" in said_of(a, b, a[:, kept], b[kept])


@pytest.mark.parametrize(("lost", "said"), [(np.s_[43:], "K 43-{}"), (np.s_[:5], "K 0-4")])
def test_loads_masked_by_another_bound_than_k(lost: slice, said: str) -> None:
    """K that ends, or begins, inside an instruction's step: in one operand, which is the same as in both."""
    a, b = operands(32, 24, 96)
    cut = b.copy()
    cut[lost] = 0
    assert f"K block missing ({said.format(95)} of a, of b or of both are zeros)" in said_of(a, b, a, cut)
    b = np.concatenate([b, b[::-1]])
    cut = b.copy()
    cut[lost] = 0
    given = {"metadata": np.tile(np.array([0, 2], np.uint8), (32, 48))}
    seen = tcsim.gemm(a, cut, instruction=SPARSE, **given)
    told = str(tcsim.diagnose(SPARSE, a=a, b=b, observed=seen, **given))
    assert f"K block missing ({said.format(191)} of a, of b or of both are zeros)" in told
