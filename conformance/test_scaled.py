"""Whole block-scaled GEMMs: every output equals `tcsim.gemm`'s with the factors. They need a Blackwell; nothing is recorded."""

from __future__ import annotations

from typing import Any

from conformance.kernels.scaled import ScaledCase, trial_of
from conformance.kernels.whole_outputs import judge
from conformance.suite.cases import Outcome, Suite


def test_scaled(scaled: ScaledCase, suite: Suite, conclude: Any) -> None:
    """Run it twice, compare the runs, then the first with the prediction."""
    conclude("gemm with block scales", scaled.build(suite.settings.arch).instruction.mnemonic, run(scaled, suite))


def run(case: ScaledCase, suite: Suite) -> Outcome:
    """The verdict on a case."""
    return judge(trial_of(case, suite.settings.arch, suite.settings.seed), suite)
