"""What the documentation of the public API must say: purpose, errors, and an example, which tests/house/test_docs.py runs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tcsim
from tcsim import catalog
from tcsim.core.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
MODULES = [path for folder in ("tcsim", "hwkernels", "conformance") for path in sorted((ROOT / folder).rglob("*.py"))]
MOST_LINES = 500
EXPORTED = {name: getattr(tcsim, name) for name in tcsim.__all__}
FUNCTIONS = {name: item for name, item in EXPORTED.items() if inspect.isfunction(item)}
CLASSES = {name: item for name, item in EXPORTED.items() if inspect.isclass(item) and not issubclass(item, Exception)}


def said(item: Any) -> str:
    """The docstring, without indentation."""
    return inspect.getdoc(item) or ""


def examples(text: str) -> str:
    """The lines of a docstring that are run."""
    return "\n".join(line for line in text.splitlines() if line.lstrip().startswith((">>>", "...")))


def raises(item: Any) -> bool:
    """Whether the function itself raises something."""
    return re.search(r"^\s+raise \w", inspect.getsource(item), re.MULTILINE) is not None


def methods(item: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class defines, without properties."""
    for name, value in vars(item).items():
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if not name.startswith("_") and inspect.isfunction(plain):
            yield name, plain


def instruction_classes() -> dict[str, type]:
    """The classes of all instructions."""
    found: dict[str, type] = {}
    for row in catalog.rows().values():
        if not row.dropped:
            made = type(tcsim.instruction(row.mnemonic, arch=TARGETS[row.targets[-1]].arch))
            found.setdefault(made.__name__, made)
    return found


def test_everything_exported_has_a_purpose() -> None:
    """One sentence, or a name for what it is; the names are as many as there are."""
    assert len(EXPORTED) == len(FUNCTIONS) + len(CLASSES) + len([
        name for name, item in EXPORTED.items()
        if (inspect.isclass(item) and issubclass(item, Exception)) or name in ("ARCHS", "FORMATS", "TARGETS")
    ])  # fmt: skip
    for name, item in (FUNCTIONS | CLASSES).items():
        assert len(said(item).splitlines()[0]) > 10, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_raise_and_show_a_call(name: str) -> None:
    text = said(FUNCTIONS[name])
    assert "Raises " in text
    assert f"{name}(" in examples(text)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_show_their_use(name: str) -> None:
    """An example in the class; of each method one there or in some method; what raises says so."""
    item = CLASSES[name]
    assert examples(said(item)), name
    shown = "\n".join(examples(said(one)) for one in (item, *(method for _, method in methods(item))))
    assert [method for method, _ in methods(item) if f".{method}(" not in shown] == []
    for method, function in methods(item):
        assert said(function) and (not raises(function) or "Raises " in said(function)), f"{name}.{method}"


def test_instructions_show_a_call_and_say_what_they_raise() -> None:
    """`execute` and `matmul` of every class of instructions."""
    checked, wrong = 0, []
    for name, item in instruction_classes().items():
        for method in ("execute", "matmul"):
            function = getattr(item, method, None)
            if function is None:
                continue
            owner = next(base for base in item.__mro__ if method in vars(base))
            shown = examples(said(owner)) + examples(said(function))
            if f".{method}(" not in shown and ".execute(" not in shown:
                wrong.append(f"{name}.{method} shows no call")
            if raises(function) and "Raises " not in said(function):
                wrong.append(f"{name}.{method} does not say what it raises")
            checked += 1
    assert wrong == [] and checked > 40


def test_modules_say_first_what_they_know() -> None:
    """Each in words of its own, and none knows so much that it should be two."""
    first: dict[str, Path] = {}
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        line = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        assert len(line.split()) >= 3, f"{path}: {line!r}"
        assert line not in first, f"{path} and {first[line]}"
        first[line] = path
        assert text.count("\n") <= MOST_LINES, path
    assert len(first) > 200
