"""PTX kernels on a CPU, with the hardware's bits: a reader, and a machine that runs a block's threads in lockstep.

`parse` a module, map its memory, `launch` a kernel; what it did wrong is in `Run.hazards`, what is not known to the bit in
`Run.inexact`. docs/kernels.md shows it in five minutes.
"""

from __future__ import annotations

from tcsim.ptx.hazards.hazard import HAZARDS, Hazard
from tcsim.ptx.kernel import Kernel, Module, Run, parse
from tcsim.ptx.launch.parameters import LaunchError
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Memory
from tcsim.ptx.stepping.breakpoints import OnHazard, Phase
from tcsim.ptx.stepping.session import Session
from tcsim.ptx.text.syntax import PtxError

__all__ = [
    "HAZARDS",
    "Hazard",
    "Kernel",
    "LaunchError",
    "Limits",
    "Memory",
    "Module",
    "OnHazard",
    "Phase",
    "PtxError",
    "Run",
    "Session",
    "parse",
]
