"""PTX kernels on a CPU, with the hardware's bits: a reader, and a machine that runs a block's threads in lockstep.

Being built: single blocks and grids with ordinary PTX, mma.sync, ldmatrix, cp.async and wgmma run; clusters, mbarriers, tensor
copies, tcgen05 and calls do not yet, and say so.
"""

from __future__ import annotations

from tcsim.ptx.hazards import HAZARDS, Hazard
from tcsim.ptx.launch import Kernel, Module, Run, parse
from tcsim.ptx.limits import Limits
from tcsim.ptx.memory import Memory
from tcsim.ptx.parameters import LaunchError
from tcsim.ptx.syntax import PtxError

__all__ = ["HAZARDS", "Hazard", "Kernel", "LaunchError", "Limits", "Memory", "Module", "PtxError", "Run", "parse"]
