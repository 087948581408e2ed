"""The threads of one block in lockstep: who they are, masks of them, special registers, vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.ptx.compile.compiled import SHARED_START
from tcsim.ptx.machine.arrays import LANES, TYPED, Array, Mask
from tcsim.ptx.machine.faults import Stop, Unbatchable

RANK_SHIFT = 24
"""Where the rank of a block begins in an address of shared memory of its cluster."""
_MEASURED = {
    "nwarpid": 64, "nsmid": 132, "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": 0x120, "reserved_smem_offset_cap": 0x400,
    "reserved_smem_offset_0": 0, "reserved_smem_offset_1": 0, "current_graph_exec": 0, **dict.fromkeys((f"envreg{index}" for index in range(32)), 0),
}  # fmt: skip
"""Special registers as an H200 (driver 580) has them in a launch outside a graph that is not cooperative."""
_OF_THREADS: dict[str, Callable[[Array, int, int], Array]] = {
    "tid.x": lambda thread, x, y: thread % x,
    "tid.y": lambda thread, x, y: thread // x % y,
    "tid.z": lambda thread, x, y: thread // (x * y),
    "laneid": lambda thread, x, y: thread % LANES,
    "warpid": lambda thread, x, y: thread // LANES,
    "lanemask_eq": lambda thread, x, y: np.uint32(1) << thread % LANES,
    "lanemask_lt": lambda thread, x, y: (np.uint32(1) << thread % LANES) - np.uint32(1),
    "lanemask_le": lambda thread, x, y: (np.uint32(2) << thread % LANES) - np.uint32(1),
    "lanemask_gt": lambda thread, x, y: ~((np.uint32(2) << thread % LANES) - np.uint32(1)),
    "lanemask_ge": lambda thread, x, y: ~((np.uint32(1) << thread % LANES) - np.uint32(1)),
}
"""Special registers that differ from thread to thread: of the threads' numbers in their block, and the block's width and height."""


class Threads:
    """The threads of a block, or of the blocks of a batch, one after the other: those of each are `width` with those that never execute."""

    def __init__(
        self, grid: Sequence[int], block: Sequence[int], indices: Sequence[tuple[int, int, int]], cluster: tuple[int, int, int], rank: int,
        shared_bytes: int, dynamic_smem: int,
    ) -> None:  # fmt: skip
        self.launched = prod(block)  # of a block
        self.warps = -(-self.launched // LANES)  # of a block
        self.width = self.warps * LANES  # with those that fill the last warp and never execute
        self.batch = len(indices)  # blocks
        self.count = self.batch * self.width
        self.indices, self.rank, self.cluster_shape, self.shared_bytes = indices, rank, cluster, shared_bytes
        self.executed = 0  # instructions, of all blocks together
        self.changed: Any = False  # whether memory, or who waits, has changed; of a batch: in which blocks
        self.timed = False  # whether threads have looked at the time since memory changed
        self.carry = np.zeros(self.count, bool)
        self.numbers = np.arange(self.count, dtype=np.int64)
        self.everyone = np.ones(self.count, bool)
        self.exist = self.numbers % self.width < self.launched
        self.alive = self.exist.copy()  # those that have not exited
        self.exited = np.full(self.count, -1)  # of each that has: the basic block
        if self.batch > 1:
            self.changed = np.zeros(self.batch, bool)
        self.block = (int(block[0]), int(block[1]))  # width and height
        self._special = self._specials(grid, block, dynamic_smem)

    # --- of which block

    def block_of(self, threads: Array) -> Any:
        """Which blocks of the batch threads are of, which ascend: one number where it is one."""
        if self.batch == 1:
            return 0
        first, last = int(threads[0]) // self.width, int(threads[-1]) // self.width
        return first if first == last else threads // self.width

    def blocks_in(self, mask: Array) -> Array:
        """Of each block whether a mask has threads of it."""
        return np.asarray(np.logical_or.reduce(mask.view(np.uint64).reshape(self.batch, -1), 1))

    def apart(self, mask: Array) -> list[Array]:
        """The threads of a mask, those of each block of the batch apart."""
        found = []
        for number in np.flatnonzero(self.blocks_in(mask)).tolist():
            place = slice(number * self.width, (number + 1) * self.width)
            found.append(np.zeros_like(mask))
            found[-1][place] = mask[place]
        return found

    def per_thread(self, values: Any) -> Any:
        """A value of each block as one of each of its threads; one that is for all as it is."""
        return np.repeat(values, self.width) if np.ndim(values) else values

    def has_changed(self) -> Any:
        """Whether something has changed so far; in a batch of each block."""
        return self.changed if self.batch == 1 else self.changed.copy()

    def change(self, who: Any = None) -> None:
        """Memory, or who waits, has changed in the blocks of a mask or of some threads; None: in all."""
        if self.batch == 1:
            self.changed = True
        elif who is None or who is True:
            self.changed[:] = True
        elif who.dtype == bool:
            self.changed |= self.blocks_in(who)
        elif len(who):
            self.changed[self.block_of(who)] = True

    # --- special registers

    def _specials(self, grid: Sequence[int], block: Sequence[int], dynamic: int) -> dict[str, Any]:
        found: dict[str, Any] = {
            "smid": 0, "gridid": 0, "locality_domain_id": 0, "locality_domain_supplemental_sm": 0, "dynamic_smem_size": dynamic, "total_smem_size": self.shared_bytes - SHARED_START,
            "aggr_smem_size": self.shared_bytes, **_MEASURED, "cluster_ctarank": self.rank, "cluster_nctarank": prod(self.cluster_shape),
            "is_explicit_cluster": int(self.cluster_shape != (1, 1, 1)),
        }  # fmt: skip
        for place, axis in enumerate("xyz"):
            size, own = self.cluster_shape[place], self._each_block([index[place] for index in self.indices])
            found |= {f"ntid.{axis}": block[place], f"nctaid.{axis}": grid[place], f"ctaid.{axis}": own}
            found |= {f"cluster_nctaid.{axis}": size, f"nclusterid.{axis}": grid[place] // size}
            found |= {f"cluster_ctaid.{axis}": own % size, f"clusterid.{axis}": own // size}
        return found

    def _each_block(self, values: Sequence[int]) -> Any:
        """A number of each block, for each thread; one number of one block."""
        return values[0] if self.batch == 1 else np.repeat(np.array(values, np.uint32), self.width)

    def environment(self, registers: Mapping[str, int]) -> None:
        """Set special registers that are the driver's."""
        self._special.update(registers)

    def special(self, name: str) -> Any:
        """The value of a special register for each thread."""
        if name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            if self.batch > 1:
                raise Unbatchable(f"%{name}: instructions are counted for each block")
            self.timed = True
            return np.uint64(self.executed)
        found = self._special.get(name)
        if found is None and name in _OF_THREADS:
            thread = np.tile(np.arange(self.width, dtype=np.uint32), self.batch)
            found = self._special[name] = _OF_THREADS[name](thread, *self.block)
        if found is None:
            raise Stop("TRAP", f"the special register %{name} is not known here")
        return found if isinstance(found, np.ndarray) else np.uint32(found)

    # --- addresses of the block's own shared memory

    def own_shared(self, container: np.dtype[Any]) -> Any:
        """What an address of a block's own shared memory has above the offset: its rank."""
        return container.type(self.rank << RANK_SHIFT)

    def own_everywhere(self, address: Any) -> Array:
        """An address in the block's own shared memory, for every thread."""
        return self.everywhere(address + self.own_shared(np.dtype(np.uint64)))

    # --- masks

    def narrow(self, w: Mask, p: Array) -> Array:
        """The threads of a mask whose predicate holds; an array of its own."""
        found: Array = w & p
        return found

    def everywhere(self, value: Any) -> Array:
        """One value for every thread."""
        return np.full(self.count, value)

    def each(self, values: Any) -> Array:
        """A value of each thread, or one for all, as an array that may not be changed."""
        return spread(values, (self.count,))

    def mask(self, w: Mask) -> Array:
        """A mask as an array."""
        found: Array = self.everyone if w is True else w
        return found

    def alone(self, thread: int) -> Array:
        """The mask of one thread."""
        return self.numbers == thread

    def whole(self, mask: Array, lanes: int) -> Array:
        """The threads of a mask whose warps, or warpgroups, are complete: all their threads that live are in it."""
        missing, beyond = (self.alive & ~mask).reshape(self.batch, -1), -self.width % lanes
        if beyond:
            missing = np.pad(missing, ((0, 0), (0, beyond)))
        found = np.repeat(missing.reshape(self.batch, -1, lanes).any(2), lanes, axis=1)[:, : self.width]
        return np.asarray(~found.reshape(-1))

    # --- vectors

    def unpack(self, codes: Array, size: int) -> Array:
        """Wide codes as parts of some bytes: (threads, parts)."""
        wide = np.ascontiguousarray(spread(codes, (self.count,)))
        return wide.view(TYPED[size]).reshape(self.count, -1)

    def pack(self, parts: Sequence[Array], size: int) -> Array:
        """Parts as wide codes."""
        joined = np.stack([spread(np.asarray(part, TYPED[size]), (self.count,)) for part in parts], axis=-1)
        total = size * len(parts)
        return joined.view(TYPED[total] if total in TYPED else np.dtype((np.void, total))).reshape(self.count)

    join = pack

    def split(self, found: Array, size: int) -> Array:
        """What a vector load found, as its parts: (threads, parts)."""
        return np.ascontiguousarray(found).view(TYPED[size]).reshape(self.count, -1)

    def assign(self, to: Array, what: Array, w: Mask) -> None:
        """Assign 128-bit registers: items of 16 bytes (threads,), or their bytes (threads, 16)."""
        mask = self.mask(w)
        whole = what if what.ndim == 1 else np.ascontiguousarray(what).view(to.dtype)[:, 0]
        to[mask] = whole[mask]
