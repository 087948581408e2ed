"""What `import tcsim` costs, what help says of it, and that it runs where Python and NumPy run."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tcsim

ROOT = Path(__file__).resolve().parents[3]
SHARE = 1.0  # of what NumPy and ml_dtypes take
SCREEN = 24, 130  # lines and columns

PLATFORM_ONLY = frozenset(
    [
        "_winapi",
        "crypt",
        "curses",
        "fcntl",
        "grp",
        "msvcrt",
        "nis",
        "nt",
        "ossaudiodev",
        "posix",
        "pty",
        "pwd",
        "readline",
        "resource",
        "spwd",
        "syslog",
        "termios",
        "tty",
        "winreg",
        "winsound",
    ]
)
"""Modules of the standard library that some systems do not have: https://docs.python.org/3/library, "Availability"."""


def imported_at_module_level(path: Path) -> Iterator[str]:
    """The modules that importing a file imports, in `try` and `if` too, but not in functions or for type checkers only."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


@pytest.mark.parametrize("package", ["tcsim", "hwkernels", "conformance"])
def test_no_module_needs_one_platform(package: str) -> None:
    """So that Windows and macOS can import them: the core everywhere, the others but for their own dependencies."""
    files = sorted((ROOT / package).rglob("*.py"))
    found = {
        str(path.relative_to(ROOT)): {name.split(".")[0] for name in imported_at_module_level(path)} for path in files
    }
    assert {path: names & PLATFORM_ONLY for path, names in found.items() if names & PLATFORM_ONLY} == {}
    assert len(files) > 40
    assert any("numpy" in names for names in found.values())


def test_a_planted_import_is_seen(tmp_path: Path) -> None:
    """Also in a class or a `try`; not in a function, whose caller decides."""
    text = "try:\n    import fcntl\nexcept ImportError:\n    pass\nclass A:\n    from resource import RLIMIT_AS\ndef f():\n    import pwd\n"
    (tmp_path / "planted.py").write_text(text, encoding="utf-8")
    assert set(imported_at_module_level(tmp_path / "planted.py")) == {"fcntl", "resource"}


def test_the_import_is_quick(tmp_path: Path) -> None:
    """It takes no more processor time than its dependencies, on machines of any speed: the best of a few, the modules compiled before."""
    program = (
        "import time; first = time.process_time(); import numpy, ml_dtypes; start = time.process_time(); "
        "import tcsim; tcsim.instruction, tcsim.gemm; print((time.process_time() - start) / (start - first))"
    )
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    own["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    times = []
    for _ in range(6):
        answer = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=own, capture_output=True, text=True, check=True
        )
        times.append(float(answer.stdout))
    assert min(times) < SHARE, times


@pytest.mark.parametrize("words", ["", "--help", "list fp8 h100", "list --arch h100 --type e4m3"])
def test_a_list_does_without_numpy(words: str) -> None:
    """Of the time of a look-up it would be a third."""
    program = (
        "import sys, tcsim\n"
        "from tcsim.cli import main\n"
        "if sys.argv[1:]:\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code\n"
        "assert 'tcsim.cli.app' in sys.modules or not sys.argv[1:]\n"
        "print(*sorted(sys.modules.keys() & {'numpy', 'ml_dtypes'}), file=sys.stderr)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program, *words.split()], cwd=ROOT, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr.strip()) == (0, "")


def test_a_module_and_a_function_of_one_name() -> None:
    """Modules of the package are found without an import statement of their own; no public function has a module's name."""
    program = "import tcsim; print(tcsim.catalog.__name__, tcsim.layouts.__name__, callable(tcsim.gemm))"
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["tcsim.catalog", "tcsim.layouts", "True"]
    modules = {path.stem for path in (ROOT / "tcsim").iterdir() if not path.name.startswith("__")}
    assert len(modules) > 15
    assert not modules.intersection(tcsim.__all__)


def test_help_tells_the_story_in_one_screen() -> None:
    """What it is, the calls, an example of three lines (tests/house/test_docs.py runs it)."""
    text = inspect.getdoc(tcsim) or ""
    lines = text.splitlines()
    assert len(lines) <= SCREEN[0]
    assert max(map(len, lines)) <= SCREEN[1]
    assert text.count(">>>") == 3
    for name in ("instruction(", ".execute(", ".matmul(", ".operands", ".lowering", ".evidence", "gemm(", "diagnose("):
        assert name in text


def test_what_is_imported_late_is_there() -> None:
    """Every public name, also by `dir`, and no other."""
    shown = {name for name in dir(tcsim) if not name.startswith("_")}  # what a shell completes
    assert shown == {*tcsim.__all__, "catalog", "launchers", "plans", "ptx", "torch"}
    assert all(getattr(tcsim, name) is not None for name in shown - {"torch"})
    for name in tcsim.__all__:
        assert getattr(tcsim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tcsim.nothing
