"""Matrix products of tensors in the order of summation of a plan (`tcsim.plans`)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from tcsim.plans import Plan, plan, product
from tcsim.torch import on_device
from tcsim.torch.arrays import FORMATS, array, tensor
from tcsim.torch.log import Run, Status


def _letter(x: torch.Tensor, plain: str, other: str) -> str:
    """Of a matrix how cuBLAS reads it: by rows of the last axis, or the other way."""
    return (
        other
        if x.stride(-2) == 1 and (x.stride(-1) != 1 or x.shape[-2] > 1) and x.stride(-1) >= max(1, x.shape[-2])
        else plain
    )


def layout_of(a: torch.Tensor, b: torch.Tensor) -> str:
    """Of a @ b, the letters of b and a: "TN" for x @ w.T of contiguous x and w."""
    return _letter(b, "N", "T") + _letter(a, "N", "T")


def plan_of(run: Run, op: str, a: torch.Tensor, b: torch.Tensor, bias: bool = False) -> Plan | None:
    """The plan of a product of (..., M, K) and (..., K, N); None for types that have none."""
    format = FORMATS.get(a.dtype)
    if format is None or b.dtype != a.dtype or 0 in (*a.shape, *b.shape):
        return None
    if format == "f32" and torch.backends.cuda.matmul.allow_tf32:
        format = "tf32"
    batch = prod(a.shape[:-2])
    return plan(
        op,
        m=a.shape[-2],
        n=b.shape[-1],
        k=a.shape[-1],
        format=format,
        gpu=run.gpu,
        layout=layout_of(a, b),
        bias=bias,
        batch=batch if op == "bmm" else 1,
    )


def status_of(found: Plan | None) -> Status:
    """How the bits of a product by a plan are known."""
    if found is None or not found.modelled:
        return "not modelled"
    return "assumed" if found.source == "assumed" else "exact"


def multiplied(
    run: Run, op: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor | None:
    """a @ b, or a @ b + bias; None where the order of summation is not modelled: nothing is noted then."""
    if a.shape[-1] == 1 and bias is None and a.dtype == torch.float32:
        with run.timed(
            op, "exact" if run.gpu == "h200" else "assumed"
        ):  # one product each, added to zero: rotary positions of recorded models
            return tensor(array(a) * array(b) + np.float32(0))
    found = plan_of(run, op, a, b, bias is not None)
    if found is None or not found.modelled:
        return None
    run.plan = str(found)
    if a.is_cuda and found.instruction is not None and found.format in ("f16", "bf16"):
        with run.timed(op, status_of(found)):
            return on_device.product(found, a, b, bias)
    given: dict[str, Any] = {} if bias is None else {"bias": array(bias.contiguous())}
    with run.timed(op, status_of(found)):
        return tensor(product(found, array(a), array(b), engine=run.engine, **given))
