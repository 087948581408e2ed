"""The tensor copy instructions: what each spelling of cp.async.bulk.tensor and its relatives does with a tensor map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from tcsim.core.addresses import Bytes, byte_memory, integer_addresses
from tcsim.core.arguments import as_array, broadcast
from tcsim.isa.copies import barrier_access, completion, in_each, ranks_of, space_of
from tcsim.isa.mapa import WINDOW, rank_of
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, Pending, View, Write
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Space
from tcsim.model.row import Row
from tcsim.tma.bits import BYTES
from tcsim.tma.copy import CoordinateError, check_start, combination, one_tensor_side, require_fits, tiles
from tcsim.tma.map import TensorMap
from tcsim.tma.reduce import FLOATING
from tcsim.tma.transfer import SWIZZLE_PERIOD, Pieces, Runs, converted, filling, narrowed, packed, shared_runs
from tcsim.tma.types import SWIZZLE_MODES, NotModelledError, TensorMapError

_MAPS = {"": "tiled", "im2col": "im2col", "im2col_wide": "im2col-wide"}
_CONSTRUCTORS = {"": "TensorMap", "im2col": "TensorMap.im2col", "im2col_wide": "TensorMap.im2col_wide"}


@dataclass(frozen=True, kw_only=True)
class TensorCopyRow(Row):
    """A row of tensor copies; its operation is the direction: "load", "store", "reduce" or "prefetch"."""

    dim: int  # .1d to .5d
    mode: str  # the load mode without its dot: "tile", "tile::gather4", "im2col", "im2col_no_offs", ...
    map_mode: Literal["", "im2col", "im2col_wide"] = ""  # the kind of map it takes, as TensorMap.im2col_mode
    wide_mode: str = ""  # of the im2col-wide map that it takes, as TensorMap.wide_mode
    rows4: bool = False  # the coordinates are a column and four rows
    op: str = ""  # of a reduction
    unmodelled: str = ""  # why execution is not modelled
    pair: bool = False  # .cta_group::2: of a multicast, each pair of CTAs signals one barrier

    @property
    def combines(self) -> bool:
        """Reductions."""
        return bool(self.op)

    @property
    def coordinates(self) -> int:
        """How many coordinates the instruction takes."""
        return self.forms[0]["tensor_map"].count

    @property
    def offsets(self) -> int:
        """How many 16-bit im2col numbers the instruction takes."""
        return self.forms[0]["offsets"].count if self.has("offsets") else 0


@dataclass(frozen=True, eq=False, repr=False)
class TensorCopy(Instruction):
    """An instruction that moves a box between global and shared memory."""

    joined = True
    row: TensorCopyRow

    def check_map(self, tensor_map: Any) -> TensorMap:
        """A map that the instruction takes on this arch; of .im2col::w::128 always one of mode W128.

        That it takes one of mode W for that: NumSim (mlc-ai/TIRx-harness), whose authors checked it on an sm_100.

        Raises TensorMapError for another rank or kind of map, or for a data type or swizzle of sm_100 on an earlier arch;
        NotModelledError for a spelling, or a spelling of such a map, whose effect is not documented.
        """
        call, row = self._call, self.row
        self._require_modelled()
        if not isinstance(tensor_map, TensorMap):
            raise TensorMapError(f"{call}: tensor_map is a {type(tensor_map).__name__}; valid: a tcsim.TensorMap")
        if tensor_map.rank != row.dim:
            raise TensorMapError(f"{call}: {tensor_map} has {tensor_map.rank} dimensions; .{row.dim}d needs {row.dim}")
        if tensor_map.im2col_mode != row.map_mode:
            raise TensorMapError(
                f"{call}: {tensor_map} is a {_MAPS[tensor_map.im2col_mode]} map; .{row.mode} needs one of "
                f"{_CONSTRUCTORS[row.map_mode]}"
            )
        if (tensor_map.wide_mode, row.wide_mode) == ("W128", "W"):
            raise NotModelledError(
                f"{call}: not modelled: {tensor_map} of mode W128 with .{row.mode}: how many pixels it loads is not documented; "
                "known: a map of mode W"
            )
        if tensor_map.wide_mode != row.wide_mode:  # a map of mode W, whose pixels .im2col::w::128 ignores
            tensor_map = replace(tensor_map, wide_mode=row.wide_mode)
        new = tensor_map.type.packed or SWIZZLE_MODES[tensor_map.swizzle].atomicity
        if new and self.arch.number < 100:
            what = tensor_map.data_type if tensor_map.type.packed else f"swizzle {tensor_map.swizzle}"
            raise TensorMapError(f"{call}: {tensor_map}: {what} needs sm_100 or later")
        if new and self.arch.number >= 120 and row.operation == "load":
            raise TensorMapError(
                f"{call}: {tensor_map}: on {self.arch.name} loads take no sub-byte types and no swizzle atomicity (PTX ISA, "
                "restrictions on tensor copies)"
            )
        return tensor_map

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A copy for each lane, of the map that it finds in memory: `tensor_map` (lanes,) are generic addresses of 128 bytes.

        `coordinates` (lanes, coordinates) are 32 bits each, signed; `offsets` (lanes, n), of im2col.

        Raises as `check_map` and `TensorMap.load` or `store` do, TensorMapError for bytes that are not a map; NotModelledError for
        im2col-wide maps, whose bits are not known.
        """
        self._require_modelled()
        if self.row.wide_mode:
            raise NotModelledError(
                f"{self!r}.effects: not modelled: the bits of im2col-wide maps are not known; valid: `execute` with a "
                "TensorMap.im2col_wide"
            )
        maps = self._maps(operands)
        work: list[Pending] = []
        described = view.read(maps)
        alike = (described == described[:1]).all()
        for lanes in _of_different_blocks(view, len(described)) if alike else np.arange(len(described))[:, None]:
            tmap, base = _described(described[lanes[0]].tobytes())
            tmap = self.check_map(tmap)
            own = {name: np.asarray(operands[name])[lanes] for name in operands}
            together = self.joint(tmap, base, form, own, lanes) if len(lanes) > 1 else ()
            work += together or self._singly(tmap, base, form, own, lanes)
        return Effects(reads=(maps,), pending=tuple(work))

    def _singly(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Array], lanes: Array
    ) -> tuple[Pending, ...]:
        """The copies of lanes, each a piece of work."""
        work: tuple[Pending, ...] = ()
        for place, lane in enumerate(lanes.tolist()):
            own = {name: operands[name][place] for name in operands if name != "tensor_map"}
            work += self.copies(tmap, base, form, own | {"coordinates": _signed(own["coordinates"])}, lane)
        return work

    def _require_modelled(self) -> None:
        if self.row.unmodelled:
            raise NotModelledError(f"{self._call}: not modelled: {self.row.unmodelled}")

    def _maps(self, operands: Mapping[str, Array]) -> Access:
        at = operands["tensor_map"].astype(np.int64)
        return Access("generic", at, BYTES, proxy="tensormap", operand="tensor_map")

    def copies(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Any], lane: int = 0
    ) -> tuple[Pending, ...]:
        """What one lane's copy does, of a map that `check_map` gave and the tensor's address."""
        raise NotImplementedError

    def joint(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Array], lanes: Array
    ) -> tuple[Pending, ...]:
        """The copies of lanes, each of another block, as few pieces of work; none where they differ in more than their places."""
        return ()

    def _executed(
        self, tensor_map: Any, memory: Any, coordinates: Any, smem: Any, address: Any, offsets: Any = None
    ) -> Mapping[str, Bytes]:
        """The memories after the copies of a batch, each fetched and finished at once."""
        tmap = self.check_map(tensor_map)
        call = f"{tmap}.{self._verb}"
        images = {"global": byte_memory(memory, call, "memory"), "shared": byte_memory(smem, call)}
        if offsets is not None and not tmap.im2col_mode:
            raise CoordinateError(f"{call}: offsets={offsets}: only im2col maps have them")
        given = {"coordinates": as_array(coordinates, f"{call}: coordinates", CoordinateError)}
        if self.row.offsets:
            own = np.zeros(self.row.offsets, np.int64) if offsets is None else offsets
            given["offsets"] = as_array(own, f"{call}: offsets", CoordinateError)
        starts = integer_addresses(address, call, valid="an integer, or integers (...)")
        batches = {**images, **given}
        shape = broadcast([*(array.shape[:-1] for array in batches.values()), starts.shape], call)
        batches = {name: np.broadcast_to(array, (*shape, *array.shape[-1:])) for name, array in batches.items()}
        starts, out = np.broadcast_to(starts, shape), {name: batches[name].copy() for name in images}
        for index in np.ndindex(shape):
            operands = {name: batches[name][index] for name in given} | {"address": starts[index]}
            own = {space: batches[space][index] for space in images}
            for space, image in self._completed(tmap, operands, own, call).items():
                out[space][index] = image
        return out

    def _completed(
        self, tmap: TensorMap, operands: dict[str, Any], images: Mapping[Space, Bytes], call: str
    ) -> Mapping[Space, Bytes]:
        """The memories after one copy."""
        form = self.forms[0]
        plain = replace(form, operands=tuple(operand for operand in form.operands if operand.name != "cta_mask"))
        (work,) = self.copies(tmap, 0, plain, {"barrier": 0, **operands})
        view = Memories(images, call)
        for at in (*work.reads, *work.writes):
            none = Pieces(at.address[:0], at.size)
            one = Pieces(at.address, at.size, at.mask)
            tensor, shared = (one, none) if at.space == "global" else (none, one)
            require_fits(tmap, tensor, shared, images["global"].shape[-1], images["shared"].shape[-1], call)
        return view.after((work.finish(work.fetch(view)),))

    @property
    def _verb(self) -> str:
        """How errors call what is asked of the map."""
        if self.row.op:
            return "reduce"
        if self.row.rows4:
            return "gather4" if self.row.operation == "load" else "scatter4"
        return self.row.operation


@lru_cache(maxsize=256)
def _described(data: bytes) -> tuple[TensorMap, int]:
    """The map that 128 bytes of memory say, and the tensor's address; what does not follow from them is left out."""
    return TensorMap.decode(data, strict=False), TensorMap.address_of(data)


def _signed(coordinates: Array) -> Array:
    return coordinates.astype(np.int64).astype(np.int32)


def _of_different_blocks(view: View, count: int) -> Sequence[Array]:
    """Some lanes as sets in which no two are of one block: the first of each block, the second, and so on."""
    blocks = np.broadcast_to(getattr(view, "blocks", 0), (count,))
    place = np.arange(count) - np.searchsorted(blocks, blocks)
    return [np.flatnonzero(place == own) for own in range(int(place.max(initial=-1)) + 1)]


def _in_tensor(pieces: Pieces, base: int, lane: int) -> Access:
    """The accesses of pieces of a tensor at an address."""
    return Access(
        "global", pieces.address + base, pieces.size, pieces.inside, "async", thread=np.full(len(pieces.address), lane)
    )


def _in_shared(runs: Runs, form: Form, rank: int, lane: int) -> Access:
    """The accesses of runs of shared memory; `rank`: the bits above the offset in the CTA's window."""
    thread = np.full(len(runs.address), lane)
    return Access(space_of(form["address"]), runs.address + rank, runs.size, proxy="async", thread=thread)


def _some(*accesses: Access) -> tuple[Access, ...]:
    """Those that are not empty."""
    return tuple(access for access in accesses if len(access.address))


@dataclass(frozen=True, eq=False, repr=False)
class TensorLoad(TensorCopy):
    """cp.async.bulk.tensor, global to shared."""

    def transaction_bytes(self, tensor_map: TensorMap, halo: int = 0) -> int:
        """Bytes that the mbarrier must expect: `TensorMap.transaction_bytes`, of .tile::gather4 four rows.

        halo: wHalo of .im2col::w and .im2col::w::128; each of its pixels adds `TensorMap.halo_bytes`.

        Raises as `check_map` does.
        """
        tmap = self.check_map(tensor_map)
        return self._bytes(tmap, halo)

    def _bytes(self, tmap: TensorMap, halo: int) -> int:
        return tmap.transaction_bytes * (4 if self.row.rows4 else 1) + halo * tmap.halo_bytes

    def copies(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Any], lane: int = 0
    ) -> tuple[Pending, ...]:
        """The tensor's bytes inside the box are read at `fetch`; at `finish` the box is written, and its barrier gets its bytes.

        With .multicast in every CTA of the mask. With .cta_group::2 each CTA's bytes are told to the barrier of its pair that
        lies in a CTA of the same parity as the one of `barrier`.
        """
        row, call = self.row, f"{tmap}.{self._verb}"
        offsets = operands.get("offsets") if "offsets" in form else None
        address = int(operands["address"])
        start = address % WINDOW
        tensor, height = one_tensor_side(tmap, "load", operands["coordinates"], offsets, row.rows4, call=call)
        check_start(start, call)
        pieces, (rows, window) = narrowed(tensor)
        runs, count = shared_runs(tmap, height, start, False), len(tensor.address)
        ranks = None
        if "cta_mask" in form:
            ranks = ranks_of(int(operands["cta_mask"]), int(form["cta_mask"].type.removeprefix(".b")), self._call)
        source = _in_tensor(pieces, base, lane)
        target = in_each(_in_shared(runs, form, address - start, lane), ranks)
        halo = int(offsets[0]) if offsets is not None and row.wide_mode else 0
        barrier = barrier_access(form["barrier"], np.array([operands["barrier"]]), np.array([lane]))
        told = ranks
        if row.pair and ranks is not None:
            told = ranks & ~1 | int(rank_of(operands["barrier"])) & 1
        signal = completion(barrier, self._bytes(tmap, halo), told)

        def fetch(view: View) -> Bytes:
            return view.read(source) if len(source.address) else np.zeros((0, source.size), np.uint8)

        def finish(data: Bytes) -> Outcome:
            box = kept = converted(tmap, data)
            if tensor.inside is not None:
                box = np.tile(filling(tmap, tensor.size), (count, 1))
                box[rows, window] = kept if pieces.inside is None else np.where(pieces.inside, kept, box[rows, window])
            box = runs.gathered(np.ascontiguousarray(box))
            box = box if ranks is None else np.tile(box, (len(ranks), 1))
            return Outcome(writes=(Write(target, box),), signals=(signal,))

        box = None if row.rows4 or offsets is not None else (tmap, base, operands["coordinates"])
        return (Pending(_some(source), (target,), fetch, finish, threads=np.array([lane]), tells=(signal,), box=box),)

    def joint(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Array], lanes: Array
    ) -> tuple[Pending, ...]:
        """Of tiles that begin alike in shared memory: those wholly inside the tensor, and those at its edges where zeros fill what is outside."""
        row, address = self.row, operands["address"].astype(np.int64)
        masks = operands["cta_mask"] if "cta_mask" in form else np.zeros(1, np.int64)
        start = int(address[0]) % WINDOW
        alike = (address % WINDOW % SWIZZLE_PERIOD == start % SWIZZLE_PERIOD).all() and (masks == masks[0]).all()
        if row.rows4 or "offsets" in form or (row.pair and "cta_mask" in form) or not alike:
            return ()
        found = tiles(tmap, "load", _signed(operands["coordinates"]))
        if found is None or (tmap.oob_fill != "NONE" and any(pieces.inside is not None for _, pieces in found[1])):
            return ()
        check_start(start, f"{tmap}.{self._verb}")
        runs, ranks = shared_runs(tmap, found[0], start, False), None
        if "cta_mask" in form:
            ranks = ranks_of(int(masks[0]), int(form["cta_mask"].type.removeprefix(".b")), self._call)

        def of(chosen: Array, pieces: Pieces) -> Pending:
            own, begin = lanes[chosen], address[chosen]
            inside = None if pieces.inside is None else pieces.inside.reshape(-1, pieces.size)
            some, (rows, window) = narrowed(Pieces(pieces.address.reshape(-1), pieces.size, inside))
            thread = np.repeat(own, pieces.address.shape[1])[rows]
            source = Access("global", some.address + base, some.size, some.inside, "async", thread=thread)
            places = (runs.address - start + begin[:, None]).reshape(-1)
            thread = np.repeat(own, len(runs.address))
            there = Access(space_of(form["address"]), places, runs.size, proxy="async", thread=thread)
            target = in_each(there, ranks)
            signal = completion(
                barrier_access(form["barrier"], operands["barrier"][chosen], own), self._bytes(tmap, 0), ranks
            )

            def fetch(view: View) -> Bytes:
                return view.read(source) if len(rows) else np.zeros((0, some.size), np.uint8)

            def finish(data: Bytes) -> Outcome:
                box = kept = converted(tmap, data)
                if inside is not None:
                    box = np.zeros(inside.shape, np.uint8)
                    box[rows, window] = kept
                boxes: Array = box.reshape(len(own), -1, runs.piece)
                boxes = (boxes if runs.order is None else boxes[:, runs.order]).reshape(-1, runs.size)
                boxes = boxes if ranks is None else np.tile(boxes, (len(ranks), 1))
                return Outcome(writes=(Write(target, boxes),), signals=(signal,))

            box = tmap, base, _signed(operands["coordinates"])[chosen]
            return Pending(_some(source), (target,), fetch, finish, threads=own, tells=(signal,), box=box)

        return tuple(of(*each) for each in found[1])

    def execute(
        self, tensor_map: TensorMap, memory: Any, coordinates: Any, smem: Any, address: Any = 0, offsets: Any = None
    ) -> Bytes:
        """The new shared memory of a destination CTA: with .multicast every CTA of the mask gets the same.

        Operands as for `TensorMap.load`; coordinates (..., 5) with .tile::gather4. Cache policy, CTA mask and mbarrier have
        no effect on bytes; `transaction_bytes` is what the mbarrier counts.

        Raises as `check_map` and `TensorMap.load` do.

        >>> load = tcsim.instruction("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes", arch="sm_90")
        >>> rows = tcsim.TensorMap("UINT16", (16, 4), (32,), (8, 2), swizzle="NONE")
        >>> memory = np.arange(64, dtype=np.uint16).view(np.uint8)
        >>> load.execute(rows, memory, (8, 1), np.zeros(128, np.uint8)).view(np.uint16)[6:10].tolist()
        [30, 31, 40, 41]
        """
        return self._executed(tensor_map, memory, coordinates, smem, address, offsets)["shared"]


@dataclass(frozen=True, eq=False, repr=False)
class TensorStore(TensorCopy):
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor, shared to global."""

    def copies(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Any], lane: int = 0
    ) -> tuple[Pending, ...]:
        """Shared memory is read at `fetch`, the tensor written or combined at `finish`: two halves of a bulk group.

        Of the box only what lies in the tensor is read.
        """
        row, op, call = self.row, self.row.op or None, f"{tmap}.{self._verb}"
        address = int(operands["address"])
        start = address % WINDOW
        tensor, height = one_tensor_side(tmap, "store", operands["coordinates"], None, row.rows4, op, call)
        check_start(start, call)
        pieces, (rows, window) = narrowed(tensor)
        runs = shared_runs(tmap, height, start, True)
        source, target = _in_shared(runs, form, address - start, lane), _in_tensor(pieces, base, lane)
        if tensor.inside is not None:
            units = tensor.inside[:, :: tmap.unit.global_bytes]
            source = replace(source, mask=runs.gathered(np.repeat(units, tmap.unit.shared_bytes, axis=1)))
        combine = combination(tmap, op) if op else None
        format = FLOATING.get(tmap.type.name) if op == "add" else None
        adds = (self.mnemonic, format) if format is not None else None

        def fetch(view: View) -> Bytes:
            return view.read(source)

        def finish(data: Bytes) -> Outcome:
            box = packed(tmap, runs.scattered(data)).reshape(-1, tensor.size)
            if not len(rows):
                return Outcome()
            kept = box if tensor.inside is None else np.ascontiguousarray(box[rows, window])
            return Outcome(writes=(Write(target, kept, combine, adds=adds),))

        return (Pending((source,), _some(target), fetch, finish, "bulk", threads=np.array([lane])),)

    def joint(
        self, tmap: TensorMap, base: int, form: Form, operands: Mapping[str, Array], lanes: Array
    ) -> tuple[Pending, ...]:
        """Of tiles wholly inside the tensor that begin alike in shared memory, and beside them those at its edges, one by one."""
        address = operands["address"].astype(np.int64)
        start = int(address[0]) % WINDOW
        if self.row.op or self.row.rows4 or (address % SWIZZLE_PERIOD != start % SWIZZLE_PERIOD).any():
            return ()
        corners = _signed(operands["coordinates"])
        found = None if (corners < 0).any() else tiles(tmap, "store", corners)
        if found is None or found[1][0][1].inside is not None:
            return ()
        check_start(start, f"{tmap}.{self._verb}")
        chosen, pieces = found[1][0]
        own, runs = lanes[chosen], shared_runs(tmap, found[0], start, True)
        places = (runs.address - start + address[chosen, None]).reshape(-1)
        thread = np.repeat(own, len(runs.address))
        source = Access(space_of(form["address"]), places, runs.size, proxy="async", thread=thread)
        thread = np.repeat(own, pieces.address.shape[1])
        target = Access("global", pieces.address.reshape(-1) + base, pieces.size, proxy="async", thread=thread)

        def fetch(view: View) -> Bytes:
            return view.read(source)

        def finish(data: Bytes) -> Outcome:
            boxes = np.concatenate([runs.scattered(one) for one in data.reshape(len(own), -1)])
            return Outcome(writes=(Write(target, packed(tmap, boxes).reshape(-1, pieces.size)),))

        rest = np.setdiff1d(np.arange(len(lanes)), chosen)
        return (
            Pending((source,), (target,), fetch, finish, "bulk", threads=own),
            *self._singly(tmap, base, form, {name: operands[name][rest] for name in operands}, lanes[rest]),
        )

    def execute(self, tensor_map: TensorMap, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """The new global memory. Operands as for `TensorMap.store`; coordinates (..., 5) with .tile::scatter4.

        Raises as `check_map`, `TensorMap.store` and `TensorMap.reduce` do.

        >>> add = tcsim.instruction("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group", arch="sm_90")
        >>> smem = np.uint32([1, 2, 3, 4] * 8).view(np.uint8)
        >>> counts = tcsim.TensorMap("UINT32", (4,), (), (4,), swizzle="NONE")
        >>> add.execute(counts, np.uint32([5, 5, 5, 5]).view(np.uint8), (0,), smem).view(np.uint32).tolist()
        [6, 7, 8, 9]
        """
        return self._executed(tensor_map, memory, coordinates, smem, address)["global"]


@dataclass(frozen=True, eq=False, repr=False)
class TensorPrefetch(TensorCopy):
    """cp.async.bulk.prefetch.tensor and applypriority: hints to the L2 cache."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The map is read, of whichever kind; nothing else happens. Raises NotModelledError as `check_map` does."""
        self._require_modelled()
        return Effects(reads=(self._maps(operands),))

    def execute(self, tensor_map: TensorMap) -> None:
        """Nothing: the instruction changes no memory.

        Raises as `check_map` does.

        >>> prefetch = tcsim.instruction("cp.async.bulk.prefetch.tensor.1d.L2.global", arch="sm_90")
        >>> prefetch.execute(tensor_map=tcsim.TensorMap("FLOAT16", (64,), (), (64,), swizzle="NONE"))
        """
        self.check_map(tensor_map)


CLASSES: dict[str, type[TensorCopy]] = {
    "load": TensorLoad,
    "store": TensorStore,
    "reduce": TensorStore,
    "prefetch": TensorPrefetch,
}
"""What executes a row, by its operation."""
