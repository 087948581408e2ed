"""Orders of summation against sums written out here."""

from __future__ import annotations

from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.plans.orders import SUMS, Order, chains, total

RNG = np.random.default_rng(384)
A, B = RNG.normal(size=(3, 100)).astype(np.float32), RNG.normal(size=(100, 5)).astype(np.float32)


def fused(a: np.ndarray, b: np.ndarray, elements: list[int]) -> np.ndarray:
    """FMA of exact products, one rounding each: longdouble holds a product of two f32 and the sum to well below half an ulp."""
    found = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in elements:
        product = np.multiply.outer(a[:, k].astype(np.longdouble), b[k].astype(np.longdouble))
        found = (product + found).astype(np.float32)
    return found


def test_a_chain_rounds_once_a_step() -> None:
    elements = [7, 3, 99, *range(20, 60)]
    assert (chains(A, B, np.array([elements]), "numpy")[0] == fused(A, B, elements)).all()


@pytest.mark.skipif(find_spec("numba") is None, reason="numba")
@pytest.mark.parametrize("shape", [(40, 60, 70), (1, 3000, 40), (300, 1, 400), (5, 7, 2500)])
def test_the_compiled_loop_has_the_same_bits(shape: tuple[int, int, int]) -> None:
    """With batches, several chains, and chains that are shorter."""
    m, n, k = shape
    a, b = RNG.normal(size=(2, m, k)).astype(np.float32), RNG.normal(size=(k, n)).astype(np.float32)
    places = np.full((3, k // 2), -1)
    for i, size in enumerate((k // 2, 1, k // 3)):
        places[i, :size] = RNG.permutation(k)[:size]
    assert (chains(a, b, places, "numba") == chains(a, b, places, "numpy")).all()


def test_parts_lanes_and_runs() -> None:
    """Chunks, tiles in turn, lanes that take blocks in turn, runs of a lane, and neighbours in accumulators of their own."""

    def listed(order: Order, k: int) -> list[list[list[list[int]]]]:
        return [
            [[[x for x in run if x >= 0] for run in lane] for lane in part]
            for part in map(np.ndarray.tolist, order.places(k))
        ]

    assert listed(Order(parts=2, chunk=3), 5) == [[[[0, 1, 2]]], [[[3, 4]]]]
    assert listed(Order(parts=2, turn=2), 7) == [[[[0, 1, 4, 5]]], [[[2, 3, 6]]]]
    assert listed(Order(lanes=2, block=2), 7) == [[[[0, 1, 4, 5]], [[2, 3, 6]]]]
    assert listed(Order(lanes=2, block=1, run=2), 7) == [[[[0, 2], [4, 6]], [[1, 3], [5]]]]
    assert listed(Order(lanes=2, block=2, vector=2), 8) == [[[[0, 4], [1, 5]], [[2, 6], [3, 7]]]]


def test_sums_of_lanes_and_parts() -> None:
    """Numbers whose sum depends on the order: 2**24 swallows a one, not two."""
    big, one = np.float32(2**24), np.float32(1)
    assert SUMS["ascending"]([big, one, one]) == big
    assert SUMS["halves"]([big, one, one]) == big  # (big + one) + one: the fourth is a zero
    assert SUMS["halves"]([one, big, one]) == big + 2
    assert SUMS["buffers"]([one, big, one]) == big + 2  # the last, then sums of parts 0 and 1
    assert SUMS["buffers"]([big, one, one, one, one]) == big
    assert SUMS["block"]([big, one, one, one]) == big
    assert SUMS["block"]([big, one, *[np.float32(0)] * 3, one]) == big + 2


def test_a_residue_fills_a_tile_of_its_own() -> None:
    """41 elements in tiles of 32: the first 9, with zeros up to 16, then 32."""
    a, b = A[:, :41].astype(ml_dtypes.bfloat16), B[:41].astype(ml_dtypes.bfloat16)
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    wide = np.zeros((3, 48), ml_dtypes.bfloat16), np.zeros((48, 5), ml_dtypes.bfloat16)
    for k in range(41):
        place = k if k < 9 else k + 7
        wide[0][:, place], wide[1][place] = a[:, k], b[k]
    expected = tcsim.gemm(*wide, instruction=mma, arch="sm_90").view(np.float32)
    plain = tcsim.gemm(a, b, instruction=mma, arch="sm_90").view(np.float32)
    found = total(Order(mma, residue=32), a, b, np.float32, None, "sm_90")
    assert (found == expected).all() and (found != plain).any()


@pytest.mark.parametrize("parts_by", ["ascending", "rounded", "in place"])
def test_partial_sums_and_the_bias(parts_by: str) -> None:
    out, bias = ml_dtypes.bfloat16, np.float32([3, 1, 4, 1, 5])

    def rounded(x: np.ndarray) -> np.ndarray:
        return x.astype(out).astype(np.float32)

    p, q, r = (fused(A, B, list(range(i, min(i + 40, 100)))) for i in (0, 40, 80))
    expected = {
        "ascending": (p + q) + r + bias,
        "rounded": rounded(rounded(p) + rounded(q) + rounded(r)) + bias,
        "in place": rounded(r + rounded(q + rounded(p + bias))),
    }[parts_by]
    order = Order(parts=3, chunk=40, parts_by=parts_by, bias="rounded" if parts_by == "rounded" else "sum")
    assert (total(order, A, B, out, bias, "sm_90") == expected).all()


def test_operands_rounded_to_tf32() -> None:
    """To nearest even; infinity and NaN stay."""
    order = Order(operands="tf32")
    x = np.array([[0x3F801000, 0x3F803000, 0x7F800000, 0x7FFFFFFF]], np.uint32).view(np.float32)
    found = [
        float(total(order, x[:, [i]], np.ones((1, 1), np.float32), np.float32, None, "sm_90")[0, 0]) for i in range(4)
    ]
    assert found[:3] == [1.0, 1 + 2**-9, np.inf] and np.isnan(found[3])
