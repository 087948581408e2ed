"""Whole arrays from f32 to narrower formats: the kernel's codes equal `tcsim.quantize`'s."""

from __future__ import annotations

from typing import Any

from conformance.kernels.convert import ConvertCase, trial_of
from conformance.kernels.whole_outputs import judge
from conformance.suite.cases import Outcome, Suite
from hwkernels.gemm.convert_call import conversion


def test_convert(converted: ConvertCase, suite: Suite, conclude: Any) -> None:
    """Run it twice, compare the runs, then the first with the prediction."""
    name = conversion(converted.format, converted.saturate, suite.settings.arch).mnemonic
    conclude("convert", name, run(converted, suite))


def run(case: ConvertCase, suite: Suite) -> Outcome:
    """The verdict on a case."""
    return judge(trial_of(case, suite.settings.arch, suite.settings.seed), suite)
