"""One tally for each project, and the closing table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from comparing import Tally
from disagreements import VERSIONS

_TALLIES: dict[str, Tally] = {}


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """The tally of the project that a module names as PROJECT."""
    project = request.module.PROJECT
    yield _TALLIES.setdefault(project, Tally(VERSIONS[project]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was compared with each project, and how it came out."""
    if not _TALLIES:
        return
    terminalreporter.section("oracles")
    terminalreporter.line(f"{'project':<20} {'version':<8} {'compared':>12} {'equal':>12}  known disagreements")
    for project, tally in sorted(_TALLIES.items()):
        known = ", ".join(f"{count:,} {name}" for name, count in tally.known.items() if count) or "none"
        terminalreporter.line(f"{project:<20} {tally.version:<8} {tally.compared:>12,} {tally.equal:>12,}  {known}")
