"""The committed cases can tell the model from every mutant: recorded hardware results contradict each. Asked with --proof."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.suite.cases import Suite
from conformance.suite.proofs import Proof, survivors


def test_mutants(proof: Proof, suite: Suite, record_property: Callable[[str, object], None]) -> None:
    """Each mutant that applies to the instruction disagrees with the hardware somewhere."""
    alive = survivors(proof, suite)
    record_property("mutants", len(proof.mutants) - len(alive))
    if alive:
        text = "; ".join(f"{mutant.name} ({mutant.mistake})" for mutant in alive)
        pytest.fail(
            f"{proof.mnemonic}: {len(alive)} of {len(proof.mutants)} mutants survive every recorded case: {text}"
        )
