"""Who counts: hears of accesses, of instructions of the catalog and of basic blocks that are executed, in a cluster or a batch."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim import catalog
from tcsim.isa.ordinary.table import space_in
from tcsim.layouts.banks import INACTIVE, WARP_LANES
from tcsim.layouts.coalescing import SECTOR_BYTES, Rows, bulk_pieces, bulk_requests, bulk_sectors, lane_rows
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Effects
from tcsim.model.statement import Immediate, Sink, Vector, registers_in
from tcsim.ptx.compile.ordinary import ordinary, row_of
from tcsim.ptx.counters import boxes, rules
from tcsim.ptx.counters.cycles import tensor_cycles
from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.counters.tiles import tile_rows
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.fibers import EXIT
from tcsim.ptx.text.syntax import Instruction

if TYPE_CHECKING:
    from tcsim.ptx.compile.compiled import Compiled
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.machine.block import Block
    from tcsim.ptx.machine.events import Events
    from tcsim.ptx.machine.memory import Segment

_LOOPS = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
"""Types whose addition in shared memory is a loop around compare and swap."""
_PIPES = {
    "HMMA": ("hmma",), "IMMA": ("imma",), "BMMA": ("imma",), "DMMA": ("dmma",), "HGMMA": ("gmma", "hmma"), "QGMMA": ("gmma", "hmma"),
    "IGMMA": ("gmma", "imma"), "BGMMA": ("gmma", "imma"),
}  # fmt: skip
"""Of machine instructions the pipes whose counters they are in (`smsp__inst_executed_pipe_tensor_op_*`)."""
_BESIDE = ("wgmma", "wgmma.sp", "tensormap")
"""Families of which it is only kept that they were executed."""
_KINDS, _PATHS = {"read": "ld", "write": "st"}, {"load": "read", "store": "write"}
_MATRIX = {"ldmatrix": "ldmatrix", "stmatrix": "stmatrix"}
_FIELDS = {"global_address": (0, 1), "global_dim": (0, 1), "global_stride": (1, 2), "": (1, 0)}
"""Loads and stores of shared memory that ptxas makes of tensormap.replace, by field, where these are not one each; of none: the copy of a map."""


@cache
def tensor(opcode: str, arch: str, shared_a: bool = False) -> tuple[tuple[str, float], ...]:
    """What one warp's execution of a matrix instruction adds, by counter; nothing for other instructions. shared_a: whether A lies in shared memory.

    >>> dict(tensor("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"))["smsp__inst_executed_pipe_tensor_op_hmma.sum"]
    1
    >>> tensor("add.u32", "sm_90")
    ()
    """
    row = row_of(opcode)
    if row is None or not row.shape[0] or "mma" not in row.family:
        return ()
    found = catalog.instruction(opcode, arch)
    if not found.lowering.steps:
        return ()
    together, (m, n, k) = 4 if row.family.startswith("wgmma") else 1, row.shape
    counts, cycles = Counter[str](), list[float | None]()
    for name, count in found.lowering.opcodes:
        for pipe in _PIPES.get(name.split(".")[0], ()):
            counts[f"smsp__inst_executed_pipe_tensor_op_{pipe}.sum"] += count
        if name.split(".")[0] in _PIPES:
            own = tensor_cycles(name, arch)
            cycles.append(None if own is None else own * count)
    added: dict[str, float] = {**counts, rules.FLOPS: 2 * m * n * k / together}
    if cycles and None not in cycles:
        added[rules.TENSOR_CYCLES] = sum(own for own in cycles if own is not None)
    if together > 1:
        a, b = row.operands["a"].format, row.format_b  # type: ignore[attr-defined]
        kept = k // 2 if row.family.endswith("sp") else k
        read = b.container_bits * n * k + (a.container_bits * m * kept if shared_a else 0)
        added[rules.WGMMA_WAVES] = read / 8 / 128 / together
    return tuple(added.items())


@cache
def copies(opcode: str) -> tuple[tuple[str, float], ...]:
    """What one warp's execution of a copy of TMA adds, whether or not a lane of it copies anything.

    >>> copies("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"), copies("bar.sync")
    ((('smsp__inst_executed_op_tma_ld.sum', 1),), ())
    """
    words = opcode.split(".")
    if (words[:2] != ["cp", "async"] and words[:3] != ["cp", "reduce", "async"]) or "bulk" not in words:
        return ()
    if "prefetch" in words or "commit_group" in words or "wait_group" in words:
        return ()
    spaces = [word for word in words if word.split("::")[0] in ("global", "shared")]
    kind = "ld" if spaces and spaces[-1] == "global" and len(spaces) > 1 else "st"
    return ((f"smsp__inst_executed_op_tma_{kind}.sum", 1),)


@cache
def atomic(opcode: str, space: str, ones: bool) -> str:
    """The operation of an atom or red in shared or global memory. ones: whether it adds one and tells nobody.

    >>> atomic("atom.shared.add.u64", "shared", False), atomic("red.global.add.v4.f32", "global", False)
    ('atom.shared.loop', 'red.global.vector')
    """
    words = opcode.split(".")
    type, wide = words[-1], words[-1].endswith("64")
    if space == "global":
        kind = f"{words[0]}.global"
        return kind + (
            ".cas"
            if "cas" in words and words[0] == "atom"
            else ".vector"
            if re.search(r"\.v\d", opcode) and words[0] == "red"
            else ""
        )
    if "cas" in words:
        return "atom.shared.cas"
    if wide and ("min" in words or "max" in words):
        return "atom.shared.extreme"  # a loop that ends where there is nothing to change
    if "exch" not in words and (wide or type in _LOOPS):
        return "atom.shared.loop"
    return "atom.shared.popc" if ones else "atom.shared"


def kinds(item: Instruction) -> tuple[str, ...]:
    """The operations that an ordinary instruction may be: a generic address is one of shared or of global memory.

    >>> from tcsim.ptx.text.syntax import Instruction
    >>> kinds(Instruction("ld.volatile.u32", (), 1, 1)), kinds(Instruction("atom.global.cas.b32", (), 1, 1))
    (('ld.shared', 'ld.global'), ('atom.global.cas',))
    """
    path, own = ordinary(item.opcode).path, space_in(item.opcode).partition("::")[0]
    spaces = [space for space in ("shared", "global") if own in (space, "", "generic")]
    if path == "atomic":
        return tuple(atomic(item.opcode, space, False) for space in spaces)
    return tuple(f"{_KINDS[word]}.{space}" for space in spaces) if (word := _PATHS.get(path)) else ()


def each_item(program: Compiled, place: int, arch: str) -> Iterator[tuple[Instruction, tuple[tuple[str, float], ...]]]:
    """The instructions of a basic block, each with what a warp that executes it adds, by counter."""
    for item in {id(item): item for item in program.lines[place] if item is not None}.values():
        shared_a = len(item.operands) > 1 and not isinstance(item.operands[1], Vector)
        yield item, _added(item.opcode, arch, shared_a)


@cache
def _added(opcode: str, arch: str, shared_a: bool) -> tuple[tuple[str, float], ...]:
    """What a warp that executes an instruction adds, by counter."""
    return (rules.INSTRUCTIONS, 1), *copies(opcode), *tensor(opcode, arch, shared_a)


def expanded(tally: Tally, program: Compiled, arch: str) -> Tally:
    """The counts of a launch that has ended, with what its basic blocks add to their lines."""
    for place, (warps, threads) in tally.ran.items():
        for item, added in each_item(program, place, arch):
            own = tally.lines[item.line]
            tally.items.setdefault(item.line, item)
            own[rules.THREADS] += threads
            for counter, value in added:
                own[counter] += int(warps * value)
    tally.ran.clear()
    tally.settle()
    return tally


class Counting:
    """Counts what a cluster or a batch does. It hears of events, and changes nothing."""

    def __init__(self, events: Events, tally: Tally, grid: tuple[int, int, int], arch: str) -> None:
        self.tally, self.grid, self.arch = tally, grid, arch
        self.executed: dict[tuple[int, int], list[Any]] = {}  # by block and basic block: block, whole, warps, threads
        self.numbers: dict[int, Rows] = {}  # of each block of a batch, by `id`: their numbers in the grid
        self.names: Counter[str] | None = None  # how often the program names each register
        events.subscribe(self)

    def _number(self, block: Block) -> Rows:
        found = self.numbers.get(id(block))
        if found is None:
            x, y, z = np.array(block.threads.indices, np.int64).T
            found = self.numbers[id(block)] = x + self.grid[0] * (y + self.grid[1] * z)
        return found

    def _blocks(self, block: Block, warps: Array) -> Rows:
        """Whose the warps of a batch are."""
        return self._number(block)[warps // block.threads.warps]

    def _ones(self, block: Block, item: Instruction) -> bool:
        """Whether an atomic adds one and nobody reads what was there."""
        last = item.operands[-1]
        words = item.opcode.split(".")
        if "add" not in words or "shared::cluster" in words or not isinstance(last, Immediate) or last.value != 1:
            return False
        if item.opcode.startswith("red") or isinstance(item.operands[0], Sink):
            return True
        if self.names is None:
            every = {id(own): own for lines in block.program.lines for own in lines if own is not None}.values()
            self.names = Counter(name for own in every for name in registers_in(own.operands))
        return all(self.names[name] == 1 for name in registers_in(item.operands[0]))

    # --- basic blocks

    def ran(self, block: Block, place: int, mask: Array, found: Any) -> None:
        """Threads have executed a basic block."""
        threads = block.threads
        if type(found) is not int:
            self._parted(block, place, found)
        own = self.executed.get((id(block), place))
        if own is None:
            own = self.executed[id(block), place] = [block, 0, *np.zeros((2, threads.batch), np.int64)]
        if mask.all():
            own[1] += 1
            return
        own[2] += mask.reshape(threads.batch, -1, WARP_LANES).any(2).sum(1)
        own[3] += np.count_nonzero(mask.reshape(threads.batch, -1), 1)

    def _parted(self, block: Block, place: int, found: Any) -> None:
        """Count the parts of warps that a branch makes beyond one for each warp."""
        parts = [own.reshape(-1, WARP_LANES).any(1) for own, where in found if isinstance(where, int) and where != EXIT]
        last = block.program.lines[place][-1] if block.program.lines[place] else None
        if len(parts) > 1 and last is not None:
            more = np.add.reduce(parts, dtype=np.int64) - np.logical_or.reduce(parts)
            self.tally.parted[last.line] += int(more.sum())

    def finish(self) -> Tally:
        """Count what is known at the end."""
        for (_, place), (block, whole, warps, threads) in self.executed.items():
            warps = warps + whole * block.threads.warps
            own = self.tally.ran[place]
            own[0] += int(warps.sum())
            own[1] += int(threads.sum()) + whole * block.threads.count
            if place not in self.tally.each:
                total = self.tally.each[place] = defaultdict(float)
                for _, added in each_item(block.program, place, self.arch):
                    for counter, value in added:
                        total[counter] += value
            for counter, value in self.tally.each[place].items():
                self.tally.block(counter)[self._number(block)] += (warps * value).astype(np.int64)
        self.executed.clear()
        return self.tally

    # --- accesses

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Ordinary loads and stores, and atomics."""
        item = block.here
        if item is None or item.opcode.startswith("ld.const"):
            return
        if segment is None:
            operation = f"{_KINDS[kind]}.global" if kind != "atomic" else atomic(item.opcode, "global", False)
        elif segment is block.spaces.shared:
            operation = (
                f"{_KINDS[kind]}.shared" if kind != "atomic" else atomic(item.opcode, "shared", self._ones(block, item))
            )
        elif segment is block.spaces.local or segment is block.spaces.params:
            return
        else:
            operation = "atom.shared.cluster"
        rows, warps = lane_rows(threads, offsets)
        if item.predicate:
            self.tally.acted[item.line] += len(warps)
        self.tally.access(item, operation, size, self._blocks(block, warps), rows)

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Instructions of the catalog."""
        row = bound.model.row
        if bound.item.predicate:
            self.tally.acted[bound.item.line] += len(np.unique(threads // WARP_LANES))
        if row.family in _MATRIX:
            access = effects.reads[0] if effects.reads else effects.now.writes[0].at
            self._matrix(block, bound, access, threads)
        elif row.family == "cp.async" and row.operation == "copy":
            (work,) = effects.pending
            source, destination = work.reads[0], work.writes[0]
            read = source.address if source.mask is None else np.where(source.mask.any(-1), source.address, INACTIVE)
            rows, warps = lane_rows(threads, read.reshape(-1))
            self.tally.access(
                bound.item, "cp.async.cg" if row.mnemonic.startswith("cp.async.cg") else "cp.async.ca", source.size,
                self._blocks(block, warps), rows, lane_rows(threads, destination.address.reshape(-1) & 0xFFFFFF)[0],
            )  # fmt: skip
        elif row.family in ("wmma.load", "wmma.store"):
            self._tile(block, bound, effects.reads[0] if effects.reads else effects.now.writes[0].at, threads)
        elif "bulk" in row.family:
            self._bulk(block, bound, effects, threads)
        elif row.family in _BESIDE:
            self.tally.items[bound.item.line] = bound.item
            self.tally.operations[bound.item.line].add(row.family)
            if row.family == "tensormap" and "shared" in row.mnemonic and row.operation != "prefetch":
                self._map(block, bound, threads)

    def _map(self, block: Block, bound: Bound, threads: Array) -> None:
        """tensormap.replace and .cp_fenceproxy: words of one map, a wavefront for each instruction."""
        warps = np.unique(threads // WARP_LANES)
        waves = _FIELDS.get(bound.model.row.field, (1, 1))  # type: ignore[attr-defined]
        for warp in self._blocks(block, warps).tolist():
            for names, count in zip((rules.LOAD_WAVES, rules.STORE_WAVES), waves, strict=True):
                for name in (names, rules.SHARED_WAVES, rules.IDEAL) if count else ():
                    self.tally.add(bound.item, name, count, warp)

    def _matrix(self, block: Block, bound: Bound, access: Access, threads: Array) -> None:
        """ldmatrix and stmatrix: a row of addresses for each warp."""
        if access.space != "shared" and access.space != "generic":
            return
        address = access.address.reshape(-1, access.address.shape[-1]) & 0xFFFFFF
        rows = np.full((len(address), WARP_LANES), INACTIVE)
        rows[:, : address.shape[1]] = address
        warps = np.asarray(threads[::WARP_LANES] // WARP_LANES)
        self.tally.access(bound.item, _MATRIX[bound.model.row.family], access.size, self._blocks(block, warps), rows)

    def _tile(self, block: Block, bound: Bound, access: Access, threads: Array) -> None:
        """wmma.load and wmma.store."""
        lines = access.address.reshape(-1, access.address.shape[-1])
        warps, model = np.asarray(threads[::WARP_LANES] // WARP_LANES), bound.model
        generic, loads = lines[:, 0] >= SHARED_WINDOW, model.row.family == "wmma.load"
        for space in ("shared", "global"):
            own = (
                np.full(len(lines), access.space == space)
                if access.space != "generic"
                else generic == (space == "shared")
            )
            if not own.any():
                continue
            ldsm, size = model.accesses.by_ldsm, model.accesses.size  # type: ignore[attr-defined]
            operation = "ldmatrix" if ldsm else f"{'ld' if loads else 'st'}.{space}"
            for rows in tile_rows(model, lines[own] & 0xFFFFFF if space == "shared" else lines[own]):
                self.tally.access(bound.item, operation, size, self._blocks(block, warps[own]), rows)

    def _bulk(self, block: Block, bound: Bound, effects: Effects, threads: Array) -> None:
        """Copies of TMA: how many warps made one, their bytes, and what L2 is asked for."""
        found = copies(bound.item.opcode)
        loads = bool(found) and "_ld" in found[0][0]
        for work in effects.pending:
            first = threads[:1] if work.threads is None else threads[np.atleast_1d(work.threads)[:1]]
            number = int(self._blocks(block, first // WARP_LANES)[0])
            inside, shared = (work.reads, work.writes) if loads else (work.writes, work.reads)
            box = sum(map(_bytes, shared))
            wanted = sum(at.address.size * at.size for at in inside if at.space == "global")
            blocks = max((len(np.unique(own.cta)) for own in work.writes if own.cta is not None), default=1)
            at = int(np.min(shared[0].address))
            of_box = boxes.asked(*work.box, at, blocks) if work.box is not None and loads else None
            if of_box is not None:
                requests, sectors, size = of_box.requests, of_box.sectors, of_box.bytes
                kind = "multicast" if blocks > 1 else "load" if of_box.inside else "edge"
            else:
                starts, ends = _pieces(inside, at)
                sectors, requests = int(bulk_sectors(starts, ends).sum()), int(bulk_requests(starts, ends, loads).sum())
                size = box + (sectors * SECTOR_BYTES - wanted) * (blocks if loads else 1)
                kind = ("load" if loads else "store") if found and box == wanted else "other"
            self.tally.operations[bound.item.line].add(f"bulk.{kind}")
            added = {f"smsp__inst_executed_op_tma_{'ld' if loads else 'st'}_pred_on_any.sum": 1}
            added |= {} if "reduce" in bound.item.opcode else {rules.TMA_BYTES if loads else rules.STORED_BYTES: size}
            added |= {rules.L2_REQUESTS: requests, rules.L2_SECTORS: sectors}
            for name, value in added.items():
                self.tally.add(bound.item, name, value, number)


def _pieces(inside: tuple[Access, ...], shared: int) -> tuple[Rows, Rows]:
    """Where pieces of a copy that is no load of a measured tile begin and end in global memory."""
    rows = [(np.atleast_1d(own.address).reshape(-1), own.size) for own in inside if own.space == "global"]
    starts = np.concatenate([np.zeros(0, np.int64), *(own for own, _ in rows)]).astype(np.int64)
    lengths = np.repeat([size for _, size in rows], [len(own) for own, _ in rows]).astype(np.int64)
    return bulk_pieces(starts, lengths, shared + np.cumsum(lengths) - lengths)


def _bytes(access: Access) -> int:
    """How many bytes an access is."""
    count = access.address.size if access.cta is None else np.broadcast(access.address, access.cta).size
    return (
        count * access.size
        if access.mask is None
        else int(np.count_nonzero(np.broadcast_to(access.mask, (*access.address.shape, access.size))))
    )
