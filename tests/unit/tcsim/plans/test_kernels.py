"""cuBLASLt's kernels by the heuristic's answer: recorded products of an H200, every output by its digest; operands are a hash of their places."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.plans.kernels import ALGORITHMS, order_of
from tcsim.plans.record import Kind

RECORDED = np.load(Path(__file__).parents[3] / "data" / "plans" / "kernels_h200.npz")
"""Kinds; of each product its kind, m, n, k, batch, and the answer's algorithm, stages, custom option, split and reduction; digests of two outputs."""
KINDS = [str(kind).split(" ") for kind in RECORDED["kinds"]]
OPS = {"mm": "linear", "addmm": "addmm", "bmm": "bmm"}
TYPES = {"f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
DROPPED = {"bf16": 16, "f16": 13, "f32": 0, "tf32": 0}


def operand(shape: tuple[int, ...], seed: int, format: str) -> np.ndarray:
    """Numbers of eight binades, exact in the format: a hash of the place and the seed."""
    x = np.arange(np.prod(shape), dtype=np.int64) + seed * 0x51ED27 & 0x7FFFFFFF
    for factor, shift in ((0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)):
        x = x * factor & 0xFFFFFFFF
        x ^= x >> shift
    low = DROPPED[format]
    codes = (x & 0x80000000) | (120 + (x >> 28 & 7) << 23) | ((x & 0x7FFFFF) >> low << low)
    return codes.astype(np.uint32).view(np.float32).reshape(shape)


def operands(case: tuple[object, ...], cancelling: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (batch, M, K), w (batch, N, K), bias (N,). Cancelling: half of K repeats the other half with x negated, so that the output is the error."""
    _, format, _, _, m, n, k, batch = case
    seed = int.from_bytes(hashlib.sha256(("k4|" + ",".join(map(str, case))).encode()).digest()[:3], "big")
    x, w = operand((batch, m, k), seed, format), operand((batch, n, k), seed + 1, format)
    if cancelling:
        places = np.random.default_rng(seed).permutation(k)
        one, other, rest = np.split(places, [k // 2, k // 2 * 2])
        x[:, :, other], w[:, :, other] = -x[:, :, one], w[:, :, one]
        x[:, :, rest] *= np.float32(2.0**-6 if format == "f16" else 2.0**-12)
    return x, w, operand((n,), seed + 2, format)


def differing(number: int) -> list[bool]:
    """Of a recorded product, whether each of two outputs differs."""
    kind, m, n, k, batch, algorithm, stages, custom, cuts, reduction = RECORDED["answers"][number].tolist()
    call, format, out, layout = KINDS[kind]
    asked = {
        "m": m,
        "n": n,
        "k": k,
        "batch": batch,
        "format": format,
        "out": out,
        "layout": layout,
        "bias": call == "addmm",
    }
    plan = tcsim.plan(OPS[call], **asked, gpu="sm_90")
    order = order_of(f"cublasLt {algorithm}.{stages}.{custom}", cuts, reduction, plan.kind, m, n, k, batch)
    assert order is not None and str(order) in str(replace(plan, order=order))
    found = []
    for i in range(2):
        x, w, bias = operands((call, format, out, layout, m, n, k, batch), bool(i))
        x, w = x.astype(TYPES[format]), w.swapaxes(-1, -2).astype(TYPES[format])
        if call != "bmm":
            x, w = x[0], w[0]
        given = {"bias": bias.astype(TYPES[out])} if call == "addmm" else {}
        y = np.ascontiguousarray(tcsim.plans.product(replace(plan, order=order), x, w, **given))
        digest = hashlib.sha256(y.reshape(-1).view(np.int16).tobytes()).digest()[:8]
        found.append(int.from_bytes(digest, "big") != int(RECORDED["digests"][number, i]))
    return found


@pytest.mark.parametrize("algorithm", sorted(set(RECORDED["answers"][:, 5].tolist())))
def test_every_output_has_the_bits_of_an_h200(algorithm: int) -> None:
    """Ordinary numbers, and numbers whose sum is zero."""
    numbers = np.flatnonzero(RECORDED["answers"][:, 5] == algorithm)
    wrong = [RECORDED["answers"][i].tolist() for i in numbers if any(differing(int(i)))]
    assert not wrong and len(numbers) >= 3


def test_what_is_not_known_has_no_order() -> None:
    """Unknown algorithms, options and stages, other spellings."""
    kind = Kind("mm", "bf16", "bf16", "TN", True)
    for kernel in ("nvjet", "cublasLt 24", "cublasLt 7.0.0", "cublasLt 13.0.3", "cublasLt 24.200.0"):
        assert order_of(kernel, 1, 0, kind, 8, 9, 100) is None
    assert order_of("cublasLt 13.0.75", 1, 0, kind, 1, 1, 100) is None
    assert order_of("cublasLt 10.0.0", 0, 1, kind, 8, 9, 100) is None
    assert order_of("cublasLt 13.0.10", 1, 0, kind, 1, 10000, 100) is None
    assert order_of("cublasLt 41.0.0", -1, 2, kind, 64, 40000, 4096) is None
    assert order_of("cublasLt 24.0.0", 2, 2, kind._replace(call="addmm"), 8, 9, 100) is None
    assert len(ALGORITHMS) == 16


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
