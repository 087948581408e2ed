"""Which tests run by default: `python -m tests.evaluation.chosen` writes tests/default.json from what `tox -e chosen` noted.

`tox -e chosen` runs everything once under coverage.py, a context for each test, with this module as a plugin that notes seconds.
Chosen are whole functions that are quick; of the others the cases, cheapest first by what they add, that together reach every line
that the whole reaches; those that alone kill a mutant (`KILLERS`); of a function with many cases some quick ones; then the quickest
of the functions that are left, up to a budget.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.evaluation.mutation.run import reported
from tests.support.extent import DEFAULT, Table, parts_of

SECONDS = Path(".seconds.jsonl")
QUICK = 0.6  # seconds of all cases of a function that is kept whole
SOME = 0.35  # seconds of quick cases that a function of many keeps
QUICK_CASE = 0.1
WHOLE_FUNCTIONS = ("test_docstring_examples",)  # each runs the example of a public function
NO_USER = "conformance/isa/"  # whose mutants.py only proofs of the suite run: `tox -e proof`
Lines = npt.NDArray[np.bool_]


def pytest_sessionstart(session: Any) -> None:
    """Forget an earlier run."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        SECONDS.unlink(missing_ok=True)


def pytest_runtest_logreport(report: Any) -> None:
    """Record how long each phase of a test took; with -n, only the main process writes."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    with SECONDS.open("a") as file:
        file.write(json.dumps([report.nodeid, report.duration]) + "\n")


def seconds(path: Path = SECONDS) -> dict[str, float]:
    """Of each test, in all its phases."""
    found: dict[str, float] = defaultdict(float)
    for line in path.read_text().splitlines():
        test, took = json.loads(line)
        found[test] += took
    return found


def reached(path: Path = Path(".coverage")) -> dict[str, Lines]:
    """Of each test, which lines of which files it reached."""
    from coverage import CoverageData  # type: ignore[import-not-found]

    data = CoverageData(str(path))
    data.read()
    places: dict[tuple[str, int], int] = {}
    lines: dict[str, list[int]] = defaultdict(list)
    for file in sorted(data.measured_files()):
        if NO_USER in file and file.endswith("mutants.py"):
            continue
        for line, contexts in data.contexts_by_lineno(file).items():
            place = places.setdefault((file, line), len(places))
            for context in contexts:
                lines[context.rpartition("|")[0]].append(place)
    found = {}
    for test, own in lines.items():
        found[test] = np.zeros(len(places), bool)
        found[test][own] = True
    return found


def killers() -> set[str]:
    """The tests that killed a mutant of the source."""
    return {record["tests"] for record in reported()}


def choose(took: Mapping[str, float], reach: Mapping[str, Lines], always: Collection[str], budget: float) -> set[str]:
    """The tests that run by default, as the module says."""
    functions: dict[str, list[str]] = defaultdict(list)
    for test in took:
        functions["::".join(parts_of(test)[:2])].append(test)
    long = {
        name: tests for name, tests in functions.items()
        if sum(took[test] for test in tests) >= QUICK and not name.endswith(WHOLE_FUNCTIONS)
    }  # fmt: skip
    chosen = {test for name, tests in functions.items() if name not in long for test in tests} | {*always} & {*took}
    open_tests = [test for tests in long.values() for test in tests]
    chosen |= set(_cover(open_tests, took, reach, chosen))
    for name, tests in long.items():
        if len(tests) > 1:
            chosen |= set(_some(name, tests, took, chosen))
    alone = sorted((took[tests[0]], tests[0]) for tests in long.values() if len(tests) == 1 and tests[0] not in chosen)
    spent = sum(took[test] for test in chosen)
    for cost, test in alone:
        spent += cost
        if spent > budget:
            break
        chosen.add(test)
    return chosen


def _cover(
    tests: list[str], took: Mapping[str, float], reach: Mapping[str, Lines], chosen: Collection[str]
) -> Iterator[str]:
    """Tests that reach what those that are chosen do not, most lines a second first."""
    nothing = np.zeros_like(next(iter(reach.values())))
    missing = np.any([*reach.values(), nothing], axis=0) & ~np.any(
        [nothing, *(reach.get(test, nothing) for test in chosen)], axis=0
    )
    lines = np.array([reach.get(test, nothing) for test in tests]).reshape(len(tests), -1)
    cost = np.array([max(took[test], 0.02) for test in tests])
    while missing.any() and len(tests):
        gain = lines[:, missing].sum(1) / cost
        best = int(gain.argmax())
        if not gain[best]:
            return
        yield tests[best]
        missing &= ~lines[best]


def _some(name: str, tests: list[str], took: Mapping[str, float], chosen: Collection[str]) -> Iterator[str]:
    """Quick cases of a function, drawn by its name; at least its quickest one, if that is quick."""
    left = SOME - sum(took[test] for test in tests if test in chosen)
    pool = [test for test in tests if test not in chosen and took[test] < QUICK_CASE]
    quickest = min(tests, key=lambda test: took[test])
    if not pool and took[quickest] < QUICK and not set(tests) & set(chosen):
        yield quickest
    random.Random(name).shuffle(pool)
    for test in pool:
        if left <= 0:
            return
        left -= took[test]
        yield test


def table_of(tests: Collection[str], chosen: Collection[str]) -> Table:
    """The functions that lose cases, and the cases that they keep."""
    functions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for test in tests:
        functions[parts_of(test)[:2]].append(test)
    found: Table = defaultdict(dict)
    for (file, function), own in sorted(functions.items()):
        kept = [test for test in own if test in chosen]
        if len(kept) < len(own):
            found[file][function] = sorted(parts_of(test)[2] for test in kept)
    return dict(found)


def main() -> None:
    """Choose and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=480, help="seconds of one processor (%(default)s)")
    options = parser.parse_args()
    took = seconds()
    chosen = choose(took, reached(), killers(), options.budget)
    DEFAULT.write_text(json.dumps(table_of(took, chosen), indent=1) + "\n")
    print(
        f"{len(chosen):,} of {len(took):,} tests, {sum(took[test] for test in chosen):.0f} s of {sum(took.values()):.0f} s"
    )


if __name__ == "__main__":
    main()
