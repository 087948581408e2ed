"""The verdicts of many mutants, in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.hazards.matrix.packed import use
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import Verdict, every, judged

MOST_PARTS = 8  # of a kernel's mutants: each process runs the original anew


def share(name: str, step: int, of: int, place: int, pack: Path | None) -> list[Verdict]:
    """The verdicts of a share of a kernel's mutants. pack: where the PTX comes from."""
    if pack is not None:
        use(pack)
    subject = subjects()[name]
    return [judged(subject, mutant) for mutant in every(subject)[::step][place::of]]


def verdicts(names: list[str], step: int, jobs: int, pack: Path | None) -> Iterator[Verdict]:
    """The verdicts of kernels, in order."""
    of = min(jobs, MOST_PARTS)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        parts = [[pool.submit(share, name, step, of, place, pack) for place in range(of)] for name in names]
        for part in parts:
            done = [own.result() for own in part]
            yield from (row[at] for at in range(max(map(len, done))) for row in done if at < len(row))
