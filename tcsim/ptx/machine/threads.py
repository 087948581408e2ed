"""The threads of one block in lockstep: masks, special registers, vectors, and what lanes of a warp tell each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.ptx.compile.compiled import SHARED_START
from tcsim.ptx.machine.arrays import LANES, TYPED, Array, Mask
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.text.syntax import Instruction

_MEASURED = {
    "nwarpid": 64, "nsmid": 132, "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": 0x120, "reserved_smem_offset_cap": 0x400,
    "reserved_smem_offset_0": 0, "reserved_smem_offset_1": 0, "current_graph_exec": 0, **dict.fromkeys((f"envreg{index}" for index in range(32)), 0),
}  # fmt: skip
"""Special registers as an H200 (driver 580) has them in a launch outside a graph that is not cooperative."""


class Threads:
    """What the threads of a block know of themselves and of each other."""

    observer: Observer | None = None  # sees what happens
    here: Instruction | None = None  # the instruction that is executed, where there is an observer

    def __init__(
        self, grid: Sequence[int], block: Sequence[int], index: tuple[int, int, int], cluster: tuple[int, int, int], rank: int,
        shared_bytes: int, dynamic_smem: int,
    ) -> None:  # fmt: skip
        self.launched = int(np.prod(block))
        self.warps = -(-self.launched // LANES)
        self.threads = self.warps * LANES  # with those that fill the last warp and never execute
        self.index, self.rank, self.cluster_shape, self.shared_bytes = index, rank, cluster, shared_bytes
        self.count = 0  # instructions executed
        self.inexact: Counter[str] = (
            Counter()
        )  # of what was executed, by the threads that did: instructions whose bits are not known
        self.timed = False  # whether threads have looked at the time since memory changed
        self.carry = np.zeros(self.threads, bool)
        self.numbers = np.arange(self.threads, dtype=np.int64)
        self._everything = np.ones(self.threads, bool)
        self._special = self._specials(grid, block, dynamic_smem)

    # --- special registers

    def _specials(self, grid: Sequence[int], block: Sequence[int], dynamic: int) -> dict[str, Any]:
        thread = np.arange(self.threads, dtype=np.uint32)
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
            return np.uint64(self.count)
        found = self._special.get(name)
        if found is None:
            raise Stop("TRAP", f"the special register %{name} is not known here")
        return found if isinstance(found, np.ndarray) else np.uint32(found)

    # --- masks

    def narrow(self, w: Mask, p: Array) -> Array:
        """The threads of a mask whose predicate holds; an array of its own."""
        found: Array = p.copy() if w is True else w & p
        return found

    def everywhere(self, value: Any) -> Array:
        """One value for every thread."""
        return np.full(self.threads, value)

    def _array(self, w: Mask) -> Array:
        found: Array = self._everything if w is True else w
        return found

    def fenced(self, w: Mask) -> None:
        """membar, which is reported to an observer."""
        if self.observer is not None:
            self.observer.fenced(self, self._array(w))

    def touched(self, reads: frozenset[int], writes: frozenset[int], w: Mask) -> None:
        """Registers that work in flight may hold, reported to an observer."""
        if self.observer is not None:
            self.observer.touched(self, reads, writes, self._array(w))

    def moved(self, carry: Any, w: Mask, partners: Array | None = None) -> None:
        """Registers whose elements are followed (`tcsim.ptx.compile.carried`) were changed. partners: of each thread the one that they come from."""
        if self.observer is not None:
            self.observer.moved(self, carry, self._array(w), partners)

    # --- vectors

    def unpack(self, codes: Array, size: int) -> Array:
        """Wide codes as parts of some bytes: (threads, parts)."""
        wide = np.ascontiguousarray(spread(codes, (self.threads,)))
        return wide.view(TYPED[size]).reshape(self.threads, -1)

    def pack(self, parts: Sequence[Array], size: int) -> Array:
        """Parts as wide codes."""
        joined = np.stack([spread(np.asarray(part, TYPED[size]), (self.threads,)) for part in parts], axis=-1)
        total = size * len(parts)
        return joined.view(TYPED[total] if total in TYPED else np.dtype((np.void, total))).reshape(self.threads)

    join = pack

    def split(self, found: Array, size: int) -> Array:
        """What a vector load found, as its parts: (threads, parts)."""
        return np.ascontiguousarray(found).view(TYPED[size]).reshape(self.threads, -1)

    def assign(self, to: Array, what: Array, w: Mask) -> None:
        """Assign 128-bit registers: items of 16 bytes (threads,), or their bytes (threads, 16)."""
        mask = self._array(w)
        whole = what if what.ndim == 1 else np.ascontiguousarray(what).view(to.dtype)[:, 0]
        to[mask] = whole[mask]

    # --- warps

    def _warped(self, values: Any, dtype: Any = np.uint32) -> Array:
        """One value for each thread as (warps, 32)."""
        full = spread(np.asarray(values, dtype), (self.threads,))
        return full.reshape(self.warps, LANES)

    def shuffle(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        """The register of another lane, and whether that lane is in range; of a lane that does not execute 0 (measured on an H200)."""
        if self.observer is not None:
            self.observer.exchanged(self, self._array(w))
        source, inside = self._partners(mode, b, c)
        value = np.where(self._warped(self._array(w), bool), self._warped(a), np.uint32(0))
        return np.take_along_axis(value, source, axis=1).reshape(-1), inside.reshape(-1)

    def partners(self, mode: str, b: Array, c: Array) -> Array:
        """Of each thread the one whose register a shuffle gives it."""
        source, _ = self._partners(mode, b, c)
        return (source + LANES * np.arange(self.warps)[:, None]).reshape(-1)

    def _partners(self, mode: str, b: Array, c: Array) -> tuple[Array, Array]:
        """The lanes (warps, 32) that a shuffle names, the own one where that is out of range; and whether it is in range."""
        lane = np.arange(LANES)
        delta, control = self._warped(b).astype(np.int64), self._warped(c).astype(np.int64)
        clamp, segment = control & 31, control >> 8 & 31
        most = (lane & segment) | (clamp & ~segment)
        least = lane & segment
        b5 = delta & 31
        if mode == "up":
            source = lane - b5
            inside = source >= most
        elif mode == "down":
            source = lane + b5
            inside = source <= most
        elif mode == "bfly":
            source = lane ^ b5
            inside = source <= most
        else:
            source = least | (b5 & ~segment)
            inside = source <= most
        return np.where(inside, source, lane), inside

    def _ballot(self, flags: Array) -> Array:
        bits = self._warped(flags, bool).astype(np.uint64) << np.arange(LANES, dtype=np.uint64)
        return np.repeat(bits.sum(1).astype(np.uint32), LANES)

    def vote(self, mode: str, predicate: Array, mask: Any, w: Mask) -> Array:
        """all, any, uni, or the ballot, of the lanes that each lane's member mask names; without a mask of those that execute."""
        now = self._array(w)
        if self.observer is not None:
            self.observer.exchanged(self, now)
        yes, everyone = self._ballot(now & predicate), self._ballot(now)
        if mask is not None:
            yes, everyone = yes & mask, everyone & mask
        if mode == "ballot":
            return yes
        found = {"any": yes != 0, "all": yes == everyone, "uni": (yes == 0) | (yes == everyone)}
        return found[mode]

    def match(self, mode: str, a: Array, mask: Array, w: Mask) -> tuple[Array, Array]:
        """The members with the same value as each, or all of them if all values are equal."""
        if self.observer is not None:
            self.observer.exchanged(self, self._array(w))
        now = self._warped(self._array(w), bool)
        value, members = self._warped(a, np.uint64), self._warped(mask)
        same = (value[:, :, None] == value[:, None, :]) & now[:, None, :]
        bits = (same.astype(np.uint64) << np.arange(LANES, dtype=np.uint64)).sum(2).astype(np.uint32) & members
        if mode == "any":
            return bits.reshape(-1), np.ones(self.threads, bool)
        everyone = self._warped(self._ballot(self._array(w))) & members
        equal = bits == everyone
        return np.where(equal, everyone, 0).astype(np.uint32).reshape(-1), equal.reshape(-1)
