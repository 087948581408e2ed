"""Operands of products that are recorded for their order of summation."""

from __future__ import annotations

import numpy as np

from hwkernels.plans.cases import Case
from hwkernels.plans.kernels import TYPES, digest, drawn, operands, predicted


def test_operands_are_exact_in_their_format_and_cancel() -> None:
    """The exact sum of a cancelling product is what is left over of an odd K."""
    for format in TYPES:
        case = Case("mm", format, "f32", "TN", 3, 4, 11)
        for cancelling in (False, True):
            x, w, bias = operands(case, cancelling)
            assert x.shape == (1, 3, 11) and w.shape == (1, 4, 11) and bias.shape == (4,)
            assert all((each.astype(TYPES[format]).astype(np.float32) == each).all() for each in (x, w, bias))
            assert (np.abs(x[0].astype(float) @ w[0].T.astype(float)) < 0.1).all() == cancelling


def test_shapes_are_small_and_repeat() -> None:
    one, other = (np.random.default_rng(5) for _ in range(2))
    cases = [drawn(one) for _ in range(50)]
    assert cases == [drawn(other) for _ in range(50)] and len(set(cases)) > 40
    assert all(case.batch * case.m * case.n * case.k <= 2e7 and (case.batch == 1 or case.op == "bmm") for case in cases)


def test_predictions_tell_kernels_apart() -> None:
    """One chain of FMA, and 16 lanes; what is not known is None."""
    case = Case("mm", "f32", "f32", "TN", 4, 5, 300)
    chain, lanes = predicted(case, "cublasLt 20.0.0", 1, 0), predicted(case, "cublasLt 11.0.0", 1, 0)
    assert chain != lanes and predicted(case, "cublasLt 99.0.0", 1, 0) is None
    assert digest(np.zeros(3, np.float32)) != digest(np.ones(3, np.float32))
