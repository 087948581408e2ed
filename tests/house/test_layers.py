"""Imports go down only: the import linter's contracts hold, and would not if one went up; few modules import each other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from generator.import_graph import PACKAGES, floors, import_graph, layers  # noqa: E402

MOST_TOGETHER = 2  # modules that may import each other, in a ring or otherwise
MOST_LOOSE = 6  # modules of tcsim that are in no package
RINGS_OF_PTX: tuple[set[str], ...] = ()
"""Modules of tcsim.ptx that import each other, with imports for type checkers: this list may only shrink."""
TOP = {
    "conformance",
    "hwkernels",
    "tcsim",
    "tcsim.__main__",
}  # above all layers of their package, and what pytest collects

UPWARD = {
    "tcsim.numbers.formats -> tcsim.multiplication": (
        "tcsim/numbers/formats.py",
        "def up():\n    from tcsim import multiplication\n",
    ),
    "tcsim.model.row -> tcsim.catalog": ("tcsim/model/row.py", "import tcsim.catalog\n"),
    "tcsim.ptx.compile.known -> tcsim.ptx.machine.memory": (
        "tcsim/ptx/compile/known.py",
        "def up():\n    from tcsim.ptx.machine import memory\n",
    ),
    "tcsim.isa.elect -> hwkernels.probes": ("tcsim/isa/elect.py", "def up():\n    import hwkernels.probes\n"),
    "hwkernels.device.sass -> hwkernels.probes": ("hwkernels/device/sass.py", "from hwkernels import probes\n"),
    "hwkernels.probes.elect -> conformance.testbench": (
        "hwkernels/probes/elect.py",
        "from conformance import testbench\n",
    ),
    "conformance.stimuli.codes -> conformance.suite.cases": (
        "conformance/stimuli/codes.py",
        "from conformance.suite import cases\n",
    ),
}
"""Imports that go up: from where to where, the file, and the text that is added to it."""


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """What the import linter says of a tree that has its configuration."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)


def test_the_contracts_are_kept() -> None:
    """What `lint-imports` says."""
    said = lint(ROOT)
    assert said.returncode == 0, said.stdout
    assert "Contracts: 6 kept, 0 broken." in said.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the packages and their configuration."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", root)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            (root / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.relative_to(ROOT))
    return root


@pytest.mark.parametrize("edge", UPWARD)
def test_an_upward_import_is_refused(copy: Path, edge: str) -> None:
    """Wherever it stands, in a function too: planted in a copy of the tree, it breaks a contract by name."""
    file, text = UPWARD[edge]
    path = copy / file
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n\n{text}", encoding="utf-8")
    try:
        said = lint(copy)
    finally:
        path.write_text(before, encoding="utf-8")
    assert said.returncode == 1, said.stdout + said.stderr
    assert edge in " ".join(said.stdout.split())


def test_every_module_is_in_a_layer() -> None:
    """A new package must find its place in pyproject.toml."""
    names = layers()
    assert all(any(f"{module}.".startswith(f"{layer}.") for module in import_graph()) for layer in names)
    outside = [
        module
        for module in import_graph()
        if module not in TOP and not any(f"{module}.".startswith(f"{layer}.") for layer in names)
    ]
    assert [module for module in outside if not module.startswith("conformance.test_")] == []


def together(graph: Mapping[str, frozenset[str]]) -> list[set[str]]:
    """The strongly connected components of more than one module, found as Tarjan does."""
    found: list[set[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        path.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in path:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = path.index(module)
            if len(path) - at > 1:
                found.append(set(path[at:]))
            del path[at:]

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_rings_are_found() -> None:
    """A ring of three, a pair, a module that only hangs on them, one that imports itself."""
    edges = {"a": "b", "b": "c", "c": "a", "d": "ae", "e": "d", "f": "c", "g": "g"}
    graph = {name: frozenset(others) - {name} for name, others in edges.items()}
    assert sorted(map(sorted, together(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_few_modules_import_each_other() -> None:
    """Functions' imports count: an import there is no way round the layers."""
    assert len(import_graph()) > 300
    assert [sorted(ring) for ring in together(import_graph()) if len(ring) > MOST_TOGETHER] == []


def typed(package: str) -> dict[str, frozenset[str]]:
    """The imports among the modules of a package, those for type checkers too."""
    within = f"{package}."
    return {
        name: frozenset(other for other in others if other.startswith(within))
        for name, others in import_graph(types=True).items()
        if name.startswith(within)
    }


def test_only_listed_modules_of_ptx_import_each_other() -> None:
    """A ring that is new fails, and one that is gone has to leave the list."""
    graph = typed("tcsim.ptx")
    assert len(graph) > 100
    found = [{name.removeprefix("tcsim.ptx.") for name in ring} for ring in together(graph)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, RINGS_OF_PTX))


def test_imports_for_type_checkers_go_down_in_ptx() -> None:
    """The linter leaves them out; from a floor to one above there is none."""
    order = {name: at for at, names in enumerate(floors()) for name in names}

    def floor(module: str) -> int:
        return order[".".join(module.split(".")[:3])]

    graph = typed("tcsim.ptx")
    up = [f"{name} -> {other}" for name, others in graph.items() for other in others if floor(other) < floor(name)]
    assert up == []


def test_few_modules_are_loose() -> None:
    """The packages of tcsim hold all but a handful of its modules."""
    loose = sorted(path.name for path in (ROOT / "tcsim").glob("*.py"))
    assert len(loose) <= MOST_LOOSE, loose
