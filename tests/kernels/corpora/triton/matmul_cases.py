"""The launches of matmul.py, and what NumPy says of them in double precision: products in every type, split, grouped, persistent, through descriptors, with scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import DTYPES, Array, Close, Inputs, Launch, Pointer
from tests.kernels.corpora.triton.launches import (
    BF16,
    BOTH,
    E4M3,
    E5M2,
    EVERY,
    NONE,
    TYPES,
    call,
    described,
    jit,
    wide,
    zeros,
)


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
        return call(
            {"a": a, "b": b},
            {"d": expected},
            *map(np.int32, (m, n, k, k, n, n)),
            grid=(-(-m // block_m), -(-n // block_n), 1),
        )

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
    return call(
        {"a": a, "b": b},
        {"d": Close(wide(a) @ wide(b), np.float16, 1e-2, 5e-2)},
        *map(np.int32, (m, n, k, k, n, n)),
        grid=(2, 2, 1),
    )


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
    return call({"a": a, "b": b, "bias": bias}, {"d": Close(d, BF16, 1e-2, 1e-2)}, np.int32(128))


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
    return call({"a": a, "b": b}, {"d": Close(wide(a) @ wide(b), np.float32)}, np.int32(256), grid=(1, 1, 4))


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
    return call(
        {"a": a, "b": b}, {"d": Close(wide(a) @ wide(b), np.float32, 1e-5, 1e-4)}, *map(np.int32, (m, n, k)), grid=2
    )


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
        return call({"a": a, "sa": of_a, "b": b, "sb": of_b}, {"d": Close(x @ y.T, np.float32, 1e-3, 1e-2)})

    jit("matmul", "scaled", signature, constants, targets, f"scaled_{a_format}_{b_format}", "*")(make)


_scaled("e4m3", "e5m2", ("sm_90a", "sm_100a", "sm_120a"))
_scaled("e2m1", "e2m1", ("sm_90a", "sm_100a", "sm_120a"))
