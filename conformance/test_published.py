"""Hardware results that others published, against model bits: the same in a live run and in a replay."""

from __future__ import annotations

from typing import Any

from conformance.suite.cases import Published, Suite


def test_published(published: Published, suite: Suite, conclude: Any) -> None:
    """Every published result of the set, or its digest, equals the model's, bit for bit."""
    conclude(published.family, published.mnemonic, suite.run_published(published))
