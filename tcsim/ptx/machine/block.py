"""A block of threads in lockstep, or a batch of blocks, parted where threads diverge or wait, joined where they meet again: what it has, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tcsim.ptx.compile.compiled import COLLECTIVE, PARTS
from tcsim.ptx.compile.regions import lower, work
from tcsim.ptx.machine.accesses import Accesses
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.barriers import Barriers
from tcsim.ptx.machine.calls import Calls
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import EXCEPTIONS, Stop, stop_for
from tcsim.ptx.machine.fibers import EXIT, Fibers, Moves, Wait
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.mbarriers import Mbarriers
from tcsim.ptx.machine.meeting import Meeting
from tcsim.ptx.machine.octets import Octets
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.performer import Performer
from tcsim.ptx.machine.register_file import RegisterFile
from tcsim.ptx.machine.reports import Reports
from tcsim.ptx.machine.resources import Resources
from tcsim.ptx.machine.setup import Setup
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.stack import Stack
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.machine.view import ClusterView
from tcsim.ptx.machine.warps import Warps
from tcsim.ptx.text.syntax import Instruction

_NEVER = float("inf")


class Owner(ClusterView, Protocol):
    """The cluster that a block is made for."""

    queue: Queue
    events: Events


class Block:
    """A block of threads (a CTA), or a batch of blocks of one rank. Generated source is handed `parts` (`tcsim.ptx.compile.compiled.PARTS`)."""

    def __init__(self, setup: Setup, indices: Sequence[tuple[int, int, int]], rank: int, cluster: Owner) -> None:
        program, events, queue = setup.program, cluster.events, cluster.queue
        self.program, self.cluster, self.rank, self.arch = program, cluster, rank, setup.arch
        self.index = indices[0]
        self.number = 0  # in the order in which blocks began
        self.sleeps = 0
        self.place = program.entry  # the basic block that was executed last
        self.turning: Any = 1  # of a batch: whether it is each block's turn
        self.executing: Any = 1  # of a batch: whether each block executes a basic block now
        size = setup.shared_bytes
        threads = Threads(setup.grid, setup.block, indices, setup.cluster, rank, size, setup.dynamic_smem)
        threads.environment(setup.environment)
        file = RegisterFile((_container(type, own) for type, own, _ in program.registers), threads.count)
        self.threads, self.registers = threads, file.arrays
        self.fibers = Fibers(threads, program.entry, program.waits)
        self.spaces = Spaces(threads, setup.memory, setup.params, program.local_bytes, cluster.blocks)
        origins = cluster.blocks[0].threads.indices if rank else indices
        self.inexact = Inexact(threads, origins, program.tells_order, program.competes, setup.sums)
        self.accesses = Accesses(self, threads, self.spaces, self.inexact, events)
        self.warps = Warps(self, threads, self.fibers, self.inexact, events)
        self.octets = Octets(self, threads, self.spaces, self.inexact, events)
        self.mbarriers = Mbarriers(self, self.octets, cluster, events)
        self.resources = Resources(threads, self.spaces, program.registers_at_launch, cluster, self.inexact)
        self.performer = Performer(self, file, self.octets, self.mbarriers, self.resources, queue, self.inexact)
        self.barriers = Barriers(self, threads, self.warps, self.fibers, cluster, events)
        self.stack = Stack(threads, self.registers, self.spaces, setup.limits)
        self.calls = Calls(threads, self.accesses, self.stack, program.functions, setup.limits)
        self.reports = Reports(self, threads, events)
        self.meeting = Meeting(self, program, self.warps, self.performer)
        self.patience = work() if program.plain else _NEVER
        self.parts: dict[str, Any] = {name: self if name == "block" else getattr(self, name) for name in PARTS}

    @property
    def here(self) -> Instruction | None:
        """The instruction that is executed, where anybody watches."""
        return self.reports.here

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return not self.fibers

    # --- control

    def branch(self, w: Mask, p: Array, target: int, after: int) -> Any:
        """Go to a block where the predicate holds, else on."""
        taken = p if w is True else w & p
        if not np.count_nonzero(taken):  # which takes a tenth of the time of any() and all()
            return after
        rest = ~p if w is True else w & ~p
        if not np.count_nonzero(rest):
            return target
        return [(taken.copy(), target), (rest, after)]

    def indexed(self, w: Mask, p: Any, choice: Any, places: tuple[int, ...], after: int) -> Moves:
        """brx.idx: go to one of several blocks, which a register picks."""
        mask, number = self.threads.mask(w), self.threads.each(choice)
        go = mask & p
        beyond = go & (number >= len(places))
        if beyond.any():
            thread = int(np.argmax(beyond))
            index = int(number[thread])
            raise Stop("INVALID_PC", f"brx.idx: index {index} of {len(places)} targets", thread, index=index)
        moves: Moves = [(go & (number == place), block) for place, block in enumerate(places)]
        return [(own, block) for own, block in (*moves, (mask & ~go, after)) if np.count_nonzero(own)]

    def guarded(self, w: Mask, p: Array, after: int, action: Callable[[Mask], Any]) -> Moves:
        """Do something that may wait with the threads whose predicate holds; the others go on."""
        mask = self.threads.mask(w)
        return self.parted(mask, mask & p, after, action)

    def parted(self, everyone: Mask, w: Array, after: int, action: Callable[[Mask], Any]) -> Moves:
        """Do something that may wait with some of the threads; the others go on."""
        rest = self.threads.mask(everyone) & ~w
        moves: Moves = [(rest, after)] if np.count_nonzero(rest) else []
        if count := np.count_nonzero(w):
            found = action(True if count == len(w) else w)
            moves += found if isinstance(found, list) else [(w, found)]
        return moves

    def trap(self, index: int, w: Mask, p: Any, after: int) -> Any:
        """End the launch if a thread gets here."""
        mask = self.threads.mask(w) & p
        if mask.any():
            raise Stop("TRAP", "a thread executed trap", int(np.argmax(mask)))
        return after

    def turned(self) -> None:
        """A loop that may wait turns once more."""
        self.cluster.turns += self.executing

    # --- running

    def step(self, among: Array | None = None) -> bool:
        """Run one basic block of the threads that are furthest behind; among: the blocks of a batch that have a turn. Whether any could run."""
        fiber = self.fibers.choose(self.cluster.fair, self.performer.queue.random, among)
        if fiber is None:
            return False
        mask, turns, parts, self.place = fiber.mask, fiber.turns, 1, fiber.block
        if self.threads.batch > 1:
            self.turning = self.executing = self.fibers.blocks_of(fiber)
            parts = int(np.count_nonzero(self.turning))
        lanes = self.program.gathers[fiber.block]
        if lanes == COLLECTIVE:
            self.fibers.put(mask, Wait("collective", fiber.block), turns)
            return True
        if lanes:
            complete = self.threads.whole(mask, lanes)
            if not complete.all():
                rest = mask & ~complete
                if rest.any():
                    self.fibers.put(rest, Wait("lanes", fiber.block, count=lanes), turns)
                    mask = mask & complete
                    if not mask.any():
                        return True
                    if self.threads.batch > 1:
                        self.executing = self.threads.blocks_in(mask)
                        parts = int(np.count_nonzero(self.executing))
        self.threads.executed += self.program.size_of(fiber.block) * parts
        if self.patience < _NEVER and self.program.worked(fiber.block, self.threads.count) > self.patience:
            self.program.done[fiber.block] = float("-inf")
            lower(self.program, fiber.block)
        found = self.execute(fiber.block, mask)
        if self.cluster.events.ran:
            self._tell_ran(fiber.block, mask, found)
        for own, where in [(mask, found)] if type(found) is int else found:
            if isinstance(where, Wait):
                self.fibers.put(own, where, turns)
            elif where == EXIT:
                self.exit(own, fiber.block)
            else:
                self.fibers.add(own, where, turns + self.sleeps)
        if type(found) is not int:
            if self.threads.batch > 1:
                self._again(fiber.block, found)
            self.barriers.settle()
        self.sleeps = 0
        return True

    def _again(self, place: int, found: Moves) -> None:
        """Blocks of a batch whose lanes have all come execute a basic block again, because others of the batch wait: they count it once."""
        self.threads.executed -= self.program.size_of(place) * int(np.count_nonzero(self._repeating(place, found)))

    def _repeating(self, place: int, found: Moves) -> Array:
        """Which blocks of a batch are to execute a basic block again, because others of the batch wait."""
        again = np.zeros(self.threads.batch, bool)
        waits = [own for own, where in found if isinstance(where, Wait) and where.kind == "lanes"]
        if self.threads.batch == 1 or not waits:
            return again
        for own, where in found:
            again |= self.threads.blocks_in(own) & (where == place)
        for own in waits:
            again &= ~self.threads.blocks_in(own)
        return again

    def _tell_ran(self, place: int, mask: Array, found: Any) -> None:
        """Tell of threads that have executed a basic block, but for those that are to execute it again."""
        if type(found) is not int:
            again = [own for own, where in found if isinstance(where, Wait) and where.at == place]
            done = mask & ~np.logical_or.reduce([np.repeat(self._repeating(place, found), self.threads.width), *again])
            mask = done
        for hear in self.cluster.events.ran if mask.any() else ():
            hear(self, place, mask, found)

    def execute(self, block: int, mask: Array, **instead: Any) -> Any:
        """Run a basic block's source, with other parts in place of some; an exception ends the launch."""
        parts = {**self.parts, **instead} if instead else self.parts
        try:
            return self.program.blocks[block](*parts.values(), True if np.count_nonzero(mask) == len(mask) else mask)
        except Stop as stop:
            self.cluster.running = self
            raise stop from None
        except EXCEPTIONS as error:
            self.cluster.running = self
            raise stop_for(error).with_traceback(error.__traceback__) from error

    def exit(self, mask: Array, block: int) -> None:
        """Threads end: those that waited for their lanes look again; those at bar.warp.sync, which would be through, meet when it settles."""
        for hear in self.cluster.events.exited:
            hear(self, mask)
        self.threads.alive &= ~mask
        self.threads.exited[mask] = block
        self.threads.change(mask)
        ended = self.threads.blocks_in(mask) if self.threads.batch > 1 else None
        for fiber in self.fibers.waiting_for("lanes"):
            self.fibers.wake(fiber, ended)
        self.barriers.settle()
        self.cluster.settle()


def _container(type: str, container: np.dtype[Any]) -> np.dtype[Any]:
    return container if type != "b128" else np.dtype((np.void, 16))
