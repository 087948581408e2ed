"""`python -m conformance.kernels.gemm_direct --match TEXT`: GEMM cases in this very process, for compute-sanitizer and debuggers.

    compute-sanitizer --tool memcheck python -m conformance.kernels.gemm_direct --match 257x301x143-random

The suite runs them in a child with a watchdog, which a sanitizer would slow beyond its patience. Exit status 1 if a case fails, or none
was run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from conformance.kernels import gemm as gemm_cases
from conformance.kernels import scaled as scaled_cases
from conformance.kernels.whole_outputs import Trial
from hwkernels.device.driver import device_info
from hwkernels.device.plan import open_executor


def trials(arch: str, seed: int, texts: Sequence[str]) -> Iterator[Trial]:
    """Every case of an arch, dense and with block scales, whose id contains all of the texts."""
    for source in (gemm_cases, scaled_cases):
        for case in source.cases(arch):
            if all(text in case.id for text in texts):
                yield source.trial_of(case, arch, seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every case whose id contains all of the texts."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kernels.gemm_direct")
    parser.add_argument("--match", nargs="*", default=[], help="texts that an id must contain")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    info = device_info()
    print(f"{info.name} ({info.arch}), driver {info.driver_version}", flush=True)
    execute, failed, ran = open_executor(0), 0, 0
    for trial in trials(info.arch, options.seed, options.match):
        start = time.perf_counter()
        (got,) = execute(trial.call(1))
        seconds = time.perf_counter() - start
        want = trial.predicted()
        wrong = int((np.ascontiguousarray(got).view(want.dtype) != want).sum())
        verdict = "FAIL" if wrong else "PASS"
        print(f"{verdict} {trial.id}: {wrong} of {want.size} outputs differ, {seconds:.1f} s", flush=True)
        failed, ran = failed + bool(wrong), ran + 1
    print(f"{ran} cases, {failed} failed")
    return int(failed > 0 or ran == 0)


if __name__ == "__main__":
    sys.exit(main())
