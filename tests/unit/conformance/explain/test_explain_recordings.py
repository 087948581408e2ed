"""Recorded products of cuBLAS, cuDNN and Triton on an H200: what explains a few of them; tox -e explain asks about all."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest

from conformance.explain import inputs
from conformance.explain.recorded import KEPT, cases
from tcsim.explanation import filter_orders

FEW = (
    ("cublas-bf16-bf16-bf16-128x256x512-NT.only.cancelling", "wgmma or mma, k16", "one accumulator"),
    (
        "cublas-bf16-bf16-bf16-100x100x1001.only.cancelling",
        "mma, k8",
        "K split in 14 parts of 72, what exceeds tiles of 64 first",
    ),
    (
        "cublas-tf32-tf32-f32-128x128x256.only.normal",
        "operands rounded to tf32 (rne)",
        "a fresh accumulator every 64 elements of K",
    ),
    ("cublas-s8-s8-s32-128x128x256-NT.only.normal", "wgmma or mma, k32, s32", "one accumulator"),
)
"""Case, beginning of the arithmetic, order."""


@pytest.mark.parametrize(("name", "arithmetic", "order"), FEW)
def test_what_cublas_did(name, arithmetic, order):
    found = cases()[name].explained()
    assert found.verdict in ("explained", "consistent")
    assert found.matching == found.compared == cases()[name].outputs.size
    assert found.classes[0].arithmetic.startswith(arithmetic)
    assert order in found.classes[0].order


@pytest.mark.parametrize(
    ("name", "kind", "other_kind", "order"),
    [
        ("cublas-bf16-bf16-bf16-128x256x512-NT.only", "cancelling", "normal", "one accumulator"),
        ("cublaslt-f32-f32-f32-128x128x1024-sweep.3", "normal", "cancelling", "blocks of 8 in turn, added in 8 sums"),
    ],
)
def test_an_order_predicts_all_of_another_product(name, kind, other_kind, order):
    """What is found on 1,024 outputs of one product predicts every output of another product of the same kernel: its digest."""
    found = cases()[f"{name}.{kind}"].explained()
    assert order in found.classes[0].order
    other = cases()[f"{name}.{other_kind}"]
    given = inputs.operands(other.product, other_kind)
    predicted = found.classes[0].predict(given["a"], given["b"])
    assert hashlib.sha256(np.ascontiguousarray(predicted).tobytes()).hexdigest() == other.about["whole"]


@pytest.mark.parametrize(
    ("formats", "order", "arithmetic"),
    [
        ("f32-f32-f32", "channels, then positions", "one f32 FMA after another"),
        ("tf32-tf32-f32", "blocks of 32 channels, positions, channels of the block", "operands rounded to tf32 (rne)"),
    ],
)
def test_how_cudnn_runs_through_k(formats: str, order: str, arithmetic: str) -> None:
    """The order found on 1,024 outputs of a 3 x 3 convolution gives all 16,384: their digest."""
    case = cases()[f"cudnn-three-{formats}-256x64x576.only.normal"]
    places = dict(filter_orders(576, 9))[order]
    found = case.in_order(places)
    assert found.matching == found.compared == 1024 and found.classes[0].arithmetic.startswith(arithmetic)
    given = inputs.operands(case.product, "normal")
    predicted = found.classes[0].predict(given["a"][..., places], given["b"][..., places, :])
    assert hashlib.sha256(np.ascontiguousarray(predicted).tobytes()).hexdigest() == case.about["whole"]


def test_the_recordings_are_complete():
    libraries = Counter(item.product.library for item in cases().values())
    ways = Counter(item.product.library for name, item in cases().items() if item.about["kind"] == "normal")
    assert libraries.total() == 337
    assert ways["cublas"] + ways["cublaslt"] >= 60 and ways["triton"] >= 10 and ways["cudnn"] >= 10
    for item in cases().values():
        assert item.about["stable"] and item.about["gpu"] == "NVIDIA H200" and 0 < item.outputs.size <= KEPT + 1024
