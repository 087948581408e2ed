"""The launches of wide_rows.cu, and what NumPy says of them: elements, norms, softmax and scans of many small blocks."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import Close, Inputs, Launch, Pointer, call
from tests.kernels.corpora.cuda.launches import exact, wide, windows


@wide("rows")
def vector_add(inputs: Inputs) -> Launch:
    n = 5 * 11 * 17 * 128 - 53
    x, y = np.resize(inputs.normal((101,)), n), np.resize(inputs.normal((103,)), n)
    return call({"x": x, "y": y}, {"out": exact(x + y, np.float32)}, np.int32(n), grid=(5, 11, 17), block=32)


@wide("rows")
def swiglu(inputs: Inputs) -> Launch:
    n = 989 * 96 - 34
    gate, up = (np.resize(inputs.normal((period,), np.float16, 2.0), n) for period in (101, 103))
    g, u = gate.astype(np.float64), up.astype(np.float64)
    return Launch(
        {"gate": gate, "up": up}, (Pointer("gate"), Pointer("up"), np.int32(n // 2)),
        {"gate": Close(g / (1 + np.exp(-g)) * u, np.float16, 2**-9, 2**-14)}, (989, 1, 1), (32, 1, 1),
    )  # fmt: skip


@wide("rows")
def rms_norm(inputs: Inputs) -> Launch:
    rows, columns = 455, 100
    x = windows(inputs.normal((997,), np.float16), 37 * np.arange(rows), columns)
    weight = inputs.normal((columns,), np.float16)
    v = x.astype(np.float64)
    out = v / np.sqrt((v * v).mean(axis=1, keepdims=True) + 1e-5) * weight.astype(np.float64)
    return call(
        {"in": x, "weight": weight}, {"out": Close(out, np.float16, 2**-9, 2**-20)},
        np.int32(columns), np.float32(1e-5), grid=rows, block=32,
    )  # fmt: skip


@wide("rows")
def layer_norm(inputs: Inputs) -> Launch:
    rows, columns = 385, 187
    x = windows(inputs.normal((997,)), 37 * np.arange(rows), columns) + np.float32(0.5)
    weight, bias = inputs.normal((columns,)), inputs.normal((columns,))
    v = x.astype(np.float64)
    mean, scale = v.mean(axis=1), 1 / np.sqrt(v.var(axis=1) + 1e-5)
    out = (v - mean[:, None]) * scale[:, None] * weight + bias
    return call(
        {"in": x, "weight": weight, "bias": bias},
        {"out": Close(out, ml_dtypes.bfloat16, 2**-8, 1e-5), "moments": Close(np.stack([mean, scale], -1), np.float32, 1e-5, 1e-6)},
        np.int32(columns), grid=rows, block=64,
    )  # fmt: skip


@wide("rows")
def softmax(inputs: Inputs) -> Launch:
    rows, columns = 323, 160
    x = windows(inputs.normal((997,), np.float16, 2.0), 37 * np.arange(rows), columns)
    lengths = inputs.integers(1, columns, (rows,))
    v = np.where(np.arange(columns) < lengths[:, None], x.astype(np.float64), -np.inf)
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return call(
        {"in": x, "lengths": lengths}, {"out": Close(e / e.sum(axis=1, keepdims=True), np.float16, 2**-9, 2**-24)},
        np.int32(columns), grid=rows, block=64,
    )  # fmt: skip


@wide("rows")
def scan(inputs: Inputs) -> Launch:
    rows, columns = 323, 600
    x = windows(inputs.integers(-9, 9, (997,), np.int8), 37 * np.arange(rows), columns)
    lengths = inputs.integers(1, columns // 64, (rows,)) * 64 - inputs.integers(0, 63, (rows,))
    inside = np.arange(columns) < lengths[:, None]
    sums = np.where(inside, np.cumsum(x, axis=1, dtype=np.int32), 0)
    last = sums[np.arange(rows), lengths - 1]
    return call(
        {"in": x, "lengths": lengths}, {"last": exact(last, np.int32), "out": exact(sums, np.int16)},
        np.int32(columns), grid=rows, block=64,
    )  # fmt: skip
