"""How much `pytest tests/` runs: a part, the same in every run; with TCSIM_WHOLE=1, which `tox -e whole` sets, all.

tests/default.json names the functions of which the default runs less than all cases, and the cases that it runs: the cheapest
ones that together reached every line that the whole reached when they were chosen, and every test that docs/measurements/mutants.json.xz
names as the killer of a mutant. What is new, and what is not named there, runs; so does a test that is asked for by its own name.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings

T = TypeVar("T")

WHOLE = os.environ.get("TCSIM_WHOLE") == "1"
DEFAULT = Path(__file__).parents[1] / "default.json"
Table = dict[str, dict[str, list[str]]]
"""Of each file and function: the cases that run by default."""

ELSEWHERE = {
    "whole": "every case and all examples of hypothesis; a release runs them",
    "oracles": "other projects' models of numbers and tensor cores as oracles",
    "emulated": "kernels compiled for the CPU; needs a C++ compiler",
    "triton": "Triton and Gluon on the model; also triton37, triton38",
    "cute": "CuTe DSL on the model",
    "torch": "models of PyTorch on the CPU with an H200's bits",
    "dask": "campaigns over a Dask cluster",
    "browser": "the pages in Chromium",
    "hazards": "every recorded launch under the checker",
    "proof": "every mutant of the suite against the recordings",
}
"""What `pytest tests/` does not run, by the environment of tox that does."""


def part(items: Iterable[T], number: int, seed: object = 0) -> list[T]:
    """So many of them, drawn by a seed, in their order; all of them where the whole is asked for."""
    found = list(items)
    if WHOLE or number >= len(found):
        return found
    return [found[place] for place in sorted(random.Random(str(seed)).sample(range(len(found)), number))]


def examples(number: int, **others: Any) -> settings:
    """Settings of a hypothesis test: a fifth of its examples, at least ten; all of them with TCSIM_WHOLE=1."""
    return settings(max_examples=number if WHOLE else min(number, max(10, number // 5)), **others)


def read(path: Path = DEFAULT) -> Table:
    """The table of what the default runs."""
    table: Table = json.loads(path.read_text())
    return table


def left_out(tests: Iterable[str], table: Table) -> set[str]:
    """Those of some tests, by their node ids, that the default does not run."""
    found = set()
    for test in tests:
        file, function, case = parts_of(test)
        cases = table.get(file, {}).get(function)
        if cases is not None and case not in cases:
            found.add(test)
    return found


def stale(tests: Sequence[str], table: Table) -> list[str]:
    """What the table names in the files of these tests, and is not there."""
    known: dict[str, dict[str, set[str]]] = {}
    for test in tests:
        file, function, case = parts_of(test)
        known.setdefault(file, {}).setdefault(function, set()).add(case)
    return [
        f"{file}::{function}" + (f"[{case}]" if case else "")
        for file, functions in table.items() if file in known
        for function, cases in functions.items()
        for case in (cases if function in known[file] else [""])
        if case not in known[file].get(function, ())
    ]  # fmt: skip


def parts_of(test: str) -> tuple[str, str, str]:
    """File, function and case of a node id.

    >>> parts_of("tests/test_a.py::Class::test_b[x[0]-1]")
    ('tests/test_a.py', 'Class::test_b', 'x[0]-1')
    """
    file, _, rest = test.partition("::")
    function, _, case = rest.partition("[")
    return file, function, case.removesuffix("]")
