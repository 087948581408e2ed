"""Lanes that execute one instruction as one at different places: shfl, vote, match, redux and elect.

Each waits until all members of its mask that have not exited execute an instruction with the same modifiers and the same mask
(PTX ISA 9.4, shfl.sync, vote.sync, match.sync, redux.sync, elect.sync); since sm_70 that need not be the same instruction. ptxas
makes it so: where a warp has diverged it puts the operands of each place into the same registers, and the last lanes to come
execute the instruction for all (WARPSYNC.COLLECTIVE, in the machine code of ptxas 13.5 for sm_90).

Lanes are brought together here only when no others of the block can go on, since most meet at one place later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.ptx.compile.pieces import first_piece
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.barriers import Barriers
from tcsim.ptx.machine.fibers import EXIT, Fiber

_ALL = 0xFFFF_FFFF
_NOTHING: dict[str, Any] = {"shuffle": (0, 0), "match": (0, 0), "vote": 0, "perform": ()}
"""The machine's functions that execute such an instruction, and what they give where no thread does. The last argument is the mask."""


class _Asked(Exception):
    """The call that a piece makes."""


class _Listener:
    """The machine as a piece sees it that holds such an instruction: it hears what is asked, or gives an answer that is known."""

    def __init__(self, machine: Meeting, answer: Any = None) -> None:
        self._machine, self._answer, self.members = machine, answer, np.uint32(_ALL)

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in _NOTHING else getattr(self._machine, name)

    def missing(self, members: Any, w: Mask, here: int) -> None:
        """Hear who the members are."""
        self.members = members

    def _call(self, name: str, *given: Any) -> Any:
        if self._answer is None:
            raise _Asked(name, given)
        return self._answer


@dataclass
class _Request:
    """What the threads of a fiber ask for."""

    fiber: Fiber
    name: str
    given: list[Any]  # operands of the call
    mask: Array  # the threads whose predicate holds
    members: Array


class Meeting(Barriers):
    """Threads that can meet at different instructions."""

    def execute(self, block: int, machine: Any, mask: Array) -> Any:
        """Run a basic block's source."""
        raise NotImplementedError

    def _exit(self, mask: Array, block: int) -> None:
        """Threads end."""
        raise NotImplementedError

    def meet(self) -> bool:
        """Let lanes go on that wait for each other at different places; whether any moved."""
        waiting = [own for own in self.fibers.waiting if own.waits and own.waits.kind in ("lanes", "collective")]
        if not waiting:
            return False
        moved = self._cut(waiting)
        requests: dict[frozenset[str], list[_Request]] = {}
        for fiber in waiting:
            if fiber.waits is not None and fiber.waits.kind == "collective":
                item = self.program.instruction_at(fiber.block, 0)
                words = frozenset(item.opcode.split(".") if item else ())
                requests.setdefault(words, []).append(self._request(fiber))
        for own in requests.values():
            moved = self._meet(own) or moved
        return moved

    def _cut(self, waiting: list[Fiber]) -> bool:
        """Let lanes that wait at a whole basic block, with others of their warps elsewhere, go on to the instruction itself."""
        warps = [fiber.mask.reshape(self.warps, LANES).any(1) for fiber in waiting]
        shared = np.sum(warps, axis=0) > 1
        moved = False
        for fiber, own in zip(waiting, warps, strict=True):
            if fiber.waits is None or fiber.waits.kind != "lanes" or not (own & shared).any():
                continue
            piece = first_piece(self.program, fiber.block)
            if piece:
                self.fibers.waiting.remove(fiber)
                self.fibers.add(fiber.mask, piece, fiber.turns)
                moved = True
        return moved

    def _request(self, fiber: Fiber) -> _Request:
        listener = _Listener(self)
        try:
            self.execute(fiber.block, listener, fiber.mask)
        except _Asked as call:
            name, (*given, w) = call.args
        members = np.broadcast_to(np.asarray(listener.members, np.uint32), (self.threads,))
        return _Request(fiber, name, given, self._array(w), members)

    def _meet(self, requests: list[_Request]) -> bool:
        """Execute the instruction for the members that are all there; whether any thread went on."""
        live, done = self._ballot(self.alive), np.zeros(self.threads, bool)
        answer = _NOTHING[requests[0].name]
        total = np.logical_or.reduce([own.mask for own in requests])
        members = self._merged([own.members for own in requests], requests)
        for value in np.unique(members[total]):
            lanes = total & (members == value)
            lanes &= (value & live & ~self._ballot(lanes)) == 0
            if lanes.any():
                answer = self._answered(requests, lanes, answer)
                done |= lanes
        moved = False
        for own in requests:
            on = own.fiber.mask & (done | ~own.mask)  # a thread whose predicate does not hold goes on in any case
            if not on.any():
                continue
            moved = True
            after = self.execute(own.fiber.block, _Listener(self, answer), on)
            own.fiber.mask = own.fiber.mask & ~on
            if not own.fiber.mask.any():
                self.fibers.waiting.remove(own.fiber)
            if after == EXIT:
                self._exit(on, own.fiber.block)
            else:
                self.fibers.add(on, after, own.fiber.turns)
        return moved

    def _answered(self, requests: list[_Request], lanes: Array, answer: Any) -> Any:
        """What the instruction gives some lanes, beside what others got."""
        name, given = requests[0].name, list(zip(*(own.given for own in requests), strict=True))
        if name != "perform":
            found = getattr(self, name)(*(self._merged(values, requests) for values in given), lanes)
            return (
                np.where(lanes, found, answer)
                if name == "vote"
                else [np.where(lanes, *own) for own in zip(found, answer, strict=True)]
            )
        bounds, operands = given
        threads = self._taking(bounds[0], lanes)
        merged = {key: self._merged([own[key] for own in operands], requests) for key in operands[0]}
        registers = self._ask(bounds[0], merged, threads, lanes).now.registers
        for own, bound in zip(requests, bounds, strict=True):
            for operand, numbers in bound.results:
                if operand in registers:
                    self._results(numbers, registers[operand], threads, lanes & own.mask)
        return answer

    def _merged(self, values: Sequence[Any], requests: list[_Request]) -> Any:
        """An operand of all requests: of each thread what its fiber gives."""
        if values[0] is None or isinstance(values[0], str):
            return values[0]
        whole = np.broadcast_to(values[0], (self.threads,)).copy()
        for value, own in zip(values, requests, strict=True):
            np.copyto(whole, value, where=own.mask)
        return whole
