"""The closing table: what was compared with each project, and how it came out."""

from __future__ import annotations

import pytest

from tests.oracles.comparing import TALLIES
from tests.oracles.disagreements import VERSIONS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each project."""
    if not TALLIES:
        return
    terminalreporter.section("oracles")
    line = "{:<26} {:>12} {:>12}  {}".format
    terminalreporter.line(line("project", "compared", "equal", "known disagreements"))
    for (project, against), tally in sorted(TALLIES.items(), key=lambda item: (item[0][0], item[0][1] != "tcsim")):
        known = ", ".join(f"{name}: {count:,}" for name, count in tally.known.items() if count) or "none"
        name = f"{project} {VERSIONS[project]}" if against == "tcsim" else f"  against {against}"
        terminalreporter.line(line(name, f"{tally.compared:,}", f"{tally.equal:,}", known))
