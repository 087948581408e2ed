"""Models of half a billion parameters on the CPU, layer by layer with the bits that an H200 returned; the rest of CASES runs beside a GPU (`hwkernels.aten.large`)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from hwkernels.aten.large import CASES, CONFIGURATIONS, made, outputs
from tcsim.torch import emulate

RECORDED = json.loads(
    lzma.decompress((Path(__file__).parents[1] / "data" / "aten" / "large_h200.json.xz").read_bytes())
)["cases"]


def test_all_are_recorded() -> None:
    assert set(CASES) == RECORDED.keys() and sum(map(len, RECORDED.values())) > 15_000


@pytest.mark.parametrize("case", ["qwen3-0.6b/sdpa/bf16/32+16", "gpt2-0.6b/sdpa/f16/32+16"])
def test_a_prefill(case: str) -> None:
    """Of a recorded case what comes before the first decoded token."""
    name, attention, type, _ = case.split("/")
    layers = CONFIGURATIONS[name]().num_hidden_layers
    found, run = outputs(made(name, attention, type, "cpu"), "32+0", "cpu", emulate("H200"))
    expected = RECORDED[case][: layers + 1]
    assert len(found) == layers + 1 and [own for own, _ in found] == [own for own, _ in expected]
    differ = [own for own, other in zip(found, expected, strict=True) if own != other]
    assert not differ, f"{len(differ)} of {len(found)}, first {differ[0]}"
    assert run.exact
