"""Names that the docstring examples use without importing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
import tcsim.catalog


@pytest.fixture(autouse=True, scope="session")
def example_names(doctest_namespace: dict[str, Any]) -> None:
    """For `pytest --doctest-modules` and for tests/test_docs.py."""
    doctest_namespace.update(np=np, tcsim=tcsim, FORMATS=tcsim.FORMATS)
