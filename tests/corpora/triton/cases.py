"""The Triton kernels' launches, and what NumPy says of them in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.corpora.case import DTYPES, Array, Close, Inputs, Launch, Map, Parameter, Pointer, Source, case, tensor_map

BOTH = ("sm_80", "sm_90a")
EVERY = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "s8": "i8", "s32": "i32", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
NONE = np.uint64(0)  # the two pointers that Triton adds: global scratch and profile


def jit(
    file: str, function: str, signature: str, constants: dict[str, Any] | None = None, targets: tuple[str, ...] = BOTH, name: str = "",
    divisible: str = "", compiler: str = "triton", **options: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """Register a case. signature: "a:*fp16 n:i32"; divisible: the arguments that are multiples of 16, "*" for all pointers."""
    types = tuple(tuple(item.split(":", 1)) for item in signature.split())
    pointers = tuple(own for own, kind in types if kind.startswith("*"))
    chosen = tuple(word for item in divisible.split() for word in (pointers if item == "*" else (item,)))
    choices = (
        ("signature", types), ("constants", tuple((constants or {}).items())), ("divisible", chosen), *sorted(options.items()),
    )  # fmt: skip
    return case(Source(compiler, file, function, choices), "", targets, name or function)


def wide(array: Array) -> Array:
    """Its numbers in double precision."""
    return array.astype(np.float64)


def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """A buffer that the kernel writes."""
    return np.zeros(shape, dtype)


# --- matmul


def _matmul(
    name: str,
    out: str,
    targets: tuple[str, ...],
    m: int,
    n: int,
    k: int,
    blocks: tuple[int, int, int],
    warps: int = 4,
    **options: Any,
) -> None:
    acc = "@INT32" if name == "s8" else "@FLOAT32"
    block_m, block_n, block_k = blocks
    aligned = "* K stride_a stride_b stride_d" if all(side % 16 == 0 for side in (m, n, k)) else "*"
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "ACC": acc}
    signature = (
        f"a:*{TYPES[name]} b:*{TYPES[name]} d:*{TYPES[out]} M:i32 N:i32 K:i32 stride_a:i32 stride_b:i32 stride_d:i32"
    )
    ragged = "" if len(aligned) > 1 else "_ragged"

    def make(inputs: Inputs) -> Launch:
        if name == "s8":
            a, b = (inputs.integers(-128, 127, side, np.int8) for side in ((m, k), (k, n)))
            expected = Close(a.astype(np.int32) @ b.astype(np.int32), np.int32)
        else:
            a, b = (inputs.normal(side, DTYPES[name]) for side in ((m, k), (k, n)))
            relative, absolute = {"f16": (2e-3, 1e-2), "bf16": (1e-2, 1e-2), "f32": (1e-2, 0.1)}[out]
            expected = Close(wide(a) @ wide(b), DTYPES[out], relative, absolute)
        return Launch(
            {"a": a, "b": b, "d": zeros((m, n), DTYPES[out])},
            (Pointer("a"), Pointer("b"), Pointer("d"), *map(np.int32, (m, n, k, k, n, n)), NONE, NONE), {"d": expected},
            (-(-m // block_m), -(-n // block_n), 1),
        )  # fmt: skip

    own = f"matmul_{name}{ragged}"
    jit("matmul", "matmul", signature, constants, targets, own, aligned, num_warps=warps, **options)(make)


_matmul("f16", "f16", EVERY, 64, 64, 64, (64, 64, 32))
_matmul("bf16", "f32", EVERY, 64, 64, 64, (64, 64, 32))
_matmul("f32", "f32", BOTH, 64, 32, 64, (64, 32, 32))
_matmul("s8", "s32", BOTH, 64, 64, 128, (64, 64, 64))
_matmul("e4m3", "f16", ("sm_90a", "sm_100a", "sm_120a"), 64, 64, 128, (64, 64, 64))
_matmul("e5m2", "f32", ("sm_80", "sm_90a"), 64, 32, 128, (64, 32, 64))


@jit("matmul", "matmul", "a:*fp16 b:*fp16 d:*fp16 M:i32 N:i32 K:i32 stride_a:i32 stride_b:i32 stride_d:i32",
     {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "ACC": "@FLOAT16"}, ("sm_80",), "matmul_f16_ragged", "*", num_warps=2)  # fmt: skip
def matmul_ragged(inputs: Inputs) -> Launch:
    m, n, k = 50, 43, 37
    a, b = inputs.normal((m, k), np.float16), inputs.normal((k, n), np.float16)
    return Launch(
        {"a": a, "b": b, "d": zeros((m, n), np.float16)},
        (Pointer("a"), Pointer("b"), Pointer("d"), *map(np.int32, (m, n, k, k, n, n)), NONE, NONE),
        {"d": Close(wide(a) @ wide(b), np.float16, 1e-2, 5e-2)}, (2, 2, 1),
    )  # fmt: skip


@jit(
    "matmul",
    "matmul_transposed",
    "a:*bf16 b:*bf16 bias:*fp32 d:*bf16 K:i32",
    {"BLOCK": 64, "BLOCK_K": 32},
    EVERY,
    divisible="* K",
)
def matmul_transposed(inputs: Inputs) -> Launch:
    a, b, bias = inputs.normal((64, 128), BF16), inputs.normal((64, 128), BF16), inputs.normal((64,))
    d = np.maximum(wide(a) @ wide(b).T + bias, 0)
    return Launch(
        {"a": a, "b": b, "bias": bias, "d": zeros((64, 64), BF16)},
        (Pointer("a"), Pointer("b"), Pointer("bias"), Pointer("d"), np.int32(128), NONE, NONE), {"d": Close(d, BF16, 1e-2, 1e-2)},
    )  # fmt: skip


@jit(
    "matmul",
    "split_k",
    "a:*fp16 b:*fp16 d:*fp32 K:i32",
    {"SPLIT": 4, "BLOCK": 32, "BLOCK_K": 32},
    divisible="* K",
    num_warps=2,
)
def split_k(inputs: Inputs) -> Launch:
    a, b = inputs.integers(-8, 8, (32, 256), np.float16), inputs.integers(-8, 8, (256, 32), np.float16)
    return Launch(
        {"a": a, "b": b, "d": zeros((32, 32), np.float32)}, (Pointer("a"), Pointer("b"), Pointer("d"), np.int32(256), NONE, NONE),
        {"d": Close(wide(a) @ wide(b), np.float32)}, (1, 1, 4),
    )  # fmt: skip


@jit(
    "matmul",
    "grouped",
    "pointers:*i64 sizes:*i32",
    {"GROUPS": 3, "PROGRAMS": 2, "BLOCK": 32, "BLOCK_K": 32},
    divisible="*",
    num_warps=4,
)
def grouped(inputs: Inputs) -> Launch:
    shapes = ((32, 48, 64), (40, 32, 32), (16, 24, 40))
    buffers: dict[str, Array] = {"pointers": zeros((3, 3), np.int64), "sizes": np.array(shapes, np.int32)}
    pointers, expected = {}, {}
    for group, (m, n, k) in enumerate(shapes):
        a, b = inputs.normal((m, k), np.float16), inputs.normal((k, n), np.float16)
        buffers |= {f"a{group}": a, f"b{group}": b, f"d{group}": zeros((m, n), np.float16)}
        pointers |= {("pointers", 24 * group + 8 * i): Pointer(f"{side}{group}") for i, side in enumerate("abd")}
        expected[f"d{group}"] = Close(wide(a) @ wide(b), np.float16, 2e-3, 1e-2)
    return Launch(buffers, (Pointer("pointers"), Pointer("sizes"), NONE, NONE), expected, (2, 1, 1), pointers=pointers)


@jit(
    "matmul",
    "persistent",
    "a:*fp16 b:*fp16 d:*fp32 M:i32 N:i32 K:i32",
    {"PROGRAMS": 2, "BLOCK": 32, "BLOCK_K": 32},
    EVERY,
    divisible="* K N",
)
def persistent(inputs: Inputs) -> Launch:
    m, n, k = 64, 48, 64
    a, b = inputs.normal((m, k), np.float16), inputs.normal((k, n), np.float16)
    return Launch(
        {"a": a, "b": b, "d": zeros((m, n), np.float32)},
        (Pointer("a"), Pointer("b"), Pointer("d"), *map(np.int32, (m, n, k)), NONE, NONE),
        {"d": Close(wide(a) @ wide(b), np.float32, 1e-5, 1e-4)}, (2, 1, 1),
    )  # fmt: skip


@jit("matmul", "descriptors", "a:*fp16 b:*fp16 d:*fp16 M:i32 N:i32 K:i32", {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64},
     ("sm_90a", "sm_100a", "sm_120a"), divisible="* K N")  # fmt: skip
def descriptors(inputs: Inputs) -> Launch:
    m, n, k = 80, 48, 96
    a, b = inputs.normal((m, k), np.float16), inputs.normal((n, k), np.float16)
    return Launch(
        {"a": a, "b": b, "d": zeros((m, n), np.float16), "maps": zeros((2 * 2 * 3 * 128,), np.uint8)},
        (Pointer("a"), Pointer("b"), Pointer("d"), *map(np.int32, (m, n, k)), Pointer("maps"), NONE),
        {"d": Close(wide(a) @ wide(b).T, np.float16, 2e-3, 1e-2)}, (2, 2, 1), scratch=frozenset({"maps"}),
    )  # fmt: skip


def descriptor(
    name: str, array: Array, data_type: str, box: tuple[int, ...], swizzle: str = "128B"
) -> tuple[Parameter, ...]:
    """What a tensor descriptor of a row-major array becomes as parameters: the map, sizes, strides in elements."""
    strides = (int(step) // array.itemsize for step in array.strides)
    return (
        Map(name, tensor_map(array, data_type, box[::-1], swizzle)),
        *map(np.int32, array.shape),
        *map(np.int64, strides),
    )


def described(
    inputs: Inputs,
    m: int,
    n: int,
    k: int,
    blocks: tuple[int, int, int],
    transposed: bool = False,
    swizzles: tuple[str, str, str] = ("128B", "128B", "128B"),
) -> Launch:
    """A product of f16 through descriptors: left, right (stored N by K if transposed), out."""
    a, b = inputs.normal((m, k), np.float16), inputs.normal((n, k) if transposed else (k, n), np.float16)
    d, (block_m, block_n, block_k) = zeros((m, n), np.float16), blocks
    box = (block_n, block_k) if transposed else (block_k, block_n)
    return Launch(
        {"left": a, "right": b, "out": d},
        (*descriptor("left", a, "FLOAT16", (block_m, block_k), swizzles[0]), *descriptor("right", b, "FLOAT16", box, swizzles[1]),
         *descriptor("out", d, "FLOAT16", (block_m, block_n), swizzles[2])),
        {"out": Close(wide(a) @ wide(b.T if transposed else b), np.float16, 2e-3, 1e-2)}, (m // block_m, n // block_n, 1),
    )  # fmt: skip


@jit("matmul", "host_descriptors", "left:desc.fp16.64x64 right:desc.fp16.64x64 out:desc.fp16.64x64 K:i32",
     {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, ("sm_90a", "sm_100a", "sm_120a"), divisible="K")  # fmt: skip
def host_descriptors(inputs: Inputs) -> Launch:
    launch = described(inputs, 64, 128, 128, (64, 64, 64))
    launch.params += (np.int32(128), NONE, NONE)
    return launch


@jit("matmul", "warp_specialised", "left:desc.fp16.128x64 right:desc.fp16.64x64 out:desc.fp16.128x64 K:i32",
     {"TILES": 2, "BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, ("sm_100a",), divisible="K")  # fmt: skip
def warp_specialised(inputs: Inputs) -> Launch:
    launch = described(inputs, 256, 64, 128, (128, 64, 64), True)
    launch.grid = (1, 1, 1)
    launch.params += (np.int32(128), NONE, NONE)
    return launch


def _scaled(a_format: str, b_format: str, targets: tuple[str, ...]) -> None:
    packs = {"e2m1": 2, "e4m3": 1, "e5m2": 1, "bf16": 1}
    types = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5"}
    codes = {"e2m1": ml_dtypes.float4_e2m1fn, "e4m3": E4M3, "e5m2": E5M2}
    m, n, k = 128, 64, 128
    signature = f"a:{types[a_format]} scale_a:*u8 b:{types[b_format]} scale_b:*u8 d:*fp32"
    constants = {
        "K": k, "BLOCK_M": m, "BLOCK_N": n, "FORMAT_A": a_format, "FORMAT_B": b_format, "PACK_A": packs[a_format], "PACK_B": packs[b_format],
    }  # fmt: skip

    def operand(inputs: Inputs, name: str, rows: int) -> tuple[Array, Array]:
        """Bytes as they are stored, and the numbers."""
        values = inputs.normal((rows, k), np.float32, 2.0).astype(codes[name])
        words = values.view(np.uint8)
        return (words[:, ::2] & 15 | words[:, 1::2] << 4) if name == "e2m1" else words, wide(values)

    def make(inputs: Inputs) -> Launch:
        (a, x), (b, y) = operand(inputs, a_format, m), operand(inputs, b_format, n)
        of_a, of_b = (inputs.integers(124, 130, (rows, k // 32), np.uint8) for rows in (m, n))
        x, y = (v * np.exp2(np.repeat(s.astype(np.float64) - 127, 32, axis=1)) for v, s in ((x, of_a), (y, of_b)))
        return Launch(
            {"a": a, "sa": of_a, "b": b, "sb": of_b, "d": zeros((m, n), np.float32)},
            (*map(Pointer, ("a", "sa", "b", "sb", "d")), NONE, NONE), {"d": Close(x @ y.T, np.float32, 1e-3, 1e-2)},
        )  # fmt: skip

    jit("matmul", "scaled", signature, constants, targets, f"scaled_{a_format}_{b_format}", "*")(make)


_scaled("e4m3", "e5m2", ("sm_90a", "sm_100a", "sm_120a"))
_scaled("e2m1", "e2m1", ("sm_90a", "sm_100a", "sm_120a"))


# --- attention


def _attention(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    scores = wide(q) @ wide(k).transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ wide(v), (top + np.log(total))[..., 0] / math.log(2)


def _forward(kind: str, causal: bool, targets: tuple[str, ...]) -> None:
    signature = "".join(f"{name}:*{TYPES[kind]} " for name in ("q", "k", "v", "out")) + "lse:*fp32 scale:fp32"
    constants = {"N": 128, "D": 32, "BLOCK_M": 64, "BLOCK_N": 32, "CAUSAL": causal}
    dtype = DTYPES[kind]

    def make(inputs: Inputs) -> Launch:
        q, k, v = (inputs.normal((1, 128, 32), dtype) for _ in range(3))
        scale = float(np.float32(32**-0.5))
        out, lse = _attention(q, k, v, scale, causal)
        return Launch(
            {"q": q, "k": k, "v": v, "out": zeros((1, 128, 32), dtype), "lse": zeros((1, 128), np.float32)},
            (*map(Pointer, ("q", "k", "v", "out", "lse")), np.float32(scale), NONE, NONE),
            {"out": Close(out, dtype, 2e-2, 2e-2 if kind == "bf16" else 3e-3), "lse": Close(lse, np.float32, 1e-3, 1e-3)}, (2, 1, 1),
        )  # fmt: skip

    jit("attention", "forward", signature, constants, targets, f"attention_{kind}{'_causal' * causal}", "*")(make)


_forward("f16", False, EVERY)
_forward("bf16", True, EVERY)


@jit("attention", "backward", "q:*fp16 k:*fp16 v:*fp16 dout:*fp16 lse:*fp32 delta:*fp32 dq:*fp16 dk:*fp16 dv:*fp16 scale:fp32",
     {"N": 64, "D": 32, "BLOCK": 32}, BOTH, "attention_backward", "*")  # fmt: skip
def attention_backward(inputs: Inputs) -> Launch:
    q, k, v, dout = (inputs.normal((1, 64, 32), np.float16) for _ in range(4))
    scale = float(np.float32(32**-0.5))
    out, lse = _attention(q, k, v, scale, False)
    lse, delta = lse.astype(np.float32), (out * wide(dout)).sum(axis=-1).astype(np.float32)
    p = np.exp2(wide(q) @ wide(k).transpose(0, 2, 1) * scale / math.log(2) - lse[..., None])
    ds = p * (wide(dout) @ wide(v).transpose(0, 2, 1) - delta[..., None])
    gradients = {
        "dq": ds @ wide(k) * scale,
        "dk": ds.transpose(0, 2, 1) @ wide(q) * scale,
        "dv": p.transpose(0, 2, 1) @ wide(dout),
    }
    return Launch(
        {"q": q, "k": k, "v": v, "dout": dout, "lse": lse, "delta": delta} | {name: zeros((1, 64, 32), np.float16) for name in gradients},
        (*map(Pointer, ("q", "k", "v", "dout", "lse", "delta", "dq", "dk", "dv")), np.float32(scale), NONE, NONE),
        {name: Close(values, np.float16, 2e-2, 5e-3) for name, values in gradients.items()},
    )  # fmt: skip


# --- rows


@jit("rows", "softmax", "x:*fp16 y:*fp16 columns:i32 stride:i32", {"BLOCK": 256})
def softmax(inputs: Inputs) -> Launch:
    x = inputs.normal((6, 200), np.float16, 3.0)
    e = np.exp(wide(x) - wide(x).max(axis=1, keepdims=True))
    return Launch(
        {"x": x, "y": zeros((6, 200), np.float16)}, (Pointer("x"), Pointer("y"), np.int32(200), np.int32(200), NONE, NONE),
        {"y": Close(e / e.sum(axis=1, keepdims=True), np.float16, 2e-3, 1e-6)}, (4, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"dy": dy, "x": own["x"], "weight": own["weight"], "mean": own["mean"], "rstd": own["rstd"], "dx": zeros((4, 100), np.float16),
         "dweight": zeros((100,), np.float32), "dbias": zeros((100,), np.float32), "lock": zeros((1,), np.int32)},
        (*map(Pointer, ("dy", "x", "weight", "mean", "rstd", "dx", "dweight", "dbias", "lock")), np.int32(100), NONE, NONE),
        {"dx": Close(dx, np.float16, 3e-3, 3e-3), "dweight": Close((wide(dy) * normal).sum(axis=0), np.float32, 1e-4, 1e-4),
         "dbias": Close(wide(dy).sum(axis=0), np.float32, 1e-5, 1e-5), "lock": Close(np.array([4]), np.int32)}, (4, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"logits": logits, "labels": labels, "loss": zeros((5,), np.float32), "dlogits": zeros((5, 150), np.float32)},
        (*map(Pointer, ("logits", "labels", "loss", "dlogits")), np.int32(150), NONE, NONE),
        {"loss": Close(loss, np.float32, 1e-5, 1e-5), "dlogits": Close(gradient, np.float32, 1e-5, 1e-7)}, (5, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"x": x, "y": zeros((n,), np.float32)}, (Pointer("x"), Pointer("y"), np.int32(n), p, np.int32(seed), NONE, NONE),
        {"y": Close(y, np.float32, 1e-6)}, (2, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"x": x, "q": zeros((4, 200), E4M3), "scales": zeros((4,), np.float32)},
        (Pointer("x"), Pointer("q"), Pointer("scales"), np.int32(200), NONE, NONE),
        {"q": Close(wide(x) / scales[:, None], E4M3, 2**-3.9, 2**-10), "scales": Close(scales, np.float32, 1e-6)}, (4, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"x": x, "y": zeros((3, 128), np.float32), "top": zeros((3, 4), np.float32)}, (*map(Pointer, ("x", "y", "top")), NONE, NONE),
        {"y": Close(y, np.float32), "top": Close(y[:, :4], np.float32)}, (3, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"x": x, "bins": zeros((32,), np.int32)}, (Pointer("x"), Pointer("bins"), np.int32(450), NONE, NONE),
        {"bins": Close(np.bincount(x, minlength=32), np.int32)}, (2, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"x": x, "index": index, "where": zeros((3, 2), np.int32), "largest": zeros((3,), np.float32), "taken": zeros((3, 128), np.float32)},
        (*map(Pointer, ("x", "index", "where", "largest", "taken")), NONE, NONE),
        {"where": Close(where, np.int32), "largest": Close(x.max(axis=1), np.float32),
         "taken": Close(np.take_along_axis(x, index.astype(np.int64), 1), np.float32)}, (3, 1, 1),
    )  # fmt: skip


@jit("rows", "activations", "x:*fp32 gate:*bf16 y:*fp32 n:i32", {"BLOCK": 256}, divisible="*")
def activations(inputs: Inputs) -> Launch:
    x, gate = inputs.normal((500,)), inputs.normal((500,), BF16, 2.0)
    a, g = wide(x), wide(gate)
    gelu = 0.5 * a * (1 + np.array([math.erf(v / math.sqrt(2)) for v in a]))
    y = gelu / (1 + np.exp(-g)) + g / (1 + np.exp(-g)) + np.sin(a) * np.cos(g) + 1 / np.sqrt(np.abs(a) + 1) + np.exp2(g)
    return Launch(
        {"x": x, "gate": gate, "y": zeros((500,), np.float32)}, (*map(Pointer, ("x", "gate", "y")), np.int32(500), NONE, NONE),
        {"y": Close(y - np.log2(np.abs(g) + 1), np.float32, 1e-5, 1e-5)}, (2, 1, 1),
    )  # fmt: skip


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
