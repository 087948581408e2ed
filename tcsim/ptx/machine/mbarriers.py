"""mbarrier objects in shared memory: what signals make of their 64 bits, and whether a phase has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tcsim.core.arguments import spread
from tcsim.core.errors import TcsimError
from tcsim.memory import mbarrier_bits
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Signal
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import Stop, rule_for
from tcsim.ptx.machine.octets import Octets
from tcsim.ptx.machine.threads import RANK_SHIFT
from tcsim.ptx.machine.view import ClusterView

_ACTIONS: dict[str, Callable[[MBarrier, int], object]] = {
    "arrive": MBarrier.arrive,
    "drop": MBarrier.arrive_drop,
    "expect_tx": MBarrier.expect_tx,
    "complete_tx": MBarrier.complete_tx,
    "increment": MBarrier.increment,
}


def after(signal: Signal, count: int, value: int, arch: str) -> int:
    """The 64 bits of an object after a signal with some count.

    Raises BarrierError where the hardware does not define what happens.
    """
    return _after(signal.kind, signal.layout, signal.no_complete, count, value, arch)


@lru_cache(maxsize=4096)
def _after(kind: str, layout: str, no_complete: bool, count: int, value: int, arch: str) -> int:
    if kind == "init":
        return MBarrier(count, layout).encode(arch=arch)
    if kind == "inval":
        return 0
    barrier = MBarrier.decode(value, arch=arch)
    if no_complete:
        action = barrier.arrive if kind == "arrive" else barrier.arrive_drop
        action(count, no_complete=True)
    else:
        _ACTIONS[kind](barrier, count)
    return barrier.encode(arch=arch)


def told(signal: Signal, addresses: Array, threads: Array) -> list[tuple[int, int, Array]]:
    """(address, count, threads) of a signal, in order: what the threads of a warp tell one object is added up.

    Source: an H200, where 2**20 bytes in all fault though the transaction count stays in its range
    (conformance/recordings/sm_90/mbarrier-limits.json).
    """
    counts = spread(signal.count, signal.at.address.shape).reshape(-1).tolist()
    lanes = signal.at.thread
    who = threads[lanes] if lanes is not None and len(lanes) == len(addresses) else threads
    if len(who) != len(addresses):  # whose entry is whose is not said
        return [(address, count, threads) for address, count in zip(addresses.tolist(), counts, strict=True)]
    if signal.copied:
        return [(address, counts[at], who[at : at + 1]) for at, address in enumerate(addresses.tolist())]
    entries: dict[tuple[int, int], list[int]] = {}
    for at, key in enumerate(zip(addresses.tolist(), (who // LANES).tolist(), strict=True)):
        entries.setdefault(key, []).append(at)
    return [
        (address, counts[own[-1]] if signal.kind == "init" else sum(counts[at] for at in own), who[own])
        for (address, _), own in entries.items()
    ]


def described(value: int, arch: str) -> str:
    """What an object waits for, in words.

    >>> described(MBarrier(2).encode(arch="sm_90"), "sm_90")
    'phase 0 under way, 2 of 2 arrivals missing'
    >>> early = MBarrier(2)
    >>> early.complete_tx(16)
    >>> described(early.encode(arch="sm_90"), "sm_90")
    'phase 0 under way, 2 of 2 arrivals missing, 16 bytes too many'
    >>> described(MBarrier(3).encode(arch="sm_80"), "sm_80")
    'phase 0 under way, 3 of 3 arrivals missing'
    """
    fields = mbarrier_bits.counts(value, arch)
    left = fields.get("tx_count", 0)
    bytes_ = f", {-left} bytes too many" if left < 0 else f", {left} bytes missing" if left else ""
    return f"phase {fields['phase']} under way, {fields['pending']} of {fields['expected']} arrivals missing{bytes_}"


class Mbarriers:
    """The objects in the shared memory of a block, and what its instructions tell objects of the cluster."""

    def __init__(self, block: object, octets: Octets, cluster: ClusterView, events: Events) -> None:
        self.block, self.octets, self.cluster, self.events = block, octets, cluster, events
        self.live: set[int] = (
            set()
        )  # offsets in shared memory of the objects that were initialised, and not invalidated

    def keys(self, at: Access) -> Array:
        """The addresses of mbarriers in shared memory of the cluster."""
        found = self.octets.places(at)[0]
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

    def word(self, address: int, block: int = 0) -> int:
        """The 64 bits at an address of shared memory; block: of the batch."""
        words, place = self._place(address, block)
        return int(words[place])

    def words(self, address: int, blocks: Array) -> Array:
        """The 64 bits at an address in some blocks of the batch."""
        words, place = self._place(address, 0)
        found: Array = words[place + blocks * (self.octets.spaces.of(address >> RANK_SHIFT).shared_stride >> 3)]
        return found

    def _place(self, address: int, block: int) -> tuple[Array, int]:
        """The words of the shared memory that an address means, and which of them it is. Raises Stop for one beyond."""
        rank, offset = address >> RANK_SHIFT, address & (1 << RANK_SHIFT) - 1
        spaces = self.octets.spaces
        if rank >= len(spaces.blocks) or offset + 8 > self.octets.threads.shared_bytes:
            self.octets.get("shared", np.array([address]), 8, None, block)
        own = spaces.of(rank)
        return own.shared.views[8], offset + block * own.shared_stride >> 3

    def signal(self, signal: Signal, threads: Array) -> None:
        """Change the objects that a signal is for, and let threads ask again that wait for them."""
        woken: dict[int, list[int]] = {}
        for at in self.octets.copies(signal.at):
            keys = self.keys(at)
            if self._in_each(signal, keys, threads, woken):
                continue
            for key, count, own in told(signal, keys, threads):
                block = self.octets.threads.block_of(own)
                words, place = self._place(key, block)
                before = int(words[place])
                value = self._after(signal, key, count, before, int(own[0]))
                for hear in self.events.signalled:
                    hear(self.block, signal, key, count, before, value, own)
                words[place] = value
                for hear in self.events.put:
                    hear(self.block, "shared", np.array([key]), 8, None)
                self._keep(signal.kind, key)
                woken.setdefault(key, []).append(block)
        for key, blocks in woken.items():
            self.cluster.wake("mbarrier", key, blocks)
        self.octets.threads.change(threads)

    def _in_each(self, signal: Signal, keys: Array, threads: Array, woken: dict[int, list[int]]) -> bool:
        """Change the objects of several blocks of a batch at once, if nobody looks and each warp tells an object once; whether it was so."""
        lanes, own = signal.at.thread, self.octets.threads
        who = threads[lanes] if lanes is not None and len(lanes) == len(keys) else threads
        if own.batch == 1 or len(keys) < 2 or len(who) != len(keys) or self.events.signalled or self.events.put:
            return False
        blocks, counts = who // own.width, spread(signal.count, signal.at.address.shape).reshape(-1)
        once = signal.copied or len(set(zip(keys.tolist(), (who // LANES).tolist(), strict=True))) == len(keys)
        if not once:
            return False
        for key in dict.fromkeys(keys.tolist()):
            entries = np.flatnonzero(keys == key)
            entries = entries[np.argsort(blocks[entries], kind="stable")]
            there = blocks[entries]
            turn = np.arange(len(there)) - np.searchsorted(there, there)  # of each entry among those of its block
            words, place = self._place(key, 0)
            places = place + there * (self.octets.spaces.of(key >> RANK_SHIFT).shared_stride >> 3)
            for number in range(int(turn.max()) + 1):
                now = np.flatnonzero(turn == number)
                given = list(zip(counts[entries[now]].tolist(), words[places[now]].tolist(), strict=True))
                made = {one: self._after(signal, key, *one, int(who[entries[0]])) for one in dict.fromkeys(given)}
                words[places[now]] = [made[one] for one in given]
            self._keep(signal.kind, key)
            woken.setdefault(key, []).extend(there.tolist())
        return True

    def _after(self, signal: Signal, key: int, count: int, before: int, thread: int) -> int:
        """What an object becomes. Raises Stop."""
        try:
            return after(signal, count, before, self.cluster.arch)
        except TcsimError as error:
            raise Stop(rule_for(error, "MBARRIER_FAULT"), f"mbarrier at {key:#x}: {error}", thread) from None

    def _keep(self, kind: str, key: int) -> None:
        """An object is there from now on, or no more."""
        live, offset = self.cluster.blocks[key >> RANK_SHIFT].mbarriers.live, key & (1 << RANK_SHIFT) - 1
        if kind == "init":
            live.add(offset)
        elif kind == "inval":
            live.discard(offset)
