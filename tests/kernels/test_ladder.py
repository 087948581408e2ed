"""Steps of the GEMM ladder: what bounds them is what the documentation says, and never more than an H200 measured."""

from __future__ import annotations

import json

import pytest

from tests.kernels import ladder

RECORDED = json.loads(ladder.RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("step", ["sm80_mma_multistage", "sm90_wgmma_persistent"])
def test_what_bounds_a_step_is_what_was_written(step):
    found = ladder.said(ladder.profiled(step))
    assert found["unit"] == RECORDED[step]["unit"]
    assert found["microseconds"] == pytest.approx(RECORDED[step]["microseconds"], rel=0.02)


def test_no_bound_is_above_what_was_measured():
    measured = ladder.measured()
    assert measured.keys() == RECORDED.keys() and len(measured) == 9
    for step, own in RECORDED.items():
        assert own["microseconds"] < measured[step]["microseconds"], step
