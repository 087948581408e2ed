"""Whole GEMMs: every kernel's output equals `tcsim.gemm`'s, bit for bit."""

from __future__ import annotations

from typing import Any

from conformance.kernels.gemm import GemmCase, trial_of
from conformance.kernels.whole_outputs import judge
from conformance.suite.cases import Outcome, Suite


def test_gemm(gemm: GemmCase, suite: Suite, conclude: Any) -> None:
    """Run it twice, compare the runs, then the first with the prediction."""
    conclude("gemm", gemm.build(suite.settings.arch).instruction.mnemonic, run(gemm, suite))


def run(case: GemmCase, suite: Suite) -> Outcome:
    """The verdict on a case."""
    return judge(trial_of(case, suite.settings.arch, suite.settings.seed), suite)
