"""A GEMM as data, for a process that may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from hwkernels.gemm.call import plan_gemm

if TYPE_CHECKING:
    from hwkernels.device.plan import Plan
    from hwkernels.gemm.tuning import Tuning


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

    def plan(self) -> Plan:
        """Raises what `plan_gemm` raises."""
        more = {"alpha": self.alpha, "beta": self.beta, "out_format": self.out_format, "tuning": self.tuning}
        return plan_gemm(self.a, self.b, self.c, self.kernel, **more)  # type: ignore[arg-type]
