"""Products with scales: `torch._scaled_mm` and `torch.nn.functional.scaled_mm`, of FP8 and of blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tcsim.plans import BLOCKS, blocked_product, plan, product
from tcsim.torch.arrays import FORMATS, array, tensor
from tcsim.torch.log import Run
from tcsim.torch.products import status_of

_FP4 = torch.float4_e2m1fn_x2
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
ROWS, COLUMNS = 128, 4
"""Scales of a tile in cuBLAS's layout of block scales: 512 bytes, row r and column c at r % 32 * 16 + r / 32 * 4 + c. Source: cuBLAS, "1D Block Scaling Factors Layout"."""


def swizzled(scales: torch.Tensor) -> torch.Tensor:
    """Scales (M, blocks) of one byte in the order in which cuBLAS reads them, padded with zeros to whole tiles; one dimension.

    >>> swizzled(torch.arange(128 * 4).to(torch.uint8).reshape(128, 4))[:8]
    tensor([  0,   1,   2,   3, 128, 129, 130, 131], dtype=torch.uint8)
    """
    rows, columns = scales.shape
    padded = torch.nn.functional.pad(scales, (0, -columns % COLUMNS, 0, -rows % ROWS))
    tiles = padded.reshape(padded.shape[0] // ROWS, 4, 32, padded.shape[1] // COLUMNS, COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(-1)


def straight(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The inverse of `swizzled`: (rows, columns)."""
    tiles = scales.reshape(-(-rows // ROWS), -(-columns // COLUMNS), 32, 4, COLUMNS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-(-rows // ROWS) * ROWS, -1)[:rows, :columns]


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Codes of four bits, two in a byte, the first in the low half."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def _codes(x: torch.Tensor) -> torch.Tensor:
    """The codes (M, K), one in a byte; `x` with K along its last axis."""
    bytes = x.view(torch.uint8)
    return torch.stack((bytes & 15, bytes >> 4), -1).reshape(x.shape[0], -1) if x.dtype == _FP4 else bytes


def recipe_of(x: torch.Tensor, scale: torch.Tensor, other: torch.Tensor) -> str | None:
    """The recipe of a product by one operand, its scale and that of the other: one of BLOCKS, "scaled_mm", "scaled_mm_rowwise"; None for what cuBLAS does not take."""
    if x.dtype == _FP4:
        return {torch.float8_e4m3fn: "nvfp4", torch.float8_e8m0fnu: "mxfp4"}.get(scale.dtype)
    if x.dtype == torch.float8_e4m3fn and scale.dtype == torch.float8_e8m0fnu:
        return "mxfp8"
    if x.dtype not in _FP8 or scale.dtype != torch.float32:
        return None
    return "scaled_mm" if scale.numel() == other.numel() == 1 else "scaled_mm_rowwise"


def scaled_mm(
    run: Run, op: str, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """torch._scaled_mm."""
    recipe = recipe_of(a, scale_a, scale_b)
    if recipe is None or scale_result is not None or out_dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return None
    if recipe in BLOCKS:
        codes_a, codes_b = _codes(a), _codes(b.t())
        columns = codes_a.shape[1] // BLOCKS[recipe].size
        left, right = (
            straight(own.view(torch.uint8), rows, columns).numpy()
            for own, rows in ((scale_a, a.shape[0]), (scale_b, b.shape[1]))
        )
        with run.timed(op, "assumed"):
            total = blocked_product(recipe, codes_a.numpy(), codes_b.numpy().T, left, right.T, run.gpu, run.engine)
            if bias is not None:
                total = total + array(bias.float())
            return tensor(np.ascontiguousarray(total)).to(out_dtype)
    if b.dtype not in _FP8:
        return None
    format = FORMATS[a.dtype] if a.dtype == b.dtype else f"{FORMATS[a.dtype]}.{FORMATS[b.dtype]}"
    found = plan(
        recipe, m=a.shape[0], n=b.shape[1], k=a.shape[1], format=format, out=FORMATS[out_dtype], gpu=run.gpu, fast=use_fast_accum
    )  # fmt: skip
    if not found.modelled:
        return None
    if bias is not None:
        found = replace(found, bias=True, source="assumed")
    given = {} if bias is None else {"bias": array(bias.to(out_dtype))}
    scales = {"scale_a": array(scale_a), "scale_b": array(scale_b)}
    if recipe == "scaled_mm":
        scales = {name: own.reshape(()) for name, own in scales.items()}
    with run.timed(op, status_of(found)):
        return tensor(product(found, array(a), array(b), engine=run.engine, **scales, **given))


def scaled_mm_v2(
    run: Run, op: str, a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any, bias: Any = None, out_dtype: Any = None,
    contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """torch.nn.functional.scaled_mm; a second scale of the whole tensor is not modelled."""
    if len(scale_a) != 1 or len(scale_b) != 1 or contraction_dim:
        return None
    return scaled_mm(run, op, a, b, scale_a[0], scale_b[0], bias, None, out_dtype, use_fast_accum)
