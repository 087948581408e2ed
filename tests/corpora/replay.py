"""`python -m tests.corpora.replay [PATTERN ...]`: every recorded launch on the CPU, byte for byte.

Prints the kernel, its target, the instructions that ran, the bytes compared, those that differ, and the seconds.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tcsim.ptx import Memory, Run, parse
from tests.corpora import recording
from tests.corpora.recording import Fields

ARCH = "sm_90"  # of the GPU that recorded, whatever the target was


@dataclass
class Replayed:
    """A recorded launch that ran on the CPU."""

    run: Run
    target: str
    compared: int
    differing: int
    printed: bool  # what printf wrote is what the GPU printed
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether it ended without a hazard and left every byte as the GPU did."""
        own = self.run.completed and not self.differing and self.compared > 0 and self.printed
        return bool(own and not self.run.hazards)


def launches() -> Iterator[tuple[str, Fields]]:
    """Every recorded launch: those that were given, then those of the cases."""
    for path in sorted(recording.GIVEN.glob("*.npz")):
        yield path.stem, recording.read_given(path)
    yield from recording.read().items()


def replayed(fields: Fields, schedule: str | int = "late", **options: Any) -> Replayed:
    """Run a recorded launch. Raises what the executor raises for PTX that it does not know."""
    start = time.perf_counter()
    memory, buffers = Memory(), recording.buffers(fields)
    for address, before, _ in buffers:
        memory.map(address, before)
    module = parse(fields["ptx"].tobytes())
    arguments = {
        "params": recording.params(fields), "grid": fields["grid"], "block": fields["block"], "cluster": fields["cluster"],
        "dynamic_smem": fields["smem"], "arch": ARCH, "schedule": schedule,
    }  # fmt: skip
    run = None
    for name in filter(None, (fields.get("before_entry"), fields["entry"])):
        after = {"after": run} if run is not None else {}
        run = module.kernel(str(name)).launch(memory, **arguments, **options, **after)
    assert run is not None
    compared = sum(len(after) for _, _, after in buffers)
    differing = sum(int((memory.read(address, len(after)) != after).sum()) for address, _, after in buffers)
    printed = run.output == fields.get("output", "")
    return Replayed(
        run, module.kernel(str(fields["entry"])).target, compared, differing, printed, time.perf_counter() - start
    )


def main(arguments: list[str]) -> int:
    """Replay the chosen launches; the exit status says whether one is not equal."""
    rows, failed, start = [], 0, time.perf_counter()
    print(
        "| kernel | target | instructions | bytes compared | differing | s |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for name, fields in launches():
        if arguments and not any(re.search(pattern, name) for pattern in arguments):
            continue
        try:
            own = replayed(fields)
        except ValueError as error:  # PTX that is not known: the others are still run
            failed += 1
            print(f"| {name} | | | | | {type(error).__name__}: {str(error)[:200]} |", flush=True)
            continue
        rows.append(own)
        failed += not own.equal
        print(
            f"| {name} | {own.target} | {own.run.instructions:,} | {own.compared:,} | {own.differing:,} | {own.seconds:.2f} |",
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
        f"{failed} not equal, {sum(bool(own.run.inexact) for own in rows)} with something inexact, {time.perf_counter() - start:.1f} s"
    )
    return int(failed > 0 or not rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
