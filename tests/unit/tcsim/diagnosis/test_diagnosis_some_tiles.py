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


@pytest.mark.parametrize("blocks", [(16, 16), (32, 16)])
def test_a_slice_whose_sums_are_transposed(blocks: tuple[int, int]) -> None:
    """Split-K in two: the second slice's partial sums are written by rows and read by columns, in each block of the output."""
    random = np.random.default_rng(7)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((32, 64), (64, 40)))
    c = random.standard_normal((32, 40)).astype(np.float32) * (blocks[0] == 16)
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
    assert (found.verdict, found.mistake) == ("explained", "d transposed in a part of K")
    assert found.explanations[0].bits
    assert f"each block of {height} x {width} outputs is written by rows and read by columns; in K 32-63 alone" in str(
        found
    )


def test_stages_that_begin_off_the_period_of_a_swizzle() -> None:
    """Three stages of B, 384 bytes more than a multiple of 1024 apart: each has a phase of its own."""
    random = np.random.default_rng(9)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((16, 192), (192, 16)))
    column, k = np.indices(b.T.shape)
    phase = k // 64 % 3 * 384 // 128
    read = np.take_along_axis(b.T, k ^ (column % 8 ^ (column + phase) % 8) * 8, axis=1).T
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a, read, instruction=MMA))
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", "b: swizzle wrong", True)
    assert "384 in K 64-127, 768 in K 128-191; as of stages that lie 384 bytes more than a multiple of 1024" in str(
        found
    )


def test_offsets_of_a_descriptor_that_are_exchanged() -> None:
    """B in core matrices without a swizzle: in a tile of several instructions each begins where it should, and goes on with LBO for SBO."""
    wgmma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    random = np.random.default_rng(11)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((64, 64), (64, 64)))
    column, k = np.indices((64, 64))
    core, chunk = column % 32 // 8, k // 8
    place = core + chunk % 2 * 8 + chunk // 2 * 2  # of 4 x 8 core matrices that lie one after another along K
    read = np.where(
        place < 32, b.T[np.minimum(column // 32 * 32 + place // 8 * 8 + column % 8, 63), place % 8 * 8 + k % 8], 0
    )
    found = tcsim.diagnose(wgmma, arch="sm_90a", a=a, b=b, observed=tcsim.gemm(a, read.T, instruction=wgmma))
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", "b: LBO and SBO swapped", True)
    assert "in each instruction of tiles of 32 x 64" in str(found)
