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
