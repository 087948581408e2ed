"""Sums that are kept narrow are named, with the type, the length of a part and how they are added; right kernels stay right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import solve

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C at random."""
    random = np.random.default_rng(11)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 160), (160, 40)))
    return a, b, random.standard_normal((32, 40)).astype(np.float32)


def part(a: np.ndarray, b: np.ndarray, start: int, stop: int, c: np.ndarray | None = None) -> np.ndarray:
    """The sums of a part of K."""
    return tcsim.gemm(a[:, start:stop], b[start:stop], c, instruction=MMA).view(np.float32)


def through(x: np.ndarray, format: str) -> np.ndarray:
    """Numbers of a narrower type."""
    return x.astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[format]).astype(np.float32)


def cut(x: np.ndarray) -> np.ndarray:
    """The upper halves of f32."""
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize(
    ("format", "length", "wide"), [("bf16", 32, 1), ("bf16", 48, 0), ("f16", 32, 0), ("f16", 80, 1)]
)
def test_a_running_sum_that_is_rounded(format: str, length: int, wide: int) -> None:
    """The accumulator is rounded every so often, and C before or with the first sum."""
    a, b, c = operands()
    total = c if wide else through(c, format)
    for start in range(0, 160, length):
        total = through(part(a, b, start, start + length, total), format)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=total)
    assert (found.verdict, found.mistake) == ("explained", f"accumulator in {format}")
    assert f"rounded to {format} after every {length} of K" in str(found)


@pytest.mark.parametrize("format", ["bf16", "f16"])
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_of_k_that_are_stored_narrow(format: str, parts: int) -> None:
    """Partial sums in a narrow workspace, added in f32, then C."""
    a, b, c = operands()
    length = 160 // parts
    total = sum(through(part(a, b, start, start + length), format) for start in range(0, 160, length)) + c
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=total)
    assert (found.verdict, found.mistake) == ("explained", f"partial sums kept in {format}")
    assert f"K in {parts} parts of {length}: each partial sum is {format}, and they are added in f32" in str(found)


def test_a_narrow_result_of_narrow_parts() -> None:
    """A bf16 tensor of bf16 parts differs from the right one by an ulp here and there; one of parts in f32 is right."""
    a, b, _ = operands()
    parts = [part(a, b, start, start + 32) for start in range(0, 160, 32)]
    narrow = sum(through(x, "bf16") for x in parts).astype(ml_dtypes.bfloat16)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=narrow)
    assert (found.verdict, found.mistake) == ("explained", "partial sums kept in bf16")
    right = sum(parts[1:], parts[0]).astype(ml_dtypes.bfloat16)
    assert tcsim.diagnose(MMA, a=a, b=b, observed=right).verdict == "correct"


def test_atomics_in_f16_and_sums_that_are_cut() -> None:
    """Each part and each sum is rounded to f16; a running sum that loses its lower half."""
    a, b, _ = operands()
    atomics, running = np.zeros((32, 40), np.float32), np.zeros((32, 40), np.float32)
    for start in range(0, 160, 32):
        atomics = through(atomics + through(part(a, b, start, start + 32), "f16"), "f16")
        running = cut(part(a, b, start, start + 32, running))
    found = tcsim.diagnose(MMA, a=a, b=b, observed=atomics)
    assert found.mistake == "partial sums kept in f16" and "added in f16" in str(found)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=running)
    assert found.mistake == "accumulator in bf16" and "bf16 (cut, not rounded) after every 32 of K" in str(found)


def test_a_product_that_is_narrowed_before_c_is_added() -> None:
    """The product alone is bf16."""
    a, b, c = operands()
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=through(part(a, b, 0, 160), "bf16") + c)
    assert found.verdict == "explained" and "the product is bf16 before c is added" in str(found)


def test_a_tile_that_two_have_added() -> None:
    """Sums of 13 bits that are cut towards zero come out below twice the exact ones: named as a count, of the tile alone."""
    mma, arch = "wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e4m3", "sm_90a"
    random = np.random.default_rng(0)
    a, b = (tcsim.encode(abs(random.standard_normal(shape)), "e4m3") for shape in ((64, 128), (128, 24)))
    right = tcsim.gemm(a, b, instruction=mma, arch=arch).view(np.float32)
    tile = np.zeros(right.shape, bool)
    tile[32:, 8:] = True
    said = str(tcsim.diagnose(mma, arch=arch, a=a, b=b, observed=np.where(tile, right + right, right)))
    assert "result scaled (the product times 2, as if 2 had added it; in rows 32-63, columns 8-23" in said


def test_a_count_of_c_that_cut_sums_make_too_small() -> None:
    """3.9997 is four where each of some slices may have lost so much of C, and stays where nothing is cut."""
    assert solve.round_factor(3.9997, 2.0**-24, 1e-5, 1e-3) == 4
    assert solve.round_factor(3.9997, 2.0**-24, 1e-5) != 4
    assert solve.round_factor(3.98, 2.0**-24, 1e-5, 1e-3) != 4
