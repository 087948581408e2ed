"""barrier.cta (bar.sync, bar.arrive, bar.red) and bar.warp.sync: who waits for whom, and what a reduction gives.

Sources: PTX ISA, sections bar/barrier and bar.warp.sync; ptxas 13.5.37 (targets, versions, SASS). A CTA has 16 barriers.
Warps arrive as a whole: a barrier counts threads, a warp for its full 32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import integer
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array, BarrierOp, Effects, Order, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row, present

BARRIERS, LANES, THREADS = 16, 32, 1024
"""Barriers of a CTA, threads of a warp, threads of a CTA at most."""


class CtaBarrierError(OperandError):
    """A use of a barrier that the manual forbids."""


@dataclass(frozen=True)
class CtaBarrier:
    """One barrier: how often it has completed, and who has arrived since.

    >>> barrier = CtaBarrier().arrived(64, "sync")
    >>> barrier, barrier.arrived(64, "arrive")
    (CtaBarrier(phase=0, present=32, expected=64), CtaBarrier(phase=1, present=0, expected=0))
    """

    phase: int = 0
    present: int = 0  # threads that have arrived in this phase
    expected: int = 0  # threads that it waits for; 0 before the first arrives
    reduction: str = ""  # "popc", "and", "or": what the threads of this phase reduce with
    true: int = 0  # predicates of this phase that were true
    last: tuple[int, int] = (0, 0)  # of the phase before: true predicates, and predicates

    def __repr__(self) -> str:
        return f"CtaBarrier(phase={self.phase}, present={self.present}, expected={self.expected})"

    def arrived(self, threads: int, operation: str, reduction: str = "", true: int = 0) -> CtaBarrier:
        """After one warp's arrival. threads: how many the barrier waits for; true: how many of its predicates are.

        Raises CtaBarrierError for a number that is not a multiple of 32 up to 1024, one that contradicts the phase under way,
        different reductions in a phase.
        """
        call = f"{self!r}: {operation} of {threads} threads"
        if threads % LANES or not 0 < threads <= THREADS:
            raise CtaBarrierError(f"{call}: valid: multiples of {LANES} up to {THREADS}")
        if self.expected not in (0, threads):
            raise CtaBarrierError(f"{call}: valid: {self.expected}, as the warps said that have arrived")
        if self.present and operation == "red" and self.reduction != reduction:
            raise CtaBarrierError(f"{call}: red.{reduction} meets {self.reduction or 'arrivals without predicates'}")
        here = self.present + LANES
        if here < threads:
            return replace(
                self, present=here, expected=threads, reduction=reduction or self.reduction, true=self.true + true
            )
        return CtaBarrier(self.phase + 1, last=(self.true + true, threads))

    def reduced(self, reduction: str) -> int:
        """What red gives to every thread of the phase that has just ended."""
        true, all_of_them = self.last
        return {"popc": true, "and": int(true == all_of_them), "or": int(true > 0)}[reduction]


_OPERATIONS: Mapping[str, Literal["sync", "arrive", "red"]] = MappingProxyType(
    {"sync": "sync", "arrive": "arrive", "red": "red"}
)


@dataclass(frozen=True, kw_only=True)
class BarrierRow(Row):
    """A spelling of bar or barrier."""

    aligned: bool
    reduction: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class ArriveAtBarrier(Instruction):
    """bar.sync, bar.arrive, bar.red and their other names."""

    row: BarrierRow

    @property
    def rules(self) -> tuple[str, ...]:
        """What it orders."""
        waits = "it does not wait" if self.row.operation == "arrive" else "it waits until as many threads have arrived"
        aligned = (
            "all threads of a warp execute the same one" if self.row.aligned else "threads of a warp may come apart"
        )
        return (waits, aligned, "accesses before it are performed for the threads that wait, when they go on")

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """What the lanes do at the barrier of their CTA; of red the result goes to `d` or `p` when the phase ends.

        Raises CtaBarrierError for a number of threads that is not a multiple of 32 from 32 to 1024, or a barrier that no CTA has.
        """
        number, threads = np.asarray(operands["barrier"]), operands.get("threads")
        if (number >= BARRIERS).any():
            raise CtaBarrierError(f"{self._call}: barrier={int(number.max())}; valid: 0 to {BARRIERS - 1}")
        counts = LANES if threads is None else np.asarray(threads)
        wrong = (np.asarray(counts) % LANES != 0) | (np.asarray(counts) == 0) | (np.asarray(counts) > THREADS)
        if wrong.any():
            bad = int(np.asarray(counts)[wrong].flat[0])
            raise CtaBarrierError(f"{self._call}: threads={bad}; valid: multiples of {LANES} up to {THREADS}")
        what: dict[str, Any] = {}
        if self.row.reduction:
            what = {"reduce": self.row.reduction, "predicate": operands["predicate"], "into": form.results[0]}
        at_barrier = BarrierOp("cta", _OPERATIONS[self.row.operation], number, threads, **what)
        return Effects(orders=(Order("barrier.cta"),), barriers=(at_barrier,))

    def execute(self, barrier: CtaBarrier, threads: int, predicate: Any = False) -> CtaBarrier:
        """The barrier after one warp has arrived; its waiting threads go on when `phase` has changed.

        threads: how many the barrier waits for; without the operand, those of the CTA. predicate: of red, one bool or one for
        each lane; then `reduced` of the completed barrier is the result. Raises CtaBarrierError as `CtaBarrier.arrived`.

        >>> red = tcsim.instruction("bar.red.popc.u32", arch="sm_90")
        >>> red.execute(CtaBarrier(), threads=32, predicate=np.arange(32) < 5).reduced("popc")
        5
        """
        lanes = np.asarray(predicate)
        if not isinstance(barrier, CtaBarrier):
            raise OperandError(f"{self._call}: barrier={barrier!r}; valid: a CtaBarrier")
        if lanes.dtype != bool or lanes.shape not in ((), (LANES,)):
            raise OperandError(f"{self._call}: predicate is {lanes.dtype} {lanes.shape}; valid: a bool, or bools (32,)")
        true = int(np.broadcast_to(lanes, LANES).sum()) if self.row.reduction else 0
        return barrier.arrived(integer(threads, f"{self._call}: threads"), self.row.operation, self.row.reduction, true)


@dataclass(frozen=True, eq=False, repr=False)
class SyncWarp(Instruction):
    """bar.warp.sync."""

    @property
    def executed_by(self) -> tuple[str, ...]:
        """The members."""
        return ("the lanes of membermask together, and no other",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The order of memory accesses among the members, whom whoever asks has gathered."""
        return Effects(orders=(Order("bar.warp.sync"),))

    def execute(self, membermask: int = 0xFFFF_FFFF) -> None:
        """Nothing changes. Raises OperandError for a mask that is not 32 bits or names no lane.

        >>> tcsim.instruction("bar.warp.sync", arch="sm_90").execute(membermask=0xFFFF)
        """
        if not 0 < integer(membermask, f"{self._call}: membermask") <= 0xFFFF_FFFF:
            raise OperandError(f"{self._call}: membermask={membermask:#x}; valid: 0x1 to 0xffffffff")


NAME, WARP = "barrier.cta", "bar.warp.sync"

_NUMBERS = {
    "": Operand("barrier", kind="immediate", values=tuple(range(BARRIERS))),
    "register": Operand("barrier", type=".u32"),
}
_COUNTS = {
    "": Operand("threads", kind="immediate", values=tuple(range(LANES, THREADS + 1, LANES))),
    "register": Operand("threads", type=".u32"),
}
_RESULTS = {
    "popc": Operand("d", "destination", type=".u32"),
    "and": Operand("p", "destination", "predicate", type=".pred"),
    "or": Operand("p", "destination", "predicate", type=".pred"),
}
_PREDICATE = Operand("predicate", kind="predicate", type=".pred")


def _forms(operation: str, reduction: str, aligned: bool, version: str) -> Iterator[Form]:
    for kind, counted in product(("", "register"), (False, True)):
        if operation == "arrive" and not counted:
            continue
        operands = [_NUMBERS[kind], *([_COUNTS[kind]] if counted else [])]
        if reduction:
            operands = [_RESULTS[reduction], *operands, _PREDICATE]
        name = "+".join([kind] * bool(kind) + ["count"] * counted)
        yield Form(tuple(operands), since("sm_70"), version, "warp" if aligned else "thread", "warp", name)


def _barriers() -> Iterator[BarrierRow]:
    heads = (("bar", "", "6.0"), ("barrier", "", "6.0"), ("barrier", ".aligned", "6.0"))
    operations = (("sync", ""), ("arrive", ""), *(("red", each) for each in _RESULTS))
    for (head, aligned, version), cta, (operation, reduction) in product(heads, ("", ".cta"), operations):
        together = head == "bar" or bool(aligned)
        kind = (".u32" if reduction == "popc" else ".pred") if reduction else ""
        word = f".{reduction}" if reduction else ""
        yield BarrierRow(
            f"{head}{cta}.{operation}{word}{aligned}{kind}", NAME, arithmetic=operation, operation=operation,
            forms=tuple(_forms(operation, reduction, together, "7.8" if cta else version)),
            modifiers=present(cta=cta, reduction=word, aligned=aligned), aligned=together, reduction=reduction, meets=False,
        )  # fmt: skip


def rows() -> tuple[BarrierRow, ...]:
    """Every spelling: bar is barrier.aligned, and .cta changes nothing."""
    return tuple(_barriers())


def warp_rows() -> tuple[Row, ...]:
    """One."""
    form = Form((Operand("membermask", per="member_mask"),), since("sm_70"), "6.0", together="member_mask")
    return (Row(WARP, WARP, arithmetic="sync", forms=(form,), meets=False),)


def opcode(operation: str, reduction: str, aligned: bool, arch: int) -> str:
    """The machine instruction of an operation on an arch.

    >>> opcode("sync", "", True, 75), opcode("sync", "", True, 90), opcode("sync", "", False, 80)
    ('BAR.SYNC', 'BAR.SYNC.DEFER_BLOCKING', 'BAR.SYNC')
    """
    if operation == "arrive":
        return "BAR.ARV"
    deferred = arch >= 80 and (arch >= 90 or aligned or bool(reduction))
    return f"BAR.{operation.upper()}{'.' * bool(reduction)}{reduction.upper()}{'.DEFER_BLOCKING' * deferred}"


def lowering(row: BarrierRow, arch: Arch) -> Lowering:
    """One machine instruction; of red, B2R.RESULT reads what it gives."""
    return Lowering("native", (), ((opcode(row.operation, row.reduction, row.aligned, arch.number), 1),))


def warp_lowering(row: Row, arch: Arch) -> Lowering:
    """Nothing where the assembler knows that the warp has not diverged."""
    return Lowering("native", (), (), "WARPSYNC where lanes may have come apart, nothing elsewhere")


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, sections bar, barrier and bar.warp.sync")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, ArriveAtBarrier, "none: it waits, or reduces predicates", ("bar",))
FAMILY_OF_WARPS = Family(WARP, warp_rows, warp_lowering, evidence, SyncWarp, "none: it waits")
