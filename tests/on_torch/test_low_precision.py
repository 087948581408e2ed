"""Layers in low precision: codes and scales equal to torchao's, whose own operations are computed under emulation; products against sums in exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import (
    NVFP4Tensor,
    QuantizeTensorToNVFP4Kwargs,
    nvfp4_quantize,
    per_tensor_amax_to_scale,
)
from torchao.prototype.mx_formats.utils import to_blocked
from torchao.quantization.quant_primitives import _choose_scale_float8, _quantize_affine_float8

import tcsim
import tcsim.torch
from tcsim.core.errors import NotModelledError
from tcsim.torch.low_precision import RECIPES
from tcsim.torch.scaled import straight, swizzled

BLOCKED = ("nvfp4", "mxfp8", "mxfp4")


def numbers(dtype: torch.dtype, rows: int = 200, k: int = 256) -> torch.Tensor:
    stream = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, k, generator=stream) * torch.exp2(torch.randint(-20, 21, (rows, 1), generator=stream).float())
    x[3], x[5, :40] = 0, 0
    x[7, 9], x[9, k // 2], x[11] = 448.0, 448.0 * 2**-9, x[11] * 2.0**-100
    x[12 % rows, :64] = 2.0**-125
    return x.to(dtype)


def of_torchao(x: torch.Tensor, recipe: str) -> tuple[torch.Tensor, torch.Tensor]:
    if recipe.startswith("mx"):
        scales, codes = to_mx(
            x, torch.float8_e4m3fn if recipe == "mxfp8" else torch.float4_e2m1fn_x2, 32, ScaleCalculationMode.RCEIL
        )
    elif recipe == "nvfp4":
        scales, codes = nvfp4_quantize(x, 16, per_tensor_amax_to_scale(torch.max(torch.abs(x))))
    else:
        scales = _choose_scale_float8(x, [1 if recipe == "fp8_row" else len(x), x.shape[1]])
        codes = _quantize_affine_float8(x, scales)
    return codes, scales


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("recipe", RECIPES)
def test_torchao_has_these_codes(recipe: str, dtype: torch.dtype) -> None:
    x = numbers(dtype)
    with tcsim.torch.emulate("b200"):
        codes, scales = of_torchao(x, recipe)
    found = tcsim.torch.quantized(x, recipe)
    assert torch.equal(found.operand().view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(found.scales, scales if scales.dtype == torch.float32 else scales.view(torch.uint8))
    assert len(found.codes.unique()) > (12 if "4" in recipe[-1] else 200)
    if recipe in BLOCKED:
        assert torch.equal(found.swizzled(), to_blocked(found.scales))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (128, 4), (130, 9), (31, 3)])
def test_swizzled_scales_come_back(rows: int, columns: int) -> None:
    scales = torch.randint(0, 256, (rows, columns), dtype=torch.uint8)
    assert torch.equal(straight(swizzled(scales), rows, columns), scales)


@pytest.mark.parametrize("gpu", ["b200", "rtx5090"])
@pytest.mark.parametrize("recipe", BLOCKED)
def test_the_product_of_blocks(recipe: str, gpu: str) -> None:
    """A few products, so that every sum is exact: the operands' own values."""
    x, weight = (numbers(torch.bfloat16, rows, 64).clamp(-8, 8) for rows in (13, 24))
    x[:, 3:], weight[:, 3:] = 0, 0
    left, right = (tcsim.torch.quantized(own, recipe, gpu) for own in (x, weight))

    def values(own: tcsim.torch.Quantized) -> np.ndarray:
        size, scale, format = {
            "nvfp4": (16, "e4m3", "e2m1"),
            "mxfp8": (32, "ue8m0", "e4m3"),
            "mxfp4": (32, "ue8m0", "e2m1"),
        }[recipe]
        return tcsim.decode(own.codes.numpy(), format) * np.repeat(tcsim.decode(own.scales.numpy(), scale), size, -1)

    sums = torch.from_numpy((values(left) @ values(right).T).astype(np.float32)).bfloat16()
    if left.tensor_scale is not None and right.tensor_scale is not None:
        sums = sums * (left.tensor_scale * right.tensor_scale).bfloat16()
    y = tcsim.torch.linear(x, weight, recipe, gpu)
    assert torch.equal(y, sums) and len(y.unique()) > 20


def test_a_layer_of_torchao_under_emulation() -> None:
    x, weight, bias = (
        numbers(torch.bfloat16, 20, 128),
        numbers(torch.bfloat16, 48, 128),
        numbers(torch.bfloat16, 20, 48)[0],
    )
    with tcsim.torch.emulate("b200"), torch.inference_mode():
        right = NVFP4Tensor.to_nvfp4(
            weight, per_tensor_scale=per_tensor_amax_to_scale(weight.abs().max()), act_quant_kwargs=QuantizeTensorToNVFP4Kwargs(use_dynamic_per_tensor_scale=True)
        )  # fmt: skip
        y = torch.nn.functional.linear(x, right, bias)
    assert torch.equal(y, tcsim.torch.linear(x, weight, "nvfp4", bias=bias))


@pytest.mark.parametrize("m", [1, 16])
@pytest.mark.parametrize("recipe", ["fp8", "fp8_row"])
def test_fp8_follows_the_plan(recipe: str, m: int) -> None:
    x, weight = (torch.randn(rows, 4096, generator=torch.Generator().manual_seed(rows)) for rows in (m, 64))
    with tcsim.torch.emulate("H200") as run:
        pass
    left, right = (tcsim.torch.quantized(own, recipe, "h200") for own in (x, weight))
    plan = tcsim.plan(
        "scaled_mm" if recipe == "fp8" else "scaled_mm_rowwise", m=m, n=64, k=4096, format="e4m3", out="f32", gpu=run.gpu
    )  # fmt: skip
    scale_a, scale_b = left.scales.numpy(), right.scales.numpy().T
    if recipe == "fp8":
        scale_a, scale_b = scale_a[0, 0], scale_b[0, 0]
    d = tcsim.plans.product(plan, left.codes.numpy(), right.codes.numpy().T, scale_a=scale_a, scale_b=scale_b)
    assert np.array_equal(tcsim.torch.linear(x, weight, recipe, "h200").numpy(), d)


@pytest.mark.parametrize(("k", "status"), [(4096, "exact"), (16384, "assumed")])
@pytest.mark.parametrize("types", [("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "float8_e4m3fn")])
def test_fp8_of_two_formats(types: tuple[str, str], k: int, status: str) -> None:
    """A product of e4m3 and e5m2, as backwards passes multiply them; of two e5m2 cuBLAS has none. Where K is cut, the cut is assumed."""
    x, weight = (
        torch.randn(rows, k, generator=torch.Generator().manual_seed(rows)).to(getattr(torch, type))
        for rows, type in zip((16, 64), types, strict=True)
    )
    one = torch.ones(())
    with tcsim.torch.emulate("H200") as run:
        y = torch._scaled_mm(x, weight.t(), one, one, out_dtype=torch.float32, use_fast_accum=True)
    exact = x.double() @ weight.double().t()
    assert (y - exact).abs().max() < 2**-9 * (x.double().abs() @ weight.double().abs().t()).max()
    assert run.ops()[0]["status"] == status


def test_a_bias_is_added_before_the_one_rounding() -> None:
    x, weight = numbers(torch.bfloat16, 13, 64).clamp(-8, 8), numbers(torch.bfloat16, 24, 64).clamp(-8, 8)
    bias = torch.randn(24, generator=torch.Generator().manual_seed(1)).bfloat16()
    with tcsim.torch.emulate("b200"):
        left, right = (tcsim.torch.quantized(own, "mxfp8") for own in (x, weight))
        sums = torch._scaled_mm(
            left.operand(), right.operand().t(), left.scale(), right.scale(), out_dtype=torch.float32
        )
    y = tcsim.torch.linear(x, weight, "mxfp8", bias=bias)
    assert torch.equal(y, (sums + bias.float()).bfloat16()) and not torch.equal(y, sums.bfloat16() + bias)


def test_a_bias_of_fp8_is_assumed() -> None:
    left, right = (
        tcsim.torch.quantized(torch.ones(rows, 4096, dtype=torch.bfloat16), "fp8", "h200") for rows in (16, 4096)
    )
    for bias, status in ((None, "exact"), (torch.ones(4096, dtype=torch.bfloat16), "assumed")):
        with tcsim.torch.emulate("H200") as run:
            y = torch._scaled_mm(
                left.operand(), right.operand().t(), left.scale(), right.scale(), bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True
            )  # fmt: skip
        assert y.shape == (16, 4096) and run.ops()[0]["status"] == status


def test_what_is_refused() -> None:
    x = torch.ones(2, 48)
    with pytest.raises(tcsim.OperandError, match="recipe 'fp7'"):
        tcsim.torch.quantized(x, "fp7")
    with pytest.raises(tcsim.OperandError, match="multiple of 32"):
        tcsim.torch.quantized(x, "mxfp8")
    with pytest.raises(NotModelledError, match="sm_90 multiplies no block scales"):
        tcsim.torch.linear(x, x, "nvfp4", "h200")
    with pytest.raises(tcsim.plans.PlanError, match="nearest"):
        tcsim.torch.linear(x, x, "fp8", "b2000")
