"""The threads of one block in lockstep: who they are, masks of them, special registers, vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.ptx.compile.compiled import SHARED_START
from tcsim.ptx.machine.arrays import LANES, TYPED, Array, Mask
from tcsim.ptx.machine.faults import Stop

RANK_SHIFT = 24
"""Where the rank of a block begins in an address of shared memory of its cluster."""
_MEASURED = {
    "nwarpid": 64, "nsmid": 132, "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": 0x120, "reserved_smem_offset_cap": 0x400,
    "reserved_smem_offset_0": 0, "reserved_smem_offset_1": 0, "current_graph_exec": 0, **dict.fromkeys((f"envreg{index}" for index in range(32)), 0),
}  # fmt: skip
"""Special registers as an H200 (driver 580) has them in a launch outside a graph that is not cooperative."""


class Threads:
    """The threads of a block."""

    def __init__(
        self, grid: Sequence[int], block: Sequence[int], index: tuple[int, int, int], cluster: tuple[int, int, int], rank: int,
        shared_bytes: int, dynamic_smem: int,
    ) -> None:  # fmt: skip
        self.launched = int(np.prod(block))
        self.warps = -(-self.launched // LANES)
        self.count = self.warps * LANES  # with those that fill the last warp and never execute
        self.index, self.rank, self.cluster_shape, self.shared_bytes = index, rank, cluster, shared_bytes
        self.executed = 0  # instructions
        self.changed = False  # whether memory, or who waits, has changed
        self.timed = False  # whether threads have looked at the time since memory changed
        self.carry = np.zeros(self.count, bool)
        self.numbers = np.arange(self.count, dtype=np.int64)
        self.everyone = np.ones(self.count, bool)
        self.alive = self.numbers < self.launched  # those that have not exited
        self.exited = np.full(self.count, -1)  # of each that has: the basic block
        self._special = self._specials(grid, block, dynamic_smem)

    # --- special registers

    def _specials(self, grid: Sequence[int], block: Sequence[int], dynamic: int) -> dict[str, Any]:
        thread = np.arange(self.count, dtype=np.uint32)
        x, y = int(block[0]), int(block[1])
        lane = thread % LANES
        found: dict[str, Any] = {
            "tid.x": thread % x, "tid.y": thread // x % y, "tid.z": thread // (x * y), "laneid": lane, "warpid": thread // LANES,
            "lanemask_eq": np.uint32(1) << lane, "lanemask_lt": (np.uint32(1) << lane) - np.uint32(1),
            "smid": 0, "gridid": 0, "dynamic_smem_size": dynamic, "total_smem_size": self.shared_bytes - SHARED_START,
            "aggr_smem_size": self.shared_bytes, **_MEASURED, "cluster_ctarank": self.rank, "cluster_nctarank": int(np.prod(self.cluster_shape)),
            "is_explicit_cluster": int(self.cluster_shape != (1, 1, 1)),
        }  # fmt: skip
        found["lanemask_le"] = found["lanemask_lt"] | found["lanemask_eq"]
        found["lanemask_gt"] = ~found["lanemask_le"]
        found["lanemask_ge"] = ~found["lanemask_lt"]
        for place, axis in enumerate("xyz"):
            found[f"ntid.{axis}"], found[f"nctaid.{axis}"], found[f"ctaid.{axis}"] = (
                block[place],
                grid[place],
                self.index[place],
            )
            found[f"cluster_nctaid.{axis}"] = self.cluster_shape[place]
            found[f"cluster_ctaid.{axis}"] = self.index[place] % self.cluster_shape[place]
            found[f"clusterid.{axis}"] = self.index[place] // self.cluster_shape[place]
            found[f"nclusterid.{axis}"] = grid[place] // self.cluster_shape[place]
        return found

    def environment(self, registers: Mapping[str, int]) -> None:
        """Set special registers that are the driver's."""
        self._special.update(registers)

    def special(self, name: str) -> Any:
        """The value of a special register for each thread."""
        if name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            self.timed = True
            return np.uint64(self.executed)
        found = self._special.get(name)
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
        found: Array = p.copy() if w is True else w & p
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
        missing, beyond = self.alive & ~mask, -self.count % lanes
        if beyond:
            missing = np.pad(missing, (0, beyond))
        found: Array = ~np.repeat(missing.reshape(-1, lanes).any(1), lanes)[: self.count]
        return found

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
