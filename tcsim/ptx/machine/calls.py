"""Threads that call functions: where each goes on when it returns, and functions of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsim.ptx.compile.calls import PROVIDED
from tcsim.ptx.machine.accesses import Accesses
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.faults import Stop, Unbatchable
from tcsim.ptx.machine.fibers import Moves
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Memory
from tcsim.ptx.machine.native import NATIVE
from tcsim.ptx.machine.stack import Stack, depths
from tcsim.ptx.machine.threads import Threads


class Calls:
    """The calls of a block. functions: their first basic blocks, by address."""

    def __init__(
        self, threads: Threads, mem: Accesses, stack: Stack, functions: Mapping[int, int], limits: Limits
    ) -> None:
        self.threads, self.mem, self.stack, self.functions, self.limits = threads, mem, stack, functions, limits
        self.sites: list[Array] = []  # by depth: where each thread goes on when it returns
        self.output: list[str] = []  # of vprintf

    @property
    def memory(self) -> Memory:
        """Global memory."""
        return self.mem.spaces.memory

    def call(self, w: Mask, target: int, site: int) -> int:
        """Enter a function."""
        mask, depth = self.threads.mask(w), self.stack.calls
        for level in depths(depth, mask):
            while len(self.sites) <= level:
                self.sites.append(np.zeros(self.threads.count, np.int64))
            np.copyto(self.sites[level], site, where=mask & (depth == level))
        depth[mask] += 1
        return target

    def call_through(self, w: Mask, addresses: Any, site: int) -> Moves:
        """Enter the functions whose addresses are in a register."""
        mask, found = self.threads.mask(w), self.threads.each(addresses)
        moves: Moves = []
        for address in np.unique(found[mask]).tolist():
            own = mask & (found == address)
            target = self.functions.get(address)
            if target is None:
                said = f"a call to {address:#x}, where no function is"
                raise Stop("INVALID_PC", said, int(np.argmax(own)), address=address)
            moves.append((own, self.call(own, target, site)))
        return moves

    def ret(self, w: Mask) -> Moves:
        """Go back to where each thread was called."""
        mask, depth = self.threads.mask(w), self.stack.calls
        depth[mask] -= 1
        where = np.zeros(self.threads.count, np.int64)
        for level in depths(depth, mask):
            np.copyto(where, self.sites[level], where=mask & (depth == level))
        return [(mask & (where == site), site) for site in np.unique(where[mask]).tolist()]

    def octets(self, address: int, size: int, thread: int) -> bytes:
        """Bytes at a generic address, as one thread sees them."""
        found = self.mem.load("", np.full(self.threads.count, address, np.uint64), size, self.threads.alone(thread))
        return bytes(found[thread].tobytes())

    def native(self, w: Mask, name: str, places: tuple[int, ...], result: int, site: int) -> int:
        """Call a function of the driver, thread after thread."""
        if self.threads.batch > 1:
            raise Unbatchable(f"{name} is called")
        function, (sizes, returned) = NATIVE[name], PROVIDED[name]
        for thread in np.nonzero(self.threads.mask(w))[0].tolist():
            mask = self.threads.alone(thread)
            given = tuple(
                int(self.mem.load("local", self.threads.everywhere(np.uint64(place)), size, mask)[thread])
                for place, size in zip(places, sizes, strict=True)
            )
            try:
                found = function(self, given, thread)
            except Stop as stop:
                stop.thread = thread if stop.thread is None else stop.thread
                raise
            if returned:
                value = np.full(self.threads.count, found & ((1 << 8 * returned) - 1), f"u{returned}")
                self.mem.store("local", self.threads.everywhere(np.uint64(result)), value, returned, mask)
            if sum(map(len, self.output)) > self.limits.output:
                raise Stop("LIMIT", f"more than {self.limits.output} bytes of output", thread, limit="output")
        return site
