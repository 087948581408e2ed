"""Operands of the block-scaled GEMM kernels as bytes: packed elements, and scale factors where the kernels look for them. No GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.gemm.scaled_kernels import ScaledBuild, ScaledKernel
from hwkernels.gemm.tensor_memory_constants import SCALE_BLOCK, SCALE_ROWS, SPAN, scale_block_offsets
from hwkernels.gemm.tiles import Shape, TensorMapSpec

Bytes = npt.NDArray[np.uint8]
ROW_ALIGNMENT = 16  # bytes: of a row of a tensor map


def pack_elements(codes: Any, bits: int) -> Bytes:
    """Codes (rows, K), one a byte, as the kernels read them: (rows, bytes), rows of whole 16 bytes, beyond K zeros.

    Two 4-bit codes share a byte, that of the lower k in its low bits.

    >>> pack_elements(np.array([[1, 2, 3]], np.uint8), 4)[0, :3].tolist()
    [33, 3, 0]
    """
    array = np.asarray(codes, np.uint8)
    each = 8 // bits
    width = math.ceil(array.shape[1] / (ROW_ALIGNMENT * each)) * ROW_ALIGNMENT * each
    padded = np.zeros((array.shape[0], width), np.uint8)
    padded[:, : array.shape[1]] = array
    if each == 1:
        return padded
    return padded[:, 0::2] | padded[:, 1::2] << np.uint8(4)


def pack_factors(kernel: ScaledKernel, codes: Any) -> tuple[Bytes, int]:
    """Scale factors (rows, blocks along K) of A, or of B's columns, as the kernel reads them, and its `pitch`.

    With Tensor Memory: (groups of 128 rows, slots, blocks of four factors, 512), each 512 bytes as tcgen05.cp copies them;
    the pitch is that of a group. Else: (rows, bytes), the pitch that of a row. What is missing to whole slots, and whole groups, is 0.

    >>> from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
    >>> factors, pitch = pack_factors(SCALED_KERNELS["sm120_nvfp4"], np.ones((8, 3), np.uint8))
    >>> factors.shape, pitch
    ((8, 16), 16)
    """
    array = np.asarray(codes, np.uint8)
    rows, blocks = array.shape
    slots = math.ceil(blocks / kernel.factors)
    groups = math.ceil(rows / SCALE_ROWS)
    whole = np.zeros((groups * SCALE_ROWS if kernel.tensor_memory else rows, slots * kernel.factors), np.uint8)
    whole[:rows, :blocks] = array
    if not kernel.tensor_memory:
        return whole, whole.shape[1]
    words = kernel.factors // 4
    cut = whole.reshape(groups, SCALE_ROWS, slots, words, 4).transpose(0, 2, 3, 1, 4)
    out = np.zeros((groups, slots, words, SCALE_BLOCK), np.uint8)
    out[..., scale_block_offsets()] = cut
    return out, slots * words * SCALE_BLOCK


def whole_tiles(build: ScaledBuild, factors: Bytes, rows: int) -> Bytes:
    """Packed factors with so many groups that every tile, `rows` wide, finds its own.

    A tile of 256 columns reads two groups even if the last one has none of the matrix.
    """
    if not build.row.tensor_memory:
        return factors
    each = rows // SCALE_ROWS
    missing = -factors.shape[0] % each
    return np.pad(factors, ((0, missing), (0, 0), (0, 0), (0, 0)))


def scaled_maps(build: ScaledBuild, shape: Shape) -> tuple[TensorMapSpec, TensorMapSpec]:
    """The tensor maps of A and of B's columns. They count bytes: boxes of 128 bytes of K and the rows of a tile.

    Source: kind::mxf8f6f4 takes 8-bit elements, kind::mxf4 and mxf4nvf4 packed 4-bit ones, in rows of bytes (PTX ISA).
    """
    each = 8 // build.row.element_bits
    width = math.ceil(shape.k / each)
    pitch = math.ceil(width / ROW_ALIGNMENT) * ROW_ALIGNMENT
    a = TensorMapSpec("UINT8", (width, shape.m), pitch, (SPAN, build.block_m))
    b = TensorMapSpec("UINT8", (width, shape.n), pitch, (SPAN, build.block_n))
    return a, b


def scaled_grid(build: ScaledBuild, shape: Shape) -> tuple[int, int, int]:
    """A block for each tile, columns first.

    Raises ValueError for more rows of tiles than a launch can have.
    """
    rows = math.ceil(shape.m / build.block_m)
    if rows > 65535:
        raise ValueError(f"m = {shape.m} makes {rows} rows of tiles; valid: up to 65535")
    return math.ceil(shape.n / build.block_n), rows, 1
