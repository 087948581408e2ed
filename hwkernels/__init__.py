"""The real instructions: PTX written, assembled, and launched on a GPU.

The calls here need a GPU when they are called, and nothing of CUDA when they are imported.
"""

from __future__ import annotations

from hwkernels.convolution.call import conv, plan_conv
from hwkernels.gemm.call import SparseMatrix, compress, gemm, plan_gemm
from hwkernels.gemm.convert_call import convert
from hwkernels.gemm.scaled_call import plan_scaled_gemm, scaled_gemm

__all__ = [
    "SparseMatrix",
    "compress",
    "conv",
    "convert",
    "gemm",
    "plan_conv",
    "plan_gemm",
    "plan_scaled_gemm",
    "scaled_gemm",
]
