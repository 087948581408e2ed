"""`python -m tests.kernels.corpora.replay [PATTERN ...]`: every recorded launch on the CPU, byte for byte.

Prints the kernel, its target, the instructions that ran, the bytes compared, those that differ, and the seconds.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tcsim.launchers.job import Execution, execute
from tcsim.launchers.recording import Recording, from_fields, read
from tcsim.ptx import Limits, Run
from tests.kernels.corpora import recording

ARCH = "sm_90"  # of the GPU that recorded, whatever the target was
DEFECTS = {
    "cuda_async_arrive_sm_90a": {"MBAR_PHASE_ALIAS"},
    "cuda_early_exit_sm_80": {"SMEM_RACE_WAR"},
    "cuda_early_exit_sm_90a": {"SMEM_RACE_WAR"},
}
"""Recorded launches whose kernel has a defect that was found afterwards, with its hazards. early_exit: the third warp reads what the
first two add to, and no barrier is between; on the H200 it was always in time. async_arrive: nothing orders the second warp's wait for the first
phase before the first warp ends the second one."""


@dataclass
class Replayed:
    """A recorded launch that ran on the CPU."""

    execution: Execution

    @property
    def run(self) -> Run:
        """What the launch did."""
        return self.execution.run

    @property
    def compared(self) -> int:
        """Bytes."""
        return sum(own.compared for own in self.execution.comparisons)

    @property
    def differing(self) -> int:
        """Bytes."""
        return sum(own.differing for own in self.execution.comparisons)

    @property
    def printed(self) -> bool:
        """Whether what printf wrote is what the GPU printed."""
        return self.execution.printed is not False

    @property
    def equal(self) -> bool:
        """Whether it ended and left every byte as the GPU did."""
        return self.run.completed and self.printed and self.compared > 0 and not self.differing

    @property
    def errors(self) -> set[str]:
        """The hazards that are errors, by name."""
        return {own.name for own in self.run.errors}


def launches() -> Iterator[tuple[str, Recording]]:
    """Every recorded launch: those that were given, those of the cases, and those through each launcher."""
    for path in sorted(recording.GIVEN.glob("*.npz")):
        yield path.stem, read(path)
    for path in (recording.KEPT, recording.WIDE, recording.LAUNCHERS):
        for name, fields in recording.read(path).items():
            yield name, from_fields(fields, name)


def replayed(
    own: Recording,
    schedule: str | int = "late",
    limits: Limits | None = None,
    origins: bool = False,
    races: bool = False,
) -> Replayed:
    """Run a recorded launch. Raises what the executor raises for PTX that it does not know."""
    return Replayed(execute(replace(own.job(ARCH, schedule, limits), origins=origins, races=races)))


def main(arguments: list[str]) -> int:
    """Replay the chosen launches; the exit status says whether one is not equal."""
    rows, failed, start = [], 0, time.perf_counter()
    print(
        "| kernel | target | instructions | bytes compared | differing | s |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for name, launch in launches():
        if arguments and not any(re.search(pattern, name) for pattern in arguments):
            continue
        try:
            own = replayed(launch)
        except ValueError as error:  # PTX that is not known: the others are still run
            failed += 1
            print(f"| {name} | | | | | {type(error).__name__}: {str(error)[:200]} |", flush=True)
            continue
        rows.append(own)
        failed += not own.equal or own.errors != DEFECTS.get(name, set())
        print(
            f"| {name} | {own.execution.target} | {own.run.instructions:,} | {own.compared:,} | {own.differing:,} | {own.execution.seconds:.2f} |",
            flush=True,
        )
        for hazard in own.run.hazards[:2]:
            print(f"    {hazard.name} line {hazard.line}: {hazard.message[:200]}")
        if own.run.inexact:
            print(f"    inexact: {dict(own.run.inexact)}")
        if not own.printed:
            print(f"    printed: {own.run.output!r}")
    instructions, compared = sum(own.run.instructions for own in rows), sum(own.compared for own in rows)
    print(
        f"{len(rows)} launches, {instructions:,} instructions, {compared:,} bytes compared, {sum(own.differing for own in rows):,} differing"
    )
    print(
        f"{failed} not as expected, {sum(bool(own.run.inexact) for own in rows)} with something inexact, {time.perf_counter() - start:.1f} s"
    )
    return int(failed > 0 or not rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
