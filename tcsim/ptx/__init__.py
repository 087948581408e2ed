"""PTX kernels on a CPU, with the hardware's bits: a reader, and a machine that runs a block's threads in lockstep.

`parse` a module, map its memory, `launch` a kernel; what it did wrong is in `Run.hazards`, what is not known to the bit in
`Run.inexact`. docs/kernels.md shows it in five minutes.
"""

from __future__ import annotations

from tcsim.ptx.hazards import HAZARDS, Hazard
from tcsim.ptx.launch import Kernel, Module, Run, parse
from tcsim.ptx.limits import Limits
from tcsim.ptx.memory import Memory
from tcsim.ptx.parameters import LaunchError
from tcsim.ptx.stepping.breakpoints import OnHazard, Phase
from tcsim.ptx.stepping.session import Session
from tcsim.ptx.syntax import PtxError

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
