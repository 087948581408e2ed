"""Mistakes of one stage of the pipeline: the tiles of K that lie in it are read in another way, the others are right."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def stage(lines: np.ndarray, stages: int, number: int, *, pitch: bool) -> np.ndarray:
    """Lines (lines, K) in tiles of 32, those of one stage written with a swizzle, or with a padded pitch, that the reader does not know."""
    row, k = np.indices(lines.shape)
    if pitch:
        place = row % 32 * 32 + k % 32
        row, at = row // 32 * 32 + place // 40, np.minimum(place % 40, 31)
        read = np.where(place % 40 < 32, lines[row, k // 32 * 32 + at], 0)
    else:
        read = lines[row, k ^ row // 2 % 4 * 8]
    return np.where(k // 32 % stages == number, read, lines).astype(lines.dtype)


@pytest.mark.parametrize(
    ("hit", "stages", "number", "pitch", "name"),
    [
        ("b", 3, 2, False, "b: swizzle wrong (rows of 64 bytes: chunk ^ (row / 2 % 4) on one side only"),
        ("ab", 2, 0, True, "a: pitch in shared memory wrong + b: pitch in shared memory wrong"),
    ],
)
def test_one_stage_is_read_wrongly(hit: str, stages: int, number: int, pitch: bool, name: str) -> None:
    """Of one operand, and of both."""
    random = np.random.default_rng(stages + number)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((32, 128), (128, 32)))
    wrong_a = stage(a, stages, number, pitch=pitch) if "a" in hit else a
    wrong_b = stage(b.T, stages, number, pitch=pitch).T if "b" in hit else b
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(wrong_a, wrong_b, instruction=MMA))
    assert (found.verdict, len(found.explanations), found.explanations[0].bits) == ("explained", 1, True), str(found)
    assert name in str(found) and f"alone, which is stage {number} of {stages} if tiles are 32 long" in str(found)
    tiles = [tile for tile in range(4) if tile % stages == number]
    assert f"in K {','.join(f'{32 * tile}-{32 * tile + 31}' for tile in tiles)} alone" in str(found)


@pytest.mark.parametrize(("blocks", "with_c"), [((16, 16), True), ((32, 16), False)])
def test_a_slice_whose_sums_are_transposed(blocks: tuple[int, int], *, with_c: bool) -> None:
    """Split-K in two: the second slice's partial sums are written by rows and read by columns, in each block of the output."""
    random = np.random.default_rng(7)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((32, 64), (64, 40)))
    c = random.standard_normal((32, 40)).astype(np.float32) * with_c
    first, second = (
        tcsim.gemm(a[:, part], np.pad(b, ((0, 0), (0, 8)))[part], instruction=MMA).view(np.float32)
        for part in (slice(32), slice(32, 64))
    )
    height, width = blocks
    for i in range(0, 32, height):
        for j in range(0, 48, width):
            block = second[i : i + height, j : j + width]
            second[i : i + height, j : j + width] = block.T.reshape(blocks)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=(first + second)[:, :40] + c)
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", "partial sums transposed", True)
    assert f"those of K 32-63: each block of {height} x {width} outputs is written by rows" in str(found)
