"""How much a launch may take: limits that the caller sets, and those of each arch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType

from tcsim.core.errors import OperandError, shortened
from tcsim.core.targets import ARCHS, Arch, nearest_known

MOST_BATCHED = 230
"""Blocks of one rank in a batch: each has a mark of one byte (`tcsim.ptx.machine.independence`), where reductions and several readers have some too."""


@dataclass(frozen=True)
class Limits:
    """What a launch may take before it ends with the hazard LIMIT, and what `parse` takes before it raises PtxError.

    Every limit but `seconds` is reached at the same place on every machine. Raises OperandError for a limit that is not positive.

    >>> Limits(instructions=1000).seconds
    600.0
    """

    instructions: int = (
        200_000_000  # PTX instructions, each counted once for the threads of a block that execute it together
    )
    seconds: float = 600.0
    memory: int = 4 << 30  # bytes of a module's variables, and of the blocks that run at once with their registers
    output: int = 1 << 20  # bytes that vprintf may write
    stack: int = 64 << 10  # bytes of a thread, for calls of functions that call themselves, and for alloca
    heap: int = 8 << 20  # bytes that malloc gives out, as by default on a GPU
    characters: int = 64 << 20  # of a module's text
    nesting: int = 64  # blocks in braces that stand in each other
    # Blocks that may run as one batch, at most as many as by default; the results are the same (tcsim.ptx.machine.batch).
    batch: int = MOST_BATCHED
    # That may run a grid, at most 64; 0: one, and of a grid that takes long one for each processor; the results are the same
    # (tcsim.ptx.launch.processes).
    processes: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            kinds = (int, float) if item.name == "seconds" else (int,)
            automatic = item.name == "processes" and type(value) is int and value == 0
            if isinstance(value, bool) or not isinstance(value, kinds) or not (value > 0 or automatic):
                wanted = "numbers" if item.name == "seconds" else "integers"
                raise OperandError(f"Limits: {item.name}={shortened(value)}; valid: {wanted} above 0")


@dataclass(frozen=True)
class Capacity:
    """What one block or cluster of an arch can have."""

    shared_kib: int  # of a block, static and dynamic, after the opt-in
    clusters: int  # blocks of a cluster; 8 are portable, more need the non-portable attribute; 1: no clusters


STATIC_SHARED = 48 << 10
"""Bytes of static shared memory: ptxas refuses more on every arch."""
LOCAL_BYTES = 512 << 10
"""Bytes of local memory of a thread (CUDA C++ Programming Guide 13, Technical Specifications per Compute Capability)."""
PARAM_BYTES = 32764
"""Bytes of a kernel's parameters since sm_70 and PTX 8.1 (PTX ISA, Kernel Function Parameters); 4352 before 8.1."""
THREADS, BLOCK, GRID = 1024, (1024, 1024, 64), (2**31 - 1, 65535, 65535)

_CAPACITIES = {
    "sm_70": Capacity(96, 1), "sm_72": Capacity(96, 1), "sm_75": Capacity(64, 1),
    "sm_80": Capacity(163, 1), "sm_86": Capacity(99, 1), "sm_87": Capacity(163, 1), "sm_89": Capacity(99, 1),
    "sm_90": Capacity(227, 16), "sm_100": Capacity(227, 16), "sm_110": Capacity(227, 16), "sm_120": Capacity(99, 8),
}  # fmt: skip
"""Source: CUDA C++ Programming Guide 13, Technical Specifications per Compute Capability, and Thread Block Clusters.

An arch that is not here has what its relative has. That sm_12x takes clusters of 8, the portable size, is inferred.
"""
CAPACITIES = MappingProxyType(_CAPACITIES)


def capacity(arch: str) -> Capacity:
    """What a block or cluster of an arch can have.

    >>> capacity("sm_103").shared_kib, capacity("sm_80").clusters
    (227, 1)
    """
    return _of(ARCHS[arch])


def _of(arch: Arch) -> Capacity:
    found = nearest_known(CAPACITIES, arch)
    return found[1] if found else Capacity(48, 1)
