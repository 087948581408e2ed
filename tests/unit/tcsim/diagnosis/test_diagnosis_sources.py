"""What an output is made of instead: C of another place, codes that were changed, lines that were not loaded, NaN; and where it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALF = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
SINGLE = np.float32
random = np.random.default_rng(5)
M, N, K = 36, 28, 48  # not multiples of the instruction's
A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
C = random.standard_normal((M, N)).astype(SINGLE)
ROW, COLUMN = np.arange(M)[:, None], np.arange(N)[None]


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """The instruction, over K."""
    return tcsim.gemm(a, b, c, instruction=MMA).view(SINGLE)


def moved(by: int) -> np.ndarray:
    """Outputs stored some rows too far down."""
    out = np.zeros((M, N), SINGLE)
    out[by:] = gemm(A, B, C)[:-by]
    return out


def wide() -> np.ndarray:
    """Sums in f16."""
    return tcsim.gemm(A, B, None, instruction=HALF).view(np.float16).astype(SINGLE)


def tail_of_nan() -> np.ndarray:
    """K = 48 in tiles of 64, and NaN in the rest."""
    return gemm(np.pad(A, ((0, 0), (0, 16)), constant_values=np.nan), np.pad(B, ((0, 16), (0, 0))))


def unwritten() -> np.ndarray:
    """The last columns hold the NaN that was there before."""
    return np.where(COLUMN < 16, gemm(A, B, C), SINGLE(np.nan))


ZERO = None
CASES: dict[str, tuple[Callable[[], np.ndarray], np.ndarray | None, str]] = {
    "C of the first block": (lambda: gemm(A, B, C[ROW % 16, COLUMN % 16]), C, r"c read from another place \(rows: the block of 16"),
    "one row of C": (lambda: gemm(A, B, C[ROW * 0, COLUMN]), C, r"c read from another place \(rows: always the first"),
    "pitch of C": (lambda: gemm(A, B, np.pad(C.ravel(), (0, 4 * M))[ROW * (N + 4) + COLUMN]), C, r"c: pitch wrong \(32 elements for 28"),
    "half of C": (lambda: (gemm(A, B) + SINGLE(1.5) * C).astype(ml_dtypes.bfloat16), C, r"c scaled \(c times 1.5\)"),
    "C after ReLU": (lambda: np.maximum(gemm(A, B), 0) + C, C, "ReLU applied .to the product, before c is added"),
    "bytes": (lambda: gemm(A, B.view(np.uint16).byteswap().view(np.float16)), ZERO, "b: bytes swapped"),
    "signs and alpha": (lambda: SINGLE(0.75) * gemm(abs(A), B), ZERO, "a: signs lost .* the product times 0.75"),
    "f16 sums": (wide, ZERO, f"accumulator in f16 .{HALF}, and its result widened"),
    "rows not loaded": (lambda: gemm(A * (ROW < 16), B), ZERO, "the same as: a: rows not loaded .rows 16-35 of a are zero"),
    "rows not loaded, with C": (lambda: gemm(A * (ROW < 16), B, C), C, "a: rows not loaded .rows 16-35 of a are zero"),
    "one row down": (lambda: moved(1), C, r"d: stored at another place \(rows: moved by 1, away from the first"),
    "NaN behind K": (tail_of_nan, ZERO, "NaN among what is multiplied .*behind K = 48"),
    "NaN from before": (unwritten, C, r"part of the output never written \(rows 0-35, columns 16-27\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_named_to_the_bit(name: str) -> None:
    made, c, said = CASES[name]
    given = {} if c is None else {"c": c}
    with np.errstate(all="ignore"):
        observed = made()
    found = tcsim.diagnose(MMA, a=A, b=B, **given, observed=observed)
    assert found.verdict == "explained" and found.explanations[0].bits, str(found)
    assert re.search(said, " ".join(str(found).split())), str(found)


@pytest.mark.parametrize(("pitch", "off"), [(91, 0), (16, -27)])
def test_c_of_any_pitch_and_pointer(pitch: int, off: int) -> None:
    """C's rows begin 91 elements apart, most of them behind its end; its first element is 27 too early."""
    random = np.random.default_rng(8)
    a, b, c = (random.standard_normal(shape).astype(np.float32) for shape in ((48, 16), (16, 16), (48, 16)))
    a, b = a.astype(np.float16), b.astype(np.float16)
    at = np.arange(48)[:, None] * pitch + np.arange(16) + off
    read = np.where((at >= 0) & (at < c.size), c.ravel()[np.clip(at, 0, c.size - 1)], np.float32(0))
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.gemm(a, b, read, instruction=MMA))
    said = (
        f"c: pitch wrong ({pitch} elements for 16 (row by row))" if pitch != 16 else "c: pointer off (by -27 elements"
    )
    assert (found.verdict, len(found.explanations)) == ("explained", 1) and said in str(found), str(found)


def test_rows_that_are_zero_are_first_of_all_not_loaded() -> None:
    """A second block that begins behind the end reads zeros as well, but where it begins does not show."""
    wgmma, random = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", np.random.default_rng(1)
    a, b, c = (random.standard_normal(shape).astype(np.float16) for shape in ((28, 16), (16, 16), (28, 16)))
    given = {"a": a, "b": b, "c": c.astype(SINGLE)}
    short = given | {"a": np.where(np.arange(28)[:, None] < 16, a, 0).astype(np.float16)}
    observed = tcsim.gemm(**short, instruction=wgmma, arch="sm_90a")
    found = tcsim.diagnose(wgmma, arch="sm_90a", **given, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", "a: rows not loaded"), str(found)


def test_columns_that_overlap_and_columns_that_nothing_is_stored_to() -> None:
    """A column of each lane in place of two: sums of small integers are zero by chance too, and the others are in one mistake's place."""
    a, b = (np.random.default_rng(3).integers(-2, 3, size).astype(np.float16) for size in ((48, 16), (16, 16)))
    right = gemm(a, b)
    out = np.zeros_like(right)
    for to, column in enumerate((0, 1, 3, 5, 7)):
        out[:, to::8] = right[:, column::8]
    found = tcsim.diagnose(MMA, a=a, b=b, observed=out)
    assert found.mistake == "b: columns of another block", str(found)
    assert "parts of 1 are parts 0, 1, 3, 5, 7, zero, zero, zero" in str(found)
    assert "the same as: d: stored at another place" in str(found)


def test_both_pointers_off() -> None:
    """By 256 elements each, of operands that lie along M and N."""
    at = np.arange(M * K).reshape(K, M).T + 256, np.arange(N * K).reshape(K, N) + 256
    a, b = (np.pad(x.ravel(), (0, 256))[where] for x, where in ((A.T, at[0]), (B, at[1])))
    found = tcsim.diagnose(MMA, a=A, b=B, observed=gemm(a, b))
    assert (found.verdict, found.mistake) == ("explained", "a: pointer off + b: pointer off"), str(found)
    detail = found.explanations[0].detail
    assert "by 256 elements (a line along M or N after another); b: pointer off: the same" in detail


@pytest.mark.parametrize("with_c", [False, True])
def test_accumulators_that_are_read_beside_their_beginning(with_c: bool) -> None:
    """Four columns too far on in every tile of 16, zeros behind it; C is added afterwards."""
    given = {"a": A, "b": B, **({"c": C} if with_c else {})}
    source = COLUMN + 4
    inside = (source // 16 == COLUMN // 16) & (source < N)
    late = np.where(inside, gemm(A, B)[ROW, np.minimum(source, N - 1)], 0) + (C if with_c else SINGLE(0))
    found = tcsim.diagnose(MMA, **given, observed=late.astype(SINGLE))
    assert (found.verdict, found.mistake) == ("explained", "d: read with an offset in its tile"), str(found)
    assert "in every 16 columns column i is that at i + 4, and the last 4 are zero" in str(found)


@pytest.mark.parametrize("seed", range(3))
def test_rows_whose_factors_are_larger_than_those_of_the_place_they_are_read_for(seed: int) -> None:
    """Rounding reaches as far as the terms that are read; or it would be a store, which cannot put the same sums at two places."""
    own = np.random.default_rng(seed)
    scaled = tcsim.instruction(
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
        arch="sm_120",
    )
    a, b = (tcsim.encode(own.standard_normal((64, 64)), "e4m3") for _ in range(2))
    scale_a, scale_b = (own.integers(117, 138, shape).astype(np.uint8) for shape in ((64, 2), (2, 64)))
    first = np.arange(64) % 32
    seen = tcsim.gemm(a[first], b, instruction=scaled, scale_a=scale_a[first], scale_b=scale_b)
    found = tcsim.diagnose(scaled, a=a, b=b, scale_a=scale_a, scale_b=scale_b, observed=seen)
    assert (found.verdict, found.mistake) == ("explained", "a: rows of another block")
