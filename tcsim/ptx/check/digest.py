"""What clusters of a batch did as one number for each: made with weights that each process draws anew, so that two that differ have the same only by chance."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tcsim.isa.copies import MAP_BOUNDARY
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Seen, Signal, Write
from tcsim.numbers.formats import Format
from tcsim.ptx.check.kinds import Trace
from tcsim.ptx.check.lanes import as_bits
from tcsim.ptx.check.rules.global_memory import reaches_global
from tcsim.ptx.compile.ordinary import reads_tiles
from tcsim.ptx.machine.arrays import LANES, Array, distinct, each_once
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stuck, Unbatchable
from tcsim.ptx.machine.flights import Flight
from tcsim.tma.copy import visible

_RANDOM = np.random.default_rng()
_EVERY = (1 << 64) - 1
_KEY = int(_RANDOM.integers(0, 1 << 60))
_ODD = tuple(np.uint64(int(own) | 1) for own in _RANDOM.integers(0, 1 << 63, 3, np.uint64))
_ROUNDS = (np.uint64(33), _ODD[0]), (np.uint64(29), _ODD[1])
_NOTHING = np.uint64(0)
_BLOCKS = np.uint64(16)
"""Of a cluster, at most."""
_NOWHERE = np.iinfo(np.int64).min
READS, WRITES, _FETCHES, _LANDS = 1, 2, 4, 8
"""What a batch does in a segment of global memory: ordinary reads and writes, and those of the async proxy."""
_DIMENSIONS = 5
"""Of a tensor map, at most."""


class _Weights:
    """Random odd numbers, as many as are needed."""

    def __init__(self) -> None:
        self._all = _RANDOM.integers(0, 1 << 63, 1024, np.uint64) << np.uint64(1) | np.uint64(1)

    def first(self, count: int) -> Array:
        """The first of them."""
        while count > len(self._all):
            more = _RANDOM.integers(0, 1 << 63, len(self._all), np.uint64) << np.uint64(1) | np.uint64(1)
            self._all = np.concatenate([self._all, more])
        return self._all[:count]


_WEIGHTS = _Weights()


def mixed(values: Array) -> Array:
    """64 bits each, so that every bit depends on every bit."""
    found: Array = values.astype(np.uint64)
    for shift, odd in _ROUNDS:
        found ^= found >> shift
        found *= odd
    return found


def code_of(*words: Any) -> np.uint64:
    """Words as one number; the same only in one process."""
    return np.uint64(hash((_KEY, *words)) & _EVERY)


def halves(value: int) -> tuple[int, int]:
    """A number as two small ones: Python gives large or negative numbers the hashes of others."""
    return value >> 32, value & 0xFFFF_FFFF


def _words(value: Any) -> tuple[Any, ...]:
    """A number or a name for `code_of`; nothing for another value."""
    if isinstance(value, (int, np.integer, np.bool_)):
        return halves(int(value))
    return (value,) if isinstance(value, str) or value is None else (value.name,) if isinstance(value, Format) else ()


def _each(of: Any) -> Any:
    """Clusters, each once: one number is one."""
    return distinct(of) if np.ndim(of) else of


def _mask_of(at: Access) -> Array:
    """Which bytes of each access are moved."""
    return np.broadcast_to(np.asarray(at.mask), (*at.address.shape, at.size)).reshape(-1, at.size)


class Digest:
    """A running hash of each cluster in a batch, over the sequence of that cluster's events."""

    def __init__(self, cluster: Batch, boxes: bool = False) -> None:
        """boxes: only the places of boxes count, not what they show, and not where ordinary accesses go in global memory; valid unless `tangled`."""
        self.blocks, self.count = cluster.blocks, len(cluster.phase)
        self.width = self.blocks[0].threads.width
        self.sums = np.zeros(self.count, np.uint64)
        # Of each the ranks whose blocks have accessed global memory since anything else, as bits.
        self.touched = np.zeros(self.count, np.uint64)
        # Whether the check looks at addresses in global memory: of all accesses there, or of those of work alone.
        program = self.blocks[0].program
        self.reaches_global = reaches_global(program)
        self.places_work = self.reaches_global or any(map(reads_tiles, program.opcodes))
        self.boxes = boxes and self.reaches_global
        self._shown: list[tuple[Array, Array]] = []  # of boxes the cluster, and what `Trace.shown` has of them
        # Who has touched registers of wgmma, which only a later one may mind.
        self._registers = np.zeros(self.count, np.uint64)
        # By segment of global memory what is done there: `READS` and the others.
        self._uses: dict[int, int] = {}
        self._known: dict[Any, np.uint64] = {}  # of values of one cluster: what `rows` makes of them
        self._first: dict[Any, Array] = {}  # by segment, or axis of a tensor: where each cluster was first

    def note(self, code: np.uint64, which: Any, values: Any = _NOTHING) -> None:
        """Some clusters did something; values: one for each of them."""
        own = self.sums[which] + self.touched[which]
        self.touched[which] = 0
        self.sums[which] = (own ^ own >> np.uint64(31)) * _ODD[2] + (values ^ code) * _ODD[0]

    def gathered(self, code: np.uint64, threads: Array) -> None:
        """Threads of any clusters did something, whatever else happens until something is noted; the lowest bits are those of `touched`."""
        of, own = np.divmod(threads, self.width)
        np.add.at(self.touched, of, mixed(own.astype(np.uint64) + code) << _BLOCKS)

    def rows(self, code: np.uint64, of: Any, values: Array) -> None:
        """Something with values, each of one cluster, or all of one."""
        if not len(values):
            return
        if not np.ndim(of):
            key = values.dtype, values.tobytes()
            if key not in self._known:
                self._known[key] = mixed(values).dot(_WEIGHTS.first(len(values))) + np.uint64(len(values))
            self.note(code, of, self._known[key])
            return
        each = mixed(values)
        if (of[1:] < of[:-1]).any():
            order = np.argsort(of, kind="stable")
            of, each = of[order], each[order]
        size = int(np.searchsorted(of, of[0], "right"))  # of the first cluster
        if (
            len(of) % size == 0
            and ((parts := of.reshape(-1, size))[:, 0] == parts[:, -1]).all()
            and (np.diff(parts[:, 0]) > 0).all()
        ):
            sums = each.reshape(-1, size) @ _WEIGHTS.first(size)
            self.note(code, parts[:, 0], sums + np.uint64(size))
            return
        starts = np.concatenate([[0], np.flatnonzero(of[1:] != of[:-1]) + 1])
        counts = np.diff(np.append(starts, len(of)))
        place = np.arange(len(of)) - np.repeat(starts, counts)
        sums = np.add.reduceat(each * _WEIGHTS.first(int(counts.max()))[place], starts)
        self.note(code, of[starts], sums + counts.astype(np.uint64))

    def mask(self, code: np.uint64, block: Block, mask: Array) -> None:
        """Threads of a mask did something."""
        bits = as_bits(mask).reshape(self.count, -1)
        which = np.flatnonzero(bits.any(1))
        self.note(code, which, (mixed(bits[which]) * _WEIGHTS.first(bits.shape[1])).sum(1))

    def of(self, block: Block, threads: Array) -> Any:
        """Of which clusters threads are: one number, or one for each."""
        return block.threads.block_of(threads) if len(threads) else 0

    def traces(self) -> list[Trace]:
        """What each cluster did."""
        nothing = np.zeros(0, np.int64), np.zeros((0, 2 * _DIMENSIONS), np.int64)
        which, shown = (np.concatenate(own) for own in zip(nothing, *self._shown, strict=True))
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(1, self.count))
        return [Trace(*own) for own in zip(self.sums.tolist(), np.split(shown[order], ends), strict=True)]

    def keep(self, code: np.uint64, mask: Array) -> None:
        """Threads of a mask did something that counts only if `kept` is called later."""
        bits = as_bits(mask).reshape(self.count, -1)
        own, values = self._registers, (mixed(bits) * _WEIGHTS.first(bits.shape[1])).sum(1)
        self._registers = np.where(bits.any(1), (own ^ own >> np.uint64(31)) * _ODD[2] + (values ^ code) * _ODD[0], own)

    def kept(self, of: Any) -> None:
        """What was kept of some clusters counts from now on."""
        if (which := np.atleast_1d(_each(of))[self._registers[_each(of)] != 0]).size:
            self.note(code_of("kept"), which, self._registers[which])
            self._registers[which] = 0

    def use(self, block: Block, addresses: Array, use: int) -> None:
        """Ordinary accesses, or reads of boxes, somewhere in global memory."""
        if len(addresses):
            memory = block.spaces.memory
            first, last = (memory.segment(int(own)) for own in (addresses.min(), addresses.max()))
            own = [first] if first is last else memory.segments
            for segment in own:
                if segment is not None:
                    self._uses[segment.address] = self._uses.get(segment.address, 0) | use

    def tangled(self) -> bool:
        """Whether something that the async proxy touches is touched in another way too."""
        return any(
            (use & (_FETCHES | _LANDS) and use & WRITES) or (use & _LANDS and use & (READS | _FETCHES))
            for use in self._uses.values()
        )

    def box(self, code: np.uint64, flight: Flight) -> bool:
        """Note where the boxes of a copy lie, and keep apart what they show of the tensor; False for copies that cannot be told so."""
        block, pending = flight.block, flight.pending
        tmap, base, corner = pending.box or (None, 0, ())
        if not self.boxes or tmap is None or tmap.slice_bytes or tmap.im2col_mode or not pending.tells:
            return False
        corners, threads = np.atleast_2d(np.asarray(corner, np.int64)), flight.asked
        of = self.of(block, threads if pending.threads is None else threads[pending.threads])
        which = np.broadcast_to(of, len(corners))
        strides = np.array(tmap.global_strides, np.int64)
        address = base + corners[:, 0] // tmap.unit.indices * tmap.unit.global_bytes + corners[:, 1:] @ strides
        code = code ^ code_of("box", hash(tmap))
        segment = block.spaces.memory.segment(base)
        start = base if segment is None else segment.address
        for key, values in ((start, address), *(((tmap, base, axis), own) for axis, own in enumerate(corners.T))):
            self.rows(code, of, self._relative(key, which, values))
        shown = np.zeros((len(corners), 2 * _DIMENSIONS), np.int64)
        begin, end = visible(tmap, corners)
        shown[:, : begin.shape[1]], shown[:, _DIMENSIONS : _DIMENSIONS + end.shape[1]] = begin, -end
        self._shown.append((which, shown))
        last = base + int((np.array(tmap.global_dim[1:], np.int64) - 1) @ strides)
        self.use(block, np.array([base, last], np.uint64), _FETCHES)
        return True

    def _relative(self, key: Any, which: Array, values: Array) -> Array:
        """Numbers of some clusters, from the first of each on."""
        first = self._first.setdefault(key, np.full(self.count, _NOWHERE))
        fresh = first[which] == _NOWHERE
        if fresh.any():
            new, places = np.unique(which[fresh], return_index=True)
            first[new] = values[fresh][places]
        begin = first[which]
        # Words of 4 bytes and copies of 16 are told apart by where they begin.
        found: Array = (values - begin) * 256 + (begin & 15)
        return found

    def in_global(self, block: Block, addresses: Array, of: Any, moved: Any = np.True_, use: int = 0) -> Array:
        """Addresses in global memory, from the first that each cluster has accessed in the segment on.

        moved: where bytes are accessed; elsewhere an address may lie behind its segment. use: what is done there, at most.
        """
        found, every = np.zeros(len(addresses), np.int64), block.spaces.memory.segments
        ends = int(addresses.min()), int(addresses.max())
        low, high = (bisect_right(every, own, key=lambda segment: segment.address) for own in ends)
        segments = every[max(low - 1, 0) : high]
        starts, behind = np.array([(own.address, own.end) for own in segments], np.uint64).reshape(-1, 2).T
        place, of = np.searchsorted(starts, addresses, "right") - 1, np.broadcast_to(of, addresses.shape)
        if (place < 0).any() or (moved & (addresses >= behind[place])).any():
            raise Stuck("an access where nothing is mapped")
        for number in each_once(place):
            segment, inside = segments[number], place == number
            own = self._relative(segment.address, of[inside], addresses[inside].astype(np.int64))
            found[inside] = own + mixed(np.array([segment.address])).astype(np.int64)
            if self.boxes:
                self._uses[segment.address] = self._uses.get(segment.address, 0) | use
        return found

    def access(self, code: np.uint64, block: Block, at: Access, threads: Array, writes: bool = False) -> None:
        """An access of an instruction of some threads."""
        of = block.octets.block_of(at, threads)
        address, cta = block.octets.places(at)
        values = address.astype(np.int64)
        if at.space in ("global", "generic"):
            outside = np.ones(len(values), bool)
            if at.space == "generic":
                outside = address.astype(np.uint64) < np.uint64(SHARED_WINDOW)
            if outside.any() and self.places_work:
                own = of[outside] if np.ndim(of) else of
                moved = np.True_ if at.mask is None else np.resize(_mask_of(at).any(1), len(values))[outside]
                reads, stores = (READS, READS | WRITES) if at.proxy == "generic" else (_FETCHES, _LANDS)
                use = stores if writes else reads
                values[outside] = self.in_global(block, address[outside].astype(np.uint64), own, moved, use)
            elif outside.any():
                values[outside] = address[outside] & 15
        found: Array = values
        if at.mask is not None:
            mask = _mask_of(at)
            bits = np.packbits(np.resize(mask, (len(found), at.size)), axis=1)
            found = mixed(found) + bits.astype(np.uint64) @ _WEIGHTS.first(bits.shape[1])
        if cta is not None:
            found = mixed(found) + mixed(np.broadcast_to(cta, address.shape)) * _ODD[2]
        words = (at.space, at.size, at.proxy, at.sem, at.scope, at.operand, at.thread is None, at.mask is None)
        self.rows(code ^ code_of(*words), of, found)
        if at.proxy == "tensormap" and (off := address & MAP_BOUNDARY - 1).any():
            self.rows(code, of, off)
        if at.thread is not None and np.ndim(at.thread):
            own, whose = threads[at.thread.reshape(-1)], self.of(block, threads)
            whose = own // self.width if np.ndim(whose) else whose
            self.rows(code, whose, own - whose * self.width)
        if at.tile is not None:
            self.plain(code, block, at.tile, threads)
        if at.cells is not None:
            self.plain(code, block, at.cells, threads)

    def signal(self, code: np.uint64, block: Block, signal: Signal, threads: Array) -> None:
        """A signal."""
        code = code ^ code_of(signal.kind, signal.layout, signal.no_complete, signal.copied)
        for at in block.octets.copies(signal.at):
            self.access(code, block, at, threads)
        counts = np.broadcast_to(signal.count, signal.at.address.shape).reshape(-1)
        self.rows(code, block.octets.block_of(signal.at, threads), counts)

    def placed(self, code: np.uint64, flight: Flight) -> None:
        """Where a copy of a box puts what it has read, and what it fills in: told by where random bytes go."""
        pending, data, block = flight.pending, flight.data, flight.block
        if not isinstance(data, np.ndarray):
            return
        lanes = flight.asked if pending.threads is None else flight.asked[pending.threads]
        of = self.of(block, lanes)
        copies, size = len(lanes) if np.ndim(of) else 1, data.shape[-1]
        threads = [own.thread for own in pending.reads if own.thread is not None]
        thread = np.concatenate(threads) if threads else np.zeros(len(data), np.int64)
        place = np.arange(len(data)) - np.searchsorted(thread, thread)  # of each row, which of its copy it is
        most = int(place.max(initial=-1)) + 1
        octets = _WEIGHTS.first(-(-most * size // 8)).view(np.uint8)[: most * size].reshape(most, size)[place]
        for write in pending.finish(octets).writes:
            rows = write.data.reshape(copies, -1)
            words = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))).view(np.uint64)
            found = mixed(words) @ _WEIGHTS.first(words.shape[1])
            mine = np.isin(lanes, flight.threads) if copies > 1 else slice(None)
            self.note(code, of[mine] if copies > 1 else of, found[mine] if copies > 1 else found[0])

    def plain(self, code: np.uint64, block: Block, value: Any, threads: Array, writes: bool = False) -> None:
        """What an instruction of some threads does, but for what data are; values: numbers, and what is made of them. writes: accesses are writes.

        Of several clusters arrays have an entry for each warp, warpgroup or thread.
        """
        if isinstance(value, tuple):
            for place, own in enumerate(value):
                if not isinstance(own, tuple) or own:
                    self.plain(code ^ code_of(place), block, own, threads, writes)
        elif isinstance(value, Access):
            self.access(code, block, value, threads, writes)
        elif isinstance(value, Write):
            self.access(code ^ code_of(value.combine is None), block, value.at, threads, True)
        elif isinstance(value, Signal):
            self.signal(code, block, value, threads)
        elif isinstance(value, Seen):
            self.plain(code, block, (value.at, np.asarray(value.complete)), threads)
        else:
            of = self.of(block, threads)
            self._plain(code, of, _each(of), value, len(threads))

    def _plain(self, code: np.uint64, of: Any, which: Any, value: Any, lanes: int) -> None:
        """which: the clusters of `of`, each once."""
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
            code = code ^ code_of(value.shape[1:])
            if np.ndim(of) and value.ndim:
                each = lanes // len(value) if len(value) else 0
                if each not in (1, LANES, 4 * LANES) or each * len(value) != lanes:
                    raise Unbatchable("an operand of several blocks that does not say of which each part is")
                rows = mixed(value.reshape(len(value), -1))
                self.rows(code, of[::each], (rows * _WEIGHTS.first(rows.shape[1])).sum(1))
                return
            self.note(code, which, (mixed(value.reshape(-1)) * _WEIGHTS.first(value.size)).sum())
        elif is_dataclass(value) and not isinstance(value, type):
            parts = [(own.name, getattr(value, own.name)) for own in fields(value)]
            words = (word for _, part in parts for word in _words(part))
            self.note(code ^ code_of(type(value).__name__, *words), which)
            for name, part in parts:
                if not _words(part):
                    self._plain(code ^ code_of(name), of, which, part, lanes)
        elif isinstance(value, (tuple, list)):
            for place, own in enumerate(value):
                self._plain(code ^ code_of(place), of, which, own, lanes)
        elif not callable(value):
            self.note(code ^ code_of(*(_words(value) or (type(value).__name__, str(value)))), which)

    def who(self, code: np.uint64, block: Block, threads: Array, mask: Array | None = None) -> None:
        """Some threads, and which of them a mask has."""
        of = self.of(block, threads)
        values = threads - of * self.width
        self.rows(code, of, values if mask is None else values * 2 + mask[threads])
