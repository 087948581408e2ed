"""The launches of copies.cu, and what NumPy or plain Python says of them: bulk and tensor copies, mbarriers, roles of warps."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.kernels.corpora.case import Inputs, Launch, Map, Pointer, call, tensor_map
from tests.kernels.corpora.cuda.launches import HOPPER, cuda, exact


@cuda("copies", HOPPER)
def specialised(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 7, 64))
    out = np.zeros((2, 64), np.int64)
    for step in range(7):
        out = out * 7 + x[:, step, ::-1]
    return call({"in": x}, {"out": exact(out, np.int32)}, np.int32(7), grid=2, block=96)


@cuda("copies", HOPPER)
def bulk_store(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 9999, (3, 64))
    half = (0x3C00 + (np.arange(64) << 10) % 0x1000).astype(np.uint16).view(np.float16)
    sums = np.concatenate([3 * x.sum(axis=0), 3 * x.max(axis=0)[:32]])
    return call(
        {"in": x},
        {"copy": exact(3 * x, np.int32), "sum": exact(sums, np.uint32), "halves": exact(3 * half, np.float16)},
        grid=3,
        block=64,
    )


@cuda("copies", HOPPER)
def tensor_2d(inputs: Inputs) -> Launch:
    x = inputs.integers(-999, 999, (40, 80))
    padded = np.zeros((64, 128), np.int64)
    padded[4:44, 8:88] = x
    out, sums = np.zeros((48, 96), np.int64), np.zeros((40, 80), np.int64)
    for by in range(3):
        for bx in range(3):
            tile = padded[by * 16 : by * 16 + 16, bx * 32 : bx * 32 + 32] + np.arange(512).reshape(16, 32)
            out[by * 16 : by * 16 + 16, bx * 32 : bx * 32 + 32] = tile
            sums[3:19, :32] += tile
    item = tensor_map(x, "INT32", (32, 16))
    return Launch(
        {"from": x, "to": np.zeros_like(x), "sum": np.zeros_like(x)}, (Map("from", item), Map("to", item), Map("sum", item)),
        {"to": exact(out[:40, :80], np.int32), "sum": exact(sums, np.int32)}, (3, 3, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def tensor_swizzled(inputs: Inputs) -> Launch:
    x, cube = inputs.normal((50, 128), np.float16), inputs.integers(0, 255, (4, 8, 32), np.uint8)
    out = np.zeros((2, 64, 64), np.uint16)
    out[:, 3:53] = x.view(np.uint16).reshape(50, 2, 64).transpose(1, 0, 2)
    rest = np.zeros((2, 3, 4, 16), np.uint8)
    for block in range(2):
        picked = cube[block + 2 : block + 5, 5:9, 16:32]
        rest[block, : len(picked), : picked.shape[1]] = picked
    swizzled = tensor_map(x, "FLOAT16", (64, 64), "128B")
    box = tensor_map(cube, "UINT8", (16, 4, 3))
    return Launch(
        {"from": x, "cube": cube, "out": np.zeros((2, 64, 64), np.uint16), "rest": np.zeros((2, 192), np.uint8)},
        (Map("from", swizzled), Map("cube", box), Pointer("out"), Pointer("rest")),
        {"out": exact(out, np.uint16), "rest": exact(rest.reshape(2, 192), np.uint8)}, (2, 1, 1), (128, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def im2col(inputs: Inputs) -> Launch:
    image = inputs.normal((2, 6, 7, 64), np.float16)  # N, H, W, C
    out = np.zeros((5, 32, 64), np.uint16)
    words = image.view(np.uint16)
    # base pixels run over W from the lower corner -1 to 7 - 1 + (-1), and over H from 0 to 5 - 1: a filter of 3 x 2
    for block in range(5):
        w, h, n = block - 1, 0, 0
        for pixel in range(32):
            x, y = w + block % 3, h + 1
            if 0 <= x < 7 and 0 <= y < 6 and n < 2:
                out[block, pixel] = words[n, y, x]
            w += 1
            if w > 5:
                w, h = -1, h + 1
            if h > 4:
                h, n = 0, n + 1
    item = tcsim.TensorMap.im2col("FLOAT16", (64, 7, 6, 2), (128, 896, 5376), (-1, 0), (-1, -1), 64, 32, swizzle="NONE")
    return Launch(
        {"image": image, "out": np.zeros((5, 32, 64), np.uint16)}, (Map("image", item), Pointer("out")),
        {"out": exact(out, np.uint16)}, (5, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def async_arrive(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 64, 4))
    out = x[:, np.arange(64) ^ 33].copy()
    out[:, :32, 3] *= -1
    return call({"in": x}, {"out": exact(out, np.int32)}, grid=2, block=64)
