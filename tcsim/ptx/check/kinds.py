"""What is known of clusters from those that were watched."""

from __future__ import annotations

from typing import NamedTuple

from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.arrays import Array

Blocks = list[tuple[int, int, int]]
"""Of a cluster, by rank."""


class Trace(NamedTuple):
    """What a cluster did (`tcsim.ptx.check.traces`).

    did: a number. shown: of each box that it read where what lies in the tensor begins, and the negative of where it ends: int64.
    """

    did: int
    shown: Array


class Kinds:
    """Clusters that do the same: of all of them what was found in one of them, and nothing if that is so of one that was shown more.

    >>> kinds, whole, part = Kinds(), Trace(7, np.array([0, -64])), Trace(7, np.array([0, -60]))
    >>> kinds.learn(whole, [(0, 0, 0)], [])
    >>> kinds.known(part), kinds.known(Trace(7, np.array([-1, -64]))), kinds.known(Trace(8, whole.shown))
    (([], []), None, None)
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], tuple[Blocks, list[Hazard]]] = {}
        self._clean: dict[int, list[Array]] = {}

    def __len__(self) -> int:
        """Clusters that were watched."""
        return len(self._found)

    def copy(self) -> Kinds:
        """What is known so far."""
        made = Kinds()
        made._found = dict(self._found)
        made._clean = {did: list(own) for did, own in self._clean.items()}
        return made

    def learn(self, trace: Trace, blocks: Blocks, hazards: list[Hazard]) -> None:
        """A cluster was watched."""
        self._found[trace.did, trace.shown.tobytes()] = blocks, hazards
        if not hazards:
            self._clean.setdefault(trace.did, []).append(trace.shown)

    def known(self, trace: Trace) -> tuple[Blocks, list[Hazard]] | None:
        """What is wrong with such a cluster, and the blocks of which it is said; None if nobody knows."""
        found = self._found.get((trace.did, trace.shown.tobytes()))
        if found is None and any(
            own.size == trace.shown.size and (own <= trace.shown).all() for own in self._clean.get(trace.did, ())
        ):
            return [], []
        return found
