"""The machine: the threads of one block in lockstep, parted where they diverge or wait, joined where they meet again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import floating
from tcsim.core.errors import TcsimError
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.model.effects import Access, Pending, Write
from tcsim.ptx.families import Bound, gathered
from tcsim.ptx.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Memory, MemoryFault, Segment
from tcsim.ptx.program import Compiled

Array = npt.NDArray[Any]
Mask = Any  # True, or a bool array with an entry for each thread

LANES = 32
EXIT = -1
_TYPED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
RANK_SHIFT = np.uint64(24)


class Stop(Exception):
    """The launch ends: a fault, a trap or a limit."""

    def __init__(self, name: str, detail: str, thread: int | None = None) -> None:
        super().__init__(detail)
        self.name, self.detail, self.thread = name, detail, thread


@dataclass(eq=False)
class Wait:
    """What threads wait for, and where they go on."""

    kind: str  # "bar", "cluster"
    number: int
    after: int
    count: int = 0  # threads of a barrier
    reduce: str = "sync"
    predicate: Array | None = None
    into: Array | None = None


@dataclass(eq=False)
class Fiber:
    """Threads that execute together."""

    mask: Array
    block: int
    waits: Wait | None = None
    turns: int = 0  # blocks executed since others had a turn


@dataclass(eq=False)
class Barrier:
    """A barrier of a block: who arrived."""

    waiting: list[Fiber] = field(default_factory=list)
    arrived: int = 0  # threads that do not wait
    count: int = 0


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

    block: Block
    flight: Flight

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


class Block:
    """A block of threads (a CTA): its registers, shared and local memory, and fibers."""

    def __init__(
        self, program: Compiled, memory: Memory, params: Segment, grid: tuple[int, int, int], block: tuple[int, int, int],
        index: tuple[int, int, int], dynamic_smem: int, cluster: tuple[int, int, int] = (1, 1, 1), rank: int = 0,
    ) -> None:  # fmt: skip
        self.program, self.memory, self.params = program, memory, params
        self.threads = int(np.prod(block))
        self.warps = -(-self.threads // LANES)
        self.index, self.rank, self.cluster = index, rank, cluster
        self.registers = [
            np.zeros(self.threads, container) if type != "b128" else np.zeros(self.threads, np.dtype((np.void, 16)))
            for type, container, _ in program.registers
        ]
        self.shared_bytes = program.shared_bytes + dynamic_smem
        self.shared = Segment(0, np.zeros(self.shared_bytes, np.uint8))
        self.local_stride = -(-max(program.local_bytes, 1) // 16) * 16
        self.local = Segment(0, np.zeros(self.local_stride * self.threads, np.uint8)) if program.local_bytes else None
        self.carry = np.zeros(self.threads, bool)
        self.lane_base = np.arange(self.threads, dtype=np.int64)
        self.fibers = [Fiber(np.ones(self.threads, bool), 0)]
        self.barriers: dict[int, Barrier] = {}
        self.slept = False
        self.blocks: Sequence[Block] = (self,)  # of the cluster, by rank
        self.count = 0
        self.queue: list[Flight] = []  # work in flight, the oldest first
        self.groups: dict[str, Array] = {}  # of each kind: how many groups every thread has committed
        self.early = False
        self._everything = np.ones(self.threads, bool)
        self._special = self._specials(grid, block, dynamic_smem)

    # --- special registers

    def _specials(self, grid: Sequence[int], block: Sequence[int], dynamic: int) -> dict[str, Any]:
        thread = np.arange(self.threads, dtype=np.uint32)
        x, y, _ = block
        lane = thread % LANES
        found: dict[str, Any] = {
            "tid.x": thread % x, "tid.y": thread // x % y, "tid.z": thread // (x * y), "laneid": lane, "warpid": thread // LANES,
            "lanemask_eq": np.uint32(1) << lane, "lanemask_lt": (np.uint32(1) << lane) - np.uint32(1),
            "nwarpid": self.warps, "smid": 0, "nsmid": 132, "gridid": 0, "dynamic_smem_size": dynamic,
            "total_smem_size": self.shared_bytes, "cluster_ctarank": self.rank, "cluster_nctarank": int(np.prod(self.cluster)),
            "is_explicit_cluster": int(self.cluster != (1, 1, 1)),
        }  # fmt: skip
        found["lanemask_le"] = found["lanemask_lt"] | found["lanemask_eq"]
        found["lanemask_gt"] = ~found["lanemask_le"]
        found["lanemask_ge"] = ~found["lanemask_lt"]
        for place, axis in enumerate("xyz"):
            found[f"ntid.{axis}"], found[f"nctaid.{axis}"], found[f"ctaid.{axis}"] = block[place], grid[place], self.index[place]
            found[f"cluster_nctaid.{axis}"] = self.cluster[place]
            found[f"cluster_ctaid.{axis}"] = self.index[place] % self.cluster[place]
            found[f"clusterid.{axis}"] = self.index[place] // self.cluster[place]
            found[f"nclusterid.{axis}"] = grid[place] // self.cluster[place]
        return found

    def special(self, name: str) -> Any:
        """The value of a special register for each thread."""
        if name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return np.uint64(self.count)
        found = self._special.get(name)
        if found is None:
            raise Stop("TRAP", f"the special register %{name} is not known here")
        return found if isinstance(found, np.ndarray) else np.uint32(found)

    # --- masks and control

    def narrow(self, w: Mask, p: Array) -> Array:
        """The threads of a mask whose predicate holds; an array of its own."""
        found: Array = p.copy() if w is True else w & p
        return found

    def everywhere(self, value: Any) -> Array:
        """One value for every thread."""
        return np.full(self.threads, value)

    def _array(self, w: Mask) -> Array:
        return self._everything if w is True else w

    def branch(self, w: Mask, p: Array, target: int, after: int) -> Any:
        """Go to a block where the predicate holds, else on."""
        taken = p if w is True else w & p
        if not taken.any():
            return after
        rest = ~p if w is True else w & ~p
        if not rest.any():
            return target
        return [(taken.copy(), target), (rest, after)]

    def switch(self, w: Mask, p: Any, choice: Array, places: tuple[int, ...], after: int) -> Any:
        """Go to one of several blocks, which a register picks."""
        mask = self._array(w)
        go = mask & p
        moves = [(go & (choice == place), block) for place, block in enumerate(places)]
        moves.append((mask & ~go, after))
        return [(own, block) for own, block in moves if own.any()]

    def guarded(self, w: Mask, p: Array, after: int, action: Callable[[Mask], Any]) -> Any:
        """Do something that may wait with the threads whose predicate holds; the others go on."""
        mask = self._array(w)
        go, rest = mask & p, mask & ~p
        moves: list[tuple[Array, Any]] = [(rest, after)] if rest.any() else []
        if go.any():
            found = action(True if go.all() else go)
            moves += found if isinstance(found, list) else [(go, found)]
        return moves

    def trap(self, index: int, w: Mask, p: Any, after: int) -> Any:
        """End the launch if a thread gets here."""
        mask = self._array(w) & p
        if mask.any():
            raise Stop("TRAP", "a thread executed trap", int(np.argmax(mask)))
        return after

    # --- vectors

    def unpack(self, codes: Array, size: int) -> Array:
        """Wide codes as parts of some bytes: (threads, parts)."""
        wide = np.ascontiguousarray(np.broadcast_to(codes, (self.threads,)))
        return wide.view(_TYPED[size]).reshape(self.threads, -1)

    def pack(self, parts: Sequence[Array], size: int) -> Array:
        """Parts as wide codes."""
        joined = np.stack([np.broadcast_to(np.asarray(part, _TYPED[size]), (self.threads,)) for part in parts], axis=-1)
        total = size * len(parts)
        return joined.view(_TYPED[total] if total in _TYPED else np.dtype((np.void, total))).reshape(self.threads)

    join = pack

    def split(self, found: Array, size: int) -> Array:
        """What a vector load found, as its parts: (threads, parts)."""
        return np.ascontiguousarray(found).view(_TYPED[size]).reshape(self.threads, -1)

    def assign(self, to: Array, what: Array, w: Mask) -> None:
        """Assign 128-bit registers."""
        mask = self._array(w)
        to[mask] = what[mask]

    # --- memory

    def own_shared(self, container: np.dtype[Any]) -> Any:
        """What an address of a block's own shared memory has above the offset: its rank."""
        return container.type(self.rank << 24)

    def is_space(self, address: Array, space: str) -> Array:
        """Whether generic addresses lie in a state space."""
        window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space.split("::")[0])
        top = address >> np.uint64(48)
        if window is None:
            return top < np.uint64(SHARED_WINDOW >> 48)
        return top == np.uint64(window >> 48)

    def _where(self, space: str, addresses: Array) -> list[tuple[Any, Segment, Array]]:
        """(which accesses, the memory, offsets in it) of addresses; a slice where it is all of them."""
        everything = slice(None)
        if space in ("global", "const"):
            return []
        if space.startswith("shared"):
            return self._in_shared(addresses & np.uint64(0xFFFFFFFF))
        if space == "local":
            if self.local is None:
                raise MemoryFault("LOCAL_OUT_OF_RANGE", "the kernel has no local memory")
            return [(everything, self.local, addresses)]
        if space == "param":
            return [(everything, self.params, addresses & np.uint64(0xFFFFFFFF))]
        raise MemoryFault("GMEM_UNMAPPED", f"no state space {space!r}")

    def _in_shared(self, addresses: Array) -> list[tuple[Any, Segment, Array]]:
        rank = (addresses >> RANK_SHIFT).astype(np.int64)
        offset = addresses & np.uint64(0xFFFFFF)
        first = int(rank[0])
        if (rank == first).all():
            return [(slice(None), self._block_of(first).shared, offset)]
        return [(own, self._block_of(int(number)).shared, offset[own]) for number in np.unique(rank) for own in (rank == number,)]

    def _block_of(self, rank: int) -> Block:
        if rank >= len(self.blocks):
            raise MemoryFault("SMEM_OUT_OF_RANGE", f"shared memory of block {rank} of a cluster of {len(self.blocks)}")
        return self.blocks[rank]

    def _parts(self, space: str, addresses: Array, size: int, threads: Array) -> list[tuple[Any, Segment | None, Array]]:
        """Where accesses go; None is global memory. Checks alignment and extents."""
        unaligned = addresses & np.uint64(min(size, 16) - 1) != 0
        if unaligned.any():
            lane = int(np.argmax(unaligned))
            raise Stop("ADDRESS_MISALIGNED", f"{size} bytes at {int(addresses[lane]):#x}", int(threads[lane]))
        try:
            if space in ("global", "const"):
                return [(slice(None), None, addresses)]
            if space == "":
                return self._generic(addresses, threads)
            found = self._where(space, addresses)
        except MemoryFault as fault:
            raise Stop(fault.name, fault.detail, int(threads[0])) from None
        parts: list[tuple[Any, Segment | None, Array]] = []
        for own, segment, offset in found:
            base = offset
            if segment is self.local:
                beyond = offset + np.uint64(size) > np.uint64(self.program.local_bytes)
                base = offset + (threads[own] * self.local_stride).astype(np.uint64)
            else:
                beyond = offset + np.uint64(size) > np.uint64(segment.size)
            if beyond.any():
                lane = int(np.argmax(beyond))
                name = "SMEM_OUT_OF_RANGE" if space.startswith("shared") else "STACK_OVERFLOW" if segment is self.local else "PARAM_OUT_OF_RANGE"
                raise Stop(name, f"{size} bytes at {int(offset[lane]):#x} of {segment.size}", int(threads[own][lane]))
            parts.append((own, segment, base))
        return parts

    def _generic(self, addresses: Array, threads: Array) -> list[tuple[Any, Segment | None, Array]]:
        top = addresses >> np.uint64(48)
        if (top < np.uint64(SHARED_WINDOW >> 48)).all():
            return [(slice(None), None, addresses)]
        found: list[tuple[Any, Segment | None, Array]] = []
        for window, space in ((SHARED_WINDOW, "shared"), (LOCAL_WINDOW, "local"), (PARAM_WINDOW, "param"), (0, "global")):
            own = top == np.uint64(window >> 48) if window else top < np.uint64(SHARED_WINDOW >> 48)
            if not own.any():
                continue
            indices = np.nonzero(own)[0]
            for part, segment, offset in self._parts(space, addresses[own] - np.uint64(window), 1, threads[own]):
                found.append((indices[part], segment, offset))
        return found

    def load(self, space: str, addresses: Array, size: int, w: Mask) -> Array:
        """What lies at addresses, for every thread: unsigned integers of 1 to 8 bytes, else uint8 (threads, size)."""
        typed = size in _TYPED
        if w is True:
            threads, taken = self.lane_base, addresses
        else:
            threads = np.nonzero(w)[0]
            taken = addresses[threads]
            if not len(threads):
                return np.zeros(self.threads, _TYPED[size]) if typed else np.zeros((self.threads, size), np.uint8)
        unit = size if typed or size == 16 else 16
        found = np.empty(len(threads), _TYPED[size]) if typed else np.empty((len(threads), size), np.uint8)
        for own, segment, offset in self._parts(space, taken, size, threads):
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece) if piece else offset
                if segment is None:
                    try:
                        values = self.memory.gather(at, unit)
                    except MemoryFault as fault:
                        lane = self.memory.unmapped(at, unit)
                        raise Stop(fault.name, fault.detail, int(threads[own][lane or 0])) from None
                else:
                    values = segment.views[unit][(at - np.uint64(segment.start)).astype(np.int64) // unit]
                if typed:
                    found[own] = values
                else:
                    found[own, piece : piece + unit] = values.view(np.uint8).reshape(-1, unit)
        if w is True:
            return found
        full = np.zeros((self.threads, *found.shape[1:]), found.dtype)
        full[threads] = found
        return full

    def store(self, space: str, addresses: Array, values: Array, size: int, w: Mask) -> None:
        """Store unsigned integers, or parts joined."""
        values = np.broadcast_to(values, (self.threads,))
        if w is True:
            threads = self.lane_base
        else:
            threads = np.nonzero(w)[0]
            if not len(threads):
                return
            addresses, values = addresses[threads], values[threads]
        if size in _TYPED:
            values = values.astype(_TYPED[size], copy=False)
        unit = min(size, 16)
        for own, segment, offset in self._parts(space, addresses, size, threads):
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece) if piece else offset
                part = values[own]
                if size > 16:
                    octets = np.ascontiguousarray(part).view(np.uint8).reshape(-1, size)[:, piece : piece + 16]
                    part = np.ascontiguousarray(octets).view(np.dtype((np.void, 16)))[:, 0]
                if segment is None:
                    lane = self.memory.unmapped(at, unit)
                    if lane is not None:
                        raise Stop(
                            "GMEM_UNMAPPED", f"{size} bytes at {int(at[lane]):#x}: nothing is mapped there", int(threads[own][lane])
                        )
                    self.memory.scatter(at, part, unit)
                else:
                    segment.views[unit][(at - np.uint64(segment.start)).astype(np.int64) // unit] = part

    def atomic(self, space: str, addresses: Array, operation: str, type: str, sources: Any, w: Mask) -> list[Array]:
        """Atomics, thread after thread; the old values of each part."""
        size = CONTAINERS[type].itemsize if type in CONTAINERS else 16
        combine = _combination(operation, type)
        threads = self.lane_base if w is True else np.nonzero(w)[0]
        results = []
        for place, operands in enumerate(sources):
            given = [np.broadcast_to(np.asarray(own), (self.threads,)) for own in operands]
            old = np.zeros(self.threads, CONTAINERS[type])
            places = addresses + np.uint64(place * size)
            left = threads
            while len(left):  # each pass takes the first thread of every address
                _, first = np.unique(places[left], return_index=True)
                now = left[np.sort(first)]
                mask = np.zeros(self.threads, bool)
                mask[now] = True
                before = self.load(space, places, size, mask)
                old[now] = before[now]
                self.store(space, places, combine(before, *given), size, mask)
                left = np.setdiff1d(left, now, assume_unique=True)
            results.append(old)
        return results

    # --- warps

    def _warped(self, values: Any, dtype: Any = np.uint32) -> Array:
        """One value for each thread as (warps, 32)."""
        full = np.zeros(self.warps * LANES, dtype)
        full[: self.threads] = values
        return full.reshape(self.warps, LANES)

    def shuffle(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        """The register of another lane, and whether that lane is in range."""
        lane = np.arange(LANES)
        value, delta, control = self._warped(a), self._warped(b).astype(np.int64), self._warped(c).astype(np.int64)
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
        source = np.where(inside, source, lane)
        found = np.take_along_axis(value, source, axis=1)
        return found.reshape(-1)[: self.threads], inside.reshape(-1)[: self.threads]

    def _ballot(self, flags: Array) -> Array:
        bits = self._warped(flags, bool).astype(np.uint64) << np.arange(LANES, dtype=np.uint64)
        return np.repeat(bits.sum(1).astype(np.uint32), LANES)[: self.threads]

    def active(self, w: Mask) -> Array:
        """The lanes of each warp that execute."""
        return self._ballot(self._array(w))

    def vote(self, mode: str, predicate: Array, mask: Any, w: Mask) -> Array:
        """all, any, uni, or the ballot."""
        now = self._array(w)
        yes = self._ballot(now & predicate)
        if mode == "ballot":
            return yes
        everyone = self._ballot(now)
        found = {"any": yes != 0, "all": yes == everyone, "uni": (yes == 0) | (yes == everyone)}
        return found[mode]

    def match(self, mode: str, a: Array, w: Mask) -> tuple[Array, Array]:
        """The lanes with the same value as each, or all lanes if all values are equal."""
        now = self._warped(self._array(w), bool)
        value = self._warped(a, np.uint64)
        same = (value[:, :, None] == value[:, None, :]) & now[:, None, :]
        bits = (same.astype(np.uint64) << np.arange(LANES, dtype=np.uint64)).sum(2).astype(np.uint32)
        everyone = self._warped(self._ballot(self._array(w)))
        if mode == "any":
            return bits.reshape(-1)[: self.threads], np.ones(self.threads, bool)
        equal = bits == everyone
        return np.where(equal, everyone, 0).astype(np.uint32).reshape(-1)[: self.threads], equal.reshape(-1)[: self.threads]

    def redux(self, words: tuple[str, ...], a: Array, w: Mask) -> Array:
        """One number of all lanes that execute."""
        operation, type = words[0], words[-1]
        now, codes = self._warped(self._array(w), bool), self._warped(a)
        if type == "f32":
            first = np.argmax(now, axis=1)
            found = codes[np.arange(self.warps), first]
            nan, absolute = "NaN" in words, "abs" in words
            codes = codes & np.uint32(0x7FFFFFFF) if absolute else codes
            found = found & np.uint32(0x7FFFFFFF) if absolute else found
            for lane in range(LANES):
                both = floating.extreme(found, codes[:, lane], "f32", operation == "max", nan)
                found = np.where(now[:, lane], both, found)
            return np.repeat(found, LANES)[: self.threads]
        values = (codes.view(np.int32) if type == "s32" else codes).astype(np.int64)
        low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        reduce = {
            "add": lambda v: np.where(now, v, 0).sum(1), "min": lambda v: np.where(now, v, high).min(1), "max": lambda v: np.where(now, v, low).max(1),
            "and": lambda v: np.bitwise_and.reduce(np.where(now, v, -1), axis=1), "or": lambda v: np.bitwise_or.reduce(np.where(now, v, 0), axis=1),
            "xor": lambda v: np.bitwise_xor.reduce(np.where(now, v, 0), axis=1),
        }[operation]  # fmt: skip
        return np.repeat((reduce(values) & 0xFFFFFFFF).astype(np.uint32), LANES)[: self.threads]

    def elect(self, mask: Array, w: Mask) -> tuple[Array, Array]:
        """The lowest lane that executes, and which thread that is."""
        now = self._warped(self._array(w), bool)
        first = np.argmax(now, axis=1).astype(np.uint32)
        leader = np.repeat(first, LANES)[: self.threads]
        return leader, leader == self._special["laneid"]

    # --- instructions of the catalog

    def perform(self, bound: Bound, given: dict[str, Any], w: Mask) -> None:
        """Run an instruction through its effects: registers and writes now, pending work in its groups."""
        mask = self._array(w)
        if bound.lanes > 1:
            warps = self._warped(mask, bool).any(1)
            if bound.lanes == 128:
                warps = np.repeat(np.pad(warps, (0, -len(warps) % 4)).reshape(-1, 4).any(1), 4)[: self.warps]
            taken = np.repeat(warps, LANES)[: self.threads]
        else:
            taken = mask
        threads = np.nonzero(taken)[0]
        if not len(threads):
            return
        operands = {
            slot.name: gathered(bound, slot, given[slot.name], self.threads, threads) for slot in bound.form.operands if slot.name in given
        }
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
        flat = values.reshape(len(threads), -1) if len(numbers) > 1 or values.size != len(threads) else values.reshape(len(threads), 1)
        first = self.registers[numbers[0]]
        if first.dtype == np.uint64 and flat.dtype == np.uint32:
            flat = np.ascontiguousarray(flat).view(np.uint64)
        for place, number in enumerate(numbers):
            if number >= 0:
                self.registers[number][threads] = flat[:, place].astype(self.registers[number].dtype)

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
        for piece in range(at.size) if mask is not None else ():
            own = mask[:, piece]
            if own.any():
                self._put_octets(at.space, address[own] + piece, data[own, piece : piece + 1])
        if mask is None:
            self._put_octets(at.space, address, data)

    def _put_octets(self, space: str, addresses: Array, data: Array) -> None:
        places, size = addresses.astype(np.uint64), data.shape[1]
        unit = next(unit for unit in (16, 8, 4, 2, 1) if size % unit == 0 and not (places & np.uint64(unit - 1)).any())
        for own, segment, offset in self._parts("" if space == "generic" else space, places, 1, np.zeros(len(places), np.int64)):
            part = data[own]
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece)
                values = np.ascontiguousarray(part[:, piece : piece + unit]).view(_TYPED.get(unit, np.dtype((np.void, 16))))[:, 0]
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

    # --- barriers

    def barrier(self, number: Any, count: Any, w: Mask, after: int, kind: str, predicate: Any, into: Any) -> Any:
        """Wait until as many threads have arrived."""
        mask = self._array(w)
        first = int(np.argmax(mask))
        which = int(np.broadcast_to(number, (self.threads,))[first])
        wanted = 0 if count is None else int(np.broadcast_to(count, (self.threads,))[first])
        own = None if predicate is None else np.broadcast_to(predicate, (self.threads,)).copy()
        return [(mask.copy(), Wait("bar", which, after, wanted, kind, own, into))]

    def arrive(self, number: Any, count: Any, w: Mask) -> None:
        """Arrive without waiting."""
        mask = self._array(w)
        first = int(np.argmax(mask))
        which = int(np.broadcast_to(number, (self.threads,))[first])
        barrier = self.barriers.setdefault(which, Barrier())
        barrier.arrived += int(self._in_warps(mask))
        barrier.count = int(np.broadcast_to(count, (self.threads,))[first])
        self._complete(which)

    def _in_warps(self, mask: Array) -> int:
        """Threads that arrive: a barrier counts whole warps."""
        return int(self._warped(mask, bool).any(1).sum()) * LANES

    def _alive(self) -> int:
        alive = np.zeros(self.threads, bool)
        for fiber in self.fibers:
            alive |= fiber.mask
        for barrier in self.barriers.values():
            for fiber in barrier.waiting:
                alive |= fiber.mask
        return self._in_warps(alive)

    def _complete(self, which: int) -> bool:
        """Release a barrier's threads if all have arrived."""
        barrier = self.barriers[which]
        wanted = barrier.count or self._alive()
        waiting = np.zeros(self.threads, bool)
        for fiber in barrier.waiting:
            waiting |= fiber.mask
        if self._in_warps(waiting) + barrier.arrived < wanted or not barrier.waiting:
            return False
        waits = [fiber.waits for fiber in barrier.waiting if fiber.waits is not None]
        if waits and waits[0].reduce != "sync":
            flags = np.zeros(self.threads, bool)
            for fiber in barrier.waiting:
                if fiber.waits is not None and fiber.waits.predicate is not None:
                    flags |= fiber.mask & fiber.waits.predicate
            found: Any = {"popc": int(flags.sum()), "and": bool(flags[waiting].all()), "or": bool(flags.any())}[waits[0].reduce]
            for fiber in barrier.waiting:
                if fiber.waits is not None and fiber.waits.into is not None:
                    np.copyto(fiber.waits.into, found, where=fiber.mask, casting="unsafe")
        for fiber in barrier.waiting:
            fiber.block = fiber.waits.after if fiber.waits is not None else EXIT
            fiber.waits = None
            self.fibers.append(fiber)
        del self.barriers[which]
        return True

    # --- running

    def step(self) -> bool:
        """Run one basic block of the threads that are furthest behind; False where nothing can run."""
        self._join()
        ready = [fiber for fiber in self.fibers if fiber.waits is None]
        if not ready:
            return False
        fiber = min(ready, key=lambda own: (own.turns >> 6, own.block))
        self.fibers.remove(fiber)
        fiber.turns += 1
        full = fiber.mask.all()
        found = self.program.blocks[fiber.block](self, self.registers, True if full else fiber.mask)
        self.count += 1
        moves = found if isinstance(found, list) else [(fiber.mask, found)]
        exited = False
        for mask, where in moves:
            if isinstance(where, Wait):
                own = Fiber(mask, EXIT, where)
                barrier = self.barriers.setdefault(where.number, Barrier())
                barrier.waiting.append(own)
                barrier.count = where.count or barrier.count
            elif where == EXIT:
                exited = True
            else:
                self.fibers.append(Fiber(mask, where, None, fiber.turns))
        for which in list(self.barriers):
            if exited or any(isinstance(where, Wait) for _, where in moves):
                self._complete(which)
        return True

    def _join(self) -> None:
        """Threads at the same place execute together again."""
        if len(self.fibers) < 2:
            return
        places: dict[int, Fiber] = {}
        joined: list[Fiber] = []
        for fiber in self.fibers:
            other = places.get(fiber.block) if fiber.waits is None else None
            if other is not None:
                other.mask = other.mask | fiber.mask
                other.turns = max(other.turns, fiber.turns)
                continue
            if fiber.waits is None:
                places[fiber.block] = fiber
            joined.append(fiber)
        self.fibers = joined

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return not self.fibers and not self.barriers


def _combination(operation: str, type: str) -> Callable[..., Array]:
    """What an atomic makes of the old value and its operands."""

    def signed(codes: Array) -> Array:
        return codes.view(f"i{codes.dtype.itemsize}") if type[0] == "s" else codes

    if type in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        from tcsim.isa.scalar.catalog import scalar

        # Atomics of f32 in global memory flush nothing; min and max take the number beside a NaN.
        found = scalar(f"{operation}.{'rn.' if operation == 'add' else ''}{type}")
        if found is None:
            raise Stop("TRAP", f"atom.{operation}.{type} is not known here")
        compute: Callable[..., Array] = found.compute
        return compute
    table: dict[str, Callable[..., Array]] = {
        "add": lambda old, a: old + a, "and": lambda old, a: old & a, "or": lambda old, a: old | a, "xor": lambda old, a: old ^ a,
        "exch": lambda old, a: a, "cas": lambda old, a, b: np.where(old == a, b, old),
        "min": lambda old, a: np.where(signed(a) < signed(old), a, old), "max": lambda old, a: np.where(signed(a) > signed(old), a, old),
        "inc": lambda old, a: np.where(old >= a, 0, old + 1).astype(old.dtype), "dec": lambda old, a: np.where((old == 0) | (old > a), a, old - 1).astype(old.dtype),
    }  # fmt: skip
    return table[operation]
