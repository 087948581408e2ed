"""Golden answers of kernels that stand in test files: all that their launches say, faults, deadlocks and refusals among them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tcsim.core.errors import TcsimError
from tcsim.ptx import Kernel, Run
from tests.evaluation.golden.kind import Entry, Scope, facts_of, hazards_of

TESTS = Path(__file__).parents[2]
FILES = (
    "test_cancel", "test_deadlocks", "test_descriptor_origins", "test_global_races", "test_late_waits", "test_mends", "test_severities",
    "test_tensor_maps", "test_wgmma_in_flight", "test_whole_warps", "test_ptx_barriers", "test_ptx_calls", "test_ptx_copies", "test_ptx_inexact",
    "test_ptx_meetings", "test_ptx_order", "test_ptx_polling", "test_ptx_spaces", "test_ptx_threads", "test_ptx_wrong_use",
)  # fmt: skip


def tested(scope: Scope) -> Iterator[Entry]:
    """What the launches of each test of a file say, in order."""
    for name in FILES:
        yield name, partial(_launches, name)


class Listener:
    """A plugin of pytest that writes down launches."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.launch = Kernel.launch

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """What follows is of this test."""
        self.told.append(f"--- {item.nodeid.partition('::')[2]}")

    def launched(self, *arguments: Any, **options: Any) -> Run:
        """Launch a kernel, and write down what came of it."""
        try:
            run = self.launch(*arguments, **options)
        except TcsimError as error:
            self.told.append(f"{type(error).__name__}: {error}")
            raise
        self.told += [*facts_of(run), hazards_of(run)]
        return run


def _launches(name: str) -> str:
    (path,) = TESTS.rglob(f"{name}.py")
    own = Listener()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.setattr(Kernel, "launch", lambda *arguments, **options: own.launched(*arguments, **options))
        status = pytest.main([str(path), "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-s"], plugins=[own])
    return "\n".join([f"pytest says {int(status)}", *own.told])
