"""Three training steps on the CPU, with every output, gradient and weight that an H200 computed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

import tcsim.torch
from hwkernels.aten.training import CASES, trained
from tcsim.core.errors import NotModelledError
from tests.support import extent
from tests.support.emulated import Emulated

FILE = Path(__file__).parents[1] / "data" / "aten" / "training_h200.json.xz"
RECORDED: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))["cases"]


def test_all_are_recorded() -> None:
    assert set(CASES) == RECORDED.keys()
    assert not any(own["unstable"] for own in RECORDED.values())


@pytest.mark.parametrize("case", CASES)
def test_every_output_gradient_and_weight(case: str) -> None:
    around = Emulated()
    steps = 3 if extent.WHOLE or case in CASES[:2] else 1
    found, expected = trained(case, "cpu", around, steps)[0], [tuple(own) for own in RECORDED[case]["found"]]
    assert len(found) == len(expected) * steps // 3
    differ = [name for (name, own), (same, other) in zip(found, expected, strict=False) if (name, own) != (same, other)]
    assert not differ, f"{len(differ)} of {len(found)}, first {differ[0]}"
    statuses = {(own["op"], own["status"]) for run in around.runs for own in run.ops() if own["status"] != "exact"}
    assert not statuses


# --- single operations


def statuses(run: tcsim.torch.Run) -> dict[str, str]:
    """By operation."""
    return {own["op"]: own["status"] for own in run.ops()}


def test_optimizers_that_are_not_told_how_take_lists() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.AdamW([weight])
    with tcsim.torch.emulate("H200", strict=True) as run:
        (weight * 2).sum().backward()
        optimizer.step()
    assert "_foreach_lerp_" in statuses(run) and run.exact
    assert weight.data_ptr() == optimizer.param_groups[0]["params"][0].data_ptr() and weight[0] != 1


def test_steps_of_optimizers_are_kept() -> None:
    runs = []
    for foreach in (True, False):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 100))
        optimizer = torch.optim.AdamW([weight], foreach=foreach)
        with tcsim.torch.emulate("H200", steps=True) as run:
            weight.grad = weight.detach() * 3
            optimizer.step()
        runs.append(run)
    of_lists, of_tensors = ([step.op for step in run.steps or []] for run in runs)
    assert of_lists[-1] == "_foreach_addcdiv_" and of_tensors[-1] == "addcdiv"


def test_embedding_of_many_indices_is_refused() -> None:
    weight, index = torch.zeros(5, 8, requires_grad=True), torch.zeros(4000, dtype=torch.int64)
    with pytest.raises(NotModelledError, match="embedding_dense_backward"), tcsim.torch.emulate("H200", strict=True):
        torch.nn.functional.embedding(index, weight).sum().backward()
    with tcsim.torch.emulate("H200", strict=True):
        torch.nn.functional.embedding(index[:3000], weight).sum().backward()
    assert weight.grad is not None and weight.grad[0, 0] == 3000


@pytest.mark.parametrize(("keys", "status"), [(64, "exact"), (300, "assumed")])
def test_attention(keys: int, status: str) -> None:
    q, k, v = (torch.randn(1, 2, n, 32, dtype=torch.bfloat16, requires_grad=True) for n in (64, keys, keys))
    with tcsim.torch.emulate("H200") as run:
        torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()
    assert statuses(run)["scaled_dot_product_attention_backward"] == status
    assert all(own.grad is not None and own.grad.shape == own.shape for own in (q, k, v))


@pytest.mark.parametrize(("size", "status"), [(32, "exact"), (12, "not modelled")])
def test_attention_with_a_mask(size: int, status: str) -> None:
    q = torch.randn(1, 2, 8, size, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[0] = False
    with tcsim.torch.emulate("H200") as run:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
    assert statuses(run).get("scaled_dot_product_attention_backward", "not modelled") == status
    assert q.grad is not None and (status != "exact" or q.grad.isfinite().all())


def test_rms_norm_and_widening_softmax_have_gradients() -> None:
    x, weight = torch.randn(4, 64, requires_grad=True), torch.ones(64, requires_grad=True)
    half = torch.randn(4, 64, dtype=torch.float16, requires_grad=True)
    with tcsim.torch.emulate("H200", strict=True) as run:
        torch.nn.functional.rms_norm(x, (64,), weight).sum().backward()
        torch.nn.functional.softmax(half, -1, dtype=torch.float32)[:, 0].sum().backward()
    assert x.grad is not None and weight.grad is not None and half.grad is not None
    assert half.grad.dtype == torch.float16 and "_fused_rms_norm_backward" in statuses(run)


def test_doubles_and_unknown_lists_are_left_to_the_host() -> None:
    x, y = [torch.ones(2, dtype=torch.float64)], [torch.ones(2)]
    with tcsim.torch.emulate("H200") as run:
        torch._foreach_add_(x, 1.0)
        torch._foreach_norm(y, 3)
    assert x[0].tolist() == [2.0, 2.0] and statuses(run)["_foreach_norm"] == "not modelled"
