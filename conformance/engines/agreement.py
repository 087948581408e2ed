"""`python -m conformance.engines.agreement`: an engine against NumPy, for every floating-point arithmetic of the registry.

Each work is computed by both on operands of every class, as fragments and as larger products of several instructions, until `--outputs`
of them (1e8) have been compared. It prints a table by family; the exit status is 1 if any output differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from conformance.engines.operands import CLASSES, matrices
from conformance.engines.works import works
from tcsim import catalog
from tcsim.engines.choice import find
from tcsim.engines.contract import Work
from tcsim.engines.reference import ENGINE as NUMPY

SHAPES = ((70, 16, 8), (2, 40, 136), (1, 64, 72))
"""Batches of products (T, M, N): fragments, and products of several blocks of columns."""


@dataclass(frozen=True)
class Found:
    """What comparing one work gave."""

    work: int  # its place in `works()`
    outputs: int
    mismatches: int
    first: str  # where the first mismatch is, and both codes


def compare(work: Work, engine: str, seed: int) -> Iterator[tuple[int, int, str]]:
    """Outputs, mismatches and the first of them, of each shape and class of operands."""
    candidate = find(engine)
    chained = work.formats[2] == work.result
    for place, shape in enumerate(SHAPES):
        instructions = 1 + 2 * (place > 0) if chained else 1
        order = [int(one) for one in np.random.default_rng(seed).permutation(instructions)]
        for name in CLASSES:
            given = matrices(work, shape, instructions, name, seed)
            want, got = NUMPY.multiply(work, given, order), candidate.multiply(work, given, order)
            differ = np.argwhere(got != want)
            first = ""
            if len(differ):
                at = tuple(differ[0])
                first = f"{name} {shape} at {tuple(map(int, at))}: {int(got[at]):#x}, NumPy {int(want[at]):#x}"
            yield want.size, len(differ), first


def compared(place: int, engine: str, seed: int, outputs: float) -> Found:
    """Compare one work until it has given at least `outputs` outputs."""
    work = list(works())[place]
    total, wrong, first = 0, 0, ""
    while total < outputs:
        for count, mismatches, what in compare(work, engine, seed):
            total, wrong, first = total + count, wrong + mismatches, first or what
        seed += 1
    return Found(place, total, wrong, first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.engines.agreement", description=__doc__)
    parser.add_argument("--engine", default="numba")
    parser.add_argument("--outputs", type=float, default=1e7, help="of all works together, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    began, engine = time.perf_counter(), find(asked.engine)
    os.environ["TCSIM_THREADS"] = "1"  # of the processes below
    every = list(works().items())
    why_not = {place: engine.takes(work) for place, (work, _) in enumerate(every)}
    taken = [place for place, why in why_not.items() if not why]
    outputs: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    total = mismatches = 0
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        each = asked.outputs / len(taken)
        for found in [pool.submit(compared, place, asked.engine, asked.seed, each) for place in taken]:
            one = found.result()
            names = every[one.work][1]
            total, mismatches = total + one.outputs, mismatches + one.mismatches
            if one.first:
                print(f"{names[0]}: {one.mismatches} differ; {one.first}", flush=True)
            for family in {catalog.rows()[name.partition(" on ")[0]].family for name in names}:
                outputs[family] += one.outputs
                wrong[family] += one.mismatches
                kinds[family] += 1
    print("| family | arithmetics | outputs | differing |\n| --- | ---: | ---: | ---: |")
    for family in sorted(outputs):
        print(f"| {family} | {kinds[family]} | {outputs[family]:,} | {wrong[family]:,} |")
    print(f"| all, each once | {len(taken)} | {total:,} | {mismatches:,} |")
    for reason, count in Counter(why for why in why_not.values() if why).items():
        print(f"not compared: {count} ({reason})")
    print(f"{time.perf_counter() - began:.0f} s, {asked.processes} processes")
    return int(bool(mismatches))


if __name__ == "__main__":
    sys.exit(main())
