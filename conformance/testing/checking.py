"""What the fixture `assert_clean` does: a launch on the model under several schedules, which fails a test for what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from conformance.testing.launching import LaunchFailure, prepared, run_on_model
from tcsim.inspection.report import text_lines
from tcsim.launchers.check import SCHEDULES, Check
from tcsim.launchers.check_report import report


def assert_clean(
    file: str, arch: str | None, ptx: str | bytes, kernel: str | None = None, params: Sequence[Any] = (), grid: Any = 1, block: Any = 1,
    cluster: Any = (1, 1, 1), dynamic_smem: int = 0, schedules: Sequence[str | int] = SCHEDULES, severity: str = "error",
    allow: Iterable[str] = (), **options: Any,
) -> Check:  # fmt: skip
    """Launch a kernel on the model under each schedule. Raises LaunchFailure, with both lines, rule and fix of all that is wrong."""
    own, shape, arrays = prepared(ptx, kernel, params, grid, block, cluster, dynamic_smem)
    given = {"arch": arch, **shape, **options}
    runs = [(schedule, run_on_model(own, params, arrays, {**given, "schedule": schedule})[0]) for schedule in schedules]
    return require(Check(file, tuple(schedules), tuple((*one, shape) for one in runs)), severity, allow)


def require(found: Check, severity: str, allow: Iterable[str]) -> Check:
    """The check, if all ran to the end and nothing is at least so severe. Raises LaunchFailure."""
    if found.failures(severity, allow) or not all(run.completed for _, run, _ in found.launches):
        raise LaunchFailure("\n".join(line.text for line in text_lines(report(found))))
    return found
