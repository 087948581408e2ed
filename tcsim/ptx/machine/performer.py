"""Instructions of the catalog on the machine: their effects are asked for, and done now or when their work completes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.core.errors import TcsimError
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Condition, Effects, Outcome, Resource, Signal
from tcsim.ptx.compile.families import Bound, Operands, Rows, Together, stacked
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.faults import Stop, rule_for
from tcsim.ptx.machine.fibers import Moves, Wait
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.mbarriers import Mbarriers
from tcsim.ptx.machine.octets import Octets
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.register_file import RegisterFile
from tcsim.ptx.machine.resources import Resources
from tcsim.ptx.machine.threads import RANK_SHIFT


def warps_of(threads: Array) -> Array:
    """The numbers of the warps of whole warps of threads, or of the first of each 32."""
    return np.asarray(threads[::LANES] // LANES)


@dataclass(eq=False)
class Look:
    """The machine as an instruction of some threads looks at it (`tcsim.model.effects.View`), or its work in flight."""

    performer: Performer
    threads: Array
    flight: Flight | None = None

    @property
    def rank(self) -> int:
        """The rank of the CTA in its cluster."""
        return self.performer.threads.rank

    @property
    def blocks(self) -> Any:
        """Which block of a batch each of the threads is of; one number for all where it is one."""
        return self.performer.threads.block_of(self.threads)

    @property
    def warp(self) -> Array:
        """The warps of the threads."""
        return warps_of(self.threads % self.performer.threads.width)

    def read(self, access: Access) -> Array:
        """The bytes of an access; of work that is done in several blocks with a leading dimension for them."""
        if self.flight is None or not self.flight.replicated:
            return self.performer.octets.read(access, self.threads if self.flight is None else self.flight.asked)
        asked = self.flight.asked
        found = self.performer.octets.read(_in_each(access, len(asked)), asked)
        return found.reshape(len(asked), -1, access.size)

    def held(self, name: str) -> Any:
        """The registers of an operand, now: where they lie, if that can be. Raises Stop for what is not in flight."""
        if self.flight is None:
            raise Stop("TRAP", f"an instruction asks for the registers of {name}")
        bound = self.flight.bound
        numbers = next(own for operand, own in bound.results if operand == name)
        if self.flight.only is None and not self.performer.events.delivering:
            lanes = self.performer.file.lanes(numbers, self.threads, bound.lanes)
            if lanes is not None:
                return lanes
        found: Array = stacked(Rows(numbers), self.performer, self.threads, (-1, bound.lanes), True)
        return found


def _in_each(access: Access, blocks: int) -> Access:
    """An access as one of each of some blocks."""
    shape = np.broadcast_shapes(access.address.shape, () if access.cta is None else access.cta.shape)
    address = np.tile(np.broadcast_to(access.address, shape).reshape(-1), blocks)
    cta = (
        access.cta
        if access.cta is None or not np.ndim(access.cta)
        else np.tile(np.broadcast_to(access.cta, shape).reshape(-1), blocks)
    )
    thread = np.repeat(np.arange(blocks), len(address) // blocks)
    return replace(access, address=address, cta=cta, thread=thread, tile=None)


_UNITS = {"registers": "registers for each of its threads", "tmem": "columns of Tensor Memory"}


def _lacking(resource: Resource) -> str:
    """What an instruction asks for, in words."""
    return f"{resource.delta} {_UNITS.get(resource.kind, resource.kind)}"


def _joined(moves: Moves) -> Moves:
    """Waits for the same, of several blocks of a batch, as one."""
    found: dict[tuple[Any, ...], tuple[Array, Wait]] = {}
    for mask, wait in moves:
        key = wait.kind, wait.address, wait.text, wait.resource
        found[key] = (found[key][0] | mask, wait) if key in found else (mask, wait)
    return list(found.values())


class Performer:
    """Performs the instructions of a block, or of a batch: of those blocks together whose accesses say of which block they are, else one by one."""

    def __init__(
        self, block: Any, file: RegisterFile, octets: Octets, mbarriers: Mbarriers, resources: Resources, queue: Queue, inexact: Inexact
    ) -> None:  # fmt: skip
        self.block, self.file, self.octets, self.mbarriers = block, file, octets, mbarriers
        self.resources, self.queue, self.inexact = resources, queue, inexact
        self.threads, self.events, self.cluster = octets.threads, octets.events, mbarriers.cluster
        self.groups: dict[str, Array] = {}  # of each kind: how many groups every thread has committed

    # --- instructions of the catalog

    def perform(self, bound: Bound, given: dict[str, Any], w: Mask) -> None:
        """Run an instruction through its effects: registers and writes now, pending work in its groups."""
        mask = self.threads.mask(w)
        if bound.form.together == "member_mask" and self._parted(bound, given, mask):
            return
        if self.threads.batch > 1 and bound.model.replicated and self._replicated(bound, given, mask):
            return
        together = bound.model.batched or (bound.model.joined and (not self._heard or self._joins(bound)))
        if self.threads.batch > 1 and not together and len(blocks := self.threads.apart(mask)) > 1:
            for own in blocks:
                self.perform(bound, given, own)
            return
        threads = self.taking(bound, mask)
        if not len(threads):
            return
        found = self.ask(bound, given, threads, mask)
        if found.blocked is not None:
            said = f"an instruction waits here that cannot wait: {found.blocked.kind}"
            raise Stop("INVALID_OPERAND", said, int(threads[0]))
        self._take(bound, found, threads, mask)

    @property
    def _heard(self) -> bool:
        """Whether somebody hears of instructions of the catalog, or of work in flight."""
        events = self.events
        return bool(events.issued or events.performed or events.asked or events.looked)

    def _joins(self, bound: Bound) -> bool:
        """Whether those who hear of work in flight know work of several blocks: each block's own, without multicast."""
        return getattr(self.cluster, "joins", False) and "cta_mask" not in bound.form

    def _replicated(self, bound: Bound, given: dict[str, Any], mask: Array) -> bool:
        """Issue the work of a thread of each of several blocks as one piece, where their operands are equal and nobody looks; whether it was."""
        threads = np.nonzero(mask)[0]
        rows = any(isinstance(own, Rows) for own in given.values())
        if self._heard or rows or len(threads) < 2 or len(threads) != np.count_nonzero(self.threads.blocks_in(mask)):
            return False
        if bound.lanes > 1 or not self._equal(given, threads):
            return False
        found = self.ask(bound, given, threads[:1], mask)
        if (
            found.blocked is not None
            or len(found.pending) != 1
            or any(own.mask is not None for own in found.pending[0].reads)
        ):
            return False
        if bound.inexact:
            self.inexact.counts[bound.model.mnemonic] += len(threads)
        counts = self.committed(found.pending[0].group or "")[threads].copy()
        self.queue.add(Flight(found.pending[0], bound, self.block, threads, counts, threads, replicated=True))
        return True

    def _parted(self, bound: Bound, given: dict[str, Any], mask: Array) -> bool:
        """Run an instruction for the threads of each member mask apart, if there are several."""
        masks = self.threads.each(given.get("membermask", 0))
        values = np.unique(masks[mask])
        for value in values if len(values) > 1 else ():
            self.perform(bound, given, mask & (masks == value))
        return len(values) > 1

    def perform_together(self, run: Together, w: Mask) -> None:
        """Run instructions that only compute, on registers that none of them writes, in one call."""
        mask, bound = self.threads.mask(w), run.bound
        threads = self.taking(bound, mask)
        if not len(threads):
            return
        if bound.inexact:
            self.inexact.counts[bound.model.mnemonic] += len(run.results[0][1]) * len(threads)
        some = None if len(threads) == self.threads.count else threads
        if some is None and self._in_place(run):
            return
        operands: dict[str, Array] = {}
        for name, numbers in run.sources:
            if isinstance(numbers, int):
                operands[name] = np.asarray(numbers)
                continue
            found = self.file.gather(numbers, some)
            found = found.view(np.uint32) if found.dtype == np.uint64 and bound.form[name].layout is not None else found
            operands[name] = found.reshape(len(numbers), -1, bound.lanes, found.shape[-1])
        try:
            results = bound.model.compute(bound.form, operands)  # type: ignore[attr-defined]
        except TcsimError as error:
            raise Stop("INVALID_OPERAND", str(error), int(threads[0])) from None
        for name, numbers in run.results:
            values = results[name].reshape(len(numbers), len(threads), -1)
            if values.dtype == np.uint32 and values.shape[-1] == 2 * numbers.shape[-1]:
                values = np.ascontiguousarray(values).view(np.uint64)
            self.file.scatter(numbers, some, values)

    def _in_place(self, run: Together) -> bool:
        """Run such instructions of all threads on registers where they lie; whether it can be."""
        model: Any = run.bound.model
        held = (
            {name: self.file.held(numbers) for name, numbers in (*run.sources, *run.results)} if model.in_place else {}
        )
        if not held or any(own is None for own in held.values()):
            return False
        try:
            model.compute(run.bound.form, held)
        except TcsimError as error:
            raise Stop("INVALID_OPERAND", str(error)) from None
        return True

    def attempt(self, bound: Bound, given: dict[str, Any], w: Mask, here: int, after: int) -> Any:
        """Run an instruction that may wait; threads with different operands ask apart."""
        mask = self.threads.mask(w)
        moves: Moves = []
        on = np.zeros(self.threads.count, bool)
        if self.threads.batch > 1 and bound.model.row.warps_apart:
            events = self.events
            if not (self._heard or events.granted or events.given or events.asking):
                on = self._pooled(bound, given, mask)
                mask = mask & ~on
        blocks = self._alike(bound, given, mask) if self.threads.batch > 1 else [mask]
        for threads in [own for block in blocks for own in self._askers(bound, given, block)]:
            found = self.ask(bound, given, threads, mask)
            own = np.zeros(self.threads.count, bool)
            own[threads] = True
            own &= mask
            if found.blocked is not None:
                moves.append((own, self._waiting(found.blocked, here)))
                continue
            lacking = self._resources(found, threads)
            if lacking is not None:
                moves.append((own, Wait("resource", here, text=_lacking(lacking), resource=lacking.kind)))
                continue
            self._take(bound, found, threads, mask)
            on |= own
        if not moves:
            return after
        moves = _joined(moves) if len(blocks) > 1 else moves
        if on.any():
            moves.append((on, after))
        return moves

    def _pooled(self, bound: Bound, given: dict[str, Any], mask: Array) -> Array:
        """Let the warpgroups of each block of a batch have the registers that they ask for, if all of them get them: their threads."""
        on = np.zeros_like(mask)
        threads = self.taking(bound, mask)
        (resource,) = self.ask(bound, given, threads, mask).resources
        for own in self.threads.apart(mask):
            block, warps = divmod(np.flatnonzero(own.reshape(-1, LANES).any(1)), self.threads.warps)
            if self.resources.take(resource, warps, int(block[0])) is not None:
                on |= own
        self.threads.change(on)
        self.cluster.wake("resource", None, np.flatnonzero(self.threads.blocks_in(on)).tolist())
        return on

    def _alike(self, bound: Bound, given: dict[str, Any], mask: Array) -> list[Array]:
        """The threads of a mask by blocks that get the same answer: which ask with equal operands, of mbarriers with equal bits."""
        threads = np.nonzero(mask)[0]
        if not bound.model.batched or not len(threads) or not self._equal(given, threads):
            return self.threads.apart(mask)
        address = int(self.threads.each(given["barrier"])[threads[0]])
        key, window = address & 0xFFFFFFFF, address >> 32
        if key & 7 or key >> RANK_SHIFT >= len(self.cluster.blocks) or window not in (0, SHARED_WINDOW >> 32):
            return self.threads.apart(mask)
        there = np.flatnonzero(self.threads.blocks_in(mask))
        words = self.mbarriers.words(key, there)
        if (words == words[0]).all():
            return [mask]
        found = []
        for word in dict.fromkeys(words.tolist()):
            which = np.zeros(self.threads.batch, bool)
            which[there[words == word]] = True
            found.append(mask & self.threads.per_thread(which))
        return found

    def _equal(self, given: dict[str, Any], threads: Array) -> bool:
        """Whether each operand is the same for some threads."""
        parts = (
            self.threads.each(part)[threads]
            for value in given.values()
            for part in (value if isinstance(value, tuple) else (value,))
        )
        return all((part == part[0]).all() for part in parts)

    def _askers(self, bound: Bound, given: dict[str, Any], mask: Array) -> list[Array]:
        """The threads that ask together: with equal operands, or of one warp or warpgroup."""
        threads = self.taking(bound, mask)
        if bound.lanes > 1:
            return [threads[start : start + bound.lanes] for start in range(0, len(threads), bound.lanes)]
        if self._equal(given, threads):
            return [threads]
        parts = [
            self.threads.each(part)[threads]
            for value in given.values()
            for part in (value if isinstance(value, tuple) else (value,))
        ]
        keys: dict[tuple[Any, ...], list[int]] = {}
        for thread, key in zip(threads.tolist(), zip(*(part.tolist() for part in parts), strict=True), strict=True):
            keys.setdefault(key, []).append(thread)
        return [np.array(own, np.int64) for own in keys.values()]

    def taking(self, bound: Bound, mask: Array) -> Array:
        """The threads whose registers an instruction takes: all of a warp or warpgroup."""
        found: Array
        if mask is self.threads.everyone and not self.threads.warps % 4:
            return self.threads.numbers
        batch, each = self.threads.batch, self.threads.warps
        if bound.lanes == 1:
            found = np.nonzero(mask)[0]
            return found
        warps: Array = np.asarray(mask.reshape(-1, LANES).any(1))
        if bound.lanes == 128:
            whole = warps.reshape(batch, each)
            if each % 4:
                whole = np.pad(whole, ((0, 0), (0, -each % 4)))
            groups: Array = np.asarray(whole.reshape(batch, -1, 4).any(2))
            if each % 4 and groups[:, -1].any():
                said = f"an instruction of a warpgroup needs 4 warps; the last warpgroup of this block has {each % 4}"
                raise Stop("INVALID_OPERAND", said)
            warps = np.repeat(groups, 4, axis=1)[:, :each].reshape(-1)
        found = self.threads.numbers if warps.all() else np.nonzero(np.repeat(warps, LANES))[0]
        if self.events.incomplete and np.count_nonzero(mask) != len(found):
            for hear in self.events.incomplete:
                hear(self.block, bound, found[~mask[found]])
        return found

    def ask(self, bound: Bound, given: dict[str, Any], threads: Array, mask: Array) -> Effects:
        """The effects of an instruction for some threads."""
        for hear in self.events.asking:
            hear(self.block, bound, threads)
        try:
            operands = Operands(bound, given, self, threads, mask)
            found: Effects = bound.model.effects(bound.form, operands, Look(self, threads))
        except TcsimError as error:
            raise Stop(rule_for(error, "INVALID_OPERAND"), str(error), int(threads[0])) from None
        for hear in self.events.asked:
            hear(self.block, bound, given, found, threads, mask)
        return found

    def _take(self, bound: Bound, found: Effects, threads: Array, mask: Array) -> None:
        """Apply effects of an instruction that does not wait."""
        for hear in self.events.performed:
            hear(self.block, bound, found, threads, mask)
        if bound.inexact:
            self.inexact.counts[bound.model.mnemonic] += len(threads)
        for name, numbers in bound.results:
            if name in found.now.registers:
                self.put(numbers, found.now.registers[name], threads, mask)
        self.apply(found.now, threads)
        for pending in found.pending:
            counts = self.committed(pending.group or "")
            own = threads if pending.threads is None or bound.lanes > 1 else threads[pending.threads]
            self.queue.add(Flight(pending, bound, self.block, own, counts[own].copy(), threads))
        for group in found.groups:
            counts = self.committed(group.kind)
            for hear in self.events.grouped:
                hear(self.block, group, threads)
            if group.op == "commit":
                counts[threads] += 1
            elif group.op == "wait":
                self.queue.wait(group.kind, self.block, threads, counts, group.pending, group.reads_only)
            else:
                self.queue.track(group.kind, group.then, self.block, threads)

    def land(self, numbers: frozenset[int], w: Mask) -> None:
        """Complete the work that writes some registers, because an instruction of some threads touches them.

        Whether ptxas orders an accumulator that no wait covers cannot be known here: it does in loops, and not always in straight
        code (ptxas 13.0 and 13.5; an H200 gave what the product had not yet written). So it is named as inexact.
        """
        mask = self.threads.mask(w)
        for hear in self.events.needed:
            hear(self.block, numbers, mask)
        for flight in [own for own in self.queue.unwaited if own.block is self.block]:
            touching = int(np.count_nonzero(mask[flight.threads]))
            if touching and not flight.bound.written.isdisjoint(numbers):
                self.inexact.counts[f"{flight.bound.model.mnemonic}, accumulator before a wait"] += touching
        for flight in [
            own for own in self.queue.flights if own.block is self.block and own.bound.model.row.lands_later
        ]:
            holds = not flight.bound.written.isdisjoint(numbers) and mask[flight.threads].any()
            if holds and flight in self.queue.flights:  # those before it may have completed with another
                self.queue.finish(self.queue.part(flight, flight.threads[mask[flight.threads]]))

    def committed(self, kind: str) -> Array:
        """Of each thread: how many groups of a kind it has committed."""
        found = self.groups.get(kind)
        if found is None:
            found = self.groups[kind] = np.zeros(self.threads.count, np.int64)
        return found

    def put(self, numbers: Array, values: Array, threads: Array, mask: Array) -> None:
        """Results into the registers of those that execute."""
        flat = np.broadcast_to(values, (len(threads),)) if values.ndim == 0 else values
        flat = flat.reshape(len(threads), -1)
        if flat.dtype == np.uint32 and flat.shape[1] == 2 * len(numbers):
            flat = np.ascontiguousarray(flat).view(np.uint64)
        if mask is not self.threads.everyone:
            active = mask[threads]
            if not active.all():
                threads, flat = threads[active], flat[active]
        self.file.scatter(numbers, None if len(threads) == self.threads.count else threads, flat)

    # --- what has to wait

    def _waiting(self, condition: Condition, here: int) -> Wait:
        if condition.kind != "mbarrier" or condition.at is None:
            return Wait("resource", here, text=condition.kind)
        return Wait(
            "mbarrier", here, address=int(self.mbarriers.keys(condition.at)[0]), text=f"phase {condition.value}"
        )

    def _resources(self, found: Effects, threads: Array) -> Resource | None:
        """Take or give back what an instruction asks for; what is lacking, if it has to wait."""
        for resource in found.resources:
            block = self.threads.block_of(threads)
            granted = self.resources.take(resource, warps_of(threads % self.threads.width), block)
            if granted is None:
                return resource
            outcome = resource.then(granted) if resource.then is not None else None
            for hear in self.events.granted:
                hear(self.block, resource, outcome, threads)
            if outcome is not None:
                self.apply(outcome, threads)
            for hear in self.events.given:
                hear()
            self.threads.change(threads)
            if resource.delta < 0 or resource.kind == "registers":
                self.cluster.wake("resource", None, block)
        return None

    # --- work in flight

    def look(self, flight: Flight) -> Look:
        """The machine as work in flight sees it."""
        return Look(self, flight.asked if flight.bound.lanes > 1 else flight.threads, flight)

    def finish(self, flight: Flight, outcome: Outcome) -> None:
        """What work in flight comes to."""
        if flight.replicated:
            writes = (
                replace(own, at=_in_each(own.at, len(flight.asked)), data=own.data.reshape(-1, own.at.size))
                for own in outcome.writes
            )
            outcome = replace(outcome, writes=tuple(writes))
        for hear in self.events.delivering:
            hear(flight, outcome)
        for name, numbers in flight.bound.results:
            if name in outcome.registers:
                values, threads = outcome.registers[name], flight.threads
                if flight.only is not None:
                    values = values.reshape(len(flight.asked), -1)[np.isin(flight.asked, threads)]
                self.put(numbers, values, threads, self.threads.everyone)
        self.apply(outcome, flight.asked, flight.only)
        self.threads.change(flight.threads)
        for hear in self.events.delivered:
            hear(flight, outcome)

    def apply(self, outcome: Outcome, threads: Array, only: Array | None = None) -> None:
        """Writes and signals; only: the blocks of the batch for which writes are done."""
        for write in outcome.writes:
            self.octets.apply(write, threads, only)
        for signal in outcome.signals:
            self.mbarriers.signal(signal if only is None else self._part(signal, threads, only), threads)

    def _part(self, signal: Signal, threads: Array, only: Array) -> Signal:
        """What a signal tells objects of some blocks of the batch. threads: of the instruction, of whose entries each is one's."""
        at, blocks = signal.at, self.threads.block_of(threads)
        lanes = np.arange(at.address.size) if at.thread is None else at.thread.reshape(-1)
        kept = only[blocks[lanes]] if np.ndim(blocks) else np.full(len(lanes), only[blocks])
        if kept.all():
            return signal
        count = np.broadcast_to(signal.count, at.address.shape).reshape(-1)[kept]
        cta = at.cta if at.cta is None or not np.ndim(at.cta) else np.broadcast_to(at.cta, lanes.shape)[kept]
        return replace(
            signal, at=replace(at, address=at.address.reshape(-1)[kept], thread=lanes[kept], cta=cta), count=count
        )
