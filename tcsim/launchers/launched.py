"""What is said of the launches of a program: a line for each, and one for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcsim.core.errors import TcsimError
from tcsim.ptx import Run
from tcsim.ptx.kernel import sampled_of

Dim3 = tuple[int, int, int]
NAMED = 3  # instructions that are inexact, in a line


class LaunchFailed(TcsimError):
    """A launch that did not run to its end; `launched` is what is known of it. Memory is as it was left."""

    def __init__(self, launched: Launched) -> None:
        super().__init__(f"{launched.kernel} stopped: {launched.run.cause}")
        self.launched = launched


@dataclass(frozen=True)
class Launched:
    """A launch that was run: what, how long, and what became of it.

    >>> run = Run(True, [], Counter({"red.add.f32": 64}), instructions=12345, arch="sm_90", kernel="sum")
    >>> print(Launched("sum", (4, 1, 1), (128, 1, 1), (1, 1, 1), 0, run, 0.21).line())
    sum  grid 4  block 128  sm_90  12,345 instructions  0.21 s  inexact: red.add.f32 x 64
    """

    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_smem: int
    run: Run
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether it ended, without a hazard that is an error."""
        return self.run.completed and not self.run.errors

    def line(self) -> str:
        """All of it in a line."""
        shape = f"grid {extents(self.grid)}  block {extents(self.block)}"
        if self.cluster != (1, 1, 1):
            shape += f"  cluster {extents(self.cluster)}"
        parts = [
            self.kernel, shape, self.run.arch, f"{self.run.instructions:,} instructions", f"{self.seconds:.2f} s", *self.notes
        ]  # fmt: skip
        if self.run.inexact:
            named = [f"{name} x {count:,}" for name, count in self.run.inexact.most_common(NAMED)]
            more = [f"{len(self.run.inexact) - NAMED} more"] if len(self.run.inexact) > NAMED else []
            parts.append("inexact: " + ", ".join(named + more))
        if self.run.hazards:
            counts = Counter(item.name for item in self.run.hazards)
            parts.append("hazards: " + ", ".join(f"{name} x {count}" for name, count in counts.items()))
        if self.run.sampled:
            parts.append(self.run.sampled)
        return "  ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kernel": self.kernel, "grid": self.grid, "block": self.block, "cluster": self.cluster, "dynamic_smem": self.dynamic_smem,
            "arch": self.run.arch, "completed": self.run.completed, "instructions": self.run.instructions, "seconds": self.seconds,
            "inexact": dict(self.run.inexact), "hazards": [item.as_dict() for item in self.run.hazards], "notes": list(self.notes),
            **watched(self.run),
        }  # fmt: skip


def watched(run: Run) -> dict[str, Any]:
    """The key of JSON that a run has of which only some blocks were watched."""
    return {"checked": [list(own) for own in run.checked]} if run.checked else {}


def extents(shape: Sequence[int]) -> str:
    """A grid or a block as one reads it.

    >>> extents((4, 1, 1)), extents((4, 1, 2))
    ('4', '4 x 1 x 2')
    """
    kept = list(shape)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))


def summary(launches: Sequence[Launched]) -> str:
    """All launches in a line.

    >>> summary([])
    'no launches'
    """
    if not launches:
        return "no launches"
    plural = "es" if len(launches) > 1 else ""
    inexact, wrong = sum(bool(own.run.inexact) for own in launches), sum(not own.clean for own in launches)
    instructions, seconds = sum(own.run.instructions for own in launches), sum(own.seconds for own in launches)
    sampled = sampled_of(own.run for own in launches)
    said = f"{len(launches)} launch{plural}, {instructions:,} instructions, {seconds:.2f} s"
    return "; ".join(filter(None, (f"{said}; {inexact} with something inexact, {wrong} with errors", sampled)))
