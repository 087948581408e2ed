"""What others may see of the machine: a block of threads as observers and work in flight look at it, and a cluster as its blocks do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tcsim.isa.setmaxnreg import RegisterPool
from tcsim.model.effects import Access, Outcome
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.fibers import Fibers
from tcsim.ptx.machine.tensor_memory import Columns
from tcsim.ptx.text.syntax import Instruction


class ClusterView(Protocol):
    """A cluster, to its blocks."""

    phase: int  # of the cluster's barrier
    fair: bool  # whether every fiber gets a turn: when spinning is looked for
    running: Any  # the block that a fault stopped
    asking: set[int]  # ranks that wait for their pair to take columns of Tensor Memory too
    granted: dict[int, int]  # by rank: columns that its pair took with it
    turns: int  # of loops that may wait, since pending work went on
    others: bool  # whether the grid has more clusters
    cancel: Callable[[], tuple[int, int, int] | None]  # the first block of a cluster that will not start now
    arch: str

    @property
    def blocks(self) -> Sequence[Any]:
        """Its blocks, by rank."""
        ...

    def settle(self) -> None:
        """End the phase of the cluster's barrier if every thread that lives has arrived."""
        ...

    def wake(self, kind: str, address: int | None = None) -> None:
        """Let threads ask again that wait for a resource, or for an mbarrier."""
        ...


class ThreadsView(Protocol):
    """A block, as the threads that execute it, to those who watch it."""

    here: Instruction | None  # the instruction that is executed
    rank: int  # in its cluster
    index: tuple[int, int, int]  # in the grid
    launched: int  # threads of the launch
    threads: int  # with those that fill the last warp and never execute
    warps: int
    shared_bytes: int


class EffectsView(ThreadsView, Protocol):
    """A block, as what performs instructions of the catalog."""

    arch: str
    columns: Columns  # of Tensor Memory
    program: Compiled

    @property
    def cluster(self) -> ClusterView:
        """Its cluster."""
        ...

    @property
    def blocks(self) -> Sequence[ThreadsView]:
        """The blocks of its cluster, by rank."""
        ...

    def is_space(self, address: Array, space: str) -> Array:
        """Whether generic addresses lie in a state space."""
        ...

    def places(self, access: Access) -> tuple[Array, Array | None]:
        """The addresses of an access, flat, with the rank of the CTA above those in shared memory; the CTAs of Tensor Memory."""
        ...

    def copies(self, at: Access) -> list[Access]:
        """An access, or one in each CTA of the cluster where it is for all of them."""
        ...

    def word(self, address: int) -> int:
        """The 64 bits at an address of shared memory."""
        ...

    def keys(self, at: Access) -> Array:
        """The addresses of mbarriers in shared memory of the cluster."""
        ...

    def committed(self, kind: str) -> Array:
        """Of each thread: how many groups of a kind it has committed."""
        ...


class Issuer(EffectsView, Protocol):
    """A block, to the work that its threads have issued."""

    chains: bool  # whether work that is a chain may be finished in one go

    def holding(self, flight: Any) -> Any:
        """The machine as work in flight sees it."""
        ...

    def finished(self, flight: Any, outcome: Outcome) -> None:
        """What work in flight comes to."""
        ...

    def take_outcome(self, outcome: Outcome, threads: Array) -> None:
        """Writes and signals."""
        ...


class BlockView(EffectsView, Protocol):
    """A block, as threads that wait for each other."""

    fibers: Fibers
    alive: Array  # threads that have not exited
    counts: dict[int, int]  # of each named barrier in use: threads that it is for
    cluster_phase: Array  # phases of the cluster's barrier that threads arrived in
    pool: RegisterPool | None  # of setmaxnreg
