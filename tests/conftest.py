"""Settings of the offline tests: hypothesis draws the same examples in every run and never measures time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.support.long_matrices import examples

# They need other projects (`tox -e oracles`, `tox -e triton`, `tox -e dask`), Chromium (`tox -e browser`), or a C++ compiler and minutes (`tox -e emulated`).
collect_ignore = ["oracles", "browser", "emulated", "on_triton", "on_cute", "on_dask"]
if find_spec("numba") is None:  # the extra `test` brings it
    collect_ignore.append("unit/tcsim/engines/test_compiled_engine.py")

settings.register_profile("repeatable", parent=examples(200, derandomize=True, deadline=None))
settings.register_profile(
    "explore", derandomize=False, deadline=None, max_examples=2000
)  # --hypothesis-profile explore
settings.load_profile("repeatable")


@pytest.fixture
def matrices(tmp_path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """A file with a, b, c of m16n8k16, and what is in it."""
    stream = np.random.default_rng(2)
    arrays = {
        "a": stream.normal(size=(16, 16)).astype(np.float16),
        "b": stream.normal(size=(16, 8)).astype(np.float16),
        "c": stream.normal(size=(16, 8)).astype(np.float32),
    }
    path = tmp_path / "matrices.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path), arrays
