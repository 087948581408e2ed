"""CUTLASS's CuTe DSL: the 64 bytes that it builds for a tensor map. Run by tests/oracles/asking.py.

A host function makes a TMA atom and copies its descriptor to memory of this process; it launches nothing, so that no GPU is
needed. The DSL names maps by CuTe layouts: sizes and strides in elements, boxes by a layout of shared memory.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # before the DSL asks for a GPU

import cutlass
import cutlass.cute as cute
import numpy as np
from answering import Arrays, Job, main
from cutlass.cute import runtime
from cutlass.cute.nvgpu import cpasync

ALIGNMENT = 128


def described(job: Job, given: Arrays) -> Arrays:
    """The bytes of the map of a job."""
    memory = np.zeros(2 * ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    element = getattr(cutlass, job["element"])
    tensor = runtime.make_ptr(element, job["address"], cute.AddressSpace.gmem, assumed_align=32)
    out = runtime.make_ptr(cutlass.Int64, memory.ctypes.data + start, cute.AddressSpace.gmem, assumed_align=ALIGNMENT)
    host = _im2col(job) if "pixels" in job else _tiled(job)
    cute.compile(host, tensor, out)(tensor, out)
    return {"bytes": memory[start : start + 64].copy()}


def _tiled(job: Job) -> Any:
    dims, strides, box = (tuple(job[name]) for name in ("dims", "strides", "box"))
    packed = tuple(int(np.prod(box[:place])) for place in range(len(box)))
    swizzle = tuple(job["swizzle"])

    @cute.jit
    def host(tensor: cute.Pointer, out: cute.Pointer) -> None:
        whole = cute.make_tensor(tensor, cute.make_layout(dims, stride=strides))
        tile = cute.make_composed_layout(cute.make_swizzle(*swizzle), 0, cute.make_layout(box, stride=packed))
        atom, _ = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), whole, tile, box)
        cpasync.copy_tensormap(atom, out)

    return host


def _im2col(job: Job) -> Any:
    dims, strides, lower, upper, steps = (
        tuple(job[name]) for name in ("dims", "strides", "lower", "upper", "steps")
    )  # fmt: skip
    swizzle, pixels, channels = tuple(job["swizzle"]), job["pixels"], job["channels"]
    zeros, ones = (0,) * len(lower), (1,) * len(lower)

    @cute.jit
    def host(tensor: cute.Pointer, out: cute.Pointer) -> None:
        shape = (dims[1:], dims[0])
        whole = cute.make_tensor(tensor, cute.make_layout(shape, stride=(strides[1:], strides[0])))
        tile = cute.make_composed_layout(
            cute.make_swizzle(*swizzle), 0, cute.make_layout((pixels, channels), stride=(channels, 1))
        )
        atom, _ = cpasync.make_im2col_tma_atom(
            cpasync.CopyBulkTensorIm2ColG2SOp(), whole, tile, (pixels, channels), lower, upper, lower, upper, steps, zeros,
            ones,
        )  # fmt: skip
        cpasync.copy_tensormap(atom, out)

    return host


if __name__ == "__main__":
    main("nvidia-cutlass-dsl", described)
