"""The command line as a process: pipes, redirection, exit status, and what it does without its extra."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from tcsim.cli.group import PLUGGED, SUBCOMMANDS, plugged

ROOT = Path(__file__).resolve().parents[4]
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
COMMAND = (sys.executable, "-m", "tcsim")


def environment(**more: str) -> dict[str, str]:
    """The environment of this process, with the project to import."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**plain, "PYTHONPATH": str(ROOT), **more}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a subcommand to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`tcsim ... | head -1`, with more output than a pipe holds: status 0, nothing on standard error.

    Unbuffered, Python itself drops the rest of a write that was cut short; buffered, it raises BrokenPipeError.
    """
    for arguments, more in ((("list", "--json"), {}), (("list", "--json"), {"PYTHONUNBUFFERED": "1"})):
        with subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**more)
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(60) == 0


def test_a_pipe_of_the_shell() -> None:
    """With pipefail, as scripts have it."""
    line = f'set -o pipefail; "{sys.executable}" -m tcsim list | head -n 2'
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["since", "mnemonic", "N"]


def test_redirection_into_a_file(tmp_path: Path) -> None:
    """No colour, whole output, also where the locale knows ASCII only."""
    path = tmp_path / "map.json"
    with path.open("w") as target:
        done = subprocess.run(
            [*COMMAND, "map", MMA, "-o", "a", "--json"], stdout=target, stderr=subprocess.PIPE, timeout=60, check=False,
            env=environment(LC_ALL="C", PYTHONIOENCODING="ascii"),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(path.read_text())["places"]) == 256
    assert "\x1b" not in path.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
def test_a_full_disk_is_an_error() -> None:
    """What cannot be written is said in one line; the status is 1."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "show", MMA],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=environment(),
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "tcsim: cannot write: No space left on device\n")


def test_answers_and_refusals_have_their_own_streams() -> None:
    """The example of the documentation; a wrong argument."""
    done = run("where", MMA, "--operand", "A", "--element", "8,6")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a(8, 6) is a1[15:0] of lane 3\n", "")
    done = run("show", MMA, "--arch", "sm_75")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tcsim: ") and "needs sm_80 or later" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_there_is_a_message() -> None:
    """Typer is made to be absent: the command line says what to install, the library works."""
    code = (
        "import sys, importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'typer' else found(name, *rest)\n"
        "sys.modules['typer'] = None\n"
        "import tcsim, tcsim.cli\n"
        f"assert tcsim.instruction({MMA!r}, arch='sm_90').shape == (16, 8, 16)\n"
        "tcsim.cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'tcsim[cli]'" in done.stderr and "needs typer," in done.stderr
    assert "Traceback" not in done.stderr


def test_the_library_imports_no_command_line() -> None:
    """Neither `import tcsim` nor the inspection layer brings typer or rich."""
    code = (
        "import pkgutil, sys, importlib, tcsim, tcsim.inspection\n"
        "names = [m.name for m in pkgutil.iter_modules(tcsim.inspection.__path__, 'tcsim.inspection.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), sorted(m for m in sys.modules if m.split('.')[0] in ('typer', 'rich', 'click')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    count, _, rest = done.stdout.partition(" ")
    assert int(count) >= 15
    assert rest.strip() == "[]"


def test_the_inspection_layer_does_not_print() -> None:
    """Libraries do not print: `print` and standard output occur in the command line only."""
    sources = sorted((ROOT / "tcsim").rglob("*.py"))
    printing = [
        path.relative_to(ROOT).as_posix()
        for path in sources
        if path.parent.name != "cli"
        and any(
            re.search(r"(?<!\w)print\(", line) and not line.lstrip().startswith((">>>", "..."))
            for line in path.read_text().splitlines()
        )
    ]
    assert len(sources) > 60
    assert printing == []


def test_the_table_of_subcommands_says_what_they_say() -> None:
    """Their help is written in the table too, so that `tcsim --help` imports none of them."""
    for name, (module, attribute, line) in SUBCOMMANDS.items():
        found = plugged(attribute) if module == PLUGGED else getattr(import_module(f"tcsim.cli.{module}"), attribute)
        told = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
        assert str(told).splitlines()[0] == line, name
    code = "import sys; from tcsim.cli.app import app; print([name for name in sys.modules if name.startswith('tcsim.cli.')])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['tcsim.cli.group', 'tcsim.cli.app']"
