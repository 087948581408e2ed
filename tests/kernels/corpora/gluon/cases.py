"""The Gluon kernels' launches, and what NumPy says of them in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

import tcsim
from tests.kernels.corpora.case import Close, Inputs, Launch, Map, Pointer
from tests.kernels.corpora.triton.launches import BOTH, NONE, call, described, descriptor, jit, wide, zeros

HOPPER = ("sm_90a",)


def gluon(function: str, signature: str, constants: dict[str, Any], targets: tuple[str, ...], **options: Any) -> Any:
    """Register a case."""
    return jit("kernels", function, signature, constants, targets, compiler="gluon", **options)


def _ended(launch: Launch) -> Launch:
    """With the two pointers that Triton adds."""
    launch.params += (NONE, NONE)
    return launch


@gluon("transpose", "x:*fp16 y:*fp16", {"ROWS": 32, "COLUMNS": 64}, BOTH, divisible="*")
def transpose(inputs: Inputs) -> Launch:
    x = inputs.normal((2, 32, 64), np.float16)
    return call({"x": x}, {"y": Close(x.transpose(0, 2, 1) * np.float16(2), np.float16)}, grid=2)


@gluon(
    "mma_pipelined",
    "a:*fp16 b:*fp16 d:*fp32",
    {"K": 128, "M": 64, "N": 32, "BLOCK_K": 32, "STAGES": 3},
    BOTH,
    divisible="*",
)
def mma_pipelined(inputs: Inputs) -> Launch:
    a, b = inputs.normal((64, 128), np.float16), inputs.normal((128, 32), np.float16)
    return call({"a": a, "b": b}, {"d": Close(wide(a) @ wide(b), np.float32, 1e-5, 1e-4)})


@gluon(
    "tma_add",
    "source:desc.fp32.16x32.128 target:desc.fp32.16x32.128 total:desc.fp32.16x32.128",
    {"ROWS": 16, "COLUMNS": 32},
    ("sm_90a", "sm_100a", "sm_120a"),
)
def tma_add(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (40, 48), np.float32)
    y = 3 * x + 1
    padded = np.zeros((48, 64))
    padded[:40, :48] = x
    tiles = (3 * padded + 1).reshape(3, 16, 2, 32).sum(axis=(0, 2))
    return Launch(
        {"source": x, "target": zeros((40, 48), np.float32), "total": zeros((16, 32), np.float32)},
        (*descriptor("source", x, "FLOAT32", (16, 32)), *descriptor("target", x, "FLOAT32", (16, 32)),
         *descriptor("total", zeros((16, 32), np.float32), "FLOAT32", (16, 32)), NONE, NONE),
        {"target": Close(y, np.float32), "total": Close(tiles, np.float32)}, (3, 2, 1),
    )  # fmt: skip


@gluon("wgmma_pipelined", "left:desc.fp16.64x64.128 right:desc.fp16.64x64.128 out:desc.fp16.64x64.128",
       {"K": 192, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, HOPPER)  # fmt: skip
def wgmma_pipelined(inputs: Inputs) -> Launch:
    return _ended(described(inputs, 64, 64, 192, (64, 64, 64)))


@gluon(
    "warp_specialised",
    "left:desc.fp16.64x32.64 right:desc.fp16.32x64.128 out:desc.fp16.64x64.128",
    {"STEPS": 5, "STAGES": 3},
    HOPPER,
)
def warp_specialised(inputs: Inputs) -> Launch:
    return _ended(described(inputs, 64, 64, 160, (64, 64, 32), swizzles=("64B", "128B", "128B")))


@gluon("im2col", "image:im2col.fp16.32x64.128 out:*fp32", {"PIXELS": 32, "CHANNELS": 64}, ("sm_90a", "sm_100a"))
def im2col(inputs: Inputs) -> Launch:
    image = inputs.normal((1, 5, 6, 64), np.float16)  # N, H, W, C
    out, padded = np.zeros((32, 64)), np.zeros((9, 8, 64))
    padded[1:6, 1:7] = image[0]
    for pixel in range(30):
        y, x = divmod(pixel, 6)
        out[pixel] = sum((3 * r + s + 1) * padded[y + r, x + s] for r in range(3) for s in range(3))
    item = tcsim.TensorMap.im2col(
        "FLOAT16", (64, 6, 5, 1), (128, 768, 3840), (-1, -1), (-1, -1), 64, 32, swizzle="128B"
    )
    return Launch(
        {"image": image, "out": zeros((32, 64), np.float32)},
        (Map("image", item), np.int32(32), np.int32(64), np.int64(64), np.int64(1), Pointer("out"), NONE, NONE),
        {"out": Close(out, np.float32, 1e-5, 1e-4)},
    )  # fmt: skip


@gluon("tcgen05", "left:desc.fp16.128x64.128 right:desc.fp16.64x64.128 out:desc.fp16.128x64.128",
       {"K": 192, "BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, ("sm_100a",))  # fmt: skip
def tcgen05(inputs: Inputs) -> Launch:
    return _ended(described(inputs, 128, 64, 192, (128, 64, 64)))
