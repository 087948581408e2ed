"""`python -m tests.hazards.matrix [--kernel WORD] [--every N] [--jobs N] [--out FILE]`: every mutant of every kernel, and what a run says of it.

Prints a line for each mutant that is not named, and the table by kinds of mutants. --out writes what was found as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.hazards.matrix.packed import BUILT, write
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import NAMED, SILENT, Verdict, every, judged


def share(name: str, step: int, of: int, place: int) -> list[Verdict]:
    """The verdicts of a share of a kernel's mutants."""
    subject = subjects()[name]
    return [judged(subject, mutant) for mutant in every(subject)[::step][place::of]]


def verdicts(names: list[str], step: int, jobs: int) -> Iterator[Verdict]:
    """The verdicts of kernels, in order."""
    if jobs == 1:
        for name in names:
            yield from share(name, step, 1, 0)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        parts = [[pool.submit(share, name, step, jobs, place) for place in range(jobs)] for name in names]
        for part in parts:
            done = [own.result() for own in part]
            yield from (row[at] for at in range(max(map(len, done))) for row in done if at < len(row))


def main() -> int:
    """The exit status says whether a mutant is silent."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix", description=__doc__)
    parser.add_argument("--kernel", action="append", default=[], help="a part of a kernel's name")
    parser.add_argument("--every", type=int, default=1, help="one mutant of so many")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--pack", action="store_true", help=f"write {BUILT.name} for tests.hazards.matrix_on_gpu, and end"
    )
    given = parser.parse_args()
    if given.pack:
        write(BUILT, ("sm_80", "sm_90"))
        print(f"{BUILT}: {BUILT.stat().st_size} bytes")
        return 0
    names = [name for name in subjects() if not given.kernel or any(word in name for word in given.kernel)]
    start, found = time.perf_counter(), []
    for own in verdicts(names, given.every, given.jobs):
        found.append(own)
        if own.verdict != NAMED:
            print(f"{own.verdict:10} {own.key}{' ' + own.names[0] if own.names else ''}"[:240], flush=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([own.as_dict() for own in found], indent=1), encoding="utf-8")
    counts = {
        verdict: sum(own.verdict == verdict for own in found) for verdict in sorted({own.verdict for own in found})
    }
    print(f"{len(found)} mutants of {len(names)} kernels, {time.perf_counter() - start:.0f} s: {counts}")
    return int(counts.get(SILENT, 0) > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())
