"""Names and comments of files reach a terminal with their control characters escaped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runs import RUNNER, app

STEERING = "\x1b[31mred\x1b]0;title\x07\u202e"
TRAP = f"""
.version 8.0
.target sm_90
.address_size 64
.file 1 "/src/{STEERING}.cu"
.visible .entry scale(.param .u64 data)
{{
  // {STEERING}
  .reg .b32 %r<2>;
  .loc 1 1 1
  trap;
}}
"""
LAUNCH = r"""
grid = 1
block = 32
params = [{ pointer = "\u001b[31mred\u001b]0;title\u0007\u202e" }]
[arrays."\u001b[31mred\u001b]0;title\u0007\u202e"]
format = "f32"
shape = [32]
distribution = "range"
"""


@pytest.mark.parametrize("arguments", [("exec",), ("check",), ("check", "--json"), ("step", "-x", "list")])
def test_control_characters_are_escaped(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(TRAP)
    (tmp_path / "l.toml").write_text(LAUNCH)
    command, *options = arguments
    found = RUNNER.invoke(app, [command, str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml"), *options])
    assert "red" in found.output
    assert all(one.isprintable() or one in "\n\t" for one in found.output)


def test_an_error_quotes_them_escaped(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(TRAP.replace("trap;", f"{STEERING};"))
    (tmp_path / "l.toml").write_text(LAUNCH)
    found = RUNNER.invoke(app, ["exec", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml")])
    assert found.exit_code == 2 and found.output
    assert all(one.isprintable() or one in "\n\t" for one in found.output)
