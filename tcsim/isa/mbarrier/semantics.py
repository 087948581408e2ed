"""What the instructions of the mbarrier family do to a barrier: `execute` on `tcsim.MBarrier`.

A barrier that goes in is never changed: an instruction that changes one returns the new one. Where PTX writes a result
too, that comes first. The order of memory accesses (`.release`, `.relaxed`, `.acquire`, scopes) is not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import spread
from tcsim.core.errors import OperandError
from tcsim.memory import mbarrier_bits
from tcsim.memory.mbarrier import BarrierState, MBarrier
from tcsim.model.effects import Access, Array, Condition, Effects, Memories, Outcome, Seen, Semantics, Signal, View
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Scope, Space
from tcsim.model.row import Row

CLUSTER_BLOCKS = 32
"""Blocks that a mask of .multicast::cluster::32b can name."""


def barrier_operand(space: Space) -> Operand:
    """The barrier in memory that an instruction acts on."""
    return Operand("barrier", "both", "address", type=".b64" if space == "generic" else ".b32", space=space)


@dataclass(frozen=True, kw_only=True)
class BarrierRow(Row):
    """A row of the family; its operation is "init", "arrive", "test_wait", ..."""

    layout: str = ""  # that init makes or check_layout asks for; empty if the spelling names none
    phase_type: str = ""  # of a wait: "primary" or "conditional", if the spelling names one
    no_complete: bool = False  # .noComplete: the arrival must not end the phase

    @property
    def space(self) -> Space:
        """The state space of the barrier; empty if it acts on a state alone."""
        return self.forms[0]["barrier"].space if self.has("barrier") else ""

    @property
    def sem(self) -> Semantics:
        """How it orders other accesses: as it says, else an arrival releases, a test acquires, and the rest is relaxed."""
        named = self.modifiers.get("order", "").removeprefix(".")
        default = "release" if self.arrives else "acquire" if self.waits else "relaxed"
        return cast(Semantics, named or default)

    @property
    def scope(self) -> Scope:
        """For whom."""
        return cast(Scope, self.modifiers.get("scope", "").removeprefix(".") or "cta")

    @property
    def names_layouts(self) -> bool:
        """Whether the spelling names a layout, or a type of phase, which only one layout has."""
        return bool(self.layout or self.phase_type)

    @property
    def arrives(self) -> bool:
        """Whether it is an arrival, dropped or not."""
        return self.operation in ("arrive", "arrive_drop")

    @property
    def waits(self) -> bool:
        """Whether it tests a phase."""
        return self.operation in ("test_wait", "try_wait")


def signalled(barrier: Any, outcomes: Iterable[Outcome], call: str) -> MBarrier:
    """A copy of a barrier after the signals of some outcomes, one after the other.

    Raises OperandError if it is not a barrier, BarrierError as its methods do.
    """
    found = _copied(barrier, call)
    for signal in (signal for outcome in outcomes for signal in outcome.signals):
        for count in signal.count.ravel().tolist():
            _tell(found, signal, count)
    return found


def _tell(barrier: MBarrier, signal: Signal, count: int) -> None:
    if signal.kind == "inval":
        barrier.inval()
    elif signal.kind in ("arrive", "drop"):
        (barrier.arrive if signal.kind == "arrive" else barrier.arrive_drop)(count, signal.no_complete)
    else:
        getattr(barrier, signal.kind)(count)


def _copied(barrier: Any, call: str) -> MBarrier:
    if not isinstance(barrier, MBarrier):
        raise OperandError(f"{call}: barrier is a {type(barrier).__name__}; valid: an MBarrier")
    return barrier.copy()


def _space(form: Form) -> Space:
    """Of accesses to the barrier: "shared" for all windows of shared memory."""
    return "shared" if form["barrier"].space.startswith("shared") else form["barrier"].space


STATE = np.uint64(0xFFFF_FFFF_0000_0000)
"""What an arrive returns of the object as it was: the high word (`tcsim.memory.mbarrier_bits`)."""


@dataclass(frozen=True, eq=False, repr=False)
class BarrierInstruction(Instruction):
    """An instruction on one barrier in shared memory."""

    row: BarrierRow

    def _at(self, form: Form, operands: Mapping[str, Array]) -> tuple[Access, npt.NDArray[np.intp]]:
        """The barriers of the lanes, of a multicast in every CTA of the mask; and whose each is.

        What the lanes of a warp say of one barrier in one instruction is for whoever has the memories to add up.
        """
        addresses = operands["barrier"].astype(np.int64)
        lanes, ranks = np.arange(len(addresses)), None
        if "cta_mask" in form:
            masks = np.broadcast_to(operands["cta_mask"], lanes.shape).astype(np.int64)
            if (masks == 0).any():
                raise OperandError(f"{self._call}: cta_mask=0x0; valid: 0x1 to {(1 << CLUSTER_BLOCKS) - 1:#x}")
            lanes, ranks = np.nonzero(masks[:, None] >> np.arange(CLUSTER_BLOCKS) & 1)
        row = self.row
        return Access(_space(form), addresses[lanes], 8, cta=ranks, thread=lanes, sem=row.sem, scope=row.scope), lanes

    def _bits(self, form: Form, operands: Mapping[str, Array], view: View) -> tuple[Access, npt.NDArray[np.uint64]]:
        """The barriers of the lanes, and the 64 bits of each as they are."""
        at = Access(_space(form), operands["barrier"].astype(np.int64), 8, sem=self.row.sem, scope=self.row.scope)
        return at, np.ascontiguousarray(view.read(at)).view("<u8")[..., 0]

    def _require(self, what: str, name: str) -> None:
        """Raise OperandError unless some form takes the operand."""
        if any(name in form.sources for form in self.forms):
            return
        elsewhere = [form for form in self.row.forms if name in form.sources]
        where = f" on {self.arch.name}" if elsewhere else ""
        hint = "; valid: the spelling with .noComplete" if elsewhere and name == "count" else ""
        raise OperandError(f"{self._call}: {what}: this instruction takes no {name}{where}{hint}")

    def _missing(self, name: str) -> OperandError:
        return OperandError(f"{self._call}: {name} is missing; valid: {self._operand_lists()}")

    def _operand_lists(self) -> str:
        return " or ".join(f"({', '.join(form.sources)})" for form in self.forms)

    def _told(self, barrier: Any, cta_mask: int | None, **numbers: int | None) -> Any:
        """The new barrier; of a multicast, the new barriers of the cluster's blocks in the order of their ranks."""
        given = {name: np.array([number]) for name, number in numbers.items() if number is not None}
        form = self._silent_form(given)
        operands = {"barrier": np.zeros(1, np.int64), **given}
        if not self.row.has("cta_mask"):
            if cta_mask is not None:
                self._require(f"cta_mask={cta_mask}", "cta_mask")
            return signalled(barrier, (self.effects(form, operands, Memories({})).now,), self._call)
        if cta_mask is None:
            raise self._missing("cta_mask")
        if not isinstance(barrier, Sequence):
            raise OperandError(
                f"{self._call}: barrier is a {type(barrier).__name__}; valid: a list of MBarrier, the one of each block of the "
                "cluster in the order of %cluster_ctarank"
            )
        if not 0 < cta_mask < 1 << min(len(barrier), CLUSTER_BLOCKS):
            raise OperandError(
                f"{self._call}: cta_mask={cta_mask:#x}: the cluster has {len(barrier)} blocks; valid: masks of 1 to "
                f"{(1 << min(len(barrier), CLUSTER_BLOCKS)) - 1:#x}"
            )
        operands["cta_mask"] = np.array([cta_mask])
        (told, *rest) = self.effects(form, operands, Memories({})).now.signals
        found = [_copied(item, self._call) for item in barrier]
        for signal in (told, *rest):
            ctas = () if signal.at.cta is None else signal.at.cta
            for rank, count in zip(ctas, signal.count.tolist(), strict=True):
                _tell(found[rank], signal, count)
        return found

    def _silent_form(self, given: Mapping[str, Array]) -> Form:
        """The list of operands with these numbers that returns no state, so that nothing of the barrier is read."""
        forms = [form for form in self.row.forms if "state" not in form.results]
        return next((form for form in forms if given.keys() <= set(form.sources)), forms[0])


@dataclass(frozen=True, eq=False, repr=False)
class InitBarrier(BarrierInstruction):
    """mbarrier.init."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A barrier is made at each lane's address. Raises BarrierError for a count that the layout does not hold."""
        at = Access(_space(form), operands["barrier"].astype(np.int64), 8)
        counts = spread(operands["count"], at.address.shape).astype(np.int64)
        for count in np.unique(counts).tolist():
            self.execute(count)
        return Effects(Outcome(signals=(Signal("init", at, counts, layout=self.row.layout or "v0"),)))

    def execute(self, count: int) -> MBarrier:
        """A new barrier that expects `count` arrivals.

        Raises BarrierError for a count that the layout does not hold.

        >>> tcsim.instruction("mbarrier.init.shared.b64", arch="sm_90").execute(count=128)
        MBarrier(phase=0, pending=128 of 128, tx_count=0)
        """
        return MBarrier(count, self.row.layout or "v0")


@dataclass(frozen=True, eq=False, repr=False)
class InvalidateBarrier(BarrierInstruction):
    """mbarrier.inval."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The barrier at each lane's address is one no longer."""
        at = Access(_space(form), operands["barrier"].astype(np.int64), 8)
        return Effects(Outcome(signals=(Signal("inval", at, np.ones(at.address.shape, np.int64)),)))

    def execute(self, barrier: MBarrier) -> MBarrier:
        """The barrier, invalidated: any use of it is an error.

        Raises BarrierError if it is already.

        >>> inval = tcsim.instruction("mbarrier.inval.b64", arch="sm_90")
        >>> dead = inval.execute(barrier=tcsim.MBarrier(1))
        """
        operands = {"barrier": np.zeros(1, np.int64)}
        return signalled(barrier, (self.effects(self.forms[0], operands, Memories({})).now,), self._call)


@dataclass(frozen=True, eq=False, repr=False)
class CheckLayout(BarrierInstruction):
    """mbarrier.check_layout."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The predicate of each lane: bit 0 of the object."""
        at, bits = self._bits(form, operands, view)
        matches = (bits & np.uint64(1)).astype(bool) == (self.row.layout == "v1")
        return Effects(Outcome({"matches": matches}), reads=(at,))

    def execute(self, barrier: MBarrier) -> bool:
        """Whether the barrier has the layout that the spelling names.

        Raises BarrierError for one that was invalidated.

        >>> check = tcsim.instruction("mbarrier.check_layout.layout::v1.shared::cta.b64", arch="sm_90")
        >>> check.execute(barrier=tcsim.MBarrier(1)), check.execute(barrier=tcsim.MBarrier(1, layout="v1"))
        (False, True)
        """
        found = _copied(barrier, self._call)
        found.inval()  # of the copy: it raises if the barrier is invalid
        return found.layout == self.row.layout


@dataclass(frozen=True, eq=False, repr=False)
class CountTransactions(BarrierInstruction):
    """mbarrier.expect_tx and mbarrier.complete_tx."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Each lane's barrier gets its bytes. Raises OperandError for a mask that names no CTA."""
        at, lanes = self._at(form, operands)
        sizes = spread(operands["tx_count"], operands["barrier"].shape).astype(np.int64)
        kind: Literal["expect_tx", "complete_tx"] = "expect_tx" if self.row.operation == "expect_tx" else "complete_tx"
        return Effects(Outcome(signals=(Signal(kind, at, sizes[lanes]),)))

    def execute(self, barrier: Any, tx_count: int, cta_mask: int | None = None) -> Any:
        """The barrier after `tx_count` bytes more are expected, or complete.

        With .multicast, `barrier` is a list with the barrier of each block of the cluster, and `cta_mask` says in which of
        them; a list comes back.

        Raises BarrierError as `MBarrier.expect_tx` and `MBarrier.complete_tx` do, OperandError for other operands.

        >>> complete = tcsim.instruction("mbarrier.complete_tx.shared::cta.b64", arch="sm_90")
        >>> complete.execute(barrier=tcsim.MBarrier(1), tx_count=64)
        MBarrier(phase=0, pending=1 of 1, tx_count=-64)
        """
        return self._told(barrier, cta_mask, tx_count=tx_count)


@dataclass(frozen=True, eq=False, repr=False)
class ArriveBarrier(BarrierInstruction):
    """mbarrier.arrive and mbarrier.arrive_drop, with .expect_tx or .noComplete."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Each lane's barrier gets its arrivals, and before them the bytes that they expect.

        The state that a lane gets is of the barrier as it was before all of them. Raises OperandError for a mask that names no
        CTA.
        """
        registers: dict[str, Array] = {}
        reads: tuple[Access, ...] = ()
        if "state" in form.results:
            before, bits = self._bits(form, operands, view)
            registers, reads = {"state": bits & STATE}, (before,)
        at, lanes = self._at(form, operands)
        shape = operands["barrier"].shape
        counts = spread(operands["count"] if "count" in form else 1, shape).astype(np.int64)[lanes]
        kind: Literal["arrive", "drop"] = "drop" if self.row.operation == "arrive_drop" else "arrive"
        signals: tuple[Signal, ...] = (Signal(kind, at, counts, no_complete=self.row.no_complete),)
        if "tx_count" in form:
            sizes = spread(operands["tx_count"], shape).astype(np.int64)[lanes]
            signals = (Signal("expect_tx", at, sizes), *signals)
        return Effects(Outcome(registers, signals=signals), reads)

    def execute(
        self, barrier: Any, count: int | None = None, tx_count: int | None = None, cta_mask: int | None = None
    ) -> tuple[BarrierState | None, Any]:
        """The state that the arrival returns, and the barrier after it.

        count: arrivals, where the spelling takes it; 1 without. tx_count: the bytes that .expect_tx expects first. cta_mask:
        as for expect_tx. The state is None for a spelling that cannot return one (.shared::cluster); a sink `_` ignores it.

        Raises BarrierError as `MBarrier.arrive` does, OperandError for operands that the spelling does not take on this
        arch (sm_80 to sm_89 take a count with .noComplete only).

        >>> arrive = tcsim.instruction("mbarrier.arrive.shared.b64", arch="sm_90")
        >>> arrive.execute(barrier=tcsim.MBarrier(8), count=3)
        (BarrierState(phase=0, pending=8), MBarrier(phase=0, pending=5 of 8, tx_count=0))
        """
        if count is not None:
            self._require(f"count={count}", "count")
        elif all("count" in form for form in self.forms):
            raise self._missing("count")
        if tx_count is not None:
            self._require(f"tx_count={tx_count}", "tx_count")
        elif self.row.has("tx_count"):
            raise self._missing("tx_count")
        after = self._told(barrier, cta_mask, count=count, tx_count=tx_count)
        if not any("state" in form.results for form in self.forms):
            return None, after
        return BarrierState(barrier.phase, barrier.pending, counted=self.row.no_complete), after


@dataclass(frozen=True, eq=False, repr=False)
class PendingCount(BarrierInstruction):
    """mbarrier.pending_count."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The count in each lane's state."""
        states = operands["state"]
        pending = [mbarrier_bits.pending_count(int(state), self.arch.name) for state in states.reshape(-1)]
        return Effects(Outcome({"pending": np.array(pending, np.uint32).reshape(states.shape)}))

    def execute(self, state: BarrierState | int) -> int:
        """The arrivals that were pending when an arrive returned this state: a `BarrierState`, or its 64 bits.

        Raises OperandError for a number that is not 64 bits, and for a state that an arrive without .noComplete returned:
        of that the manual leaves the answer undefined (section mbarrier.pending_count).

        >>> pending = tcsim.instruction("mbarrier.pending_count.b64", arch="sm_90")
        >>> pending.execute(state=0x7FFF_D800_001F_FFF6), pending.execute(state=tcsim.MBarrier(5).arrive(no_complete=True))
        (5, 5)
        """
        if isinstance(state, BarrierState):
            if not state.counted:
                raise OperandError(
                    f"{self._call}: {state} is of an arrive without .noComplete, and the answer is undefined; valid: the state of "
                    "mbarrier.arrive.noComplete or mbarrier.arrive_drop.noComplete"
                )
            return state.pending
        return mbarrier_bits.pending_count(state, self.arch.name)


@dataclass(frozen=True, eq=False, repr=False)
class WaitBarrier(BarrierInstruction):
    """mbarrier.test_wait and mbarrier.try_wait."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Whether each lane's phase is complete: its parity, bit 63 of a state or the lowest bit of `parity`, is not the barrier's.

        try_wait of lanes none of which is done is blocked until one of their barriers changes; if some are, the others get false,
        as after the time that the hardware waits.
        """
        at, bits = self._bits(form, operands, view)
        top = np.uint64(63)
        given = operands["parity"].astype(np.uint64) if "parity" in form else operands["state"].astype(np.uint64) >> top
        parity = spread(given & np.uint64(1), bits.shape)
        complete = bits >> top != parity
        if self.row.operation == "try_wait" and not complete.any():
            return Effects(reads=(at,), blocked=Condition("mbarrier", at, int(parity.flat[0])))
        registers = {"complete": complete}
        if "report" in form:  # nothing that is modelled reports
            registers |= {"report": np.zeros(complete.shape, bool)}
        if "value" in form:
            registers |= {"value": np.zeros(complete.shape, np.uint8)}
        return Effects(Outcome(registers), (at,), seen=(Seen(at, complete),))

    def execute(
        self,
        barrier: MBarrier,
        state: BarrierState | int | None = None,
        parity: int | None = None,
        time_hint: int | None = None,
        report: bool = False,
    ) -> bool | tuple[bool, bool | None, int | None]:
        """Whether the phase of a state, or the latest one of a parity, is complete.

        state: a `BarrierState`, or its 64 bits, whose parity counts. time_hint: nanoseconds that try_wait may wait,
        which change nothing here. With `report` (spellings with .phase_type::primary): complete, report predicate, report
        value; the last two are None where the phase is not complete, since reading them is undefined then, and zero else,
        since nothing that is modelled reports.

        Raises BarrierError as `MBarrier.test_wait` and `test_wait_parity` do, OperandError for operands that the spelling
        does not take.

        >>> wait = tcsim.instruction("mbarrier.test_wait.parity.shared.b64", arch="sm_90")
        >>> wait.execute(barrier=tcsim.MBarrier(1), parity=0), wait.execute(barrier=tcsim.MBarrier(1), parity=1)
        (False, True)
        """
        found = _copied(barrier, self._call)
        for name, value in (("state", state), ("parity", parity), ("time_hint", time_hint)):
            if value is not None:
                self._require(f"{name}={value}", name)
        if report and not any("report" in form.results for form in self.forms):
            raise OperandError(f"{self._call}: report: only spellings with .phase_type::primary report")
        if isinstance(state, int):
            parity, state = mbarrier_bits.unpack(state, self.arch.name)["phase"], None
        if state is not None:
            complete = found.test_wait(state)
        elif parity is not None:
            complete = found.test_wait_parity(parity)
        else:
            raise self._missing("parity" if self.row.has("parity") else "state")
        if not report:
            return complete
        return (True, False, 0) if complete else (False, None, None)


CLASSES: dict[str, type[BarrierInstruction]] = {
    "init": InitBarrier,
    "inval": InvalidateBarrier,
    "check_layout": CheckLayout,
    "expect_tx": CountTransactions,
    "complete_tx": CountTransactions,
    "arrive": ArriveBarrier,
    "arrive_drop": ArriveBarrier,
    "pending_count": PendingCount,
    "test_wait": WaitBarrier,
    "try_wait": WaitBarrier,
}
"""What executes a row, by its operation."""
