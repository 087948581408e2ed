"""Names and comments of files reach a terminal with their control characters escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
  trap; // {STEERING}
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


def texts(value: Any) -> Iterator[str]:
    """Every text in what JSON holds, keys among them."""
    if isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in texts(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in texts(part))
    elif isinstance(value, str):
        yield value


def escaped(text: str) -> bool:
    return all(one.isprintable() or one in "\n\t" for one in text)


@pytest.mark.parametrize("command", ["exec", "check", "profile", "step"])
def test_the_texts_of_json_are_escaped(command: str, tmp_path: Path) -> None:
    """Whoever prints them raw prints no control character."""
    (tmp_path / "k.ptx").write_text(TRAP)
    (tmp_path / "l.toml").write_text(LAUNCH)
    more = ["-x", "list", "-x", "print data"] if command == "step" else []
    found = RUNNER.invoke(
        app, [command, str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml"), "--json", *more]
    )
    assert found.exit_code in (0, 1), found.output
    every = list(texts(json.loads(found.stdout)))
    assert len(every) > 20 and ("red" in found.stdout or command == "profile")
    assert [text for text in every if not escaped(text)] == []


def test_pages_and_sarif_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(TRAP)
    (tmp_path / "l.toml").write_text(LAUNCH)
    arguments = ["--timeline", str(tmp_path / "page.html"), "--sarif", str(tmp_path / "s.json")]
    RUNNER.invoke(app, ["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml"), *arguments])
    sarif = list(texts(json.loads((tmp_path / "s.json").read_text())))
    page = (tmp_path / "page.html").read_text()
    data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data is not None
    every = [*sarif, page, *texts(json.loads(data[1]))]
    assert any("red" in text for text in every)
    assert [text[:200] for text in every if not escaped(text)] == []
    np.savez(tmp_path / "a.npz", **{STEERING: np.ones(3, np.float32)})
    for form in (("--html", "-"), ("--json",)):
        found = RUNNER.invoke(app, ["quantize", str(tmp_path / "a.npz"), "--type", "e4m3", *form])
        assert found.exit_code == 0 and escaped(found.output), found.output


def test_arrays_are_not_written_to_names_that_steer(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(
        TRAP.replace("trap;", "st.global.b32 [%d], 7;").replace(
            ".reg .b32 %r<2>;", ".reg .b64 %d;\n  ld.param.u64 %d, [data];"
        )
    )
    (tmp_path / "l.toml").write_text(LAUNCH)
    out = tmp_path / "out"
    found = RUNNER.invoke(
        app, ["exec", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml"), "--output", str(out)]
    )
    assert found.exit_code == 2 and "cannot be a file" in found.output and escaped(found.output), found.output
    assert not out.exists()


def test_an_error_quotes_them_escaped(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(TRAP.replace("trap;", f"{STEERING};"))
    (tmp_path / "l.toml").write_text(LAUNCH)
    found = RUNNER.invoke(app, ["exec", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "l.toml")])
    assert found.exit_code == 2 and found.output
    assert all(one.isprintable() or one in "\n\t" for one in found.output)
