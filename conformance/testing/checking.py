"""What the fixture `assert_clean` does: a launch on the model under several schedules, which fails a test for what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.testing.launching import LaunchFailure, prepared, run_on_model
from tcsim.core.files import write_file
from tcsim.inspection.report import text_lines
from tcsim.inspection.timeline_page import timeline_page
from tcsim.launchers.check import Check
from tcsim.launchers.check_report import report
from tcsim.launchers.witnesses import SCHEDULES
from tcsim.ptx import Limits
from tcsim.ptx.timeline import Timeline


def assert_clean(
    file: str, arch: str | None, ptx: str | bytes, kernel: str | None = None, params: Sequence[Any] = (), grid: Any = 1, block: Any = 1,
    cluster: Any = (1, 1, 1), dynamic_smem: int = 0, schedules: Sequence[str | int] = SCHEDULES, severity: str = "error",
    allow: Iterable[str] = (), page: Path | None = None, **options: Any,
) -> Check:  # fmt: skip
    """Launch a kernel on the model under each schedule. Raises LaunchFailure, with both lines, rule and fix of all that is wrong.

    page: where the timeline of a block goes if it fails.
    """
    own, shape, arrays = prepared(ptx, kernel, params, grid, block, cluster, dynamic_smem)
    given = {"arch": arch, **shape, **options}
    runs = [(schedule, run_on_model(own, params, arrays, {**given, "schedule": schedule})[0]) for schedule in schedules]

    def drawn() -> str:
        schedule, run = min(runs, key=lambda one: one[1].hazard_block is None)
        x, y, z = run.hazard_block or (0, 0, 0)
        timeline, limits = Timeline((x, y, z)), replace(options.get("limits") or Limits(), processes=1)
        again = {**given, "schedule": schedule, "limits": limits, "check": True, "observe": timeline.observer}
        return timeline_page(timeline, run_on_model(own, params, arrays, again)[0])

    found = Check(file, tuple(schedules), tuple((*one, shape) for one in runs))
    return require(found, severity, allow, page, drawn)


def require(
    found: Check, severity: str, allow: Iterable[str], page: Path | None = None, drawn: Callable[[], str] | None = None
) -> Check:
    """The check, if all ran to the end and nothing is at least so severe. Raises LaunchFailure; page: where what `drawn` gives goes then."""
    if not found.failures(severity, allow) and all(run.completed for _, run, _ in found.launches):
        return found
    said = [line.text for line in text_lines(report(found))]
    if page is not None and drawn is not None:
        said.append(f"timeline: {written(page, drawn())}")
    raise LaunchFailure("\n".join(said))


def written(page: Path, text: str) -> Path:
    """Write a page, and its folder."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_file(page, text)
    return page
