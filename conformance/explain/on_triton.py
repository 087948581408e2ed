"""Products of Triton's tl.dot."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance.explain import triton_kernels
from conformance.explain.inputs import Array
from conformance.explain.on_torch import TYPES, Given, Way, from_gpu, to_gpu
from conformance.explain.products import Product

ACCUMULATORS = {"f32": tl.float32, "f16": tl.float16, "s32": tl.int32}


def triton_matmul(product: Product, given: Given) -> Iterator[Way]:
    """The kernel with the blocks that the product names."""
    (m, n, k), (left, right, out), options = product.shape, product.formats, product.options
    block_m, block_n = options.get("block_m", 64), options.get("block_n", 64)
    split, accumulator = options.get("split", 1), options.get("accumulator", "f32")

    def run(kind: str) -> Array:
        a, b = to_gpu(given[kind]["a"][0], left), to_gpu(given[kind]["b"][0], right)
        d = torch.zeros((m, n), dtype=TYPES[out], device="cuda")
        parts = d if split == 1 else torch.zeros((split, m, n), dtype=TYPES[accumulator], device="cuda")
        triton_kernels.matmul[(m // block_m, n // block_n, split)](
            a, b, parts, m, n, k, k // split, SPLIT=split, INTERLEAVED=options.get("interleaved", False),
            SEPARATE=options.get("separate", False), BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=options["block_k"],
            ACCUMULATOR=ACCUMULATORS[accumulator], PRECISION=options.get("precision"), IMPRECISE=options.get("imprecise"),
            num_warps=options.get("warps", 4),
        )  # fmt: skip
        if split > 1:
            triton_kernels.add_parts[(m * n // 1024,)](parts, d, m * n, SPLIT=split, BLOCK=1024)
        return from_gpu(d[None], out)

    yield Way("", {"triton": triton.__version__, "torch": torch.__version__}, run)
