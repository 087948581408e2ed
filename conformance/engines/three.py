"""`python -m conformance.engines.three`: NumPy, the compiled engine and the kernels of the GPU's against one another, on many outputs.

Each process takes one work of the registry at a time. Operands of every class go through numba and the GPU whole, every output compared by bits;
NumPy computes some of the rows, which are compared too. It prints a table by family; the exit status is 1 if any output differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.engines.compare import on_gpu
from conformance.engines.operands import CLASSES, matrices
from conformance.engines.works import works
from hwkernels.device.stream_launch import make_current
from hwkernels.engine.run import kernels_of
from tcsim import catalog
from tcsim.core.files import write_file
from tcsim.core.texts import parsed_json
from tcsim.engines.choice import find
from tcsim.engines.contract import Matrices
from tcsim.engines.reference import ENGINE as NUMPY

SHAPE = (1, 2048, 3072)
"""Of a product of each class: its outputs are those of one instruction, or of two in a row."""
ROWS_OF_C = 61
"""The rows of C repeat with this period, which divides no tile's number of rows."""
SHARE = 32
"""NumPy computes one row out of this many."""
_ALL = "all, each once"


@dataclass
class Agreed:
    """What one work gave."""

    first: str  # who asks for it, one of them
    families: tuple[str, ...]  # of all who do
    kernels: tuple[str, ...] = ()
    outputs: int = 0  # computed by numba and by each kernel of the GPU's engine
    by_numpy: int = 0  # those that NumPy computed too
    mismatches: int = 0
    differs: str = ""
    seconds: float = 0.0


def some_rows(given: Matrices, every: int) -> Matrices:
    """Every n-th row of A, with its scales, metadata and C."""
    per_row = {name: getattr(given, name) for name in ("a", "c", "scale_a", "columns")}
    return given.part(**{name: None if array is None else array[:, ::every] for name, array in per_row.items()})


def agreed(place: int, seed: int, outputs: float) -> Agreed:
    """Compare one work until it has given at least `outputs` outputs."""
    began = time.perf_counter()
    work, names = list(works().items())[place]
    make_current()
    numba = find("numba")
    kernels = kernels_of(work)
    families = {catalog.rows()[name.partition(" on ")[0]].family for name in names}
    found = Agreed(names[0], tuple(sorted(families)), kernels)
    while found.outputs < outputs:
        for number, name in enumerate(CLASSES):
            instructions = 2 if number % 3 == 2 and work.formats[2] == work.result else 1
            given = matrices(work, SHAPE, instructions, name, seed, ROWS_OF_C)
            order = list(range(instructions))[::-1]
            want = numba.multiply(work, given, order)
            found.outputs += want.size
            few = NUMPY.multiply(work, some_rows(given, SHARE), order)
            found.by_numpy += few.size
            _count(found, f"NumPy, {name}", few, want[:, ::SHARE])
            for kernel in kernels:
                _count(found, f"GPU {kernel}, {name}", on_gpu(work, given, order, kernel), want)
        seed += 1
    found.seconds = round(time.perf_counter() - began, 2)
    return found


def _count(found: Agreed, who: str, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> None:
    """Note outputs that are not numba's."""
    if np.array_equal(got, want):
        return
    differ = np.argwhere(got != want)
    at = tuple(map(int, differ[0]))
    found.mismatches += len(differ)
    found.differs = found.differs or f"{who} at {at}: {int(got[at]):#x}, numba {int(want[at]):#x}"


def table(rows: Sequence[Agreed]) -> str:
    """A row for each family, and one in which each work counts once."""
    columns: dict[str, Counter[str]] = {}
    for one in rows:
        counted = {"works": 1, "outputs": one.outputs, "by_numpy": one.by_numpy, "mismatches": one.mismatches}
        for family in (*one.families, _ALL):
            columns.setdefault(family, Counter()).update(counted)
    lines = ["| family | arithmetics | outputs | by NumPy too | differing |", "| --- | ---: | ---: | ---: | ---: |"]
    for family in sorted(columns, key=lambda name: (name == _ALL, name)):
        counts = columns[family]
        lines.append(
            f"| {family} | {counts['works']} | {counts['outputs']:,} | {counts['by_numpy']:,} | {counts['mismatches']:,} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.engines.three", description=__doc__)
    parser.add_argument("--outputs", type=float, default=1e10, help="of all works together, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=int, default=1, help="every SHARE-th work only")
    parser.add_argument("--begin", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write what each work gave here")
    parser.add_argument(
        "--table", type=Path, nargs="+", help="print the table of what earlier runs wrote, and compare nothing"
    )
    asked = parser.parse_args(arguments)
    if asked.table:
        return _concluded(
            [Agreed(**line) for path in asked.table for line in parsed_json(path.read_bytes(), path.name)]
        )
    began, numba = time.perf_counter(), find("numba")
    every = list(works().items())
    taken = [place for place, (work, _) in enumerate(every) if not numba.takes(work)][asked.begin :: asked.share]
    os.environ["TCSIM_THREADS"] = "1"  # of the processes below
    rows: list[Agreed] = []
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        futures = [pool.submit(agreed, place, asked.seed, asked.outputs / len(taken)) for place in taken]
        for future in as_completed(futures):
            rows.append(future.result())
            if rows[-1].differs:
                print(f"{rows[-1].first}: {rows[-1].mismatches} differ; {rows[-1].differs}", flush=True)
            if asked.json:  # after each, for a run that is ended
                write_file(asked.json, json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"{len(taken)} of {len(every)} works; {time.perf_counter() - began:.0f} s, {asked.processes} processes")
    return _concluded(rows)


def _concluded(rows: Sequence[Agreed]) -> int:
    """Print; the exit status."""
    print(table(rows))
    return int(not rows or any(one.mismatches for one in rows))


if __name__ == "__main__":
    sys.exit(main())
