"""Four kernels through Triton: a softmax, a product, and products whose descriptors are made on the device and on the host."""

from __future__ import annotations

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.kernels.corpora.triton import matmul, rows


def main() -> None:
    """Launch."""
    torch.manual_seed(3)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    x = torch.randn(6, 100, device="cuda")
    rows.softmax[(4,)](x, torch.empty_like(x), 100, 100, BLOCK=128)
    a, b = torch.randn(64, 64, device="cuda").half(), torch.randn(64, 64, device="cuda").half()
    d = torch.empty(64, 64, device="cuda", dtype=torch.float32)
    matmul.matmul[(1, 1)](
        a, b, d, 64, 64, 64, 64, 64, 64, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, ACC=triton.language.float32
    )
    d = torch.empty(64, 64, device="cuda", dtype=torch.float16)
    matmul.descriptors[(1, 1)](a, b, d, 64, 64, 64, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    maps = [TensorDescriptor.from_tensor(own, [64, 64]) for own in (a, b, torch.empty_like(d))]
    matmul.host_descriptors[(1, 1)](*maps, 64, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
