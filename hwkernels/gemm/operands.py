"""An operand as a GEMM kernel reads it: where it lies if it can, else repacked on the GPU into rows of K."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwkernels.device import stream_launch
from hwkernels.device.device_arrays import DTYPES, DeviceArray, DeviceMatrix, round_up, upload
from hwkernels.gemm.build import ENTRY, pack_cubin
from hwkernels.gemm.kernels import GemmKernel


@dataclass(frozen=True)
class Prepared:
    """An operand as a kernel takes it."""

    address: int
    leading: int  # elements from one row to the next
    mn_major: bool
    owner: Any


def prepared(matrix: DeviceMatrix, kernel: GemmKernel, launches: list[stream_launch.StreamLaunch]) -> Prepared:
    """`matrix` (M or N, K) on the GPU, repacked if the kernel cannot read it where it lies."""
    matrix = upload(matrix)
    extent, k = matrix.shape
    rows, columns = matrix.strides
    major = layout_of(matrix, matrix.format in kernel.mn_major, kernel.needs_aligned)
    if major is not None:
        leading = (columns if k > 1 else extent) if major else (rows if extent > 1 else k)
        return Prepared(
            matrix.address,
            round_up(leading, 16 // matrix.item_bytes) if kernel.needs_aligned else leading,
            major,
            matrix,
        )
    leading = round_up(k, 16 // matrix.item_bytes)
    packed = DeviceArray((extent, leading), DTYPES[matrix.format])
    launches.append(pack_launch(matrix, packed, leading))
    return Prepared(packed.address, leading, False, (matrix, packed))


def layout_of(matrix: DeviceMatrix, mn_allowed: bool, aligned: bool) -> bool | None:
    """Whether (M or N, K) is MN-major as it lies; None if it must be repacked.

    A dimension of one element has no stride to speak of.

    >>> layout_of(DeviceMatrix("f16", (64, 32), (1, 64)), True, True), layout_of(DeviceMatrix("f16", (64, 33), (33, 1)), True, True)
    (True, None)
    """
    extent, k = matrix.shape
    rows, columns = matrix.strides
    unit = 16 // matrix.item_bytes if aligned else 1
    if aligned and matrix.address % 16:
        return None
    if (columns == 1 or k == 1) and ((rows >= k and rows % unit == 0) or extent == 1):
        return False
    if mn_allowed and (rows == 1 or extent == 1) and ((columns >= extent and columns % unit == 0) or k == 1):
        return True
    return None


def pack_launch(matrix: DeviceMatrix, packed: DeviceArray, leading: int) -> stream_launch.StreamLaunch:
    """Copy a matrix of any strides on the GPU to rows that lie `leading` elements apart."""
    cubin = pack_cubin(matrix.item_bytes, f"sm_{stream_launch.arch_number()}")
    fields = [(name, "<i8") for name in ("from", "to", "row", "column", "leading")] + [
        ("rows", "<i4"),
        ("columns", "<i4"),
    ]
    copy = np.array((matrix.address, packed.address, *matrix.strides, leading, *matrix.shape), np.dtype(fields))
    grid = math.ceil(matrix.shape[1] / 32), math.ceil(matrix.shape[0] / 32), 1
    return stream_launch.StreamLaunch(
        stream_launch.load_function(cubin, ENTRY), [copy], grid, (256, 1, 1), keep=(matrix, packed)
    )
