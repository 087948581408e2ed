"""mbarrier objects as a launch has used them so far, and the work that their signals follow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tcsim.ptx.check.operations import Operation
from tcsim.ptx.machine.arrays import Array

_PARITY = 63  # the bit of an object that changes when a phase ends


@dataclass(frozen=True)
class Work:
    """Operations that are complete when something is signalled: one, or the first of all that a warp issued of a kind."""

    operations: list[Operation]
    count: int
    published: Array  # what who issued it, or asked for the signal, knew then
    warps: frozenset[int]  # that did


@dataclass(frozen=True)
class Pass:
    """A wait that found a phase complete."""

    clock: int  # of the warp
    moment: int  # operations issued so far
    ended: int  # phases complete
    line: int


@dataclass
class Tally:
    """What came in one phase, by the instruction that it came from."""

    expected: Counter[int] = field(default_factory=Counter)  # bytes
    delivered: Counter[int] = field(default_factory=Counter)
    arrivals: Counter[int] = field(default_factory=Counter)


@dataclass(eq=False)
class Object:
    """An mbarrier from its initialisation on."""

    key: int  # its shared address, with the rank above
    line: int
    warp: int
    when: int
    gathering: Array  # what the arrivals of the phase under way publish
    published: Array  # what those of all complete phases have
    coming: list[Work] = field(default_factory=list)
    complete: list[Work] = field(default_factory=list)
    # By warp and lanes, as bits: how much of `complete` they know.
    told: dict[tuple[int, int], int] = field(default_factory=dict)
    now: Tally = field(default_factory=Tally)  # of the phase under way
    last: Tally = field(default_factory=Tally)  # of the phase before
    ended: int = 0  # phases that are complete
    expecting: int = -1  # the last phase in which bytes were expected
    observed: int = 0  # phases of which a wait has found that they are complete
    passes: dict[int, Pass] = field(default_factory=dict)  # by warp: its last
    # By number of complete phases: the clock of each warp when it first observed that number.
    views: dict[int, dict[int, int]] = field(default_factory=dict)
    # By phase: of each warp that has arrived in it, or issued what has, its clock then.
    closing: dict[int, dict[int, int]] = field(default_factory=dict)
    arriving: set[int] = field(default_factory=set)  # warps that have ever arrived
    flying: list[Operation] = field(default_factory=list)  # copies that will tell it
    begun: dict[int, int] = field(default_factory=dict)  # by number of a copy: the phase in which its first bytes came
    fenced: bool = False  # whether a fence by its warp has made it visible to the async proxy

    def __str__(self) -> str:
        return f"the mbarrier at {self.key:#x}"

    def phase_of(self, own: Operation) -> int:
        """The phase that waits for an operation: the one under way when it was issued, or the one that expected its bytes."""
        phase = next(phase for each, phase in own.tells if each == self.key)
        return self.expecting if 0 <= self.expecting < phase and own.kind == "" else phase

    def close(self, kept: int) -> None:
        """The phase under way is complete, and the next one begins; kept: phases of which is kept who knows of them."""
        self.published = np.maximum(self.published, self.gathering)
        self.complete += self.coming
        self.coming, self.last, self.now = [], self.now, Tally()
        self.ended += 1
        for each in (self.views, self.closing):
            each.pop(self.ended - kept, None)


def flipped(before: int, after: int) -> bool:
    """Whether a phase ended between two values of an object's 64 bits."""
    return bool((before ^ after) >> _PARITY & 1)
