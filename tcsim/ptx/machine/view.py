"""What the parts of a block may see of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class ClusterView(Protocol):
    """A cluster, to its blocks."""

    phase: Any  # of the cluster's barrier; in a batch of each
    fair: Any  # whether every fiber gets a turn: when spinning is looked for
    running: Any  # the block that a fault stopped
    asking: set[
        tuple[int, int]
    ]  # block of the batch and rank: those that wait for their pair to take columns of Tensor Memory too
    granted: dict[tuple[int, int], int]  # by block of the batch and rank: columns that its pair took with it
    turns: Any  # of loops that may wait, since pending work went on
    others: bool  # whether the grid has more clusters
    cancel: Callable[[], tuple[int, int, int] | None]  # the first block of a cluster that will not start now
    arch: str
    observers: Any

    @property
    def blocks(self) -> Sequence[Any]:
        """Its blocks, by rank."""
        ...

    def settle(self) -> None:
        """End the phase of the cluster's barrier if every thread that lives has arrived."""
        ...

    def wake(self, kind: str, address: int | None = None, block: int | list[int] = 0) -> None:
        """Let threads ask again that wait for a resource, or for an mbarrier. block: of a batch."""
        ...
