"""The console sessions of the documentation: every `$ tcsim ...` is run, and prints what the page says.

A block marked `console` counts if its first line begins with `$ tcsim `. What stands between one such line and the next
is what the command writes, standard output and standard error; a last line `...` stands for the rest. `| head -n N` is
understood. The commands of a page run in order in one folder: it holds what the page's blocks marked `LANGUAGE file=NAME` say, and
the repository's `tests/data`. A line `# exit status N` after the output says how the command ends; without it, with 0.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from tcsim.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(?P<body>\$ tcsim .*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w+ file=(?P<name>[\w.]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"^# exit status (\d+)$")


class Session(NamedTuple):
    """One command and what the page says of it."""

    command: str
    printed: tuple[str, ...]
    status: int
    line: int


def sessions(text: str) -> Iterator[Session]:
    """The commands of a page in order."""
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start("body")) + 1
        lines = block["body"].splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
        for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
            command, printed, status = lines[start][2:], lines[start + 1 : stop], 0
            while command.endswith("\\"):
                command = command[:-1] + printed.pop(0).strip()
            if printed and (found := STATUS.match(printed[-1])):
                status = int(found[1])
                printed.pop()
            yield Session(command, tuple(printed), status, first + start)


ELSEWHERE = {"triton.md"}  # tests/on_triton runs its commands, in `tox -e triton`
WITH_SESSIONS = [
    path for path in PAGES if path.name not in ELSEWHERE and any(sessions(path.read_text(encoding="utf-8")))
]


def answer(command: str) -> tuple[str, int]:
    """What a command writes, and its exit status."""
    piped, _, head = command.partition(" | ")
    result = CliRunner().invoke(app, shlex.split(piped)[1:], env={"COLUMNS": None, "NO_COLOR": "1"}, prog_name="tcsim")
    lines = result.output.splitlines(keepends=True)
    if head:
        found = re.fullmatch(r"head -n (\d+)", head)
        assert found is not None, command
        lines = lines[: int(found[1])]
    return "".join(lines), result.exit_code


@pytest.mark.parametrize("path", WITH_SESSIONS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sessions_of_a_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what the page says."""
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    for block in FILE.finditer(text):
        (tmp_path / block["name"]).write_text(block["body"], encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    for session in sessions(text):
        printed, status = answer(session.command)
        lines = printed.splitlines()
        wanted = list(session.printed)
        if wanted and wanted[-1] == "...":
            wanted.pop()
            assert len(lines) > len(wanted) > 0, session
            lines = lines[: len(wanted)]
        assert (lines, status) == (wanted, session.status), f"{path.name}, line {session.line}: {session.command}"


def test_sessions_are_found() -> None:
    """The convention itself, and pages that have sessions."""
    page = "```console\n$ tcsim a \\\n    b\nx\n...\n$ tcsim c\ny\n# exit status 2\n```\n```console\n$ pytest\n```\n"
    assert list(sessions(page)) == [
        Session("tcsim a b", ("x", "..."), 0, 2),
        Session("tcsim c", ("y",), 2, 6),
    ]
    assert {path.name for path in WITH_SESSIONS} >= {"README.md", "command-line.md", "check.md"}
    assert sum(1 for path in WITH_SESSIONS for _ in sessions(path.read_text(encoding="utf-8"))) >= 25
