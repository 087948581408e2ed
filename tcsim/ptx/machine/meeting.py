"""Lanes that execute one instruction as one at different places: shfl, vote, match, redux and elect.

Each waits until all members of its mask that have not exited execute an instruction with the same modifiers and the same mask
(PTX ISA, shfl.sync, vote.sync, match.sync, redux.sync, elect.sync); since sm_70 that need not be the same instruction. ptxas
makes it so: where a warp has diverged it puts the operands of each place into the same registers, and the last lanes to come
execute the instruction for all (WARPSYNC.COLLECTIVE, in the machine code of ptxas 13.5 for sm_90).

Lanes are brought together here only when no others of the block can go on, since most meet at one place later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.pieces import first_piece
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.fibers import EXIT, Fiber
from tcsim.ptx.machine.performer import Performer
from tcsim.ptx.machine.reports import Reports
from tcsim.ptx.machine.warps import Warps

_ALL = 0xFFFF_FFFF
_SILENT = Events()
_NOTHING: dict[str, Any] = {"shuffle": (0, 0), "match": (0, 0), "vote": 0, "perform": ()}
"""The functions that execute such an instruction, and what they give where no thread does. Their last argument is the mask."""


class Runner(Protocol):
    """A block, which executes pieces."""

    def execute(self, block: int, mask: Array, **instead: Any) -> Any:
        """Run a basic block's source, with other parts in place of some."""
        ...

    def exit(self, mask: Array, block: int) -> None:
        """Threads end."""
        ...


class _Asked(Exception):
    """The call that a piece makes."""


class _Hearing:
    """In place of the parts that a piece with such an instruction calls: hears what is asked."""

    members: Any = np.uint32(_ALL)

    def __init__(self, warps: Warps) -> None:
        self._warps = warps

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in _NOTHING else getattr(self._warps, name)

    def missing(self, members: Any, w: Mask, here: int) -> None:
        """Who the members are."""
        self.members = members

    def _call(self, name: str, *given: Any) -> Any:
        raise _Asked(name, given)


class _Answering(_Hearing):
    """The same, with what the lanes get; sources: of a shuffle, where from."""

    def __init__(self, block: object, warps: Warps, events: Events, answer: Any, sources: Array | None) -> None:
        super().__init__(warps)
        self._block, self._events, self._answer, self._sources = block, events, answer, sources

    def _call(self, name: str, *given: Any) -> Any:
        for hear in self._events.shuffled if self._sources is not None else ():
            hear(self._block, self._sources)
        return self._answer


@dataclass
class _Request:
    """What the threads of a fiber ask for."""

    fiber: Fiber
    name: str
    given: list[Any]  # operands of the call
    mask: Array  # the threads whose predicate holds
    members: Array


class Meeting:
    """Where threads of a block meet that are at different instructions."""

    def __init__(self, block: Runner, program: Compiled, warps: Warps, performer: Performer) -> None:
        self.block, self.program, self.warps, self.performer = block, program, warps, performer
        self.threads, self.fibers, self.events = warps.threads, warps.fibers, warps.events

    def meet(self) -> bool:
        """Let lanes go on that wait for each other at different places; whether any moved."""
        waiting = self.fibers.waiting_for("lanes", "collective")
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
        warps = [fiber.mask.reshape(-1, LANES).any(1) for fiber in waiting]
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
        hearing = _Hearing(self.warps)
        try:
            self.block.execute(
                fiber.block, fiber.mask, warps=hearing, performer=hearing, reports=Reports(None, self.threads, _SILENT)
            )
        except _Asked as call:
            name, (*given, w) = call.args
        members = self.threads.each(np.asarray(hearing.members, np.uint32))
        return _Request(fiber, name, given, self.threads.mask(w), members)

    def _meet(self, requests: list[_Request]) -> bool:
        """Execute the instruction for the members that are all there; whether any thread went on."""
        live, done = self.warps.ballot(self.threads.alive), np.zeros(self.threads.count, bool)
        answer, sources = _NOTHING[requests[0].name], None
        total = np.logical_or.reduce([own.mask for own in requests])
        members = self._merged([own.members for own in requests], requests)
        for value in np.unique(members[total]):
            lanes = total & (members == value)
            lanes &= (value & live & ~self.warps.ballot(lanes)) == 0
            if lanes.any():
                answer = self._answered(requests, lanes, answer)
                done |= lanes
                if requests[0].name == "shuffle" and self.events.shuffled:
                    sources = self._sources(requests, lanes)
        answering = _Answering(self.block, self.warps, self.events, answer, sources)
        moved = False
        for own in requests:
            on = own.fiber.mask & (done | ~own.mask)  # a thread whose predicate does not hold goes on in any case
            if not on.any():
                continue
            moved = True
            after = self.block.execute(own.fiber.block, on, warps=answering, performer=answering)
            own.fiber.mask = own.fiber.mask & ~on
            if not own.fiber.mask.any():
                self.fibers.waiting.remove(own.fiber)
            if after == EXIT:
                self.block.exit(on, own.fiber.block)
            else:
                self.fibers.add(on, after, own.fiber.turns)
        return moved

    def _answered(self, requests: list[_Request], lanes: Array, answer: Any) -> Any:
        """What the instruction gives some lanes, beside what others got."""
        name, given = requests[0].name, list(zip(*(own.given for own in requests), strict=True))
        if name != "perform":
            execute: Any = self.warps.exchange if name == "shuffle" else getattr(self.warps, name)
            found = execute(*(self._merged(values, requests) for values in given), lanes)
            if name == "vote":
                return np.where(lanes, found, answer)
            return [np.where(lanes, *own) for own in zip(found, answer, strict=True)]
        bounds, operands = given
        threads = self.performer.taking(bounds[0], lanes)
        merged = {key: self._merged([own[key] for own in operands], requests) for key in operands[0]}
        registers = self.performer.ask(bounds[0], merged, threads, lanes).now.registers
        for own, bound in zip(requests, bounds, strict=True):
            for operand, numbers in bound.results:
                if operand in registers:
                    self.performer.put(numbers, registers[operand], threads, lanes & own.mask)
        return answer

    def _sources(self, requests: list[_Request], lanes: Array) -> Array:
        """Of a shuffle: the thread that each lane takes its value from."""
        mode, _, b, c = (self._merged(given, requests) for given in zip(*(own.given for own in requests), strict=True))
        return self.warps.sources(mode, b, c, lanes)

    def _merged(self, values: Sequence[Any], requests: list[_Request]) -> Any:
        """An operand of all requests: of each thread what its fiber gives."""
        if values[0] is None or isinstance(values[0], str):
            return values[0]
        whole = self.threads.each(values[0]).copy()
        for value, own in zip(values, requests, strict=True):
            np.copyto(whole, value, where=own.mask)
        return whole
