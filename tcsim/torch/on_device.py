"""Products of CUDA tensors where they lie: by the engine "gpu", without copies of the operands."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from tcsim.catalog import instruction as find_instruction
from tcsim.engines import choice
from tcsim.engines.contract import Work
from tcsim.multiplication import machine_of
from tcsim.plans.product import descriptor_of
from tcsim.plans.record import Plan
from tcsim.torch.arrays import DTYPES


def _padded(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """With zeros behind the last of an axis."""
    missing = size - x.shape[axis]
    return x if not missing else pad(x, (0, missing) if axis == -1 else (0, 0, 0, missing))


def _chain(work: Work, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One chain from zero, in f32."""
    depth = -(-a.shape[-1] // work.k) * work.k
    a, b = _padded(a, -1, depth), _padded(b, -2, depth)
    c = torch.zeros((), device=a.device).expand(*a.shape[:-1], b.shape[-1])
    found = choice.started("gpu").on_device(work, a=a, b=b, c=c)
    return torch.as_tensor(found, device=a.device).view(torch.float32).reshape(c.shape)


def product(plan: Plan, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """a b by a plan of a float format with two bytes, as `tcsim.plans.product` computes it: a (..., M, K), b (..., K, N), on a GPU.

    Raises EngineError without the engine "gpu".
    """
    machine = machine_of(find_instruction(plan.instruction or "", arch=plan.arch), f"{plan}", descriptor_of(plan))
    flat_a, flat_b = (own.detach().reshape(-1, *own.shape[-2:]) for own in (a, b))
    total: Any = None
    for first, last in plan.chunks:
        chunk = _chain(machine.work, flat_a[..., first:last], flat_b[:, first:last])
        total = chunk if total is None else total + chunk
    if bias is not None:
        total = total + bias.float()
    return total.to(DTYPES[plan.out]).reshape(*a.shape[:-1], b.shape[-1])
