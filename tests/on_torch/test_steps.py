"""Steps of two runs, and the first of which the bits differ."""

from __future__ import annotations

import pytest
import torch

from tcsim.core.errors import OperandError
from tcsim.torch import Run, emulate, first_difference


def run_of(gpu: str, scale: float = 1.0, k: int = 4096, steps: bool = True) -> Run:
    stream = torch.Generator().manual_seed(2)
    x, weight = (torch.randn(rows, k, generator=stream).bfloat16() for rows in (32, 1024))
    with emulate(gpu, steps=steps) as run, torch.inference_mode():
        y = torch.nn.functional.silu(torch.nn.functional.linear(x * scale, weight))
        torch.nn.functional.softmax(y, -1)
    return run


def test_the_cause_is_named() -> None:
    said = first_difference(run_of("a100"), run_of("h200"))
    assert (
        said.startswith("step 2 of 4: linear 32x1024 has different bits on a100 and h200")
        and "mma.sync" in said
        and "wgmma" in said
    )
    assert first_difference(run_of("h200"), run_of("h200", scale=2)).startswith("step 1 of 4: mul 32x4096")


def test_equal_runs() -> None:
    same, assumed = first_difference(run_of("h200", k=128), run_of("b200", k=128)).splitlines()
    assert same == "all 4 steps have the same bits on h200 and b200, as modelled"
    assert assumed.startswith(
        "  assumed on b200 (mul, linear, silu, _softmax): a stated rule that was not compared with this GPU"
    )
    assert first_difference(run_of("h200"), run_of("h200")) == "all 4 steps have the same bits on h200 and h200"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(OperandError, match="without steps"):
        first_difference(run_of("h200"), run_of("h200", steps=False))
    with pytest.raises(OperandError, match="step 1 is mul 32x4096 on h200 and mul 32x128"):
        first_difference(run_of("h200"), run_of("h200", k=128))
