"""All answers of some kinds, in parts, by one process or several."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from itertools import islice
from multiprocessing import get_context

from tests.evaluation.golden.examples import examples
from tests.evaluation.golden.kind import Kind, Scope, Value
from tests.evaluation.golden.machine import hazards, launches, sources
from tests.evaluation.golden.reports import reports
from tests.evaluation.golden.sessions import stepping
from tests.evaluation.golden.store import Answer, Store, answer
from tests.evaluation.golden.tested import tested

KINDS: dict[str, Kind] = {
    "launches": launches, "sources": sources, "hazards": hazards, "tested": tested, "reports": reports, "stepping": stepping, "examples": examples,
}  # fmt: skip
PARTS = 24
"""Tasks that a kind is split into: entry i goes to task i % PARTS."""
Part = tuple[str, dict[str, Answer], float]


def part(kind: str, scope: Scope, pattern: str, place: int, of: int) -> Part:
    """The answers of a part of a kind whose names have a pattern, and the seconds of a processor. A call that raises answers with what it raised."""
    start = time.process_time()
    wanted = (entry for entry in KINDS[kind](scope) if re.search(pattern, entry[0]))
    found: dict[str, Answer] = {}
    for name, call in islice(wanted, place, None, of):
        value: Value
        with redirect_stdout(sys.stderr):
            try:
                value = call()
            except Exception as error:
                value = f"raised {type(error).__name__}: {error}"
        if name in found:
            raise ValueError(f"{kind} has two answers named {name!r}")
        found[name] = answer(value)
    return kind, found, time.process_time() - start


def asked(kinds: Iterable[str], scope: Scope, pattern: str = "", jobs: int = 1) -> tuple[Store, dict[str, float]]:
    """The answers of kinds, and the seconds of each. Raises ValueError where two answers of a kind have one name."""
    store, seconds = Store(scope, {kind: {} for kind in kinds}), Counter[str]()
    for kind, found, took in _parts(list(store.answers), scope, pattern, jobs):
        if twice := store.answers[kind].keys() & found.keys():
            raise ValueError(f"{kind} has two answers named {sorted(twice)[0]!r}")
        store.answers[kind] |= found
        seconds[kind] += took
        print(f"{kind}: {len(store.answers[kind])} answers, {seconds[kind]:.0f} s", file=sys.stderr, flush=True)
    return store, dict(seconds)


def _parts(kinds: list[str], scope: Scope, pattern: str, jobs: int) -> Iterator[Part]:
    if jobs == 1:
        yield from (part(kind, scope, pattern, place, PARTS) for kind in kinds for place in range(PARTS))
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        asked = [pool.submit(part, kind, scope, pattern, place, PARTS) for kind in kinds for place in range(PARTS)]
        for own in as_completed(asked):
            yield own.result()


def raised(found: dict[str, Answer]) -> list[str]:
    """The names of calls that raised."""
    return [name for name, own in found.items() if own.text is not None and own.text.startswith("raised ")]
