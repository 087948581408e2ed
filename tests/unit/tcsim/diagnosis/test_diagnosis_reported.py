"""Mistakes of public reports, planted by hand: where elements lie, what their bytes are taken for, where accumulators are stored, what C is left out of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
NVFP4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
M, N, K = 32, 24, 48
RANDOM = np.random.default_rng(5)
A, B = (tcsim.encode(RANDOM.standard_normal(shape), "f16") for shape in ((M, K), (K, N)))
BIAS = np.broadcast_to(tcsim.encode(RANDOM.standard_normal(N) * 4, "f32"), (M, N))


def product(a: Any = A, b: Any = B, c: Any = None) -> Any:
    return tcsim.gemm(a, b, c, instruction=MMA)


def packed() -> Any:
    """Columns of B lie 56 elements apart, with zeros between, and are read 48 apart."""
    memory = np.zeros((N, 56), B.dtype)
    memory[:, :K] = B.T
    return product(b=memory.reshape(-1)[: N * K].reshape(N, K).T.copy())


def diagonal() -> Any:
    """Each 8 x 8 fragment of A is read from the k that its rows begin at."""
    row, k = np.indices(A.shape)
    return product(a=A[row, row // 8 * 8 + k % 8])


def first_of_each_step() -> Any:
    """Of every 16 of K in B the first element alone arrives."""
    return product(b=np.where(np.arange(K)[:, None] % 16 == 0, B, B.dtype.type(0)))


def lane_by_lane() -> Any:
    """The four accumulators of a lane as four neighbours of each tile of 16 x 8."""
    right, out = product(), np.zeros((M, N), np.uint32)
    lane, register = np.divmod(np.arange(128), 4)
    row, column = lane // 4 + register // 2 * 8, lane % 4 * 2 + register % 2
    for top in range(0, M, 16):
        for left in range(0, N, 8):
            out[top : top + 16, left : left + 8] = right[top + row, left + column].reshape(16, 8)
    return out


def pitch_of_a_tile() -> Any:
    """Each tile of 16 x 8 is stored from its own first element on, its rows 8 apart; the later tiles over the earlier ones."""
    right, memory = product(), np.zeros(M * N, np.uint32)
    for top in range(0, M, 16):
        for left in range(0, N, 8):
            memory[top * N + left : top * N + left + 128] = right[top : top + 16, left : left + 8].reshape(-1)
    return memory.reshape(M, N)


CASES: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "padded columns read as packed": (packed, None, "b: pitch wrong (rows of 48 that are padded to 56 are read as packed"),
    "the offset of the rows for that of K": (diagonal, None, "a: offset of the lines taken along K (each 8 x 8 block"),
    "one element of each step": (first_of_each_step, None, "part of each step not loaded (K 1-15 of every 16 are zero"),
    "accumulators lane by lane": (lane_by_lane, None, "d: stored at another place (each lane stores its four accumulators"),
    "tiles with a pitch of their own": (pitch_of_a_tile, None, "d: pitch wrong (tiles of 16 x 8 are stored with 8 elements"),
    "a bias that is left out": (product, BIAS, "accumulator ignored"),
    "a bias of the column in the tile": (
        lambda: product(c=np.ascontiguousarray(BIAS[:, np.arange(N) % 8])), BIAS, "c read from another place (columns: the block of 8 is always the first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_first(case: str) -> None:
    observed, c, said = CASES[case]
    found = tcsim.diagnose(MMA, a=A, b=B, c=c, observed=observed())
    assert found.verdict == "explained" and found.explanations[0].bits, str(found)
    assert str(found.explanations[0]).startswith(said) or f"a: {said}" in str(found), str(found)


def test_a_factor_that_rounding_of_the_right_outputs_exceeds() -> None:
    """Sums of e4m3 lose more than a hundredth of them; all of it times one number is told all the same, noise of that size is not."""
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "e4m3") for shape in ((32, 64), (64, 32)))
    right = tcsim.gemm(a, b, instruction=E4M3).view(np.float32)
    found = tcsim.diagnose(E4M3, a=a, b=b, observed=right * np.float32(0.0125))
    assert (found.verdict, found.mistake) == ("explained", "result scaled") and "times 0.0125" in str(found)
    noise = RANDOM.standard_normal(right.shape).astype(np.float32) * 0.0125
    assert tcsim.diagnose(E4M3, a=a, b=b, observed=noise).verdict == "not explained"


def scaled(codes: Any, a_read: Any = None, b_read: Callable[[Any], Any] = lambda b: b) -> tcsim.diagnosis.Diagnosis:
    """What is said of a product whose factors of A, or whose B, are read as others; elements of both are e2m1."""
    random, mma = np.random.default_rng(2), tcsim.instruction(NVFP4, arch="sm_120a")
    a, b = (random.integers(0, 16, shape).astype(np.uint8) for shape in ((len(codes), 128), (128, 16)))
    other = tcsim.encode(2.0 ** random.integers(-2, 3, (8, 16)), "ue4m3")
    read = codes if a_read is None else np.ascontiguousarray(a_read)
    observed = tcsim.gemm(a, b_read(b), None, instruction=mma, scale_a=read, scale_b=other)
    return tcsim.diagnose(mma, a=a, b=b, observed=observed, scale_a=codes, scale_b=other)


def test_factors_that_lie_there_as_wider_numbers() -> None:
    codes = tcsim.encode(np.random.default_rng(3).uniform(0.5, 4, (32, 8)), "ue4m3")
    wide = tcsim.encode(tcsim.decode(codes, "ue4m3"), "f32").view(np.uint8).reshape(32, 32)
    found = scaled(codes, wide[:, :8] & 0x7F)
    assert found.verdict == "explained" and "scale_a bytes of f32" in str(found), str(found)


def test_factors_whose_columns_are_padded() -> None:
    """Block by block along K, 30 lines padded to 32: read 30 apart. Of 32 lines two are those of the padding."""
    codes = tcsim.encode(np.random.default_rng(4).uniform(0.5, 4, (30, 8)), "ue4m3")
    memory = np.zeros((8, 32), np.uint8)
    memory[:, :30] = codes.T
    found = scaled(codes, memory.reshape(-1)[: 8 * 30].reshape(8, 30).T)
    assert found.verdict == "explained" and "each padded to a multiple of 4 lines" in str(found), str(found)


@pytest.mark.parametrize("k_first", [True, False])
def test_two_elements_of_a_byte(k_first: bool) -> None:
    """Neighbours along K in memory that are taken for neighbours along N."""

    def read(b: Any) -> Any:
        held = b.reshape(64, 2, 16)  # bytes (K / 2, N), of the nibbles 0 and 1
        low, high = held[:, 0], held[:, 1]
        low, high = (x.T.reshape(8, 128).T if k_first else x.reshape(128, 8) for x in (low, high))
        return np.stack([low, high], axis=2).reshape(128, 16)

    found = scaled(tcsim.encode(np.full((32, 8), 1.0), "ue4m3"), b_read=read)
    assert found.verdict == "explained" and "a byte holds two neighbours along K" in str(found), str(found)
