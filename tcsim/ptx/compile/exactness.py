"""What has bits that are not known when a kernel is compiled: special registers of the machine, functions that were not measured."""

from __future__ import annotations

from tcsim.arithmetic import mufu
from tcsim.isa.scalar.table import Scalar

VARYING = frozenset(
    (
        "clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", "smid", "nsmid", "warpid", "nwarpid", "gridid",
        *(f"pm{index}" for index in range(8)), *(f"pm{index}_64" for index in range(8)),
        *(f"envreg{index}" for index in range(32) if index not in (1, 2)),
    )
)  # fmt: skip
"""Special registers whose values are the machine's own: time, where a block runs, what the driver put there.

%envreg1 and %envreg2 are no more so than other addresses: they point to the workspace of a cooperative launch."""


def unmeasured(found: Scalar, arch: str) -> bool:
    """Whether a scalar instruction is a function of the MUFU on an arch whose MUFU was not measured."""
    return found.inexact and arch not in mufu.MEASURED
