"""How the threads of a block reach memory: loads, stores and atomics of every state space, checked."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tcsim.core.arguments import spread
from tcsim.isa.scalar.atomic import Atomic, combination
from tcsim.isa.scalar.table import CONTAINERS, Compute
from tcsim.lowering.strip import STORED_AT_ONCE
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.ptx.machine.arrays import LANES, TYPED, Array, Mask
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.reach import Reach
from tcsim.ptx.machine.spaces import Parts, Spaces
from tcsim.ptx.machine.threads import Threads


def store_order(threads: Array, size: int) -> Array:
    """In which order threads, which ascend, store some bytes each: a warp goes in parts of 128 bytes, and of a part the lowest lane comes last.

    Measured on an H200 for 1 to 16 bytes in global and shared memory; the manual leaves it open.

    >>> store_order(np.array([0, 1, 5, 8, 9, 40]), 16).tolist()  # parts of eight lanes
    [2, 1, 0, 4, 3, 5]
    """
    last, count = min(LANES, STORED_AT_ONCE // size) - 1, len(threads)
    if threads[-1] - threads[0] == count - 1 and not (threads[0] | count) & last:  # whole parts
        return np.arange(count) ^ last
    return np.argsort(threads ^ last)


def _rise(places: Array) -> bool:
    """Whether each place is above the one before it: then no two threads meet."""
    return bool((places[1:] > places[:-1]).all())


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
"""By the name of the operation: they leave the same of integers in whatever order threads come."""
_REDUCED = frozenset(("u32", "s32", "b32", "u64", "s64", "b64"))


def _first(threads: Array, keys: Array) -> Array:
    """The first thread of every key."""
    _, first = np.unique(keys, return_index=True)
    return threads[np.sort(first)]


def _unhindered(threads: Array, places: Array) -> Array:
    """Of threads that try to swap 8 bytes each, those that get to try: of half a warp the first at every place modulo 128 bytes, as banks lie.

    Found from the values that all lanes of 64 warps saw on an H200: no other period and no other part of a warp explains them.
    """
    halves = (threads // (LANES // 2)).astype(np.uint64)
    return _first(threads, halves * np.uint64(STORED_AT_ONCE) + places % np.uint64(STORED_AT_ONCE))


class Accesses:
    """The accesses of a block."""

    def __init__(self, block: object, threads: Threads, spaces: Spaces, inexact: Inexact, events: Events) -> None:
        self.block, self.threads, self.spaces, self.inexact, self.events = block, threads, spaces, inexact, events
        self.reach = Reach(threads, spaces, events)

    def is_space(self, address: Array, space: str) -> Array:
        """Whether generic addresses lie in a state space."""
        return self.spaces.is_space(address, space)

    def load(self, space: str, addresses: Array, size: int, w: Mask, alone: bool = True) -> Array:
        """What lies at addresses, for every thread: unsigned integers of 1 to 8 bytes, else uint8 (threads, size).

        alone: it is an access of its own, not a part of an atomic.
        """
        count, dtype, shape = self.threads.count, TYPED.get(size, np.dtype(np.uint8)), () if size in TYPED else (size,)
        if w is True:
            threads, taken = self.threads.numbers, addresses
        else:
            threads = np.nonzero(w)[0]
            taken = addresses[threads]
            if not len(threads):
                return np.zeros((count, *shape), dtype)
        unit = size if not shape or size == 16 else 16
        found = np.empty((len(threads), *shape), dtype)
        parts = self.spaces.parts(space, taken, size, threads)
        for own, segment, offset in parts:
            for hear in self.events.accessed if alone else ():
                hear(self.block, "read", segment, offset, size, threads[own])
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece) if piece else offset
                block = self.threads.block_of(threads[own]) if segment is None else 0
                values = self.spaces.gather(segment, at, unit, threads[own], block)
                if shape:
                    found[own, piece : piece + unit] = values.view(np.uint8).reshape(-1, unit)
                else:
                    found[own] = values
        for hear in self.events.loaded:
            for own, segment, offset in parts:
                hear(self.block, segment, offset, size, threads[own])
        if w is True:
            return found
        full = np.zeros((count, *shape), dtype)
        full[threads] = found
        return full

    def store(self, space: str, addresses: Array, values: Array, size: int, w: Mask, alone: bool = True) -> None:
        """Store unsigned integers, or parts joined; where lanes of a warp meet, the bytes of the one that `store_order` has last stay."""
        self.threads.change(w)
        values = spread(values, (self.threads.count,))
        if w is True:
            threads = self.threads.numbers
        else:
            threads = np.nonzero(w)[0]
            if not len(threads):
                return
            addresses, values = addresses[threads], values[threads]
        if size in TYPED:
            values = values.astype(TYPED[size], copy=False)
        unit = min(size, 16)
        parts = self.spaces.parts(space, addresses, size, threads)
        for own, segment, offset in parts:
            for hear in self.events.accessed if alone else ():
                hear(self.block, "write", segment, offset, size, threads[own], values[own])
            who, part = threads[own], values[own]
            turns: Any = slice(None) if not alone or _rise(offset) else store_order(who, size)
            for piece in range(0, size, unit):
                if size > 16:
                    octets = np.ascontiguousarray(values[own]).view(np.uint8).reshape(-1, size)[:, piece : piece + 16]
                    part = np.ascontiguousarray(octets).view(np.dtype((np.void, 16)))[:, 0]
                at = offset + np.uint64(piece) if piece else offset
                block = self.threads.block_of(who) if segment is None else 0
                self.spaces.scatter(segment, at, part, unit, size, who, turns, block)
        for hear in self.events.stored:
            for own, segment, offset in parts:
                turns = store_order(threads[own], size)
                hear(self.block, segment, offset[turns], size, threads[own][turns])

    def _combination(self, item: Atomic, space: str, addresses: Array) -> Compute:
        """What an atomic makes of the old values of all threads: of a generic address that of the memory it lies in."""
        outside = combination(item, space)
        if space:
            return outside
        within, inside = combination(item, "shared"), addresses >= np.uint64(SHARED_WINDOW)
        if within is outside or not inside.any():
            return outside
        return lambda *codes: np.where(inside, within(*codes), outside(*codes))

    def atomic(
        self, space: str, addresses: Array, item: Atomic, sources: Any, w: Mask, needed: int, told: bool
    ) -> list[Array]:  # fmt: skip
        """Atomics, thread after thread; the old values of each element. told: whether these are read. needed: the bits by which the order may show."""
        container = CONTAINERS[item.type]
        size, combine = container.itemsize, self._combination(item, space, addresses)
        count, threads = self.threads.count, self.threads.numbers if w is True else np.nonzero(w)[0]
        loops = item.loops and space.startswith("shared")
        parts = self.spaces.parts(space, addresses[threads], size * item.count, threads) if len(threads) else []
        for own, segment, offset in parts:
            for hear in self.events.accessed:
                hear(self.block, "atomic", segment, offset, size * item.count, threads[own])
        if self._reduces(item, space, told) and self._reduced(item, self.threads.each(sources[0][0]), threads, parts):
            return [np.zeros(count, container)]
        results = []
        for place, operands in enumerate(sources):
            given = [self.threads.each(own) for own in operands]
            old = np.zeros(count, container)
            places = addresses + np.uint64(place * size)
            left = threads
            while len(left):  # each pass takes the first thread of every address
                able = _unhindered(left, places[left]) if loops else left
                now = _first(able, self._apart(space, places[able], able))
                mask = np.zeros(count, bool)
                mask[now] = True
                before = self.load(space, places, size, mask, False)
                before = before if before.ndim == 1 else before.view(container)[:, 0]
                old[now] = before[now]
                after, changed = combine(before, *given), self.threads.has_changed()
                left_there = np.broadcast_to(after, before.shape)[now]
                self.inexact.took_turns(
                    item, space, places[now], now, before[now], left_there, [own[now] for own in given], needed
                )
                self.store(space, places, after, size, mask, False)
                self.threads.changed = changed
                which = left_there != before[now] if left_there.ndim == 1 else (left_there != before[now]).any(1)
                if which.any():
                    self.threads.change(now[which])
                left = left[~mask[left]]
            results.append(old)
        return results

    def _apart(self, space: str, places: Array, threads: Array) -> Array:
        """Places as numbers that differ where blocks of a batch have memory of their own."""
        if self.threads.batch == 1 or space == "global":
            return places
        own = (threads // self.threads.width).astype(np.uint64) << np.uint64(32)
        return places | (own if space else np.where(places >= np.uint64(SHARED_WINDOW), own, np.uint64(0)))

    def _reduces(self, item: Atomic, space: str, told: bool) -> bool:
        """Whether an atomic tells nobody what was there, and leaves the same in every order, and no other tells it of the same memory."""
        others = self.inexact.tells_order and (space != "global" or self.inexact.competes)
        if told or others or self.events.loaded or self.events.stored:
            return False
        return item.count == 1 and item.operation in _REDUCTIONS and item.type in _REDUCED

    def _reduced(self, item: Atomic, values: Array, threads: Array, parts: Parts) -> bool:
        """Do reductions, all at once; False, and nothing is done, where they are not in one piece of memory each."""
        container = CONTAINERS[item.type]
        size, function = container.itemsize, _REDUCTIONS[item.operation]
        type = np.dtype(f"i{size}") if item.type[0] == "s" else container
        places = [self.spaces.values(segment, offset, size) for _, segment, offset in parts]
        if None in places:
            return False
        for (own, segment, offset), place in zip(parts, places, strict=True):
            self.spaces.reducing(segment, offset, size, item.mnemonic)
            view, index = cast(tuple[Array, Array], place)
            before, given, who = view[index].view(type), values[threads[own]].view(type), threads[own]
            changed = function(before, given) != before
            function.at(view.view(type), index, given)
            if changed.any():
                self.threads.change(who[changed])
        return True

    def copy_local(self, to: Array, what: Array, size: int, w: Mask) -> None:
        """Copy bytes between places of local memory: an argument or a result."""
        at = 0
        while at < size:
            unit = next(own for own in (8, 4, 2, 1) if size - at >= own and self._aligned(to, what, at, own, w))
            self.store("local", to + np.uint64(at), self.load("local", what + np.uint64(at), unit, w), unit, w)
            at += unit

    def _aligned(self, to: Array, what: Array, at: int, unit: int, w: Mask) -> bool:
        places = (to | what)[self.threads.mask(w)] | np.uint64(at)
        return not (places & np.uint64(unit - 1)).any()
