"""Mistakes of the third set of reports, planted by hand: C by tokens, clamps of codes, metadata of one half, factors of lines of which some are zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tests.evaluation.second_wrong_kernels.__main__ import run

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
RANDOM = np.random.default_rng(17)
A, B = (tcsim.encode(RANDOM.standard_normal(shape), "f16") for shape in ((32, 64), (64, 24)))
C = RANDOM.standard_normal((32, 24)).astype(np.float32) * 9


def said(mma: str, **given: Any) -> str:
    """What is said, in one text."""
    return "\n".join(tcsim.diagnose(mma, arch="sm_89" if mma == E4M3 else "sm_90", **given).lines())


@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_c_in_another_order(axis: int) -> None:
    moved = np.ascontiguousarray(C.take(RANDOM.permutation(C.shape[axis]), axis=axis))
    told = said(MMA, a=A, b=B, c=C, observed=tcsim.gemm(A, B, moved, instruction=MMA))
    assert f"c read from another place ({('rows', 'columns')[axis]}: " in told and "a permutation of all" in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: np.maximum(x, -1), "every value of -1 or below counts as -1"),
        (
            lambda x: np.where(np.abs(x) >= 2, np.sign(x) * 3, x),
            "every value of -2 or below counts as -3, every value of 2 or above counts as 3",
        ),
    ],
)
def test_codes_that_are_clamped(change: Any, words: str) -> None:
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "e4m3", saturate=True) for shape in ((64, 64), (64, 32)))
    wrong = tcsim.encode(change(tcsim.decode(a, "e4m3").astype(float)), "e4m3")
    told = said(E4M3, a=a, b=b, observed=tcsim.gemm(wrong, b, instruction=E4M3, arch="sm_89"))
    assert "a: values clamped" in told and words in told


def test_metadata_of_one_half_for_both() -> None:
    keep = np.argsort(RANDOM.random((32, 32, 4)), axis=-1) < 2
    dense = np.where(keep.reshape(32, 128), RANDOM.uniform(1, 2, (32, 128)), 0.0)
    rule = tcsim.instruction(SPARSE, arch="sm_90").sparsity
    a, metadata = rule.compress_matrix(tcsim.encode(dense, "f16"), "f16")
    b = tcsim.encode(RANDOM.standard_normal((128, 24)), "f16")
    width = metadata.shape[1] // 4  # of one step of 32
    wrong = metadata.reshape(32, 4, 2, width // 2)[:, :, [0, 0]].reshape(metadata.shape)
    told = said(
        SPARSE, a=a, b=b, metadata=metadata, observed=tcsim.gemm(a, b, metadata=wrong, instruction=SPARSE, arch="sm_90")
    )
    assert "metadata of another K block" in told and "the second half is the first again" in told


def test_factors_of_rows_of_which_some_are_zero_and_rows_that_count_twice() -> None:
    right = tcsim.gemm(A, B, instruction=MMA).view(np.float32)
    factors = np.where(np.arange(32) < 20, RANDOM.uniform(0.5, 2, 32), 0).astype(np.float32)
    assert "rows scaled (factors from 0 to" in said(MMA, a=A, b=B, observed=right * factors[:, None])
    twice = np.where(np.arange(32) < 16, 1, 2).astype(np.float32)
    assert "factors 2 (twice as large) in rows 16-31" in said(MMA, a=A, b=B, observed=right * twice[:, None])
    assert "not loaded" in said(MMA, a=A, b=B, observed=right * (factors[:, None] > 0))


def test_all_of_k_once_more_is_a_factor() -> None:
    one, two = (tcsim.gemm(A[:, k], B[k], instruction=MMA).view(np.float32) for k in (slice(32), slice(32, None)))
    told = said(MMA, a=A, b=B, observed=one + two + one + two)
    assert "result scaled (the product times 2, as if 2 had added it)" in told and "K " not in told.split("\n")[2]


def test_a_step_of_one_descriptor_comes_before_two_orders() -> None:
    """An MN-major tile of B whose descriptor moves on by the K of an instruction, as in a K-major tile."""
    wgmma, deep = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", 64
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "e4m3", saturate=True) for shape in ((64, 192), (192, 64)))
    tiles = b.reshape(3, deep * 64)  # each K line after the other
    at = np.arange(deep)[:, None] % 32 * 64 + np.arange(64) + np.arange(deep)[:, None] // 32 * 32
    wrong = tiles[:, np.minimum(at, deep * 64 - 1)].reshape(192, 64)
    told = said(wgmma, a=a, b=b, observed=tcsim.gemm(a, wrong, instruction=wgmma, arch="sm_90"))
    assert "b: K advance wrong" in told and " + " not in told


def test_scale_factors_behind_the_end_have_code_0() -> None:
    """Rows 16 to 31 of 64 have those of rows 32 to 47; the later half lies behind the end, and its outputs are next to zero."""
    mma = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "e4m3", saturate=True) for shape in ((64, 128), (128, 16)))
    own, other = (RANDOM.integers(123, 132, shape).astype(np.uint8) for shape in ((64, 4), (4, 16)))
    longer = np.vstack([own, 0 * own])
    at = np.arange(64) // 16 * 32 + np.arange(64) % 16
    given = {"a": a, "b": b, "scale_a": own, "scale_b": other}
    observed = tcsim.gemm(**{**given, "scale_a": longer[at]}, instruction=mma, arch="sm_120")
    told = "\n".join(tcsim.diagnose(mma, arch="sm_120", **given, observed=observed).lines())
    assert "block i of 16 starts at 32 i" in told and "what lies outside has code 0" in told


def test_registers_of_every_four_of_a_wide_accumulator() -> None:
    wgmma = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16", arch="sm_90a")
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "f16") for shape in ((64, 32), (32, 32)))
    registers = wgmma.registers("d", tcsim.gemm(a, b, instruction=wgmma))
    order = np.arange(registers.shape[-1]).reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1)
    observed = wgmma.matrix("d", registers[..., order])
    assert "d registers permuted (register 1 with 2 of every four)" in str(
        tcsim.diagnose(wgmma, a=a, b=b, observed=observed)
    )


def test_columns_of_another_tile_in_some_rows_are_no_store_alone() -> None:
    """The first tile of each three along N takes the next one's columns of B, of the lower rows the last takes the first's."""
    a, b = (tcsim.encode(RANDOM.standard_normal(shape), "f16") for shape in ((64, 64), (64, 96)))
    right = tcsim.gemm(a, b, instruction=MMA)
    wrong = right.copy()
    wrong[:32, :32], wrong[32:, 64:] = right[:32, 32:64], right[32:, :32]
    told = said(MMA, a=a, b=b, observed=wrong)
    assert "or these columns of b are read there" in told or "b: columns of another block" in told


@pytest.mark.parametrize(
    ("kind", "seed", "words"),
    [
        ("WorkspaceSharedByARow", 80003, "sums of another tile"),
        ("AddedToThePreviousRuns", 60001, "the product times 2"),
    ],
)
def test_slices_of_k_in_narrow_outputs(kind: str, seed: int, words: str) -> None:
    """That a map of B gives every bit of a sample says no more for it; and all of K once more is a factor."""
    told = run((kind, seed))
    assert words in told["lines"][2] and told["judgement"] == "right and alone"
