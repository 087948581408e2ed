"""BLAS in one thread, NumPy as the engine, and names that the docstring examples use without importing them."""

from __future__ import annotations

import os
from typing import Any

import pytest

# Before NumPy is loaded, for every process of a run: products are small, and idle threads of BLAS would spin beside the other workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["TCSIM_CACHE_DIR"] = ""  # programs are compiled, not read from files
os.environ.setdefault("TCSIM_ENGINE", "numpy")  # what is tested is the reference; other engines are asked for by name

import numpy as np

import tcsim
import tcsim.catalog


@pytest.fixture(autouse=True, scope="session")
def example_names(doctest_namespace: dict[str, Any]) -> None:
    """For `pytest --doctest-modules` and for tests/house/test_docs.py."""
    doctest_namespace.update(np=np, tcsim=tcsim, FORMATS=tcsim.FORMATS)
