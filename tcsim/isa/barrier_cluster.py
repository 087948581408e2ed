"""barrier.cluster: the barrier of a cluster, which warps have arrived, when a phase ends, and what .arrive and .wait do to it.

Sources: PTX ISA, section barrier.cluster; ptxas 13.5.37 (targets, versions, SASS). The order of memory accesses is said in
words (`orders`), not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array, BarrierOp, Effects, Memories, Order, Semantics, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row, present


class ClusterBarrierError(OperandError):
    """A use of the cluster's barrier that the manual forbids, or that waits for itself."""


class ClusterBarrier:
    """The barrier that every cluster has, warp by warp: a warp's threads arrive and wait together.

    A phase ends when every warp that has not exited has arrived; the next one begins at once.

    Raises ClusterBarrierError for a cluster without warps.

    >>> barrier = ClusterBarrier([1, 1])  # two blocks of one warp
    >>> barrier.arrive(0, 0)
    >>> barrier.wait(0, 0)
    False
    >>> barrier.arrive(1, 0)
    >>> barrier.wait(0, 0), barrier.phase
    (True, 1)
    """

    def __init__(self, warps: Sequence[int]) -> None:
        """warps: how many each block of the cluster has, by %cluster_ctarank."""
        if not warps or min(warps) < 1:
            raise ClusterBarrierError(f"ClusterBarrier({list(warps)}): valid: a block or more, each of a warp or more")
        self._phase = 0
        # the phase that each warp arrived in last; -1 before its first arrival, None once it has exited
        self._arrived: list[list[int | None]] = [[-1] * number for number in warps]

    def __repr__(self) -> str:
        return f"ClusterBarrier(phase={self._phase}, pending={self.pending} of {self.expected})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterBarrier) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> ClusterBarrier:
        """A barrier in the same state, which changes on its own."""
        return deepcopy(self)

    @property
    def phase(self) -> int:
        """Phases completed since the cluster was launched."""
        return self._phase

    @property
    def expected(self) -> int:
        """Warps that have not exited."""
        return sum(last is not None for block in self._arrived for last in block)

    @property
    def pending(self) -> int:
        """Warps that the phase under way still waits for."""
        return sum(last is not None and last < self._phase for block in self._arrived for last in block)

    def arrive(self, block: int, warp: int) -> None:
        """barrier.cluster.arrive of one warp.

        Raises ClusterBarrierError if it has arrived in this phase already, has exited, or does not exist.
        """
        if self._last(block, warp, "arrive") == self._phase:
            raise ClusterBarrierError(
                f"{self!r}.arrive({block}, {warp}): this warp has arrived in phase {self._phase} already; valid: once in a "
                "phase, so wait first"
            )
        self._arrived[block][warp] = self._phase
        self._end_phase()

    def wait(self, block: int, warp: int) -> bool:
        """Whether barrier.cluster.wait of one warp is over: the phase that the warp arrived in has ended.

        Raises ClusterBarrierError if it never arrived (it would wait for itself), has exited, or does not exist.
        """
        last = self._last(block, warp, "wait")
        if last < 0:
            raise ClusterBarrierError(
                f"{self!r}.wait({block}, {warp}): this warp has not arrived and would wait for itself; valid: after its arrive"
            )
        return last < self._phase

    def exit(self, block: int, warp: int) -> None:
        """The warp's threads exit: no phase waits for them any more.

        Raises ClusterBarrierError if they have already, or the warp does not exist.
        """
        self._last(block, warp, "exit")
        self._arrived[block][warp] = None
        self._end_phase()

    def _last(self, block: int, warp: int, call: str) -> int:
        if not 0 <= block < len(self._arrived) or not 0 <= warp < len(self._arrived[block]):
            blocks = ", ".join(str(len(own)) for own in self._arrived)
            raise ClusterBarrierError(
                f"{self!r}.{call}({block}, {warp}): there is no such warp; the blocks have {blocks}"
            )
        last = self._arrived[block][warp]
        if last is None:
            raise ClusterBarrierError(f"{self!r}.{call}({block}, {warp}): this warp has exited")
        return last

    def _end_phase(self) -> None:
        if self.expected and not self.pending:
            self._phase += 1


@dataclass(frozen=True, kw_only=True)
class ClusterBarrierRow(Row):
    """A spelling of barrier.cluster; its operation is "arrive" or "wait"."""

    sem: Semantics  # of the accesses before an arrive or after a wait
    orders: str  # a sentence: which memory accesses it orders
    aligned: bool  # .aligned: all threads of the warp execute the same instruction


@dataclass(frozen=True, eq=False, repr=False)
class ClusterBarrierInstruction(Instruction):
    """barrier.cluster.arrive or barrier.cluster.wait, by one warp.

    >>> tcsim.instruction("barrier.cluster.arrive.relaxed", arch="sm_90").orders
    'nothing: a fence before it does, if anything must be seen after the wait'
    """

    row: ClusterBarrierRow

    @property
    def orders(self) -> str:
        """Which memory accesses come before which."""
        return self.row.orders

    @property
    def executed_by(self) -> tuple[str, ...]:
        """Every warp of the cluster."""
        aligned = (".aligned: all threads of a warp execute the same instruction",) if self.row.aligned else ()
        return ("each warp that has not exited, its threads together", *aligned)

    @property
    def rules(self) -> tuple[str, ...]:
        """What it orders, and in which turn."""
        return (f"orders {self.orders}", "each warp arrives once, then waits")

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """An arrival at the barrier of the cluster, or a wait for its phase to end; and which half of an order it is."""
        row = self.row
        at_barrier: Literal["wait", "arrive"] = "wait" if row.operation == "wait" else "arrive"
        orders = () if row.sem == "relaxed" else (Order("barrier.cluster", sem=row.sem, scope="cluster"),)
        return Effects(orders=orders, barriers=(BarrierOp("cluster", at_barrier),))

    def _copy(self, barrier: Any) -> ClusterBarrier:
        if not isinstance(barrier, ClusterBarrier):
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: a ClusterBarrier")
        return barrier.copy()


@dataclass(frozen=True, eq=False, repr=False)
class ClusterArrive(ClusterBarrierInstruction):
    """barrier.cluster.arrive."""

    def execute(self, barrier: ClusterBarrier, block: int, warp: int) -> ClusterBarrier:
        """The barrier after the arrival of a warp.

        Raises ClusterBarrierError as `ClusterBarrier.arrive`, OperandError for another barrier.

        >>> arrive = tcsim.instruction("barrier.cluster.arrive.aligned", arch="sm_90")
        >>> arrive.execute(ClusterBarrier([4, 4]), block=1, warp=0)
        ClusterBarrier(phase=0, pending=7 of 8)
        """
        found = self._copy(barrier)
        for at_barrier in self.effects(self.forms[0], {}, Memories({})).barriers:
            getattr(found, at_barrier.op)(block, warp)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class ClusterWait(ClusterBarrierInstruction):
    """barrier.cluster.wait."""

    def execute(self, barrier: ClusterBarrier, block: int, warp: int) -> bool:
        """Whether the warp goes on; it changes nothing.

        >>> barrier = ClusterBarrier([1, 1])
        >>> wait = tcsim.instruction("barrier.cluster.wait.aligned", arch="sm_90")
        >>> for block in (0, 1):
        ...     barrier.arrive(block, 0)
        >>> wait.execute(barrier, block=1, warp=0)
        True

        Raises ClusterBarrierError as `ClusterBarrier.wait`, OperandError for another barrier.
        """
        found = self._copy(barrier)
        (at_barrier,) = self.effects(self.forms[0], {}, Memories({})).barriers
        return bool(getattr(found, at_barrier.op)(block, warp))


NAME = "barrier.cluster"

_TARGETS = since("sm_90")
_RELEASE = "accesses before it, but asynchronous ones, before what other threads of the cluster do after their wait"
_ACQUIRE = (
    "what other threads of the cluster did before their arrive, but asynchronous accesses, before accesses after it"
)
_NOTHING = "nothing: a fence before it does, if anything must be seen after the wait"
_SPELLINGS: tuple[tuple[str, str, Semantics, str], ...] = (
    ("arrive", "", "release", _RELEASE),
    ("arrive", ".release", "release", _RELEASE),
    ("arrive", ".relaxed", "relaxed", _NOTHING),
    ("wait", "", "acquire", _ACQUIRE),
    ("wait", ".acquire", "acquire", _ACQUIRE),
)
"""Operation, how its order is spelled, and what that means."""
_OPCODES = {"arrive": "UCGABAR_ARV", "wait": "UCGABAR_WAIT"}


def rows() -> tuple[ClusterBarrierRow, ...]:
    """Every spelling of arrive and wait."""
    return tuple(
        ClusterBarrierRow(
            f"{NAME}.{operation}{order}{aligned}", NAME, arithmetic=operation, operation=operation,
            forms=(Form((), _TARGETS, "8.0" if order else "7.8", together="warp" if aligned else "thread"),),
            modifiers=present(order=order, aligned=aligned), sem=sem, orders=orders, aligned=bool(aligned), meets=False,
        )
        for (operation, order, sem, orders), aligned in product(_SPELLINGS, ("", ".aligned"))
    )  # fmt: skip


def lowering(row: ClusterBarrierRow, arch: Arch) -> Lowering:
    """One machine instruction on the barrier; releasing arrivals have MEMBAR.ALL.GPU before it, waits CCTL.IVALL after it."""
    return Lowering("native", (), ((_OPCODES[row.operation], 1),))


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section barrier.cluster")


def evidence(row: ClusterBarrierRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, {"arrive": ClusterArrive, "wait": ClusterWait})
