"""Settings of the offline tests: hypothesis draws the same examples in every run and never measures time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.support import extent
from tests.support.extent import examples

# Of other environments of tox: they need other projects, Chromium, or a C++ compiler and minutes.
collect_ignore = ["oracles", "browser", "emulated", "on_triton", "on_cute", "on_dask", "on_torch"]
LEFT_OUT = pytest.StashKey[int]()

settings.register_profile("repeatable", parent=examples(200, derandomize=True, deadline=None))
settings.register_profile(
    "explore", derandomize=False, deadline=None, max_examples=2000
)  # --hypothesis-profile explore
settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the whole runs, unless tests are asked for by name."""
    if extent.WHOLE or any("::" in argument for argument in config.args):
        return
    tests, table = [item.nodeid for item in items], extent.read()
    if stale := extent.stale(tests, table):
        raise pytest.UsageError(
            f"{extent.DEFAULT.name} names {stale[0]}, which is not there, and {len(stale) - 1} more"
        )
    out = extent.left_out(tests, table)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]
    config.stash[LEFT_OUT] = len(out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the main process how much it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker told; they all collect the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What a run of all files did not run, and how to."""
    skipped = {report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if report.longrepr}
    if not skipped and [Path(argument).resolve() for argument in config.args] != [Path(__file__).parent]:
        return
    terminalreporter.section("not run")
    for reason in sorted(skipped):
        terminalreporter.line(reason)
    for environment, what in extent.ELSEWHERE.items():
        if environment != "whole" or not extent.WHOLE:
            number = config.stash.get(LEFT_OUT, 0) if environment == "whole" else 0
            terminalreporter.line(f"tox -e {environment:8} {f'{number:,} more tests: ' if number else ''}{what}")


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
