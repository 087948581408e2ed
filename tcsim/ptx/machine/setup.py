"""What all blocks of a launch have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.machine.ledger import Sums
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Memory, Segment
from tcsim.ptx.machine.pending import Schedule


@dataclass(frozen=True)
class Setup:
    """A launch, to its blocks."""

    program: Compiled
    memory: Memory
    params: Segment
    grid: Sequence[int]
    block: Sequence[int]
    cluster: tuple[int, int, int]
    dynamic_smem: int
    arch: str
    schedule: Schedule = "late"
    limits: Limits = field(default_factory=Limits)
    sums: Sums = field(default_factory=Sums)  # floating-point sums in memory
    environment: Mapping[str, int] = field(default_factory=dict)  # special registers that the driver sets

    @property
    def shared_bytes(self) -> int:
        """Of a block: static and dynamic shared memory."""
        return self.program.shared_bytes + self.dynamic_smem
