"""Launches of a program on the model, one after the other: memory, options, what is said of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from tcsim.core.errors import OperandError, shortened
from tcsim.core.targets import accepting, nearest_known
from tcsim.inspection.three_lines import lines_of
from tcsim.launchers import recording
from tcsim.launchers.host_memory import HostMemory
from tcsim.launchers.job import with_array
from tcsim.launchers.launched import Dim3, Launched, LaunchFailed, summary
from tcsim.launchers.progress import bar
from tcsim.launchers.recording import Recording
from tcsim.ptx import Kernel, Limits, Run
from tcsim.ptx.hazards.hazard import cause_of, worst_first

MULTIPROCESSORS = {
    "sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_87": 16, "sm_89": 142, "sm_90": 132, "sm_100": 148, "sm_120": 170,
}  # fmt: skip
"""Of a T4, A100, A40, Jetson AGX Orin, L40S, H200, B200 and RTX 5090 (NVIDIA's data sheets): how many programs scripts start."""
MOST_KEPT = 1 << 30
"""Bytes of arrays before and after launches that a session keeps for witnesses."""
SHOWN = 3  # causes of hazards of a launch that are printed, the worst first; all hazards are in `Session.launches`


class Session:
    """What is common to the launches of a program.

    arch: an arch or a target. schedule, limits, check: as `tcsim.ptx.Kernel.launch` takes them. multiprocessors: what the device says it has.
    save: a folder that gets a recorded launch (`tcsim.launchers.recording`) of each. log: where a line for each launch goes, and the bar
    if it is a terminal; None: nowhere. timeline: whether `shown` is kept: the first launch that has a hazard of some block, else the first.
    witnesses: whether `kept` gets the launches with errors at lines that none before had, to be run again, up to `MOST_KEPT` bytes of arrays. races: whether races in global memory are looked for, between all blocks of a launch.
    counters: whether accesses are counted. says: whether the log gets what is wrong with each launch.

    Raises TargetError for another arch, OperandError for another number of multiprocessors.
    """

    def __init__(
        self, arch: str, schedule: str | int = "late", limits: Limits | None = None, multiprocessors: int | None = None,
        save: str | os.PathLike[str] | None = None, log: TextIO | None = sys.stderr, check: bool | str = True,
        timeline: bool = False, races: bool = False, witnesses: bool = False, counters: bool = False, says: bool = True,
    ) -> None:  # fmt: skip
        own = accepting(arch)[0]
        self.arch, self.schedule, self.limits, self.log = own.name, schedule, limits, log
        known = nearest_known(MULTIPROCESSORS, own)
        self.multiprocessors = multiprocessors if multiprocessors is not None else known[1] if known else 1
        if not isinstance(self.multiprocessors, int) or self.multiprocessors < 1:
            raise OperandError(f"multiprocessors={shortened(multiprocessors)}; valid: integers from 1")
        self.check = check
        self.save = Path(save) if save is not None else None
        self.memory = HostMemory()
        self.launches: list[Launched] = []
        self.timeline, self.races, self.witnesses, self.counters = timeline, races, witnesses, counters
        self.says = says
        self.shown: tuple[Recording, Run] | None = None
        self.kept: list[tuple[Recording, Run]] = []
        self._room = MOST_KEPT
        self._known: set[tuple[object, ...]] = set()
        self._last: Run | None = None

    def launch(
        self, kernel: Kernel, grid: Dim3, block: Dim3, cluster: Dim3, dynamic_smem: int, pointers: Sequence[Any],
        params: Callable[[], list[bytes]], scratch: Sequence[tuple[int, int]] = (), dependent: bool = False, cooperative: bool = False,
        notes: tuple[str, ...] = (),
    ) -> Launched:  # fmt: skip
        """Run a grid on the memory of this process.

        pointers: the arguments that point to memory, which the kernel then has. params: the parameters' bytes. scratch: sizes and
        alignments of memory for this launch alone, whose pointers are the last parameters. dependent: it may start before the last
        launch has ended (programmatic dependent launch). cooperative: its blocks wait for each other. notes: what else is said of it.

        Raises LaunchFailed for a launch that does not run to its end, LaunchError and OperandError for one that cannot begin.
        """
        began, memory = time.perf_counter(), self.memory
        with memory.lent(pointers, scratch) as taken, bar(kernel.name, self.log) as told:
            given = [*params(), *(own.to_bytes(8, "little") for own in taken)]
            shows = self.timeline and (self.shown is None or self.shown[1].hazard_block is None)
            recorded = shows or self.save is not None
            if recorded or self.witnesses:
                memory.keep()
            run = kernel.launch(
                memory, given, grid, block, cluster, dynamic_smem, self.arch, self.schedule, self.check, self.limits,
                after=self._last if dependent else None, progress=told, cooperative=cooperative,
                races=self.races, counters=self.counters,
            )  # fmt: skip
            run.hazards[:] = [with_array(own, memory.arrays(given)) for own in run.hazards]
            if memory.reached:
                notes += (f"{memory.reached} tensors reached through pointers in memory",)
            if recorded or (self.witnesses and run.errors):
                launch = Recording(
                    kernel.module.text.encode(), kernel.name, grid, block, tuple(given), memory.buffers(given), cluster, dynamic_smem, output=run.output,
                    arch=self.arch, launcher="tcsim", notes=("the model, not a GPU", *notes),
                    cooperative=cooperative,
                )  # fmt: skip
                if self.save is not None and run.completed:
                    self._write(launch)
                if shows and (self.shown is None or run.hazard_block is not None):
                    self.shown = launch, run
                self._keep(launch, run)
        found = Launched(kernel.name, grid, block, cluster, dynamic_smem, run, time.perf_counter() - began, notes)
        self._last = run if run.completed else None
        self.launches.append(found)
        sys.stdout.write(run.output)
        self.say(found.line())
        shown = {cause_of(item, run.text.splitlines()): item for item in reversed(worst_first(run.hazards))}
        for item in list(reversed(shown.values()))[:SHOWN] if self.says else ():
            for line in lines_of(item):
                self.say(f"  {line}")
        if not run.completed:
            raise LaunchFailed(found)
        return found

    def _keep(self, launch: Recording, run: Run) -> None:
        """Keep a launch with errors at lines that none before had, if there is room for it."""
        lines = {(run.kernel, run.text, own.line, own.other_line) for own in run.errors}
        size = sum(2 * len(own.before) for own in launch.buffers)
        if self.witnesses and size <= self._room and not lines <= self._known:
            self._known |= lines
            self._room -= size
            self.kept.append((launch, run))

    def _write(self, launch: Recording) -> None:
        assert self.save is not None
        self.save.mkdir(parents=True, exist_ok=True)
        recording.write(self.save / recording.name_of(launch, len(self.launches)), launch)

    def say(self, text: str) -> None:
        """A line to the log."""
        if self.log is not None:
            self.log.write(f"tcsim: {text}\n")
            self.log.flush()

    def summary(self) -> str:
        """All launches in a line."""
        return summary(self.launches)
