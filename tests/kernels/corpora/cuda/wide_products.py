"""The launches of wide_products.cu, and what NumPy says of them: products and attention of many small tiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import Array, Close, Inputs, Launch, Map, Pointer, call, tensor_map
from tests.kernels.corpora.cuda.launches import wide, windows


def _halves(inputs: Inputs, rows: int, columns: int) -> Array:
    """A matrix of small multiples of 1/4, so that products need few bits."""
    base = (inputs.integers(-6, 6, (997,)) / 4).astype(np.float16)
    return windows(base, 37 * np.arange(rows), columns)


def _product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64).T


@wide("products")
def matmul_tiles(inputs: Inputs) -> Launch:
    m, n, k = 11 * 8 - 3, 13 * 8 - 5, 75
    a, b = (windows(inputs.normal((997,)), 37 * np.arange(rows), k) for rows in (m, n))
    return call(
        {"a": a, "b": np.ascontiguousarray(b.T)}, {"d": Close(_product(a, b), np.float32, 1e-5, 1e-5)},
        np.int32(m), np.int32(n), np.int32(k), grid=(13, 11, 1), block=(8, 8, 1),
    )  # fmt: skip


@wide("products")
def mma_stages(inputs: Inputs) -> Launch:
    m, n, k = 11 * 32 - 5, 7 * 16, 224
    a, b = _halves(inputs, m, k), _halves(inputs, n, k)
    return call(
        {"a": a, "b": b}, {"d": Close(_product(a, b), np.float16, 2**-10)},
        np.int32(m), np.int32(n), np.int32(k), grid=(7, 11, 1), block=64,
    )  # fmt: skip


@wide("products")
def attention(inputs: Inputs) -> Launch:
    heads, length = 13, 5 * 32 - 3
    q, k, v = (
        windows(inputs.normal((997,), np.float16), 37 * np.arange(heads * length), 16).reshape(heads, length, 16)
        for _ in range(3)
    )
    x, y, z = (own.astype(np.float64) for own in (q, k, v))
    scores = np.where(np.tri(length, dtype=bool), x @ y.transpose(0, 2, 1) * 0.25, -np.inf)
    e = np.exp(scores - scores.max(axis=2, keepdims=True))
    return call(
        {"q": q, "k": k, "v": v}, {"out": Close(e / e.sum(axis=2, keepdims=True) @ z, ml_dtypes.bfloat16, 2**-7, 2**-8)},
        np.int32(length), np.float32(0.25), grid=(5, heads, 1), block=64,
    )  # fmt: skip


@wide("products")
def wgmma_stages(inputs: Inputs) -> Launch:
    m, n, k = 5 * 64 - 20, 13 * 16 - 5, 328
    a, b = _halves(inputs, m, k), _halves(inputs, n, k)
    maps = [
        Map(name, tensor_map(own, "FLOAT16", (64, side), "128B")) for name, own, side in (("a", a, 64), ("b", b, 16))
    ]
    return Launch(
        {"a": a, "b": b, "d": np.zeros((m, n), np.float16)}, (*maps, Pointer("d"), np.int32(m), np.int32(n), np.int32(k)),
        {"d": Close(_product(a, b), np.float16, 2**-10)}, (13, 5, 1), (128, 1, 1),
    )  # fmt: skip
