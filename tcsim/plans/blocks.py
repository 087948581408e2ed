"""Products of operands with block scales, as the tensor core of a GPU adds them: one plain chain along K, assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import NotModelledError, listing
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.multiplication import gemm
from tcsim.plans.lookup import chip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """Elements of a format of which `size` along K share a scale."""

    format: str
    scale: str
    size: int
    kind: str  # of tcgen05.mma, and of mma.sync
    vector: str  # .scale_vec
    k: int  # of mma.sync


BLOCKS = {
    "mxfp8": Blocks("e4m3", "ue8m0", 32, "mxf8f6f4", "1X", 32),
    "mxfp4": Blocks("e2m1", "ue8m0", 32, "mxf4", "2X", 64),
    "nvfp4": Blocks("e2m1", "ue4m3", 16, "mxf4nvf4", "4X", 64),
}
"""By name of the recipe. Source: cuBLAS, "Narrow Precision Data Types Usage": what cublasLtMatmul takes."""
TCGEN05 = ("sm_100", "sm_103", "sm_107", "sm_110")
MMA = ("sm_120", "sm_121")
"""The archs that multiply blocks, by the instruction that does it. Source: PTX ISA."""


def blocked_product(
    recipe: str, a: Any, b: Any, scale_a: Any, scale_b: Any, gpu: str = "b200", engine: Any = None
) -> Array:
    """The f32 sums of codes a (M, K) and b (K, N) with the codes of their scales, (M, K / size) and (K / size, N), on a GPU.

    Raises NotModelledError for a GPU that multiplies no such blocks, PlanError for one that does not exist.

    >>> codes, scales = np.full((8, 64), 0x38, np.uint8), np.full((8, 2), 127, np.uint8)
    >>> tcsim.plans.blocked_product("mxfp8", codes, codes.T, scales, scales.T)[0, 0]
    np.float32(64.0)
    """
    blocks, (name, arch) = BLOCKS[recipe], chip(gpu)
    idesc = None
    if arch in TCGEN05:
        instruction = f"tcgen05.mma.cta_group::1.kind::{blocks.kind}.block_scale.scale_vec::{blocks.vector}"
        idesc = InstructionDescriptor(
            kind=blocks.kind,
            a_format=blocks.format,
            b_format=blocks.format,
            m=128,
            n=64,
            scale_format=blocks.scale,
            arch=arch,
        )
    elif arch in MMA:
        formats = f"f32.{blocks.format}.{blocks.format}.f32.{blocks.scale}"
        instruction = f"mma.sync.aligned.kind::{blocks.kind}.block_scale.scale_vec::{blocks.vector}.m16n8k{blocks.k}.row.col.{formats}"
    else:
        raise NotModelledError(
            f"{recipe} on {name}: {arch} multiplies no block scales; valid: GPUs of {listing((*TCGEN05, *MMA), 10)}"
        )
    d = gemm(
        a, b, instruction=instruction, arch=f"{arch}a", idesc=idesc, scale_a=scale_a, scale_b=scale_b, engine=engine
    )
    return d.view(np.float32)
