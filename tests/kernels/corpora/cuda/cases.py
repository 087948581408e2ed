"""Every case of the CUDA kernels, registered by a module for each file."""

from __future__ import annotations

from tests.kernels.corpora.cuda import (
    blocks,
    calls,
    clusters,
    copies,
    numbers,
    warps,
    wide_atomics,
    wide_clusters,
    wide_loops,
    wide_products,
    wide_rows,
)

MODULES = (blocks, calls, clusters, copies, numbers, warps)
WIDE = (wide_atomics, wide_clusters, wide_loops, wide_products, wide_rows)  # of many blocks
