"""Products where the operands lie: an engine of the CPU stands for that of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tcsim
from tcsim.engines import choice
from tcsim.engines.contract import Matrices, Work
from tcsim.plans.record import Plan
from tcsim.torch import on_device
from tcsim.torch.arrays import DTYPES, array, tensor


class Stand:
    """`on_device` by NumPy's engine, with the copies that a GPU does without."""

    calls = 0

    def on_device(self, work: Work, **arrays: Any) -> Any:
        """D as a tensor."""
        Stand.calls += 1
        a, b, c = (array(arrays[name]) for name in "abc")
        assert a.ndim == b.ndim == c.ndim == 3 and a.shape[2] % work.k == 0 and a.shape[2] == b.shape[1]
        codes = [
            own.view(f"u{own.dtype.itemsize}") if own.dtype.itemsize == 2 else own.view(np.uint32)
            for own in (a, b, np.ascontiguousarray(c))
        ]
        d = choice.find("numpy").multiply(work, Matrices(*codes), range(a.shape[2] // work.k))
        return tensor(d.view(np.float32))


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(("format", "k", "bias"), [("bf16", 200, False), ("f16", 72, True), ("bf16", 4096, True)])
def test_the_bits_of_a_plan(
    monkeypatch: pytest.MonkeyPatch, format: str, k: int, bias: bool, batch: tuple[int, ...]
) -> None:
    monkeypatch.setattr(choice, "started", lambda name: {"gpu": Stand()}[name])
    plan: Plan = tcsim.plan("linear", m=16, n=24, k=k, format=format, gpu="h200", bias=bias)
    stream = torch.Generator().manual_seed(k)
    a, b = (
        torch.randn(*batch, 16, k, generator=stream).to(DTYPES[format]),
        torch.randn(*batch, 24, k, generator=stream).to(DTYPES[format]).mT,
    )
    shift = torch.randn(24, generator=stream).to(DTYPES[format]) if bias else None
    before = Stand.calls
    found = on_device.product(plan, a, b, shift)
    given = {} if shift is None else {"bias": array(shift)}
    expected = tcsim.plans.product(plan, array(a), array(b), engine="numpy", **given)
    assert found.dtype == DTYPES[format] and np.array_equal(array(found).view(np.uint16), expected.view(np.uint16))
    assert Stand.calls - before == plan.split
