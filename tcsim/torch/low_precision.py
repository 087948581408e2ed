"""One layer in low precision: operands quantised as torchao does it, and the product of a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcsim.core.errors import OperandError, listing
from tcsim.numbers.quantize import quantize
from tcsim.plans import BLOCKS
from tcsim.torch.arrays import array, tensor
from tcsim.torch.emulation import emulate
from tcsim.torch.scaled import packed, swizzled

Scaled = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
_E4M3, _E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
LARGEST = {"e4m3": 448.0, "e2m1": 6.0}
SMALLEST = 2.0**-6
"""The smallest normal number of e4m3: the least scale that torchao gives a block of NVFP4."""


@dataclass(frozen=True)
class Quantized:
    """A matrix (M, K) in low precision."""

    recipe: str
    codes: torch.Tensor  # uint8 (M, K), one element in a byte
    scales: torch.Tensor  # uint8 (M, K / block) codes, or f32 (1, 1) or (M, 1)
    tensor_scale: torch.Tensor | None = None  # f32 of nvfp4: a code stands for code * scale * tensor_scale

    def swizzled(self) -> torch.Tensor:
        """The scales of blocks in cuBLAS's order, uint8 with one dimension."""
        return swizzled(self.scales)

    def operand(self) -> torch.Tensor:
        """As `torch._scaled_mm` takes it: float8_e4m3fn (M, K), or float4_e2m1fn_x2 (M, K / 2)."""
        if self.recipe in ("nvfp4", "mxfp4"):
            return packed(self.codes).view(torch.float4_e2m1fn_x2)
        return self.codes.view(_E4M3)

    def scale(self) -> torch.Tensor:
        """The scales as `torch._scaled_mm` takes them."""
        if self.recipe not in BLOCKS:
            return self.scales
        return self.swizzled().view(_E4M3 if self.recipe == "nvfp4" else _E8M0)


def _elements(x: torch.Tensor, format: str) -> torch.Tensor:
    """Codes of numbers within the range of a format, to nearest even."""
    return tensor(quantize(array(x.float()), format)).view(torch.uint8)


def _nvfp4(x: torch.Tensor) -> Scaled:
    whole = x.abs().max().float() / (LARGEST["e4m3"] * LARGEST["e2m1"])
    blocks = x.float().reshape(len(x), -1, 16)
    wanted = (blocks.abs().amax(-1) / LARGEST["e2m1"]) / whole
    scales = wanted.clamp(min=SMALLEST, max=LARGEST["e4m3"]).to(_E4M3)
    factor = (1.0 / whole) / scales.float()
    return (blocks * factor.unsqueeze(-1)).clamp(-6.0, 6.0), scales.view(torch.uint8), whole


def _mx(format: str) -> Callable[[torch.Tensor], Scaled]:
    def scaled(x: torch.Tensor) -> Scaled:
        blocks = x.reshape(len(x), -1, 32)
        ratio = blocks.abs().amax(-1, keepdim=True).float() / LARGEST[format]
        finite = (torch.ceil(torch.log2(ratio)).clamp(-127, 127) + 127).to(torch.uint8)
        code = torch.where(torch.isnan(ratio), 255, torch.where(torch.isinf(ratio), 254, finite)).to(torch.uint8)
        inverse = torch.where(code == 0, 1.0, torch.exp2(127 - code.float()))
        inverse = torch.where(code == 255, ratio, torch.where(code == 254, 2.0**-127, inverse))
        return (blocks.float() * inverse).clamp(-LARGEST[format], LARGEST[format]), code.squeeze(-1), None

    return scaled


def _fp8(rows: bool) -> Callable[[torch.Tensor], Scaled]:
    def scaled(x: torch.Tensor) -> Scaled:
        largest = x.abs().amax(-1, keepdim=True) if rows else x.abs().amax().reshape(1, 1)
        scale = (largest / LARGEST["e4m3"]).float()
        return (x.float() / scale).clamp(-LARGEST["e4m3"], LARGEST["e4m3"]), scale, None

    return scaled


RECIPES: dict[str, tuple[str, Callable[[torch.Tensor], Scaled]]] = {
    "nvfp4": ("e2m1", _nvfp4),  # NVFP4DynamicActivationNVFP4WeightConfig
    "mxfp8": ("e4m3", _mx("e4m3")),  # MXDynamicActivationMXWeightConfig, RCEIL
    "mxfp4": ("e2m1", _mx("e2m1")),  # the same of float4_e2m1fn_x2
    "fp8": ("e4m3", _fp8(False)),  # Float8DynamicActivationFloat8WeightConfig, PerTensor
    "fp8_row": ("e4m3", _fp8(True)),  # the same, PerRow
}
"""By name the format and the scaling. Source: torchao 0.18, prototype/mx_formats and quantization/quant_primitives, in PyTorch's own operations."""


def _checked(x: torch.Tensor, recipe: str) -> torch.Tensor:
    if recipe not in RECIPES:
        raise OperandError(f"recipe {recipe!r}; valid: {listing(RECIPES, 10)}")
    multiple = BLOCKS[recipe].size if recipe in BLOCKS else 1
    if x.dtype not in (torch.bfloat16, torch.float32) or not x.ndim or x.shape[-1] % multiple or not x.numel():
        raise OperandError(
            f"{recipe} of {x.dtype} {tuple(x.shape)}; valid: bfloat16 and float32, the last axis a multiple of {multiple}"
        )
    return x.detach().cpu().reshape(-1, x.shape[-1]).contiguous()


def quantized(x: torch.Tensor, recipe: str, gpu: str = "b200") -> Quantized:
    """Numbers (..., K) in bfloat16 or float32 as codes and scales, by the operations that torchao asks of a GPU.

    recipe: one of RECIPES. Raises OperandError for another one, another dtype, or K that is not a multiple of a block; PlanError for a GPU that does not exist.

    >>> found = quantized(torch.arange(16.0), "nvfp4")
    >>> found.codes[0, 12:], hex(found.scales[0, 0])
    (tensor([6, 7, 7, 7], dtype=torch.uint8), '0x7e')
    """
    flat = _checked(x, recipe)
    format, scaling = RECIPES[recipe]
    with torch.no_grad(), emulate(gpu):
        numbers, scales, whole = scaling(flat)
    return Quantized(recipe, _elements(numbers, format).reshape(flat.shape), scales, whole)


def linear(
    x: torch.Tensor, weight: torch.Tensor, recipe: str, gpu: str = "b200", bias: torch.Tensor | None = None, engine: str | None = None
) -> torch.Tensor:  # fmt: skip
    """x (..., K) times weight (N, K), both quantised by a recipe, in the bits of a GPU's tensor cores: (..., N), as torchao's layers return it.

    FP8 on an H200 follows cuBLAS's recorded plans (`tcsim.plan`); all else is assumed: one plain chain of the instruction. nvfp4, mxfp8 and mxfp4 need a
    GPU that multiplies block scales. Results are in the dtype of x; those of mxfp8 and mxfp4 in bfloat16. engine: as of `tcsim.gemm`.

    Raises OperandError for operands, NotModelledError for a GPU without the instruction, PlanError for one that does not exist.

    >>> x, weight = torch.eye(32, dtype=torch.bfloat16), torch.arange(64.0).repeat(32, 1).bfloat16().reshape(64, 32)
    >>> linear(x, weight, "mxfp8", gpu="B200")[0, :3]
    tensor([ 0., 32.,  0.], dtype=torch.bfloat16)
    """
    left, right = quantized(x, recipe, gpu), quantized(weight, recipe, gpu)
    if weight.ndim != 2 or x.shape[-1] != weight.shape[-1]:
        raise OperandError(f"linear of x {tuple(x.shape)} and weight {tuple(weight.shape)}; valid: (..., K) and (N, K)")
    bias = None if bias is None else bias.detach().cpu().to(torch.bfloat16 if recipe.startswith("mx") else x.dtype)
    out = torch.bfloat16 if recipe.startswith("mx") else x.dtype
    behind = recipe == "nvfp4" or out == torch.float32  # the bias is an operation of its own
    scale_b = right.scale() if recipe != "fp8_row" else right.scale().t()
    with torch.no_grad(), emulate(gpu, engine=engine):
        y = torch._scaled_mm(
            left.operand(), right.operand().t(), left.scale(), scale_b, bias=None if behind else bias, out_dtype=out, use_fast_accum=not recipe.startswith(("nv", "mx"))
        )  # fmt: skip
        if left.tensor_scale is not None and right.tensor_scale is not None:
            y = y * (left.tensor_scale * right.tensor_scale).to(out)
        if behind and bias is not None:
            y = y + bias
    return y.reshape(*x.shape[:-1], len(weight)).to(x.device)
