"""`python -m conformance.engines.spills`: the kernels of the GPU's engine compiled for every floating-point arithmetic of the registry, and which spill registers.

Needs no GPU. A spill is a line here, and a failure of the tests. `tests/unit/conformance/engines/test_engine_spills.py` takes
some kernels of each target, with TCSIM_WHOLE=1 all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from conformance.engines.works import works
from hwkernels.device.toolchain import AssembleError
from hwkernels.engine import fast, run
from tcsim.arithmetic.steps import DotAdd
from tcsim.engines.contract import Work

TARGETS = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
"""GPUs with a full-rate f64 unit, and bytes of shared memory that a block may have there."""


def kernels(target: str) -> list[tuple[Work, str]]:
    """Every work with each of its kernels; of engine_gemm.cu those once whose multiplying kernels are the same: they read a and b decoded."""
    found: dict[object, tuple[Work, str]] = {}
    for work in works():
        for kernel in run.kernels_of(work):
            key: object = work
            if kernel == "fast":
                unit = next(step.unit for step in work.steps if isinstance(step, DotAdd))
                key = fast.constants_of(work, TARGETS[target]), unit, work.formats[2], work.result
            found.setdefault((kernel, key), (work, kernel))
    return list(found.values())


def complaint(kernel: tuple[Work, str], target: str) -> str:
    """What ptxas says of one that spills; empty if none does."""
    try:
        run.cubin_of(*kernel, target, TARGETS[target])
    except AssembleError as error:
        return str(error)
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile all; 1 if one spills."""
    parser = argparse.ArgumentParser(prog="python -m conformance.engines.spills", description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args(arguments)
    spilling = 0
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        for target in asked.targets:
            every = kernels(target)
            answers = list(pool.map(complaint, every, repeat(target)))
            for (work, kernel), answer in zip(every, answers, strict=True):
                if answer:
                    print(f"{target} {kernel}, {works()[work][0]}: {answer}")
            spilling += sum(map(bool, answers))
            print(f"{target}: {sum(map(bool, answers))} of {len(every)} spill", flush=True)
    return int(spilling > 0)


if __name__ == "__main__":
    sys.exit(main())
