"""Running subcommands of the command line in this process: what they answer and what they refuse."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from tcsim.cli.app import app

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
RUNNER = CliRunner()


def answer(*arguments: object, status: int = 0) -> str:
    """What the subcommand writes; nothing may stand on standard error."""
    result = RUNNER.invoke(app, [str(item) for item in arguments], env={"COLUMNS": None})
    assert result.exit_code == status, result.output
    assert result.stderr == ""
    return result.stdout


def data(*arguments: object, status: int = 0) -> Any:
    """What the subcommand writes as JSON, without the subcommand's own name."""
    found = json.loads(answer(*arguments, "--json", status=status))
    words = [str(item) for item in arguments[:2]]
    assert found.pop("verb") in (words[0], " ".join(words))
    return found


def refusal(*arguments: object) -> str:
    """What stands on standard error after a wrong argument: status 2, no traceback, nothing on standard output."""
    result = RUNNER.invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def run(*arguments: object) -> Any:
    """A subcommand, whatever comes of it: `.exit_code`, `.stdout`, `.stderr`."""
    return RUNNER.invoke(app, [str(item) for item in arguments], env={"COLUMNS": None})
