"""Which module imports which, read from the source, and the layers that the import linter holds."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from generator.markdown import code, table
from tcsim.inspection.svg import Cell, grid

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("conformance", "hwkernels", "tcsim")

_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # what an import can stand in
Graph = Mapping[str, frozenset[str]]


@cache
def import_graph(root: Path = ROOT, types: bool = False) -> Graph:
    """The modules of the packages, and for each what it imports of them: inside functions too, for type checkers only where asked."""
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    return {name: frozenset(_imports(path, files, types)) - {name} for name, path in files.items()}


def _imports(path: Path, known: Mapping[str, Path], types: bool) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module
        waiting += (child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS))


def layers(root: Path = ROOT) -> tuple[str, ...]:
    """The layers of all packages from the top: what pyproject.toml gives the import linter."""
    by_name = _contracts(root)
    return tuple(layer for package in by_name["packages"] for layer in by_name[package])


def floors(root: Path = ROOT) -> tuple[tuple[str, ...], ...]:
    """The floors of tcsim.ptx from the top, those that stand beside each other together."""
    return tuple(
        tuple(f"tcsim.ptx.{name.strip()}" for name in floor.split("|")) for floor in _contracts(root)["tcsim.ptx"]
    )


def _contracts(root: Path) -> dict[str, tuple[str, ...]]:
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return {contract["name"]: tuple(contract["layers"]) for contract in contracts if contract["type"] == "layers"}


def layers_table() -> str:
    """What each layer knows, from the top."""
    return _known(list(enumerate(layers(), 1)), "layer")


def floors_table() -> str:
    """What each floor of tcsim.ptx knows, from the top."""
    return _known([(at, name) for at, names in enumerate(floors(), 1) for name in names], "floor")


def _known(numbered: Sequence[tuple[int, str]], title: str) -> str:
    """The first line of each package or module."""
    rows = []
    for at, name in numbered:
        path = ROOT / name.replace(".", "/")
        package = path.is_dir()
        source = path / "__init__.py" if package else path.with_suffix(".py")
        told = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        place = source.parent if package else source
        rows.append((at, code(place.relative_to(ROOT).as_posix() + "/" * package), told))
    return table(("", title, "what it knows"), rows, (0,))


def layers_picture() -> str:
    """The layers from the top, and which imports which: all are at the right of the diagonal, downwards."""
    names = layers()

    def place(module: str) -> int:
        return next((at for at, name in enumerate(names) if f"{module}.".startswith(f"{name}.")), -1)

    edges = {(place(module), place(other)) for module, others in import_graph().items() for other in others}
    cells = [
        Cell(row, column, "x", PACKAGES.index(names[column].split(".")[0]))
        for row, column in sorted(edges)
        if row != column and row >= 0 <= column
    ]
    cells += [Cell(at, at, str(at + 1), 3) for at in range(len(names))]
    rows = [f"{name.replace('.', '/')} {at + 1}" for at, name in enumerate(names)]
    return grid(
        "x: the layer of this row imports the layer of this column",
        cells,
        rows,
        [str(at + 1) for at in range(len(names))],
    )
