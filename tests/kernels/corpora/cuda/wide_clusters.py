"""The launches of wide_clusters.cu, and what NumPy says of them: many clusters of two and of four blocks."""

from __future__ import annotations

import numpy as np

from tests.kernels.corpora.case import Close, Inputs, Launch, call
from tests.kernels.corpora.cuda.launches import exact, wide, windows


@wide("clusters")
def cluster_counts(inputs: Inputs) -> Launch:
    clusters, each = 119, 7
    x = np.resize(inputs.integers(0, 255, (1021,), np.uint8), (clusters, 2 * each * 64))
    out = [np.bincount(row & 63, minlength=64) for row in x]
    return call({"in": x}, {"out": exact(out, np.uint16)}, np.int32(each), grid=2 * clusters, block=64)


@wide("clusters")
def cluster_norm(inputs: Inputs) -> Launch:
    rows, columns = 95, 150
    x = windows(inputs.normal((997,), np.float16), 37 * np.arange(rows), 4 * columns)
    v = x.astype(np.float64)
    out = (v - v.mean(axis=1, keepdims=True)) / np.sqrt(v.var(axis=1, keepdims=True) + 1e-5)
    return call({"in": x}, {"out": Close(out, np.float16, 2**-9, 2**-14)}, np.int32(columns), grid=4 * rows, block=64)
