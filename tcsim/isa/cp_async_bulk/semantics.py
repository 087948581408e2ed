"""cp.async.bulk and cp.reduce.async.bulk: copies and reductions of multiples of 16 bytes, as they are once complete.

`memory` is global memory (of a copy between two blocks, the shared memory of the other one), `smem` the block's own
(`tcsim.isa.copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import reduce_codes
from tcsim.core.addresses import (
    Bytes,
    ContestedRowError,
    MisalignedCopyError,
    Places,
    byte_memory,
    require_alignment,
    require_inside,
)
from tcsim.core.arguments import broadcast
from tcsim.core.errors import NotModelledError, OperandError
from tcsim.isa.copies import CopyGroup, CopyInstruction, barrier_access, completion, in_each, ranks_of, space_of
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, Pending, Signal, View, Write, completed
from tcsim.model.form import Form

BULK_BYTES = 16
"""What addresses and sizes of bulk copies are multiples of."""
MOST_IGNORED = 15
"""Bytes at either end that `.ignore_oob` may leave out."""


_NUMBERS = ("size", "byte_mask", "ignore_left", "ignore_right", "cta_mask")
"""Operands that say how long a copy is and which of its bytes it moves, to whom."""


def _alike(columns: list[Array], lanes: int) -> list[Places]:
    """The lanes, those together for which all columns have the same number; of a batch all are the same."""
    if all((column == column.flat[0]).all() for column in columns):
        return [np.arange(lanes)]
    table = np.stack([np.broadcast_to(column, (lanes,)).astype(np.int64) for column in columns], axis=-1)
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    return [np.flatnonzero(which.reshape(-1) == kind) for kind in range(len(kinds))]


@dataclass(frozen=True, eq=False, repr=False)
class BulkInstruction(CopyInstruction):
    """A bulk copy or reduction of a multiple of 16 bytes."""

    def _ranges(
        self, memory: Any, smem: Any, source: Any, destination: Any, size: Any, left: int = 0, right: int = 0
    ) -> tuple[Bytes, Bytes, Places, Places]:
        """The memories read and written, and the addresses (..., copies) in each, all checked."""
        call = self._call
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0 or size % BULK_BYTES:
            raise OperandError(f"{call}: size={size}: valid: multiples of {BULK_BYTES} bytes")
        size = int(size)
        image, own = byte_memory(memory, call, "memory"), byte_memory(smem, call)
        read, written = (own, image) if self.row.outward else (image, own)
        given = {"source": source, "destination": destination}
        places = {name: self._integers(name, address) for name, address in given.items()}
        for name, address in places.items():
            require_alignment(address, self.row.alignment, "a copy of cp.async.bulk", call, name, "copy")
        shape = broadcast([address.shape for address in places.values()], call)
        sources, destinations = (np.broadcast_to(address, shape) for address in places.values())
        for name, first, count, held in (
            ("source", sources + left, size - left - right, read),
            ("destination", destinations, size, written),
        ):
            require_inside(first, count, held.shape[-1], "a copy", call, name, "copy", "memory")
        over = 2 if self.row.has("cta_mask") else 1  # dimensions of the written memory that are not a batch
        batch = broadcast([read.shape[:-1], written.shape[:-over], shape[:-1]], call)
        return read, np.broadcast_to(written, (*batch, *written.shape[-over:])), sources, destinations

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A copy that goes on after the instruction, of every lane; those of one size together.

        The source is read at `fetch`, the destination written or combined at `finish`; there the barrier of a copy to shared
        memory gets all bytes of the size, of a multicast in every CTA of the mask.

        Raises MisalignedAddressError, OperandError for a size that is not a multiple of 16 or a mask that does not fit.
        """
        self._require_modelled()
        for name in ("source", "destination"):
            alignment, what = self.row.alignment, "a copy of cp.async.bulk"
            require_alignment(operands[name], alignment, what, self._call, name, "copy", error=MisalignedCopyError)
        numbers = [name for name in _NUMBERS if name in form]
        work = []
        for lanes in _alike([np.asarray(operands[name]) for name in numbers], operands["destination"].shape[-1]):
            own = {name: np.asarray(array)[..., lanes] if np.ndim(array) else array for name, array in operands.items()}
            work.append(self._copy(form, own, {name: int(np.asarray(own[name]).flat[0]) for name in numbers}, lanes))
        return Effects(pending=tuple(work))

    def _copy(self, form: Form, operands: Mapping[str, Array], numbers: dict[str, int], lanes: Places) -> Pending:
        """The copies of lanes whose numbers are the same."""
        size, left, right = (numbers.get(name, 0) for name in ("size", "ignore_left", "ignore_right"))
        self._require_numbers(size, left, right, numbers.get("byte_mask", 0))
        ranks = None
        if "cta_mask" in form:
            ranks = ranks_of(numbers["cta_mask"], int(form["cta_mask"].type.removeprefix(".b")), self._call)
        mask = None
        if "byte_mask" in form:
            bits = (numbers["byte_mask"] >> np.arange(size) % BULK_BYTES & 1).astype(bool)
            mask = np.broadcast_to(bits, (len(lanes), size))
        sources, destinations = (operands[name].astype(np.int64) for name in ("source", "destination"))
        kept = size - left - right
        source = Access(space_of(form["source"]), sources + left, kept, mask, "async", thread=lanes)
        target = Access(space_of(form["destination"]), destinations + left, kept, mask, "async", thread=lanes)
        lost = tuple(
            in_each(replace(target, address=destinations + at, size=count), ranks)
            for at, count in ((0, left), (size - right, right))
            if count
        )
        signals: tuple[Signal, ...] = ()
        if "barrier" in form:
            signals = (completion(barrier_access(form["barrier"], operands["barrier"], lanes), size, ranks),)
        combine, reduction = self._combination, self.row.reduction
        adds = (
            (self.mnemonic, reduction.type)
            if reduction is not None and reduction.float and reduction.operation == "add"
            else None
        )

        def fetch(view: View) -> Bytes:
            return view.read(source)

        def finish(data: Bytes) -> Outcome:
            brought = data if ranks is None else np.tile(data, (len(ranks), 1))
            write = Write(in_each(target, ranks), brought, combine, adds=adds)
            return Outcome(writes=(write,) if kept else (), signals=signals, undefined=lost)

        reads, writes = ((source,), (in_each(target, ranks),)) if kept else ((), ())
        return Pending(reads, writes, fetch, finish, self.row.group, threads=lanes, tells=signals)

    def _require_modelled(self) -> None:
        if self.row.reports:
            raise NotModelledError(
                f"{self._call}: what the barrier gets to know of the validity of the data is not modelled"
            )

    def _require_numbers(self, size: int, left: int, right: int, byte_mask: int) -> None:
        if size < 0 or size % BULK_BYTES:
            raise OperandError(f"{self._call}: size={size}: valid: multiples of {BULK_BYTES} bytes")
        for name, number in (("ignore_left", left), ("ignore_right", right)):
            if not 0 <= number <= MOST_IGNORED:
                raise OperandError(f"{self._call}: {name}={number}: valid: 0 to {MOST_IGNORED}")
        if not 0 <= byte_mask < 1 << BULK_BYTES:
            raise OperandError(f"{self._call}: byte_mask={byte_mask:#x}: valid: 16 bits")

    @property
    def _combination(self) -> Callable[[Array, Array], Array] | None:
        """Of a reduction, what it makes of old and new bytes."""
        reduction = self.row.reduction
        if reduction is None:
            return None
        kind = f"<u{reduction.bits // 8}"

        def combine(old: Array, new: Array) -> Array:
            found = reduce_codes(reduction, *(np.ascontiguousarray(part).view(kind) for part in (old, new)))
            return np.ascontiguousarray(found.astype(kind, copy=False)).view(np.uint8)

        return combine

    def _executed(self, read: Bytes, written: Bytes, operands: dict[str, Array]) -> Bytes:
        """The memory that was written, after copies that were fetched and finished at once."""
        form, over = self.forms[0], 2 if self.row.has("cta_mask") else 1
        source, target = (space_of(form[name]) for name in ("source", "destination"))
        effects = self.effects(
            form, operands | {"barrier": np.zeros(operands["destination"].shape[-1], np.int64)}, Memories({})
        )
        outcomes = completed(effects, Memories({source: read}))
        flat = written.reshape(*written.shape[:-over], -1)
        view = Memories(
            {target: flat},
            self._call,
            cta_bytes=written.shape[-1],
            each="copy",
            apart="destinations that do not overlap",
        )
        return view.after(outcomes)[target].reshape(written.shape)


@dataclass(frozen=True, eq=False, repr=False)
class BulkCopy(BulkInstruction):
    """cp.async.bulk between global and shared memory, or from the shared memory of one block to another's."""

    def execute(
        self,
        memory: Any,
        smem: Any,
        source: Any,
        destination: Any,
        size: int,
        byte_mask: int | None = None,
        ignore_left: int | None = None,
        ignore_right: int | None = None,
        cta_mask: int | None = None,
    ) -> Bytes:
        """The memory that was written, new: memory uint8 (..., bytes), smem uint8 (..., bytes) -> uint8 (..., bytes).

        size: bytes, a multiple of 16. byte_mask (.cp_mask): bit i says whether byte i of every 16 is written. ignore_left,
        ignore_right (.ignore_oob): bytes at the ends, 0 to 15, that are not read and may lie outside the memory; what comes
        to their places is not defined, and here they stay (`undefined_bytes` says which). cta_mask (.multicast): the blocks
        of the cluster that get the bytes; `smem` then is uint8 (..., blocks, bytes). The barrier of a copy to shared
        memory gets `complete_tx(size)` in each of these blocks.

        Raises OperandError for other operands, MisalignedAddressError unless both addresses are multiples of 16,
        OutsideMemoryError, ContestedRowError, NotModelledError for spellings that report on what they copied.

        >>> store = tcsim.instruction("cp.async.bulk.global.shared::cta.bulk_group.cp_mask", arch="sm_100")
        >>> smem, memory = np.arange(32, dtype=np.uint8), np.full(32, 255, np.uint8)
        >>> store.execute(memory=memory, smem=smem, source=16, destination=0, size=16, byte_mask=0x8001).tolist()[:17]
        [16, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 31, 255]
        """
        self._require_modelled()
        given = {"byte_mask": byte_mask, "ignore_left": ignore_left, "ignore_right": ignore_right, "cta_mask": cta_mask}
        takes = given.keys() & set(self.forms[0].sources)
        for name, value in given.items():
            if (value is not None) != (name in takes):
                why = "this instruction takes none" if value is not None else "it is missing"
                raise OperandError(
                    f"{self._call}: {name}={value}: {why}; valid operands: {', '.join(sorted(takes)) or 'none'}"
                )
        left, right = ignore_left or 0, ignore_right or 0
        self._require_numbers(0, left, right, byte_mask or 0)
        read, written, sources, destinations = self._ranges(memory, smem, source, destination, size, left, right)
        if cta_mask is not None:
            blocks, bits = written.shape[-2], int(self.forms[0]["cta_mask"].type.removeprefix(".b"))
            most = min(blocks, bits)
            if not 0 < cta_mask < 1 << most:
                raise OperandError(
                    f"{self._call}: cta_mask={cta_mask:#x}: smem has {blocks} blocks, the mask {bits} bits; valid: 1 to "
                    f"{(1 << most) - 1:#x}"
                )
        numbers = {name: np.asarray(value) for name, value in given.items() if value is not None}
        return self._executed(
            read, written, {"source": sources, "destination": destinations, "size": np.asarray(size), **numbers}
        )

    def undefined_bytes(self, destination: Any, size: int, ignore_left: int, ignore_right: int) -> Places:
        """The addresses (..., copies * n) whose bytes a copy with .ignore_oob leaves undefined."""
        ends = np.r_[np.arange(ignore_left), np.arange(size - ignore_right, size)]
        starts = self._integers("destination", destination)
        return (starts[..., None] + ends).reshape(*starts.shape[:-1], starts.shape[-1] * ends.shape[-1])


@dataclass(frozen=True, eq=False, repr=False)
class BulkReduce(BulkInstruction):
    """cp.reduce.async.bulk: each element of the destination combined with the source's."""

    def execute(self, memory: Any, smem: Any, source: Any, destination: Any, size: int) -> Bytes:
        """The new `memory`: uint8 (..., bytes), smem uint8 (..., bytes) -> uint8 (..., bytes).

        To .shared::cluster, `memory` is the shared memory of the other block. Floats are added with one rounding to
        nearest, ties to even, subnormals kept.

        Copies of one call may overlap where their order does not show: each element is combined as one (`.relaxed`, atomic).

        Raises OperandError, MisalignedAddressError, OutsideMemoryError as a bulk copy; ContestedRowError where overlapping
        copies add floats, or count with inc or dec: there the order would show.

        >>> reduce = tcsim.instruction("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", arch="sm_90")
        >>> memory, smem = (np.arange(8, dtype=np.uint32) for _ in range(2))
        >>> out = reduce.execute(memory=memory.view(np.uint8), smem=smem.view(np.uint8), source=0, destination=16, size=16)
        >>> out.view(np.uint32).tolist()
        [0, 1, 2, 3, 4, 6, 8, 10]
        """
        read, written, sources, destinations = self._ranges(memory, smem, source, destination, size)
        reduction, overlap = self.row.reduction, (np.diff(np.sort(destinations, axis=-1), axis=-1) < size).any()
        if overlap and reduction is not None and reduction.ordered:
            raise ContestedRowError(
                f"{self._call}: destination: two reductions of {size} bytes overlap, and the order of {reduction.operation} "
                f"{reduction.type} shows; valid: apart by that"
            )
        return self._executed(read, written, {"source": sources, "destination": destinations, "size": np.asarray(size)})


@dataclass(frozen=True, eq=False, repr=False)
class Prefetch(CopyInstruction):
    """cp.async.bulk.prefetch and applypriority.async.bulk: caches only.

    >>> prefetch = tcsim.instruction("cp.async.bulk.prefetch.L2.global", arch="sm_90")
    >>> prefetch.execute(memory=np.arange(32, dtype=np.uint8), source=16, size=16)[16:18]
    array([16, 17], dtype=uint8)
    """

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """None; of applypriority, work of a bulk group that touches nothing.

        Raises OperandError for a size that is not a multiple of 16, MisalignedAddressError.
        """
        sizes, source = np.asarray(operands["size"]), operands["source"]
        if (sizes % BULK_BYTES).any():
            bad = int(sizes[sizes % BULK_BYTES != 0].flat[0])
            raise OperandError(f"{self._call}: size={bad}: valid: multiples of {BULK_BYTES} bytes")
        require_alignment(source, self.row.alignment, "a prefetch", self._call, "source", "copy")
        if self.row.group is None:
            return Effects()
        return Effects(pending=(Pending((), (), lambda view: None, lambda data: Outcome(), self.row.group),))

    def execute(self, memory: Any, source: Any, size: int) -> Bytes:
        """The memory as it was, once address and size are found to be valid.

        Raises OperandError for a size that is not a multiple of 16, MisalignedAddressError unless the address is a multiple of 16
        (of applypriority, of 128: PTX ISA, section applypriority.async.bulk), OutsideMemoryError.
        """
        image, places = byte_memory(memory, self._call, "memory"), self._integers("source", source)
        if size < 0 or size % BULK_BYTES:
            raise OperandError(f"{self._call}: size={size}: valid: multiples of {BULK_BYTES} bytes")
        require_alignment(places, self.row.alignment, "a prefetch", self._call, "source", "copy")
        require_inside(places, size, image.shape[-1], "a prefetch", self._call, "source", "copy", "memory")
        return image.copy()


CLASSES: dict[str, type[CopyInstruction]] = {
    "copy": BulkCopy,
    "reduce": BulkReduce,
    "commit": CopyGroup,
    "wait": CopyGroup,
    "prefetch": Prefetch,
}
"""What executes a row, by its operation."""
