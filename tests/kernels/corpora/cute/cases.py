"""The CuTe DSL kernels' launches, and what NumPy says of them in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.corpora.case import Close, Inputs, Launch, Pointer, Source, case
from tests.kernels.corpora.triton.launches import wide, zeros


def cute(function: str, signature: str, targets: tuple[str, ...] = ("sm_80", "sm_90a", "sm_100a", "sm_120a")) -> Any:
    """Register a case. signature: types of pointers and numbers, "*f16 f32"."""
    return case(Source("cute", "kernels", function, (("signature", signature),)), "", targets, function)


@cute("axpy", "*f32 *f32 f32")
def axpy(inputs: Inputs) -> Launch:
    x, y, a = inputs.normal((512,)), inputs.normal((512,)), np.float32(1.7)
    return Launch(
        {"x": x, "y": y},
        (Pointer("x"), Pointer("y"), a),
        {"y": Close(wide(a) * x + y, np.float32, 1e-6, 1e-6)},
        (2, 1, 1),
    )


@cute("rms_norm", "*f16 *f32 *f16 f32")
def rms_norm(inputs: Inputs) -> Launch:
    x, weight, eps = inputs.normal((6, 128), np.float16, 2.0), inputs.normal((128,)), np.float32(1e-5)
    y = wide(x) / np.sqrt((wide(x) ** 2).mean(axis=1, keepdims=True) + eps) * weight
    return Launch(
        {"x": x, "weight": weight, "y": zeros((6, 128), np.float16)}, (*map(Pointer, ("x", "weight", "y")), eps),
        {"y": Close(y, np.float16, 2e-3, 1e-4)}, (6, 1, 1),
    )  # fmt: skip


@cute("transpose", "*f16 *f16", ("sm_80", "sm_90a"))
def transpose(inputs: Inputs) -> Launch:
    x = inputs.normal((32, 64), np.float16)
    return Launch(
        {"x": x, "y": zeros((64, 32), np.float16)},
        (Pointer("x"), Pointer("y")),
        {"y": Close(x.T, np.float16)},
        shared_bytes=4096,
    )


@cute("matmul", "*f16 *f16 *f32")
def matmul(inputs: Inputs) -> Launch:
    a, b = inputs.normal((64, 96), np.float16), inputs.normal((64, 96), np.float16)
    return Launch(
        {"a": a, "b": b, "d": zeros((64, 64), np.float32)}, tuple(map(Pointer, "abd")),
        {"d": Close(wide(a) @ wide(b).T, np.float32, 1e-5, 1e-4)}, shared_bytes=8192,
    )  # fmt: skip
