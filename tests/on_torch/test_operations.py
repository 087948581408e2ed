"""What emulation says of operations, and what it computes of them."""

from __future__ import annotations

import pytest
import torch

import tcsim.torch
from tcsim.core.errors import NotModelledError
from tcsim.torch.operations import CHOICES


def statuses(run: tcsim.torch.Run) -> dict[str, str]:
    """By operation."""
    return {own["op"]: own["status"] for own in run.ops()}


def test_another_gpu_is_assumed() -> None:
    x = torch.ones(4, dtype=torch.bfloat16)
    with tcsim.torch.emulate("B200") as run, torch.inference_mode():
        torch.exp(x)
    assert statuses(run) == {"exp": "assumed"} and not run.exact


def test_strict_refuses_what_is_not_exact() -> None:
    x = torch.ones(4)
    with (
        pytest.raises(NotModelledError, match="digamma on h200: not modelled"),
        tcsim.torch.emulate("h200", strict=True),
        torch.inference_mode(),
    ):
        torch.digamma(x)


def test_types_are_promoted_as_torch_does() -> None:
    half, single, scalar = torch.ones(3, dtype=torch.bfloat16), torch.full((3,), 1.001), torch.tensor(1.001)
    with tcsim.torch.emulate("h200") as run, torch.inference_mode():
        wide, narrow, number = half * single, scalar * half, half * 1.001
    assert wide.dtype == torch.float32 and wide.equal(single)
    assert narrow.dtype == number.dtype == torch.bfloat16 and run.exact


def test_in_place_and_additions_of_indices() -> None:
    x, index = torch.zeros(4), (torch.tensor([0, 0]),)
    with tcsim.torch.emulate("h200") as run, torch.inference_mode():
        x.add_(1.0).mul_(2.0)
        assert x.tolist() == [2.0] * 4 and run.exact
        x.index_put_(index, torch.ones(2), accumulate=True)
    assert not run.exact


def test_nothing_computed_is_not_exact() -> None:
    with tcsim.torch.emulate("h200") as run:
        pass
    assert not run.exact and str(run) == "h200 (sm_90): nothing computed" and run.as_dict()["ops"] == []


def test_wrong_use() -> None:
    with pytest.raises(ValueError, match="valid"), tcsim.torch.emulate("h999"):
        pass


def test_doubles_are_left_to_the_host() -> None:
    x = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    with tcsim.torch.emulate("h200") as run, torch.inference_mode():
        found = (
            x.sum(1),
            x.softmax(1),
            torch.nn.functional.rms_norm(x, (3,)),
            torch.nn.functional.layer_norm(x, (3,)),
            x.exp(),
            x @ x.T,
        )
    assert all(own.dtype == torch.float64 for own in found) and not run.exact


@pytest.mark.parametrize("gpu", ["b200", "a100"])
def test_what_cannot_round_is_exact_on_every_gpu(gpu: str) -> None:
    """Choices, copies, signs and comparisons; a product beside them is assumed. A result of a choice is an operand or an integer."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    with torch.inference_mode(), tcsim.torch.emulate(gpu) as run:
        found = [
            torch.relu(x),
            torch.clamp(x, -1.5, 2),
            *(own(x) for own in (torch.floor, torch.ceil, torch.trunc, torch.abs, torch.neg)),
        ]
        torch.where(x > 0, x, torch.maximum(x, -x))
        assert run.exact, str(run)
        torch.exp(x)
    assert not run.exact and "assumed on" in str(run) and {own["op"] for own in run.ops()} >= CHOICES
    for own in found[:5]:
        kept = (own == x) | (own == 0) | (own == -1.5) | (own == 2) | (own == own.double().round()) | own.isnan()
        assert kept.all()
