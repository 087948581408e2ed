"""`python -m conformance.engines.compare OUT`: the engine of the GPU against NumPy, for every floating-point arithmetic of the registry.

All kernels of the engine that compute a work get batches of products of every class of operands; NumPy computes them in other processes. Writes
OUT/engines.json: for each work who asks for it, outputs compared, mismatches and the first of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.engines.operands import CLASSES, matrices
from conformance.engines.works import works
from hwkernels.device.driver import device_info, shared_limit
from hwkernels.device.stream_launch import make_current
from hwkernels.engine import run
from tcsim.core.files import write_file
from tcsim.engines.contract import Matrices, Work
from tcsim.engines.reference import ENGINE as NUMPY

SHAPE, INSTRUCTIONS = (2, 48, 80), 2


def expected(
    work: Work, target: str, seed: int, shared: int
) -> tuple[dict[str, bytes], list[tuple[str, Matrices, list[int], Any]]]:
    """In another process: the cubins, and NumPy's results."""
    cubins = {kernel: run.cubin_of(work, kernel, target, shared, strict=False) for kernel in run.kernels_of(work)}
    instructions = INSTRUCTIONS if work.formats[2] == work.result else 1
    order = list(range(instructions))[::-1]
    found = []
    for name in CLASSES:
        given = matrices(work, SHAPE, instructions, name, seed)
        found.append((name, given, order, NUMPY.multiply(work, given, order)))
    return cubins, found


def on_gpu(work: Work, given: Matrices, order: Sequence[int], kernel: str) -> npt.NDArray[Any]:
    """The engine's result by one of its kernels."""
    arrays = {name: run.uploaded(array, name) for name, array in vars(given).items() if array is not None}
    operands = run.Operands(arrays, run.order_of(order, given.instructions(work)))
    return run.multiply(work, operands, kernel=kernel).get()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.engines.compare", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=int, default=1, help="every SHARE-th work only")
    parser.add_argument("--kernel", default="exact", help="only works that this kernel of the engine computes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    began, info = time.perf_counter(), device_info()
    make_current()
    chosen = [item for item in works().items() if asked.kernel in run.kernels_of(item[0])][:: asked.share]
    results, outputs, wrong = [], 0, 0
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        futures = [pool.submit(expected, work, info.arch, asked.seed, shared_limit()) for work, _ in chosen]
        for (work, names), future in zip(chosen, futures, strict=True):
            cubins, cases = future.result()
            line: dict[str, Any] = {
                "asked by": len(names),
                "first": names[0],
                "kernels": sorted(cubins),
                "outputs": 0,
                "mismatches": 0,
            }
            for kernel, cubin in cubins.items():
                run.CUBINS[work, kernel, None] = cubin
                for name, given, order, want in cases:
                    got = on_gpu(work, given, order, kernel)
                    differ = np.argwhere(got != want)
                    line["outputs"] += want.size
                    line["mismatches"] += len(differ)
                    if len(differ) and "differs" not in line:
                        at = tuple(differ[0])
                        line["differs"] = f"{kernel}, {name}, {at}: {int(got[at]):#x}, NumPy {int(want[at]):#x}"
                        print(names[0], line["differs"], len(differ), flush=True)
            results.append(line)
            outputs, wrong = outputs + line["outputs"], wrong + line["mismatches"]
    asked.folder.mkdir(parents=True, exist_ok=True)
    text = {"gpu": asdict(info), "seed": asked.seed, "works": results, "seconds": round(time.perf_counter() - began, 1)}
    write_file(asked.folder / "engines.json", json.dumps(text, indent=1) + "\n")
    fast_ones = sum("fast" in line["kernels"] for line in results)
    print(
        f"{len(results)} works ({fast_ones} by the fast kernel too), {outputs:,} outputs, {wrong} mismatches, {text['seconds']} s"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
