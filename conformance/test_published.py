"""Hardware results that others published, against model bits: the same in a live run and in a replay."""

from __future__ import annotations

from typing import Any

from conformance.suite.cases import Suite
from conformance.suite.published import PublishedSet


def test_published(published: PublishedSet, suite: Suite, conclude: Any) -> None:
    """Every published result of the set equals the model's, bit for bit."""
    conclude(published.family, published.mnemonic, suite.run_published(published))
