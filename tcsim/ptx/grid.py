"""A grid of blocks: run one after the other until all have ended, a fault stops them, or a limit is reached."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import product
from types import TracebackType
from typing import Any

import numpy as np

from tcsim.ptx.geometry import Geometry
from tcsim.ptx.hazards import Hazard
from tcsim.ptx.limits import Limits
from tcsim.ptx.machine import Block
from tcsim.ptx.memory import Memory, Segment
from tcsim.ptx.program import SOURCE_NAME, Compiled
from tcsim.ptx.syntax import Instruction
from tcsim.ptx.threads import Stop

_STEPS = 64  # of a block between two looks at the clock


@dataclass(frozen=True)
class Launch:
    """A launch that was checked: all that the machine has to know."""

    program: Compiled
    memory: Memory
    params: Segment
    shape: Geometry
    arch: str
    schedule: str | int  # "late", "early" or a seed
    check: bool
    limits: Limits


class Grid:
    """The blocks of a launch, and what became of them."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.instructions = 0
        self.hazards: list[Hazard] = []
        self.inexact: Counter[str] = Counter()
        self.output: list[str] = []
        self.began = time.monotonic()

    def run(self) -> bool:
        """Run every block; whether all of them ended."""
        gx, gy, gz = self.launch.shape.grid
        with np.errstate(all="ignore"):
            return all(self._block((x, y, z)) for z, y, x in product(range(gz), range(gy), range(gx)))

    def _block(self, index: tuple[int, int, int]) -> bool:
        launch = self.launch
        shape = launch.shape
        block = Block(launch.program, launch.memory, launch.params, shape.grid, shape.block, index, shape.dynamic_smem)
        block.early = launch.schedule == "early"
        steps = 0
        try:
            while block.step():
                steps += 1
                if self.instructions + block.count > launch.limits.instructions:
                    raise Stop("LIMIT", f"more than {launch.limits.instructions} instructions", limit="instructions")
                if steps % _STEPS == 0 and time.monotonic() - self.began > launch.limits.seconds:
                    raise Stop("LIMIT", f"more than {launch.limits.seconds} seconds", limit="seconds")
        except Stop as stop:
            self.hazards.append(hazard_of(stop, launch.program, index))
            return False
        finally:
            self.instructions += block.count
            self.inexact.update(block.inexact)
        if not block.done:
            self.hazards.append(Hazard("DEADLOCK", "threads wait at a barrier that cannot complete", block=index))
            return False
        return True


def hazard_of(stop: Stop, program: Compiled, block: tuple[int, int, int]) -> Hazard:
    """What stopped a block as a hazard, at the instruction that was executed."""
    line, source = stop.line, None
    item = _instruction(stop.__traceback__, program)
    if item is not None and line in (None, item.line):
        line, source = item.line, str(item.source) if item.source else None
    detail: dict[str, Any] = dict(stop.more)
    return Hazard(stop.name, stop.detail, line, None, source, None, block, stop.thread, detail)


def _instruction(trace: TracebackType | None, program: Compiled) -> Instruction | None:
    """The instruction whose generated line raised."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == SOURCE_NAME and code.co_name[1:].isdigit():
            found = program.instruction_at(int(code.co_name[1:]), trace.tb_lineno - code.co_firstlineno)
        trace = trace.tb_next
    return found
