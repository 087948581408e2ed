"""Instructions of the catalog on the machine: their effects are asked for, and done now or when their work completes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.core.errors import TcsimError
from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Condition, Effects, Outcome, Resource, Signal
from tcsim.ptx.compile.families import Bound, Operands, Rows, Together, stacked
from tcsim.ptx.machine import mbarriers
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.faults import Stop, rule_for
from tcsim.ptx.machine.fibers import Wait
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.octets import Octets
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.register_file import RegisterFile
from tcsim.ptx.machine.tensor_memory import Columns
from tcsim.ptx.machine.view import ClusterView


@dataclass(eq=False)
class Holding:
    """The machine as pending work looks at it."""

    block: Performer
    flight: Flight

    @property
    def rank(self) -> int:
        """The rank of the CTA in its cluster."""
        return self.block.rank

    @property
    def warp(self) -> Array:
        """The warps that issued the work."""
        return warps_of(self.flight.threads)

    def read(self, access: Access) -> Array:
        """The bytes of an access."""
        return self.block.read(access)

    def held(self, name: str) -> Array:
        """The registers of an operand, now."""
        flight, block = self.flight, self.block
        numbers = next(own for operand, own in flight.bound.results if operand == name)
        found: Array = stacked(Rows(numbers), block, flight.threads, (-1, flight.bound.lanes), True)
        return found


def warps_of(threads: Array) -> Array:
    """The numbers of the warps of whole warps of threads, or of the first of each 32."""
    return np.asarray(threads[::LANES] // LANES)


_UNITS = {"registers": "registers for each of its threads", "tmem": "columns of Tensor Memory"}


def _lacking(resource: Resource) -> str:
    """What an instruction asks for, in words."""
    return f"{resource.delta} {_UNITS.get(resource.kind, resource.kind)}"


class Performer(Octets):
    """Threads with memory that perform instructions of the catalog."""

    file: RegisterFile
    queue: Queue
    cluster: ClusterView
    arch: str
    warp: Array  # that ask for effects
    chains = True  # whether work that is a chain may be finished in one go

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.warp_numbers = warps_of(self.numbers)
        self.groups: dict[str, Array] = {}  # of each kind: how many groups every thread has committed

    # --- instructions of the catalog

    def perform(self, bound: Bound, given: dict[str, Any], w: Mask) -> None:
        """Run an instruction through its effects: registers and writes now, pending work in its groups."""
        mask = self._array(w)
        if bound.form.together == "member_mask" and self._parted(bound, given, mask):
            return
        threads = self._taking(bound, mask)
        if not len(threads):
            return
        found = self._ask(bound, given, threads, mask)
        if found.blocked is not None:
            raise Stop(
                "INVALID_OPERAND", f"an instruction waits here that cannot wait: {found.blocked.kind}", int(threads[0])
            )
        self._take(bound, found, threads, mask)

    def _parted(self, bound: Bound, given: dict[str, Any], mask: Array) -> bool:
        """Run an instruction for the threads of each member mask apart, if there are several."""
        masks = np.broadcast_to(given.get("membermask", 0), (self.threads,))
        values = np.unique(masks[mask])
        for value in values if len(values) > 1 else ():
            self.perform(bound, given, mask & (masks == value))
        return len(values) > 1

    def perform_together(self, run: Together, w: Mask) -> None:
        """Run instructions that only compute, on registers that none of them writes, in one call."""
        mask, bound = self._array(w), run.bound
        threads = self._taking(bound, mask)
        if not len(threads):
            return
        if bound.inexact:
            self.inexact[bound.model.mnemonic] += len(run.results[0][1]) * len(threads)
        some = None if len(threads) == self.threads else threads
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

    def attempt(self, bound: Bound, given: dict[str, Any], w: Mask, here: int, after: int) -> Any:
        """Run an instruction that may wait; threads with different operands ask apart."""
        mask = self._array(w)
        moves: list[tuple[Array, Any]] = []
        on = np.zeros(self.threads, bool)
        for threads in self._askers(bound, given, mask):
            found = self._ask(bound, given, threads, mask)
            own = np.zeros(self.threads, bool)
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
        if on.any():
            moves.append((on, after))
        return moves

    def _askers(self, bound: Bound, given: dict[str, Any], mask: Array) -> list[Array]:
        """The threads that ask together: with equal operands, or of one warp or warpgroup."""
        threads = self._taking(bound, mask)
        if bound.lanes > 1:
            return [threads[start : start + bound.lanes] for start in range(0, len(threads), bound.lanes)]
        parts = [
            spread(part, (self.threads,))[threads]
            for value in given.values()
            for part in (value if isinstance(value, tuple) else (value,))
        ]
        if all((part == part[0]).all() for part in parts):
            return [threads]
        keys: dict[tuple[Any, ...], list[int]] = {}
        for thread, key in zip(threads.tolist(), zip(*(part.tolist() for part in parts), strict=True), strict=True):
            keys.setdefault(key, []).append(thread)
        return [np.array(own, np.int64) for own in keys.values()]

    def _taking(self, bound: Bound, mask: Array) -> Array:
        """The threads whose registers an instruction takes: all of a warp or warpgroup."""
        found: Array
        if mask is self._everything and not self.warps % 4:
            return self.numbers
        if bound.lanes == 1:
            found = np.nonzero(mask)[0]
            return found
        warps: Array = np.asarray(mask.reshape(self.warps, LANES).any(1))
        if bound.lanes == 128:
            groups: Array = np.asarray(np.pad(warps, (0, -self.warps % 4)).reshape(-1, 4).any(1))
            if self.warps % 4 and groups[-1]:
                raise Stop(
                    "INVALID_OPERAND",
                    f"an instruction of warpgroups in one of {self.warps % 4} warps: the block has no more",
                )
            warps = np.repeat(groups, 4)[: self.warps]
        found = self.numbers if warps.all() else np.nonzero(np.repeat(warps, LANES))[0]
        if self.observer is not None and np.count_nonzero(mask) != len(found):
            self.observer.incomplete(self, bound, found[~mask[found]])
        return found

    def _ask(self, bound: Bound, given: dict[str, Any], threads: Array, mask: Array) -> Effects:
        self.warp = self.warp_numbers if threads is self.numbers else warps_of(threads)
        try:
            found: Effects = bound.model.effects(bound.form, Operands(bound, given, self, threads, mask), self)
        except TcsimError as error:
            raise Stop(rule_for(error, "INVALID_OPERAND"), str(error), int(threads[0])) from None
        return found

    def _take(self, bound: Bound, found: Effects, threads: Array, mask: Array) -> None:
        """Apply effects of an instruction that does not wait."""
        if self.observer is not None:
            self.observer.performed(self, bound, found, threads, mask)
        if bound.inexact:
            self.inexact[bound.model.mnemonic] += len(threads)
        for name, numbers in bound.results:
            if name in found.now.registers:
                self._results(numbers, found.now.registers[name], threads, mask)
        self._apply(found.now, threads)
        for pending in found.pending:
            counts = self.committed(pending.group or "")
            own = threads if pending.threads is None or bound.lanes > 1 else threads[pending.threads]
            self.queue.add(Flight(pending, bound, self, own, counts[own].copy(), threads))
        for group in found.groups:
            counts = self.committed(group.kind)
            if self.observer is not None:
                self.observer.grouped(self, group, threads)
            if group.op == "commit":
                counts[threads] += 1
            elif group.op == "wait":
                self.queue.wait(group.kind, self, threads, counts, group.pending, group.reads_only)
            else:
                self.queue.track(group.kind, group.then, self, threads)

    def land(self, numbers: frozenset[int], w: Mask) -> None:
        """Complete the work that writes some registers, because an instruction of some threads touches them.

        Whether ptxas orders an accumulator that no wait covers cannot be known here: it does in loops, and not always in straight
        code (ptxas 13.0 and 13.5; an H200 gave what the product had not yet written). So it is named as inexact.
        """
        mask = self._array(w)
        if self.observer is not None:
            self.observer.needed(self, numbers, mask)
        for flight in [own for own in self.queue.unwaited if own.block is self]:
            touching = int(np.count_nonzero(mask[flight.threads]))
            if touching and not flight.bound.written.isdisjoint(numbers):
                self.inexact[f"{flight.bound.model.mnemonic}, accumulator before a wait"] += touching
        for flight in [own for own in self.queue.flights if own.block is self and own.bound.model.row.lands_later]:
            holds = not flight.bound.written.isdisjoint(numbers) and mask[flight.threads].any()
            if holds and flight in self.queue.flights:  # those before it may have completed with another
                self.queue.finish(flight)

    def committed(self, kind: str) -> Array:
        """Of each thread: how many groups of a kind it has committed."""
        found = self.groups.get(kind)
        if found is None:
            found = self.groups[kind] = np.zeros(self.threads, np.int64)
        return found

    def _results(self, numbers: Array, values: Array, threads: Array, mask: Array) -> None:
        """Results into the registers of those that execute."""
        flat = np.broadcast_to(values, (len(threads),)) if values.ndim == 0 else values
        flat = flat.reshape(len(threads), -1)
        if flat.dtype == np.uint32 and flat.shape[1] == 2 * len(numbers):
            flat = np.ascontiguousarray(flat).view(np.uint64)
        if mask is not self._everything:
            active = mask[threads]
            if not active.all():
                threads, flat = threads[active], flat[active]
        self.file.scatter(numbers, None if len(threads) == self.threads else threads, flat)

    # --- waiting

    def _waiting(self, condition: Condition, here: int) -> Wait:
        if condition.kind != "mbarrier" or condition.at is None:
            return Wait("resource", here, text=condition.kind)
        return Wait("mbarrier", here, address=int(self.keys(condition.at)[0]), text=f"phase {condition.value}")

    def _resources(self, found: Effects, threads: Array) -> Resource | None:
        """Take or give back what an instruction asks for; what is lacking, if it has to wait."""
        for resource in found.resources:
            granted = self._resource(resource, threads)
            if granted is None:
                return resource
            outcome = resource.then(granted) if resource.then is not None else None
            if self.observer is not None:
                self.observer.granted(self, resource, outcome, threads)
            if outcome is not None:
                self._apply(outcome, threads)
            if self.observer is not None:
                self.observer.given()
            self.changed = True
            if resource.delta < 0 or resource.kind == "registers":
                self.cluster.wake("resource")
        return None

    def _resource(self, resource: Resource, threads: Array) -> int | None:
        """What is granted, or None if it is not there."""
        if resource.kind == "registers":
            return 0 if self.registers_wanted(warps_of(threads), resource.delta) else None
        if resource.kind == "tmem":
            return self._columns(resource)
        if resource.kind == "launch":
            self.inexact["clusterlaunchcontrol.try_cancel"] += (
                self.cluster.others
            )  # who comes first is the machine's own
            return encode_response(self.cluster.cancel())
        return 0

    def registers_wanted(self, warps: Array, count: int) -> bool:
        """Whether some warps get the registers that they ask for."""
        raise NotImplementedError

    def _columns(self, resource: Resource) -> int | None:
        """Columns of Tensor Memory; a pair of CTAs takes the same ones, when a warp of each has asked."""
        if resource.delta < 0:
            self.columns.free(resource.address & 0xFFFF, -resource.delta)
            return 0
        if not resource.pair:
            return self.columns.take(
                Columns.fitting([self.columns], resource.delta, resource.exclusive), resource.delta
            )
        cluster, other = self.cluster, self.rank ^ 1
        if self.rank in cluster.granted:
            return cluster.granted.pop(self.rank)
        cluster.asking.add(self.rank)
        if other not in cluster.asking:
            return None
        both = [self.columns, cluster.blocks[other].columns]
        start = Columns.fitting(both, resource.delta, resource.exclusive)
        if start is None:
            return None
        for own in both:
            own.take(start, resource.delta)
        cluster.asking -= {self.rank, other}
        cluster.granted[other] = start
        cluster.wake("resource")
        return start

    # --- outcomes

    def holding(self, flight: Flight) -> Holding:
        """The machine as work in flight sees it."""
        return Holding(self, flight)

    def finished(self, flight: Flight, outcome: Outcome) -> None:
        """What work in flight comes to."""
        for name, numbers in flight.bound.results:
            if name in outcome.registers:
                self._results(numbers, outcome.registers[name], flight.threads, self._everything)
        self.take_outcome(outcome, flight.asked)
        self.changed = True

    def take_outcome(self, outcome: Outcome, threads: Array) -> None:
        """Writes and signals."""
        self._apply(outcome, threads)

    def _apply(self, outcome: Outcome, threads: Array) -> None:
        for write in outcome.writes:
            self.apply(write, threads)
        for signal in outcome.signals:
            self._signal(signal, threads)

    def _signal(self, signal: Signal, threads: Array) -> None:
        """Change the objects that a signal is for, and let threads ask again that wait for them."""
        for at in self.copies(signal.at):
            for key, count, own in mbarriers.told(signal, self.keys(at), threads):
                before = self.word(key)
                try:
                    value = mbarriers.after(signal, count, before, self.arch)
                except TcsimError as error:
                    name = rule_for(error, "MBARRIER_FAULT")
                    raise Stop(name, f"mbarrier at {key:#x}: {error}", int(own[0])) from None
                if self.observer is not None:
                    self.observer.signalled(self, signal, key, count, before, value, own)
                self.put_octets("shared", np.array([key]), np.array([value], np.uint64).view(np.uint8).reshape(1, 8))
                self.cluster.wake("mbarrier", key)
        self.changed = True

    def keys(self, at: Access) -> Array:
        """The addresses of mbarriers in shared memory of the cluster."""
        found = self.places(at)[0]
        if at.space == "generic":
            outside = found.astype(np.uint64) >> np.uint64(32) != np.uint64(SHARED_WINDOW >> 32)
            if outside.any():
                where = int(found[int(np.argmax(outside))]) & (1 << 64) - 1
                raise Stop("MBARRIER_FAULT", f"an mbarrier at {where:#x}, which is not in shared memory")
        keys = found & 0xFFFFFFFF
        if (keys & 7).any():
            raise Stop(
                "MBAR_MISALIGNED",
                f"an mbarrier at {int(keys[int(np.argmax(keys & 7 != 0))]):#x}; valid: multiples of 8",
            )
        return keys

    def word(self, address: int) -> int:
        """The 64 bits at an address of shared memory."""
        return int(self._octets("shared", np.array([address]), 8).view(np.uint64)[0, 0])

    def held(self, name: str) -> Array:
        """Nothing is held by what is not in flight."""
        raise Stop("TRAP", f"an instruction asks for the registers of {name}")
