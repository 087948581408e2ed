"""The suite in other people's environments: their plugins, an installed wheel, an older assembler.

The wheel is not built: what it would hold is linked into a folder that stands for site-packages.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from conformance import options
from conformance.suite import rerun
from tcsim.core.targets import ARCHS
from tests.support.suite_runs import MNEMONIC, ROOT, case_path, suite_run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SELECTED = (case_path("wide"), "--arch", "sm_90", "--replay")

COMPLAINING = """
import warnings
import pytest

def pytest_configure(config):
    warnings.warn("configured", UserWarning)
    config.issue_config_time_warning(pytest.PytestWarning("at configuration"), stacklevel=2)

def pytest_runtest_setup(item):
    warnings.warn("before a test", DeprecationWarning)
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_what_a_plugin_warns_of_is_its_own_affair(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """pytest-benchmark warns that xdist is there: under `filterwarnings = ["error"]` that ended each worker."""
    (tmp_path / "complaining.py").write_text(COMPLAINING)
    run = suite_run("-p", "complaining", *processes, *SELECTED, path=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "INTERNALERROR" not in run.stdout + run.stderr
    assert "1 passed" in run.stdout


def test_what_our_modules_warn_of_is_an_error(tmp_path: Path) -> None:
    """A warning in the model, whatever its category."""
    (tmp_path / "careless.py").write_text(
        "from tcsim.arithmetic import steps\n"
        "exec('right = dot_add\\n"
        "import warnings\\n"
        'def dot_add(*given):\\n    warnings.warn("in the model", DeprecationWarning)\\n    return right(*given)\''
        ", vars(steps))\n"
    )
    run = suite_run("-p", "careless", *SELECTED, path=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "DeprecationWarning: in the model" in run.stdout


# ---- an installed wheel


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as site-packages is after `pip install`: the packages of the wheel and its entry points."""
    site = tmp_path / "site-packages"
    information = site / "tcsim_suite-0.dist-info"
    information.mkdir(parents=True)
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        (site / package).symlink_to(ROOT / package)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tcsim-suite\nVersion: 0\n")
    points = PROJECT["project"]["entry-points"]["pytest11"]
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (information / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    return site


@pytest.mark.parametrize(
    "selected", [("conformance", "-k", f"{MNEMONIC}-wide"), (f"conformance.test_cases::test_case[{MNEMONIC}-wide-0]",)]
)
def test_an_installed_suite_has_its_options(installed: Path, tmp_path: Path, selected: tuple[str, ...]) -> None:
    """`pytest --pyargs conformance --arch sm_90`, in a folder where nothing of the project is."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    run = suite_run("--pyargs", *selected, "--arch", "sm_90", "--replay", path=installed, folder=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "conformance: sm_90 by replay of recorded hardware results" in run.stdout
    assert "1 passed" in run.stdout


def test_other_runs_of_an_environment_are_left_alone(installed: Path, tmp_path: Path) -> None:
    """Somebody's own tests have options and a header of their own, even where ours are installed."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--arch')\n")
    (folder / "test_own.py").write_text("import sys\ndef test(): assert 'conformance.conftest' not in sys.modules\n")
    run = suite_run("--arch", "z80", path=installed, folder=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "conformance:" not in run.stdout and "1 passed" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--pyargs", "conformance"], True),
        (["-q", "conformance.test_gemm", "--pyargs"], True),
        (["conformance"], False),
        (["--pyargs", "conformance_of_others"], False),
        (["--pyargs", "numpy", "-k", "a[conformance"], False),
    ],
)
def test_which_command_lines_ask_for_the_suite(arguments: list[str], named: bool) -> None:
    assert options.names_the_suite(arguments) is named


def test_rerun_commands_name_whole_paths() -> None:
    """The interpreter and the file."""
    words = rerun.command("test_cases.py::test_case[x]", "--arch", "sm_90").split()
    assert words[:3] == [sys.executable, "-m", "pytest"]
    assert Path(words[3].strip("'").partition("::")[0]).is_absolute()
    assert Path(words[3].strip("'").partition("::")[0]).is_file()


# ---- an older assembler

OLD = """
from hwkernels.device import toolchain
from pathlib import Path
found = [toolchain.Toolchain(Path({path!r}), None, "13.0.88", "a test")]
toolchain.find_toolchains = lambda: tuple(found)
"""


def old_ptxas(folder: Path, targets: tuple[str, ...], complaint: str) -> str:
    """A plugin that leaves one assembler here: it knows some targets, and refuses every text as ptxas does."""
    program = folder / "ptxas"
    listed = ",".join(f"'{target}'" for target in targets)
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --help ] && printf "%s\\n" "--gpu-name <gpu name>" '
        f'"        Allowed values for this option:  {listed}." "--help" && exit 0\n'
        f'echo "ptxas x.ptx, line 1; {complaint}" >&2\n'
        "exit 255\n"
    )
    program.chmod(0o755)
    (folder / "old_ptxas.py").write_text(OLD.format(path=str(program)))
    return "old_ptxas"


SM_120 = tuple(target.name for target in ARCHS["sm_120"].targets)
LOG = "ptxas 13.0.88 here"


@pytest.mark.parametrize(
    ("targets", "complaint", "need"),
    [
        (SM_120, "fatal   : Unsupported .version 8.8; current version is '8.7'", f"of PTX ISA 8.8; {LOG} has 8.7"),
        (("sm_90",), "", "for sm_120f; here: ptxas 13.0.88"),
        (
            SM_120,
            "error   : Illegal modifier '.async' for instruction 'membar.proxy'",
            f"like ptxas 13.5.37, with which its targets were checked; {LOG} refuses it",
        ),
    ],
)
def test_which_rows_need_a_newer_assembler(tmp_path: Path, targets: tuple[str, ...], complaint: str, need: str) -> None:
    """By name under the closing table, whether version, target or instruction is unknown; never as a failure of the row."""
    plugin = old_ptxas(tmp_path, targets, complaint)
    mnemonic = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32"
    selected = f"conformance/test_cases.py::test_assembles[{mnemonic}]"
    run = suite_run("-p", plugin, selected, "--arch", "sm_120", path=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr  # nothing was compared
    assert "1 untested" in run.stdout and "failed" not in run.stdout
    lines = run.stdout.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "untested: needs an assembler" in line]
    assert lines[place] == f"1 instruction untested: needs an assembler {need}:"
    assert lines[place + 1] == f"  {mnemonic}"
