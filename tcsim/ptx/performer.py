"""Instructions of the catalog on the machine: their effects are asked for, and done now or when their groups are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.core.errors import TcsimError
from tcsim.model.effects import Access, Pending, Write
from tcsim.ptx.accesses import Accesses
from tcsim.ptx.families import Bound, gathered
from tcsim.ptx.memory import MemoryFault
from tcsim.ptx.threads import LANES, TYPED, Array, Mask, Stop


@dataclass(eq=False)
class Flight:
    """Work that goes on: who issued it, and in which of their groups."""

    pending: Pending
    bound: Bound
    threads: Array
    groups: Array


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
        numbers = next(own for operand, own, _ in self.flight.bound.results if operand == name)
        parts = [self.block.registers[number][self.flight.threads] for number in numbers]
        stacked = np.stack(parts, axis=-1)
        if stacked.dtype == np.uint64:
            stacked = stacked.view(np.uint32)
        return stacked.reshape(-1, self.flight.bound.lanes, stacked.shape[-1])


def warps_of(threads: Array) -> Array:
    """The numbers of the warps of whole warps of threads, or of the first of each 32."""
    return np.asarray(threads[::LANES] // LANES)


class Performer(Accesses):
    """Threads with memory that perform instructions of the catalog."""

    registers: list[Array]
    queue: list[Flight]  # work in flight, the oldest first
    groups: dict[str, Array]  # of each kind: how many groups every thread has committed
    early: bool  # whether work is done as soon as it is issued
    rank: int = 0  # of the CTA in its cluster
    warp: Array  # that ask for effects

    # --- instructions of the catalog

    def perform(self, bound: Bound, given: dict[str, Any], w: Mask) -> None:
        """Run an instruction through its effects: registers and writes now, pending work in its groups."""
        mask = self._array(w)
        taken: Array = mask
        if bound.lanes > 1:
            warps: Array = np.asarray(self._warped(mask, bool).any(1))
            if bound.lanes == 128:
                warps = np.repeat(np.pad(warps, (0, -len(warps) % 4)).reshape(-1, 4).any(1), 4)[: self.warps]
            taken = np.repeat(np.asarray(warps), LANES)[: self.threads]
        threads: Array = np.nonzero(taken)[0]
        if not len(threads):
            return
        operands = {
            slot.name: gathered(bound, slot, given[slot.name], self.threads, threads)
            for slot in bound.form.operands
            if slot.name in given
        }
        self.warp = warps_of(threads)
        try:
            found = bound.model.effects(bound.form, operands, self)
        except TcsimError as error:
            raise Stop("TRAP", f"line {bound.line}: {error}", int(threads[0])) from None
        for name, numbers, _ in bound.results:
            if name not in found.now.registers:
                continue
            values = found.now.registers[name]
            self._results(numbers, values, threads)
        for write in found.now.writes:
            self.apply(write, threads)
        for pending in found.pending:
            counts = self.groups.setdefault(pending.group or "", np.zeros(self.threads, np.int64))
            self.queue.append(Flight(pending, bound, threads, counts[threads].copy()))
            if self.early:
                self._finish(len(self.queue) - 1)
        for group in found.groups:
            counts = self.groups.setdefault(group.kind, np.zeros(self.threads, np.int64))
            if group.op == "commit":
                counts[threads] += 1
            elif group.op == "wait":
                self._wait_groups(group.kind, threads, group.pending)

    def _results(self, numbers: tuple[int, ...], values: Array, threads: Array) -> None:
        flat = (
            values.reshape(len(threads), -1)
            if len(numbers) > 1 or values.size != len(threads)
            else values.reshape(len(threads), 1)
        )
        first = self.registers[numbers[0]]
        if first.dtype == np.uint64 and flat.dtype == np.uint32:
            flat = np.ascontiguousarray(flat).view(np.uint64)
        for place, number in enumerate(numbers):
            if number >= 0:
                self.registers[number][threads] = flat[:, place].astype(self.registers[number].dtype)

    def held(self, name: str) -> Array:
        """Nothing is held by what is not in flight."""
        raise Stop("TRAP", f"an instruction asks for the registers of {name}")

    def read(self, access: Access) -> Array:
        """The bytes of an access, for effects: uint8 (..., accesses, size)."""
        address = access.address
        if access.mask is not None:
            found = np.zeros((*address.shape, access.size), np.uint8)
            used = access.mask.any(-1)
            if used.any():
                for piece in range(access.size):
                    own = access.mask[..., piece] & np.ones(address.shape, bool)
                    if own.any():
                        found[..., piece][own] = self._octets(access.space, address[own] + piece, 1)[:, 0]
            return found
        flat = self._octets(access.space, address.reshape(-1), access.size)
        return flat.reshape(*address.shape, access.size)

    def _octets(self, space: str, addresses: Array, size: int) -> Array:
        places = addresses.astype(np.uint64)
        unit = next(unit for unit in (16, 8, 4, 2, 1) if size % unit == 0 and not (places & np.uint64(unit - 1)).any())
        found = np.empty((len(places), size), np.uint8)
        threads = np.zeros(len(places), np.int64)
        for own, segment, offset in self._parts("" if space == "generic" else space, places, 1, threads):
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece)
                if segment is None:
                    try:
                        values = self.memory.gather(at, unit)
                    except MemoryFault as fault:
                        raise Stop(fault.name, fault.detail) from None
                else:
                    if (at + np.uint64(unit) > np.uint64(segment.size)).any():
                        raise Stop("SMEM_OUT_OF_RANGE", f"{size} bytes at {int(offset.max()):#x} of {segment.size}")
                    values = segment.views[unit][(at - np.uint64(segment.start)).astype(np.int64) // unit]
                found[own, piece : piece + unit] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, unit)
        return found

    def apply(self, write: Write, threads: Array) -> None:
        """Do a write of an effect."""
        at = write.at
        address, data = at.address.reshape(-1), write.data.reshape(-1, at.size)
        mask = None if at.mask is None else np.broadcast_to(at.mask, write.data.shape).reshape(-1, at.size)
        if mask is None:
            self._put_octets(at.space, address, data)
            return
        for piece in range(at.size):
            own = mask[:, piece]
            if own.any():
                self._put_octets(at.space, address[own] + piece, data[own, piece : piece + 1])

    def _put_octets(self, space: str, addresses: Array, data: Array) -> None:
        places, size = addresses.astype(np.uint64), data.shape[1]
        unit = next(unit for unit in (16, 8, 4, 2, 1) if size % unit == 0 and not (places & np.uint64(unit - 1)).any())
        for own, segment, offset in self._parts(
            "" if space == "generic" else space, places, 1, np.zeros(len(places), np.int64)
        ):
            part = data[own]
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece)
                values = np.ascontiguousarray(part[:, piece : piece + unit]).view(
                    TYPED.get(unit, np.dtype((np.void, 16)))
                )[:, 0]
                if segment is None:
                    if self.memory.unmapped(at, unit) is not None:
                        raise Stop("GMEM_UNMAPPED", f"{size} bytes at {int(at[0]):#x}: nothing is mapped there")
                    self.memory.scatter(at, values, unit)
                else:
                    if (at + np.uint64(unit) > np.uint64(segment.size)).any():
                        raise Stop("SMEM_OUT_OF_RANGE", f"{size} bytes at {int(offset.max()):#x} of {segment.size}")
                    segment.views[unit][(at - np.uint64(segment.start)).astype(np.int64) // unit] = values

    def _finish(self, place: int) -> None:
        flight = self.queue.pop(place)
        outcome = flight.pending.finish(flight.pending.fetch(Holding(self, flight)))
        for write in outcome.writes:
            self.apply(write, flight.threads)
        for name, numbers, _ in flight.bound.results:
            if name in outcome.registers:
                self._results(numbers, outcome.registers[name], flight.threads)

    def _wait_groups(self, kind: str, threads: Array, left: int) -> None:
        """Finish the work of groups that are old enough, for any of the threads that wait."""
        waiting = np.zeros(self.threads, bool)
        waiting[threads] = True
        counts = self.groups[kind]
        place = 0
        while place < len(self.queue):
            flight = self.queue[place]
            own = flight.threads
            if flight.pending.group == kind and (waiting[own] & (flight.groups < counts[own] - left)).any():
                self._finish(place)
            else:
                place += 1
