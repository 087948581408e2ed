"""Mutants of mbarrier: mistakes about what ends a phase, what an arrival counts, what the next phase expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.isa.mbarrier.programs import run
from conformance.testbench import Array, Inputs, Mutant
from tcsim.isa.mbarrier.semantics import BarrierInstruction
from tcsim.memory.mbarrier import BarrierState, MBarrier


class _BytesIgnored(MBarrier):
    def _end_phase(self) -> None:
        if self._pending == 0:
            self._phase, self._pending = self._phase + 1, self._expected


class _ArrivalsIgnored(MBarrier):
    def complete_tx(self, bytes: int) -> None:
        super().complete_tx(bytes)
        if bytes and self._bytes == 0:
            self._phase, self._pending = self._phase + 1, self._expected


class _EarlyBytesLost(MBarrier):
    def complete_tx(self, bytes: int) -> None:
        super().complete_tx(min(bytes, max(self._bytes, 0)))


class _DropForgotten(MBarrier):
    def arrive_drop(self, count: int = 1, no_complete: bool = False) -> BarrierState:
        return self.arrive(count, no_complete)


class _DropAtOnce(MBarrier):
    def _arrive(self, count: int, dropped: int, no_complete: bool, name: str) -> BarrierState:
        if dropped and self._pending > count:
            self._pending -= count
        return super()._arrive(count, dropped, no_complete, name)


class _CountIgnored(MBarrier):
    def _arrive(self, count: int, dropped: int, no_complete: bool, name: str) -> BarrierState:
        return super()._arrive(min(count, 1), min(dropped, 1), no_complete, name)


class _StateAfter(MBarrier):
    def _arrive(self, count: int, dropped: int, no_complete: bool, name: str) -> BarrierState:
        before = super()._arrive(count, dropped, no_complete, name)
        return replace(before, pending=self._pending if self._phase == before.phase else 0)


class _ParityInverted(MBarrier):
    def test_wait_parity(self, parity: int) -> bool:
        return not super().test_wait_parity(parity)


class _PhaseNotCounted(MBarrier):
    def _end_phase(self) -> None:
        if self._pending == 0 and self._bytes == 0:
            self._phase, self._pending = self._phase ^ 1, self._expected - 1 or 1


def _wrong(name: str, mistake: str, kind: type[MBarrier], applies: Callable[[BarrierInstruction], bool]) -> Mutant:
    def answer(instruction: Any, given: Inputs) -> Array:
        return run(instruction, instruction.row.forms[int(given["form"][0])], given["program"], kind)

    return Mutant(name, mistake, applies, answer)


def _always(instruction: BarrierInstruction) -> bool:
    return True


def _counts_bytes(instruction: BarrierInstruction) -> bool:
    return instruction.arch.number >= 90


MUTANTS = (
    _wrong(
        "bytes ignored", "a phase ends with its arrivals, whatever the transaction count", _BytesIgnored, _counts_bytes
    ),
    _wrong("arrivals ignored", "the last bytes end a phase, whoever has arrived", _ArrivalsIgnored, _counts_bytes),
    _wrong(
        "early bytes lost", "bytes that complete before they are expected do not count", _EarlyBytesLost, _counts_bytes
    ),
    _wrong("drop forgotten", "the next phase expects those who dropped out", _DropForgotten, _always),
    _wrong("drop counted twice", "an arrive_drop counts twice in the phase under way", _DropAtOnce, _always),
    _wrong("count ignored", "every arrival counts one", _CountIgnored, _always),
    _wrong("state after", "an arrive returns what is pending after it", _StateAfter, _always),
    _wrong("parity inverted", "a wait is over while the phase of its parity is under way", _ParityInverted, _always),
    _wrong("one arrival short", "a new phase expects one arrival fewer", _PhaseNotCounted, _always),
)
"""Each must be contradicted by the cases of every instruction that it applies to."""
