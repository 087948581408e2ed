"""A GEMM as data, for a process that may be lost: what `GpuWorker` runs when its executor is this module's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.driver import call
from hwkernels.gemm_call import Tuning

EXECUTOR = "hwkernels.gemm_worker:open_executor"


@dataclass(frozen=True, eq=False)
class GemmCall:
    """The arguments of `plan_gemm`, on NumPy arrays (a Fortran-ordered array is MN-major on the GPU too)."""

    kernel: str
    a: npt.NDArray[Any]  # (M, K)
    b: npt.NDArray[Any]  # (K, N)
    c: npt.NDArray[Any] | None = None
    alpha: float = 1.0
    beta: float = 1.0
    out_format: str | None = None
    tuning: Tuning | None = None
    repeat: int = 1


def run_call(job: GemmCall) -> list[npt.NDArray[Any]]:
    """The result of each repetition; the output is poisoned before each."""
    from hwkernels.gemm_call import plan_gemm

    plan = plan_gemm(
        job.a,
        job.b,
        job.c,
        job.kernel,
        alpha=job.alpha,
        beta=job.beta,
        out_format=job.out_format,
        tuning=job.tuning,
    )
    results = []
    for _ in range(job.repeat):
        plan.output.fill(0xA5)
        plan(0)
        call("cuCtxSynchronize")
        results.append(np.asarray(plan.output.get()))
    return results


def open_executor(ordinal: int) -> Callable[[Any], list[npt.NDArray[Any]]]:
    """Open GPU `ordinal` for the life of this process. Raises DriverUnavailable or CudaError."""
    from hwkernels.stream_launch import make_current

    make_current(ordinal)
    return run_call
