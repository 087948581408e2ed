"""Golden output of the examples of docstrings and of the pages of the documentation."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.evaluation.golden.kind import Entry, Scope
from tests.house.test_docs import MODULES, PROMPT, WITH_EXAMPLES, name_of
from tests.house.test_docs import examples as examples_of


def examples(scope: Scope) -> Iterator[Entry]:
    """What every example prints: a page in one text, and the docstring of an object in another, whatever module it lies in."""
    for path in WITH_EXAMPLES:
        yield f"page {name_of(path)}", partial(_page, path)
    seen = Counter[str]()
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or not PROMPT.search(Path(spec.origin).read_text(encoding="utf-8")):
            continue
        module = importlib.import_module(name)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            if test.examples:
                key = f"{name.partition('.')[0]} {test.name.removeprefix(name).strip('.') or name.rpartition('.')[2]}"
                seen[key] += 1
                yield key if seen[key] == 1 else f"{key} {seen[key]}", partial(_docstring, test)


def _page(path: Path) -> str:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    told = []
    for number, example in enumerate(examples_of(path.read_text(encoding="utf-8")), 1):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(example.code, path, "exec"), namespace)
        told.append(f"example {number}\n{output.getvalue()}")
    return "\n".join(told)


class _Listener(doctest.DocTestRunner):
    """Keeps what each example answers."""

    def __init__(self) -> None:
        super().__init__(verbose=False)
        self.told: list[str] = []

    def report_start(self, out: Any, test: doctest.DocTest, example: doctest.Example) -> None:
        """Nothing."""

    def report_success(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        """Keep it."""
        self.told.append(f"{example.source}{got}")

    report_failure = report_success

    def report_unexpected_exception(
        self, out: Any, test: doctest.DocTest, example: doctest.Example, exc_info: Any
    ) -> None:
        """Keep its name."""
        self.report_success(out, test, example, f"{exc_info[0].__name__}: {exc_info[1]}\n")


def _docstring(test: doctest.DocTest) -> str:
    runner = _Listener()
    runner.run(test)
    return "\n".join(runner.told)
