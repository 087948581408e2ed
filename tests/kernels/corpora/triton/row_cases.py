"""The launches of rows.py, and what NumPy says of them in double precision: kernels of rows: norms, softmax, quantisation, sorts, scans, atomics."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import Array, Close, Inputs, Launch, Pointer
from tests.kernels.corpora.triton.launches import BF16, E4M3, E5M2, NONE, call, jit, wide, zeros


@jit("rows", "softmax", "x:*fp16 y:*fp16 columns:i32 stride:i32", {"BLOCK": 256})
def softmax(inputs: Inputs) -> Launch:
    x = inputs.normal((6, 200), np.float16, 3.0)
    e = np.exp(wide(x) - wide(x).max(axis=1, keepdims=True))
    return call(
        {"x": x},
        {"y": Close(e / e.sum(axis=1, keepdims=True), np.float16, 2e-3, 1e-6)},
        np.int32(200),
        np.int32(200),
        grid=4,
    )


def _norm(inputs: Inputs, rows: int, columns: int) -> dict[str, Array]:
    x = inputs.normal((rows, columns), np.float16, 2.0)
    mean = wide(x).mean(axis=1)
    rstd = 1 / np.sqrt(wide(x).var(axis=1) + 1e-5)
    return {
        "x": x, "weight": inputs.normal((columns,)), "bias": inputs.normal((columns,)), "mean": mean.astype(np.float32),
        "rstd": rstd.astype(np.float32),
    }  # fmt: skip


@jit(
    "rows",
    "layer_norm",
    "x:*fp16 weight:*fp32 bias:*fp32 y:*fp16 mean:*fp32 rstd:*fp32 columns:i32 eps:fp32",
    {"BLOCK": 128},
    divisible="*",
)
def layer_norm(inputs: Inputs) -> Launch:
    own = _norm(inputs, 5, 300)
    y = (wide(own["x"]) - wide(own["mean"])[:, None]) * wide(own["rstd"])[:, None] * own["weight"] + own["bias"]
    return Launch(
        {"x": own["x"], "weight": own["weight"], "bias": own["bias"], "y": zeros((5, 300), np.float16)}
        | {name: zeros((5,), np.float32) for name in ("mean", "rstd")},
        (*map(Pointer, ("x", "weight", "bias", "y", "mean", "rstd")), np.int32(300), np.float32(1e-5), NONE, NONE),
        {"y": Close(y, np.float16, 3e-3, 3e-3), "mean": Close(own["mean"], np.float32, 1e-4, 1e-5),
         "rstd": Close(own["rstd"], np.float32, 1e-4)}, (5, 1, 1),
    )  # fmt: skip


@jit("rows", "layer_norm_backward",
     "dy:*fp16 x:*fp16 weight:*fp32 mean:*fp32 rstd:*fp32 dx:*fp16 dweight:*fp32 dbias:*fp32 lock:*i32 columns:i32", {"BLOCK": 128},
     divisible="*")  # fmt: skip
def layer_norm_backward(inputs: Inputs) -> Launch:
    own, dy = _norm(inputs, 4, 100), inputs.normal((4, 100), np.float16)
    normal = (wide(own["x"]) - wide(own["mean"])[:, None]) * wide(own["rstd"])[:, None]
    scaled = wide(dy) * own["weight"]
    dx = (scaled - normal * (normal * scaled).mean(axis=1, keepdims=True) - scaled.mean(axis=1, keepdims=True)) * wide(
        own["rstd"]
    )[:, None]
    return call(
        {"dy": dy, "x": own["x"], "weight": own["weight"], "mean": own["mean"], "rstd": own["rstd"]},
        {
            "dx": Close(dx, np.float16, 3e-3, 3e-3),
            "dweight": Close((wide(dy) * normal).sum(axis=0), np.float32, 1e-4, 1e-4),
            "dbias": Close(wide(dy).sum(axis=0), np.float32, 1e-5, 1e-5),
            "lock": Close(np.array([4]), np.int32),
        },
        np.int32(100),
        grid=4,
    )


@jit(
    "rows",
    "cross_entropy",
    "logits:*bf16 labels:*i64 loss:*fp32 dlogits:*fp32 columns:i32",
    {"BLOCK": 256},
    divisible="*",
)
def cross_entropy(inputs: Inputs) -> Launch:
    logits, labels = inputs.normal((5, 150), BF16, 2.0), inputs.integers(0, 149, (5,), np.int64)
    labels[3] = -100
    e = np.exp(wide(logits) - wide(logits).max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    keep = labels >= 0
    gradient = (p - np.eye(150)[np.maximum(labels, 0)]) * keep[:, None]
    loss = np.where(keep, -np.log(p[np.arange(5), np.maximum(labels, 0)]), 0)
    return call(
        {"logits": logits, "labels": labels},
        {"loss": Close(loss, np.float32, 1e-5, 1e-5), "dlogits": Close(gradient, np.float32, 1e-5, 1e-7)},
        np.int32(150),
        grid=5,
    )


def _philox(seed: int, counters: Array) -> Array:
    """The first word of Philox 4x32, ten rounds, as Triton's rand takes it."""
    c = [counters.astype(np.uint64), *(np.zeros_like(counters, np.uint64) for _ in range(3))]
    keys, mask = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high = [(v >> np.uint64(32)) & mask for v in (a, b)]
        c = [high[1] ^ c[1] ^ np.uint64(keys[0]), b & mask, high[0] ^ c[3] ^ np.uint64(keys[1]), a & mask]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32).view(np.int32)


@jit("rows", "dropout", "x:*fp32 y:*fp32 n:i32 p:fp32 seed:i32", {"BLOCK": 256}, divisible="*")
def dropout(inputs: Inputs) -> Launch:
    n, p, seed = 400, np.float32(0.4), 1234
    x = inputs.normal((n,))
    words = _philox(seed, np.arange(n))
    uniform = np.where(words < 0, -words - 1, words).astype(np.float32) * np.float32(4.6566127342e-10)
    y = np.where(uniform > p, wide(x) / (1 - np.float64(p)), 0.0)
    return call({"x": x}, {"y": Close(y, np.float32, 1e-6)}, np.int32(n), p, np.int32(seed), grid=2)


@jit(
    "rows",
    "quantize_fp8",
    "x:*bf16 q:*fp8e4nv scales:*fp32 columns:i32",
    {"BLOCK": 256},
    ("sm_90a", "sm_100a", "sm_120a"),
    divisible="*",
)
def quantize_fp8(inputs: Inputs) -> Launch:
    x = inputs.normal((4, 200), BF16, 5.0)
    scales = np.abs(wide(x)).max(axis=1) / 448
    return call(
        {"x": x},
        {"q": Close(wide(x) / scales[:, None], E4M3, 2**-3.9, 2**-10), "scales": Close(scales, np.float32, 1e-6)},
        np.int32(200),
        grid=4,
    )


@jit("rows", "quantize_mx", "x:*fp32 q:*fp8e5 scales:*u8", {"BLOCKS": 8}, divisible="*")
def quantize_mx(inputs: Inputs) -> Launch:
    x = (inputs.normal((16, 32)) * np.exp2(inputs.integers(-20, 20, (16, 1), np.float32))).astype(np.float32)
    exponent = np.clip(np.floor(np.log2(np.abs(wide(x)).max(axis=1))) - 15 + 127, 1, 254)
    q = np.clip(wide(x) * np.exp2(127 - exponent)[:, None], -57344, 57344).astype(np.float32).astype(E5M2)
    return Launch(
        {"x": x, "q": zeros((16, 32), E5M2), "scales": zeros((16,), np.uint8)}, (Pointer("x"), Pointer("q"), Pointer("scales"), NONE, NONE),
        {"q": Close(q.view(np.uint8), np.uint8), "scales": Close(exponent.astype(np.uint8), np.uint8)}, (2, 1, 1),
    )  # fmt: skip


@jit(
    "rows",
    "quantize_nvfp4",
    "x:*fp32 q:*u8 scales:*fp8e4nv overall:*fp32",
    {"BLOCKS": 8},
    ("sm_90a", "sm_100a", "sm_120a"),
    divisible="*",
)
def quantize_nvfp4(inputs: Inputs) -> Launch:
    x = inputs.normal((16, 16), np.float32, 3.0)
    whole = np.float32(448 * 6 / np.abs(x).max())
    scale = np.minimum((np.abs(x).max(axis=1) / np.float32(6) * whole).astype(np.float32), 448).astype(E4M3)
    divided = (x * whole).astype(np.float32) / np.maximum(scale.astype(np.float32), np.float32(1e-8))[:, None]
    codes = np.abs(divided).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) | np.where(divided < 0, 8, 0).astype(
        np.uint8
    )
    return Launch(
        {"x": x, "q": zeros((16, 8), np.uint8), "scales": zeros((16,), E4M3), "overall": np.array([whole])},
        (*map(Pointer, ("x", "q", "scales", "overall")), NONE, NONE),
        {"q": Close(codes[:, ::2] | codes[:, 1::2] << 4, np.uint8), "scales": Close(scale.view(np.uint8), np.uint8)}, (2, 1, 1),
    )  # fmt: skip


@jit("rows", "sort", "x:*fp32 y:*fp32 top:*fp32", {"COLUMNS": 128}, divisible="*")
def sort(inputs: Inputs) -> Launch:
    x = inputs.normal((3, 128))
    y = -np.sort(-x)
    return call({"x": x}, {"y": Close(y, np.float32), "top": Close(y[:, :4], np.float32)}, grid=3)


@jit(
    "rows",
    "scans",
    "gate:*fp32 token:*fp32 state:*fp32 sums:*fp32 products:*fp32 back:*fp32",
    {"LENGTH": 32, "WIDTH": 16},
    divisible="*",
)
def scans(inputs: Inputs) -> Launch:
    gate, token = inputs.uniform((32, 16), np.float32, 0.5, 1.2), inputs.normal((32, 16))
    state, last = np.zeros((32, 16)), np.zeros(16)
    for step in range(32):
        last = wide(gate)[step] * last + token[step]
        state[step] = last
    expected = {
        "state": state, "sums": np.cumsum(wide(token), 0), "products": np.cumprod(wide(gate), 1),
        "back": np.cumsum(wide(token)[:, ::-1], 1)[:, ::-1],
    }  # fmt: skip
    return Launch(
        {"gate": gate, "token": token} | {name: zeros((32, 16), np.float32) for name in expected},
        (*map(Pointer, ("gate", "token", *expected)), NONE, NONE),
        {name: Close(values, np.float32, 1e-5, 1e-5) for name, values in expected.items()},
    )  # fmt: skip


@jit("rows", "histogram", "x:*i32 bins:*i32 n:i32", {"BLOCK": 256, "BINS": 32}, divisible="*")
def histogram(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 31, (450,))
    return call({"x": x}, {"bins": Close(np.bincount(x, minlength=32), np.int32)}, np.int32(450), grid=2)


@jit(
    "rows",
    "argmax_and_gather",
    "x:*fp32 index:*i32 where:*i32 largest:*fp32 taken:*fp32",
    {"COLUMNS": 128},
    divisible="*",
)
def argmax_and_gather(inputs: Inputs) -> Launch:
    x, index = inputs.integers(-40, 40, (3, 128), np.float32), inputs.integers(0, 127, (3, 128))
    where = np.stack([x.argmax(axis=1), x.argmin(axis=1)], 1)
    return call(
        {"x": x, "index": index},
        {
            "where": Close(where, np.int32),
            "largest": Close(x.max(axis=1), np.float32),
            "taken": Close(np.take_along_axis(x, index.astype(np.int64), 1), np.float32),
        },
        grid=3,
    )


@jit("rows", "activations", "x:*fp32 gate:*bf16 y:*fp32 n:i32", {"BLOCK": 256}, divisible="*")
def activations(inputs: Inputs) -> Launch:
    x, gate = inputs.normal((500,)), inputs.normal((500,), BF16, 2.0)
    a, g = wide(x), wide(gate)
    gelu = 0.5 * a * (1 + np.array([math.erf(v / math.sqrt(2)) for v in a]))
    y = gelu / (1 + np.exp(-g)) + g / (1 + np.exp(-g)) + np.sin(a) * np.cos(g) + 1 / np.sqrt(np.abs(a) + 1) + np.exp2(g)
    return call(
        {"x": x, "gate": gate}, {"y": Close(y - np.log2(np.abs(g) + 1), np.float32, 1e-5, 1e-5)}, np.int32(500), grid=2
    )


@jit("rows", "atomics", "x:*i32 slots:*i32 values:*fp32 out:*i32 n:i32", {"BLOCK": 128}, divisible="*", num_warps=2)
def atomics(inputs: Inputs) -> Launch:
    n = 200
    x, slots = inputs.integers(-9999, 9999, (n,)), inputs.integers(0, 15, (n,))
    start, sums = zeros((96,), np.int32), np.zeros(16)
    start[80:] = -1
    out = start.copy()
    for place, ufunc in enumerate((np.add, np.maximum, np.minimum, np.bitwise_xor, np.bitwise_or, np.bitwise_and)):
        ufunc.at(out, 16 * place + slots, x)
    np.add.at(sums, slots, x)
    return Launch(
        {"x": x, "slots": slots, "values": zeros((16,), np.float32), "out": start},
        (*map(Pointer, ("x", "slots", "values", "out")), np.int32(n), NONE, NONE),
        {"out": Close(out, np.int32), "values": Close(sums, np.float32)}, (2, 1, 1),
    )  # fmt: skip
