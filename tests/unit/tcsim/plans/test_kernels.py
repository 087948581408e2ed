"""cuBLASLt's kernels by the heuristic's answer: recorded products of an H200, every output by its digest; operands are a hash of their places (`hwkernels.plans.kernels`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcsim
from hwkernels.plans.cases import Case
from hwkernels.plans.kernels import predicted
from tcsim.plans.kernels import ALGORITHMS, likened, order_of
from tcsim.plans.record import Kind

RECORDED = np.load(Path(__file__).parents[3] / "data" / "plans" / "kernels_h200.npz")
"""Kinds; of each product its kind, m, n, k, batch, and the answer's algorithm, stages, custom option, split and reduction; digests of two outputs."""
KINDS = [str(kind).split(" ") for kind in RECORDED["kinds"]]


def differing(number: int) -> bool:
    """Whether an output of a recorded product differs."""
    kind, m, n, k, batch, algorithm, stages, custom, cuts, reduction = RECORDED["answers"][number].tolist()
    case = Case(*KINDS[kind], m, n, k, batch)
    return (
        predicted(case, f"cublasLt {algorithm}.{stages}.{custom}", cuts, reduction)
        != RECORDED["digests"][number].tolist()
    )


@pytest.mark.parametrize("algorithm", sorted(set(RECORDED["answers"][:, 5].tolist())))
def test_every_output_has_the_bits_of_an_h200(algorithm: int) -> None:
    """Ordinary numbers, and numbers whose sum is zero."""
    numbers = np.flatnonzero(RECORDED["answers"][:, 5] == algorithm)
    wrong = [RECORDED["answers"][i].tolist() for i in numbers if differing(int(i))]
    assert not wrong and len(numbers) >= 3


def test_what_is_not_known_has_no_order() -> None:
    """Unknown algorithms, options and stages, other spellings."""
    kind = Kind("mm", "bf16", "bf16", "TN", True)
    for kernel in ("nvjet", "cublasLt 24", "cublasLt 7.0.0", "cublasLt 13.0.3", "cublasLt 24.200.0"):
        assert order_of(kernel, 1, 0, kind, 8, 9, 100) is None
    assert order_of("cublasLt 13.0.75", 1, 0, kind, 1, 1, 100) is None
    assert order_of("cublasLt 10.0.0", 0, 1, kind, 8, 9, 523) is None
    assert order_of("cublasLt 13.0.10", 1, 0, kind, 1, 10000, 100) is None
    assert order_of("cublasLt 41.0.0", -1, 2, kind, 64, 40000, 4096) is None
    assert order_of("cublasLt 24.0.0", 2, 3, kind, 8, 9, 100) is None
    assert len(ALGORITHMS) == 16


def test_likened_answers_have_one_order() -> None:
    """Of every recorded answer, for its shape and for others; and answers of one order become one."""
    changed = 0
    for kind, m, n, k, batch, number, *about in RECORDED["answers"].tolist():
        stages, custom, cuts, reduction = likened(*about, number)
        changed += [stages, custom, cuts, reduction] != about
        of = Kind(*KINDS[kind], True)
        for shape in ((m, n, k, batch), (n, m, 2 * k + 1, batch), (1, n, k, batch), (33, 7, k, batch)):
            orders = [
                order_of(f"cublasLt {number}.{a}.{b}", c, d, of, *shape)
                for a, b, c, d in (about, (stages, custom, cuts, reduction))
            ]
            assert orders[0] == orders[1], (number, about, shape)
    assert changed > 20
    assert likened(9, 0, 1, 2, 23) == likened(7, 1, 1, 0, 23) != likened(9, 0, 2, 2, 23)
    assert likened(3, 4, 5, 2, 999) == (3, 4, 5, 2)


@pytest.mark.parametrize(("format", "results", "lanes"), [("f32", 128, 32), ("f32", 129, 24), ("bf16", 129, 32)])
def test_threads_of_gemv_nsp(format: str, results: int, lanes: int) -> None:
    order = order_of("cublasLt 13.0.10", 1, 0, Kind("bmm", format, format, "TN", True), 1, results, 100)
    assert order is not None and order.lanes == lanes


def test_a_mask_shows_where_the_parts_meet() -> None:
    """Two parts of 392: what is added to a large number is lost, until its opposite comes."""
    order = order_of("cublasLt 20.0.0", 2, 2, Kind("mm", "f32", "f32", "TN", True), 1, 1, 784)
    assert order is not None and order.chunk == 392
    plan = replace(tcsim.plan("mm", m=1, n=1, k=784, format="f32", gpu="sm_90"), order=order)
    a, b = np.ones((1, 784), np.float32), np.ones((784, 1), np.float32)
    a[0, 10], a[0, 20] = 2.0**60, -(2.0**60)
    assert tcsim.plans.product(plan, a, b)[0, 0] == 784 - 21
    a[0, 20], a[0, 400] = 1, -(2.0**60)
    assert tcsim.plans.product(plan, a, b)[0, 0] == 0
