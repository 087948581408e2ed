"""Products by plans: chunks, promotion, scales, bias, against sums written out here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.plans import product
from tcsim.plans.packed import Decision

RNG = np.random.default_rng(38)
A = RNG.normal(size=(4, 512)).astype(ml_dtypes.bfloat16)
B = RNG.normal(size=(512, 16)).astype(ml_dtypes.bfloat16)


def chain(a: np.ndarray, b: np.ndarray, instruction: str) -> np.ndarray:
    return tcsim.gemm(a, b, instruction=instruction, arch="sm_90").view(np.float32)


def test_chunks_are_added_in_ascending_order() -> None:
    """Three chunks of 192 elements, the last shorter; the bias before the one rounding."""
    plan = replace(tcsim.plan("addmm", m=4, n=16, k=512, gpu="sm_90", bias=True), split=3, chunk=192)
    assert plan.chunks == ((0, 192), (192, 384), (384, 512)) and plan.instruction is not None
    bias = RNG.normal(size=16).astype(ml_dtypes.bfloat16)
    parts = [chain(A[:, i:j], B[i:j], plan.instruction) for i, j in plan.chunks]
    expected = ((parts[0] + parts[1]) + parts[2] + bias.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert (product(plan, A, B, bias=bias).view(np.uint16) == expected.view(np.uint16)).all()
    with pytest.raises(tcsim.OperandError, match="bias=True"):
        product(plan, A, B)
    with pytest.raises(tcsim.OperandError, match="scales for addmm"):
        product(plan, A, B, bias=bias, scale_a=2)


@pytest.mark.parametrize("op", ["scaled_mm", "scaled_mm_rowwise"])
@pytest.mark.parametrize("fast", [False, True])
def test_scales_of_fp8(op: str, fast: bool) -> None:
    """Without fast accumulation every 128 elements are added in f32; scales follow."""
    a, b = A.astype(ml_dtypes.float8_e4m3fn), B.astype(ml_dtypes.float8_e4m3fn)
    plan = tcsim.plan(op, m=4, n=16, k=512, format="e4m3", gpu="sm_90", fast=fast)
    assert plan.instruction is not None and plan.promotion == (0 if fast else 128)
    size = 512 if fast else 128
    total = chain(a[:, :size], b[:size], plan.instruction)
    for start in range(size, 512, size):
        total = total + chain(a[:, start : start + size], b[start : start + size], plan.instruction)
    row = op.endswith("rowwise")
    left, right = (RNG.random(shape).astype(np.float32) for shape in (((4, 1), (1, 16)) if row else ((), ())))
    scaled = (total * right) * left if row else total * (left * right)
    found = product(plan, a, b, scale_a=left, scale_b=right)
    assert (found.view(np.uint16) == scaled.astype(ml_dtypes.bfloat16).view(np.uint16)).all()


@pytest.mark.parametrize("gpu", ["h200", "b200", "rtx5090"])
def test_fp8_of_two_formats(gpu: str) -> None:
    """Each operand has its own codes; exchanged, other numbers are multiplied. What a rule says holds for them too; what the table says is only assumed."""
    types = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    for first, second in (("e4m3", "e5m2"), ("e5m2", "e4m3")):
        a, b = A[:, :64].astype(types[first]), B[:64].astype(types[second])
        plan = tcsim.plan("scaled_mm", m=4, n=16, k=64, format=f"{first}.{second}", out="f32", gpu=gpu)
        assert plan.source == ("rule" if gpu == "h200" else "assumed")
        found = product(plan, a, b)
        exact = a.astype(float) @ b.astype(float)
        assert np.abs(found - exact).max() <= 2.0**-11 * (abs(a.astype(float)) @ abs(b.astype(float))).max()
        with pytest.raises(tcsim.FormatError, match=f"codes of {first}"):
            product(plan, b.T, a.T)
    long = {"m": 16, "n": 4096, "k": 8192, "gpu": "h200"}
    both, one = (tcsim.plan("scaled_mm", format=own, **long) for own in ("e4m3.e5m2", "e4m3"))
    assert both.chunks == one.chunks and (both.source, one.source) == ("assumed", "table")


@pytest.mark.parametrize("gpu", ["a100", "b200", "v100", "rtx5090"])
def test_other_chips_compute_their_chain(gpu: str) -> None:
    """f16 on archs with other instructions; batches go through."""
    a, b = RNG.normal(size=(2, 4, 40)).astype(np.float16), RNG.normal(size=(40, 8)).astype(np.float16)
    plan = tcsim.plan("linear", m=4, n=8, k=40, format="f16", gpu=gpu)
    found = product(plan, a, b)
    assert found.shape == (2, 4, 8) and found.dtype == np.float16
    assert np.allclose(found.astype(float), a.astype(float) @ b.astype(float), atol=0.05)


def test_integers_are_exact_and_shapes_are_checked() -> None:
    a, b = RNG.integers(-128, 128, (4, 96), np.int8), RNG.integers(-128, 128, (96, 8), np.int8)
    plan = tcsim.plan("int_mm", m=4, n=8, k=96, format="s8", gpu="h100")
    assert (product(plan, a, b) == a.astype(np.int32) @ b.astype(np.int32)).all()
    with pytest.raises(tcsim.OperandError, match="valid for this plan"):
        product(plan, a, b[:64])


RECORDED = np.load(Path(__file__).parents[3] / "data" / "plans" / "products_h200.npz")
"""Rows and columns of products of torch on an H200: operands, outputs, and the split of K that cuBLASLt answered."""
OPS = {"mm": "linear", "addmm": "addmm", "bmm": "bmm", "scaled": "scaled_mm", "scaled_row": "scaled_mm_rowwise"}


@pytest.mark.parametrize("index", range(11))
def test_recorded_outputs_have_the_bits_of_the_plan(index: int) -> None:
    """Every output, plain and split, with bias and scales; one chain misses some of every split product."""
    whole = {name: RECORDED.get(f"{index}.{name}") for name in ("case", "x", "w", "y", "bias", "sa", "sb")}
    call, format, out, layout, *_, batch, fast, split, _ = whole["case"].tolist()
    x, w = whole["x"], np.swapaxes(whole["w"], -1, -2)
    (m, k), n, bias = x.shape[-2:], w.shape[-1], whole["bias"]
    asked = {"m": m, "n": n, "k": k, "format": format, "out": out, "layout": layout, "batch": int(batch)}
    plain = tcsim.plan(OPS[call], **asked, fast=fast == "1", bias=bias is not None, gpu="sm_90")
    decision = Decision("nvjet", int(split), 128 if format == "e4m3" else 64)
    plan = replace(plain, split=decision.split, chunk=decision.chunk(k))
    extra = {"bias": bias, "scale_a": whole["sa"], "scale_b": whole["sb"]}
    assert (product(plan, x, w, **extra).view(np.uint16) == whole["y"]).all()
    one = (product(plain, x, w, **extra).view(np.uint16) == whole["y"]).all()
    assert one == (decision.split == 1)
