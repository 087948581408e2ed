"""Pipelines, tiles in shared memory, accumulators of other tiles and stores: planted by hand, with sizes that the diagnosis is not given."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis.pipelines import causes, sequences

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
random = np.random.default_rng(11)
M, N, K, TILE = 64, 48, 96, 16
A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
COUNT = K // TILE


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """The instruction, over K."""
    return tcsim.gemm(a, b, c, instruction=MMA).view(np.float32)


def taken(operand: np.ndarray, tiles: list[int | None], axis: int) -> np.ndarray:
    """An operand whose tiles of K are others, or zeros."""
    cut = np.split(operand, COUNT, axis=axis)
    return np.concatenate([cut[0] * 0 if tile is None else cut[tile] for tile in tiles], axis=axis)


def pipeline(a: list[int | None], b: list[int | None]) -> np.ndarray:
    """A product of other tiles."""
    return gemm(taken(A, a, 1), taken(B, b, 0))


def carried() -> np.ndarray:
    """Blocks of 16 columns whose accumulators are not cleared."""
    out = np.zeros((M, N), np.float32)
    for start in range(0, N, 16):
        before = out[:, start - 16 : start] if start else None
        out[:, start : start + 16] = gemm(A, B[:, start : start + 16], before)
    return out


def stored(pitch: int, first: int, blank: float) -> np.ndarray:
    """The output with another pitch and another first address."""
    memory = np.full(M * N, blank, np.float32)
    for row, values in enumerate(gemm(A, B)):
        start = row * pitch + first
        memory[start : start + N] = values[: max(0, len(memory) - start)]
    return memory.reshape(M, N)


def chunks(a: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A product whose A is changed in every 32 bytes along K: (M, number, first or second 16 bytes, element)."""
    return gemm(a(A.reshape(M, K // 16, 2, 8).copy()).reshape(M, K), B)


def first_again(a: np.ndarray) -> np.ndarray:
    """The second 16 bytes are the first."""
    return a[:, :, [0, 0]]


def half(a: np.ndarray) -> np.ndarray:
    """The last 8 of each 16 bytes are not copied."""
    a[..., 4:] = 0
    return a


def one_place() -> np.ndarray:
    """Tiles of 16 rows, both halves of which are stored where the first belongs."""
    right = gemm(A, B)
    return np.where((np.arange(M) % 16 < 8)[:, None], right[np.minimum(np.arange(M) + 8, M - 1)], 0)


def overlapping(step: int) -> np.ndarray:
    """Blocks of 32 rows, stored `step` apart."""
    right, out = gemm(A, B), np.zeros((M, N), np.float32)
    for block in range(M // 32):
        out[block * step : block * step + 32] = right[32 * block : 32 * block + 32][: M - block * step]
    return out


def major() -> np.ndarray:
    """Tiles of 16 x 32 of A that lie along M and are read along K."""
    tiles = A.reshape(M // 16, 16, K // 32, 32).swapaxes(1, 2)
    read = tiles.swapaxes(2, 3).reshape(tiles.shape)
    return gemm(read.swapaxes(1, 2).reshape(M, K), B)


NEXT = [1, 2, 3, 4, 5]
CASES: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "stage 0": (lambda: pipeline([0, 0, 0, 3, 3, 3], [0, 0, 0, 3, 3, 3]), "stage's index is ignored.*iterations take 0, 0, 0, 3, 3, 3"),
    "overwritten": (lambda: pipeline([2, 3, 4, 5, 4, 5], [2, 3, 4, 5, 4, 5]), "next copy has overwritten .* .1 stage, tiles of 32: iterations take 1, 2, 2"),
    "only the last": (lambda: pipeline([None] * 4 + [4, 5], [None] * 4 + [4, 5]), "cleared in every tile of 32"),
    "a late": (lambda: pipeline([None] * 4 + [0, 1], [0, 1, 2, 3, 4, 5]), "a mismatched.*not awaited.*2 stages, tiles of 32: iterations take nothing, nothing, 0"),
    "b a tile ahead": (lambda: pipeline([0, 1, 2, 3, 4, 5], [2, 3, 4, 5, None, None]), "b mismatched .tiles are read 1 too early, at the end nothing .tiles of 32: iterations take 1, 2, nothing"),
    "b ahead": (lambda: pipeline([0, 1, 2, 3, 4, 5], [*NEXT, 3]), "b mismatched.*the next stage is read.*3 stages"),
    "prologue": (lambda: pipeline([0, 1, 2, 3, 4, 5], [0, 0, 0, 3, 4, 5]), "b mismatched.*the prologue copies the first tile to every stage.*4 stages"),
    "slices of a": (lambda: pipeline([0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5]), "a: K advance wrong.*block 0 of 32 every time, as in 3 slices of split-K that all begin at k 0"),
    "slices of both": (lambda: pipeline([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2]), "in a and b alike, every slice of split-K begins at k 0 .2 slices, tiles of 16: iterations take 0, 1, 2, 0"),
    "not cleared": (carried, "not cleared between output tiles.*x 16: .* hold sums that go on from those of the previous one, numbered along N"),
    "pitch too small": (lambda: stored(N - 4, 0, 0.0), "d: pitch wrong .44 elements for 48"),
    "pitch and nothing": (lambda: stored(N + 4, 0, np.nan), "d: pitch wrong .52 elements for 48"),
    "first address": (lambda: stored(N, 4, np.nan), "d: pointer off .by 4 elements: what is stored lies too late"),
    "warps in one place": (one_place, "d: stored at another place .rows: in every block of 16 all parts of 8 are stored in the place of the first: each is overwritten"),
    "stores of another tile": (lambda: overlapping(16), "rows: block i of 32 is stored at 16 i, as if its size were 16: each overwrites a part"),
    "8 bytes": (lambda: chunks(half), "the last 8 of every 16 bytes along K are zero"),
    "ldmatrix": (lambda: chunks(first_again), "a: 8 x 8 matrices repeated .the second 16 bytes of each 32"),
    "major": (major, "a: tile transposed .tiles of 16 x 32 lie MN-major"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_named_alone(case: str) -> None:
    """One explanation, of every bit, with the numbers of the kernel."""
    observed, said = CASES[case]
    found = tcsim.diagnose(MMA, a=A, b=B, observed=observed())
    assert found.verdict == "explained" and found.explanations[0].bits
    assert re.search(said, f"{found.explanations[0]} {found.explanations[0].advice}"), found.lines()


def test_every_sequence_counts_what_it_takes() -> None:
    """Its counts of each k are those of its steps, and `causes` finds it by them."""
    compared = 0
    for found in sequences(K, 16):
        weights = found.counts(K)
        steps = np.bincount(found.steps(K, 16), minlength=K // 16)
        assert np.array_equal(weights.reshape(-1, 16), np.repeat(steps[:, None], 16, axis=1))
        assert not found.both or causes(weights, K, 16)[0]
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("grouped", [False, True])
def test_sums_that_grow_in_accumulators(grouped: bool) -> None:
    """One CTA computes 16 tiles in turn: what rounding does grows with all that the accumulators held."""
    random = np.random.default_rng(0)
    a, b = (tcsim.encode(random.standard_normal((64, 64)), "f16") for _ in "ab")
    out, held = np.zeros((64, 64), np.uint32), np.zeros((16, 16), np.uint32)
    order = (2, 6, 3, 7, 10, 14, 11, 15, 8, 12, 9, 13, 0, 4, 1, 5) if grouped else range(16)
    for number in order:
        y, x = divmod(number, 4)
        rows, columns = slice(16 * y, 16 * y + 16), slice(16 * x, 16 * x + 16)
        held = out[rows, columns] = tcsim.gemm(a[rows], b[:, columns], held, instruction=MMA)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=out)
    assert found.verdict == "explained" and found.explanations[0].bits
    said = "tiles of 16 x 16: 15 of 16 hold sums that go on from those of the previous one, numbered along N"
    if grouped:
        said = "8 of 16 hold sums that go on from those of block 4 before; 4 of 16 hold sums that go on from those of block 3 "
    assert "accumulators not cleared between output tiles" in str(found) and said in str(found)
