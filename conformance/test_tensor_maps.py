"""Tensor maps: what the driver encodes and refuses against what `tcsim.TensorMap` says."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.suite import encoded_maps
from conformance.suite.cases import Outcome, Suite
from hwkernels.device.driver import Context


@pytest.mark.parametrize("kind", encoded_maps.KINDS)
def test_tensor_maps(kind: str, suite: Suite, conclude: Any) -> None:
    """1,000 random maps of a kind encode to the driver's bits, decode to themselves, and 600 broken ones are refused alike."""
    name = {"tiled": "cuTensorMapEncodeTiled", "im2col": "cuTensorMapEncodeIm2col"}[kind]
    conclude("CUtensorMap", name, outcome(kind, suite))


def outcome(kind: str, suite: Suite) -> Outcome:
    """Ask the driver, or read what one answered."""
    settings = suite.settings
    if not encoded_maps.arch_has_maps(settings.arch):
        return Outcome("NOT_SUPPORTED", how="tensor maps need sm_90 or later")
    number = int(settings.arch.removeprefix("sm_"))
    if settings.mode == "live" and suite.hardware is not None:
        with Context(suite.hardware.info.ordinal):
            answers, how = encoded_maps.ask(kind, number, settings.seed), suite.hardware.text
        if settings.record:
            suite.written.append(encoded_maps.record(kind, settings.arch, settings.seed, answers, how, settings.root))
        agreed: Any = "PASS"
    else:
        recorded = encoded_maps.replay(kind, settings.arch, settings.seed, settings.root)
        if recorded is None:
            return Outcome(
                "UNVERIFIED", how="no driver and no recording; bits read off tensormap.replace and CuTe DSL 4.8.1"
            )
        answers, how = recorded[0], f"recorded on {recorded[1]}"
        agreed = "REPLAYED"
    verdict = encoded_maps.judge(kind, number, settings.seed, answers)
    how = f"{how}; {verdict.note}"
    if not verdict.lines:
        return Outcome(agreed, verdict.compared, 0, how)
    shown = "\n".join(
        [*verdict.lines[:10], *([f"... and {len(verdict.lines) - 10} more"] if len(verdict.lines) > 10 else [])]
    )
    return Outcome("FAIL", verdict.compared, len(verdict.lines), how, shown)
