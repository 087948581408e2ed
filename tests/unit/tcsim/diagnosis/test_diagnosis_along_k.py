"""What each k is: read from boxes that lie otherwise, never loaded, in reverse; and a bias that rounding could hide."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FP8 = "wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e4m3"


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B at random."""
    random = np.random.default_rng(m + n + k)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((m, k), (k, n)))
    return a, b


def boxed(a: np.ndarray, back: bool) -> np.ndarray:
    """Rows of tiles of 32 x 64 of boxes of 32 x 32, one behind the other, that are taken for rows of 64; or the other way round."""
    m, k = a.shape
    tiles = a.reshape(m // 32, 32, k // 64, 64).swapaxes(1, 2)
    shape = (m // 32, k // 64, 32, 2, 32)
    if back:
        tiles = tiles.reshape(m // 32, k // 64, 2, 32, 32).swapaxes(2, 3)
    else:
        tiles = tiles.reshape(shape).swapaxes(2, 3)
    return np.ascontiguousarray(tiles).reshape(m // 32, k // 64, 32, 64).swapaxes(1, 2).reshape(m, k)


def straight_on(a: np.ndarray) -> np.ndarray:
    """Of each row of tiles of 32 x 64 what lies in the second box of 32 x 32 is read from the row below of the first one."""
    tiles = boxed(a, False).reshape(2, 32, 2, 64).swapaxes(1, 2).reshape(4, -1)
    place = np.arange(32)[:, None] * 32 + np.arange(64)
    return tiles[:, place].reshape(2, 2, 32, 64).swapaxes(1, 2).reshape(a.shape)


K = np.arange(128)
WRONG = {
    "a: tile in boxes (tiles written in boxes of 32 x 32 one behind the other, read in rows of 64": lambda a: boxed(a, False),
    "a: tile in boxes (tiles read in boxes of 32 x 32 one behind the other, written in rows of 64": lambda a: boxed(a, True),
    "boxes (swizzle atoms) of 32 x 32 one behind the other: in place of the next box read straight on": straight_on,
    "a: part of each step not loaded (K 8-15 of every 16 are zero": lambda a: np.where(K % 16 < 8, a, 0).astype(a.dtype),
    "a: part of each step not loaded (K all but 4-7 of every 16 are zero": lambda a: np.where(K % 16 // 4 == 1, a, 0).astype(a.dtype),
    "K of a in another order (blocks of 32 in reverse": lambda a: a[:, K ^ 96],
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_another_k(said: str) -> None:
    """Of A alone."""
    a, b = operands(64, 24, 128)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(WRONG[said](a), b, instruction=MMA))
    assert (found.verdict, found.explanations[0].bits) == ("explained", True) and said in str(found), str(found)


def test_a_last_step_is_as_long_as_k() -> None:
    """K = 40 ends inside an instruction's 16."""
    a, b = operands(32, 24, 40)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a[:, :32], b[:32], instruction=MMA))
    assert "K 32-39 not added" in str(found)


@pytest.mark.parametrize("size", [0, 6])
def test_a_bias_that_rounding_could_hide(size: float) -> None:
    """Sums of fp8 are coarse, and the largest of a row hide what is added to all; without it the same sums are right."""
    random = np.random.default_rng(4)
    x, y = (random.standard_normal(shape) * 8 for shape in ((64, 128), (128, 24)))
    a, b = tcsim.encode(x, "e4m3"), tcsim.encode(y, "e4m3")
    exact = tcsim.decode(a, "e4m3").astype(np.float64) @ tcsim.decode(b, "e4m3").astype(np.float64)
    bias = size * random.standard_normal((64, 1))
    observed = (exact + bias).astype(np.float32).astype(ml_dtypes.bfloat16)
    found = tcsim.diagnose(FP8, arch="sm_90a", a=a, b=b, observed=observed)
    assert found.verdict == ("explained" if size else "correct"), str(found)
    assert not size or found.mistake == "bias added"
