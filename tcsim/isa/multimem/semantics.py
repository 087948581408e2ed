"""multimem: one address that means the memory of several devices, all of which are read, written or combined at once.

Sources: PTX ISA, sections multimem, multimem.cp.async.bulk, multimem.cp.reduce.async.bulk; ptxas 13.5.37 (targets, versions, SASS). A
multicast object is `replicas`, uint8 (..., replicas, bytes): the memory that each device contributes. What the manual leaves open is
decided so: a sum of floats takes the replicas in their order, in the type of the elements or that of .acc, fp8 in f16; a sum in
another type is rounded to nearest even at the end, to fp8 with saturation. None of it is measured: a multicast object needs
several devices whose driver lets them share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import Codes, Reduction, reduce_codes
from tcsim.core.addresses import Bytes, byte_memory, integer_addresses, require_alignment, require_inside
from tcsim.core.errors import OperandError
from tcsim.isa.multimem.rows import (
    COPY,
    COPY_REDUCE,
    LOAD,
    REDUCE,
    REDUCE_ASYNC,
    STORE,
    STORE_ASYNC,
    MultimemRow,
    async_reduce_rows,
    async_store_rows,
    copy_reduce_rows,
    copy_rows,
    evidence,
    load_rows,
    lowering,
    reduce_rows,
    store_rows,
)
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, Pending, View, Write, completed
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.numbers import ieee
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS
from tcsim.numbers.quantize import quantize

BULK_BYTES = 16
"""What addresses and sizes of bulk copies are multiples of."""


@dataclass(frozen=True)
class Replicas(Memories):
    """The memories of a multicast object, one behind the other: what addresses of multimem mean."""

    replicas: int = 1


def replicas_of(view: View) -> int:
    """How many memories a multicast address means: what a view says, or one, where the object has one device."""
    return int(getattr(view, "replicas", 1))


@dataclass(frozen=True, eq=False, repr=False)
class Multimem(Instruction):
    """What the instructions share: replicas and the places in them."""

    row: MultimemRow

    @property
    def rules(self) -> tuple[str, ...]:
        """Which addresses it takes."""
        return (f"address: of a multicast object, a multiple of {self.row.bytes} bytes",)

    def _object(self, replicas: Any) -> Bytes:
        image = byte_memory(replicas, self._call, "replicas")
        if image.ndim < 2 or not image.shape[-2]:
            raise OperandError(f"{self._call}: replicas has shape {image.shape}; valid: uint8 (..., replicas, bytes)")
        return image

    def _places(self, address: Any, memory: int) -> Array:
        places = np.atleast_1d(integer_addresses(address, self._call, valid="an int, or integers (threads,)"))
        require_alignment(places, self.row.bytes, "what a thread accesses", self._call, each="thread")
        require_inside(places, self.row.bytes, memory, "a value", self._call, each="thread")
        return places

    def _access(self, address: Array, replica: int, size: int) -> Access:
        lanes = np.arange(address.shape[-1])
        of = np.full(address.shape[-1], replica)
        row = self.row
        return Access("global", address, size, cta=of, thread=lanes, sem=row.semantics, scope=row.scope)  # type: ignore[arg-type]

    def _everywhere(self, address: Array, view: View) -> list[Access]:
        require_alignment(address, self.row.bytes, "what a thread accesses", self._call, each="thread")
        return [self._access(address, replica, self.row.bytes) for replica in range(replicas_of(view))]

    def _view(self, image: Bytes) -> Replicas:
        flat = image.reshape(*image.shape[:-2], -1)
        apart = "addresses of their own, or the same value"
        return Replicas({"global": flat}, self._call, cta_bytes=image.shape[-1], apart=apart, replicas=image.shape[-2])

    @property
    def _combination(self) -> Callable[[Array, Array], Array] | None:
        """What a reduction makes of old and new bytes; None: the new ones."""
        own = self.row.reduction
        if own is None:
            return None
        kind = f"<u{own.bits // 8}"

        def combine(old: Array, new: Array) -> Array:
            parts = (np.ascontiguousarray(part).view(kind) for part in (old, new))
            return np.ascontiguousarray(reduce_codes(own, *parts).astype(kind, copy=False)).view(np.uint8)

        return combine


@dataclass(frozen=True, eq=False, repr=False)
class LoadReduce(Multimem):
    """multimem.ld_reduce: the sum, minimum, maximum or bits of what lies at one place of every replica."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """d of every lane. Raises MisalignedAddressError for an address that is not a multiple of what a lane reads."""
        reads = self._everywhere(operands["address"].astype(np.int64), view)
        found = self.reduced([view.read(access) for access in reads])
        registers = found.view(f"<u{self.row.register_bytes}")
        d = registers if form["d"].kind == "vector" else registers[..., 0]
        return Effects(now=Outcome(registers={"d": d}), reads=tuple(reads))

    def reduced(self, parts: list[Bytes]) -> Bytes:
        """The bytes (..., threads, bytes) that those of all replicas come to."""
        row, own = self.row, self.row.reduction
        if own is None:
            raise TypeError("ld_reduce reduces")
        codes = [np.ascontiguousarray(part).view(f"<u{row.element_bytes}") for part in parts]
        if row.element not in FORMATS or FORMATS[row.element].kind != "float":
            found = reduce(lambda old, new: reduce_codes(own, old, new), codes)
        else:
            found = self._floats(own, codes)
        return np.ascontiguousarray(found.astype(codes[0].dtype, copy=False)).view(np.uint8)

    def _floats(self, own: Reduction, codes: list[Codes]) -> Codes:
        element = self.row.element
        inner = self.row.accumulator or ("f16" if FORMATS[element].bits == 8 else element)
        if own.operation != "add" and FORMATS[element].bits > 8:
            inner = element
        if inner == element:
            return reduce(lambda old, new: reduce_codes(own, old, new), codes)
        wide = [ieee.convert(part, (FORMATS[element],), FORMATS[inner]) for part in codes]
        total = reduce(lambda old, new: reduce_codes(replace(own, type=inner), old, new), wide)
        if FORMATS[element].bits == 8:
            return quantize(decode(total, inner), element)
        return ieee.convert(total, (FORMATS[inner],), FORMATS[element])

    def execute(self, replicas: Any, address: Any) -> Codes:
        """The registers (..., threads), of vectors (..., threads, registers): unsigned codes.

        replicas: uint8 (..., replicas, bytes). address: an int or one for each thread, in each replica.

        Raises OperandError for other operands, MisalignedAddressError, OutsideMemoryError.

        >>> add = tcsim.instruction("multimem.ld_reduce.relaxed.gpu.global.add.u32", arch="sm_90")
        >>> memory = np.arange(8, dtype=np.uint32).reshape(2, 4).view(np.uint8)
        >>> add.execute(memory, [0, 12]).tolist()
        [4, 10]
        """
        image = self._object(replicas)
        places = self._places(address, image.shape[-1])
        operands = {"address": np.broadcast_to(places, (*image.shape[:-2], places.shape[-1]))}
        return np.asarray(self.effects(self.forms[0], operands, self._view(image)).now.registers["d"])


@dataclass(frozen=True, eq=False, repr=False)
class Store(Multimem):
    """multimem.st and multimem.red, also .async: each thread stores or combines a value in every replica."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The writes of every lane in every replica. Raises MisalignedAddressError."""
        targets = self._everywhere(operands["address"].astype(np.int64), view)
        value = np.ascontiguousarray(operands["value"]).astype(f"<u{self.row.register_bytes}", copy=False)
        data = np.ascontiguousarray(value).view(np.uint8).reshape(*operands["address"].shape, self.row.bytes)
        outcome = Outcome(writes=tuple(Write(target, data, self._combination) for target in targets))
        if not self.row.pending:
            return Effects(now=outcome)
        return Effects(pending=(Pending((), tuple(targets), lambda view: None, lambda fetched: outcome),))

    def execute(self, replicas: Any, address: Any, value: Any) -> Bytes:
        """The replicas afterwards: uint8 (..., replicas, bytes).

        address: an int or one for each thread. value: unsigned codes of the registers, (..., threads), of vectors
        (..., threads, registers).

        Raises OperandError for other operands, MisalignedAddressError, OutsideMemoryError; ContestedRowError for two threads that store
        different values at one address.

        >>> store = tcsim.instruction("multimem.st.relaxed.gpu.global.u32", arch="sm_90")
        >>> store.execute(np.zeros((2, 8), np.uint8), 4, 7).view(np.uint32).tolist()
        [[0, 7], [0, 7]]
        """
        image, row = self._object(replicas), self.row
        places = self._places(address, image.shape[-1])
        codes = np.asarray(value)
        if (
            codes.dtype.kind not in "iu"
            or (codes < 0).any()
            or (codes.astype(object) >= 1 << 8 * row.register_bytes).any()
        ):
            raise OperandError(f"{self._call}: value is {codes.dtype}; valid: codes of {8 * row.register_bytes} bits")
        shape = (*image.shape[:-2], places.shape[-1], *((row.count,) if row.count > 1 else ()))
        codes = np.broadcast_to(codes.astype(f"<u{row.register_bytes}"), shape)
        operands = {"address": np.broadcast_to(places, (*image.shape[:-2], places.shape[-1])), "value": codes}
        view = self._view(image)
        outcomes = completed(self.effects(self.forms[0], operands, view), view)
        return view.after(outcomes)["global"].reshape(image.shape)


@dataclass(frozen=True, eq=False, repr=False)
class BulkStore(Multimem):
    """multimem.cp.async.bulk and multimem.cp.reduce.async.bulk: bytes of shared memory into every replica, of the thread's bulk group."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Which addresses and sizes it takes."""
        return (f"destination: of a multicast object; both addresses and the size multiples of {BULK_BYTES} bytes",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A copy for each lane, read and landing later. Raises MisalignedAddressError, OperandError for a size that is not a multiple of 16."""
        work = []
        for lane in range(np.shape(operands["destination"])[-1]):
            own = {
                name: np.asarray(array)[..., lane] if np.ndim(array) else np.asarray(array)
                for name, array in operands.items()
            }
            work.append(self._copy(own, lane, view))
        return Effects(pending=tuple(work))

    def _copy(self, own: Mapping[str, Array], lane: int, view: View) -> Pending:
        size, bits = int(own["size"].flat[0]), int(own["byte_mask"].flat[0]) if "byte_mask" in own else 0xFFFF
        if size < 0 or size % BULK_BYTES:
            raise OperandError(f"{self._call}: size={size}: valid: multiples of {BULK_BYTES} bytes")
        if not 0 <= bits < 1 << BULK_BYTES:
            raise OperandError(f"{self._call}: byte_mask={bits:#x}: valid: 16 bits")
        source, target = (own[name].astype(np.int64)[..., None] for name in ("source", "destination"))
        for name, place in (("source", source), ("destination", target)):
            require_alignment(place, BULK_BYTES, "a bulk copy", self._call, name, "copy")
        mask = (bits >> np.arange(size) % BULK_BYTES & 1).astype(bool) if bits != 0xFFFF else None
        who = np.array([lane])
        read = Access("shared", source, size, proxy="async", thread=who)
        writes = tuple(
            Access("global", target, size, mask, "async", np.full(1, replica), who)
            for replica in range(replicas_of(view))
        )
        combine = self._combination

        def finish(data: Bytes) -> Outcome:
            return Outcome(writes=tuple(Write(access, data, combine) for access in writes))

        return Pending((read,), writes, lambda view: view.read(read), finish, "bulk", threads=who)

    def execute(
        self, replicas: Any, smem: Any, source: int, destination: int, size: int, byte_mask: int | None = None
    ) -> Bytes:
        """The replicas afterwards: uint8 (..., replicas, bytes).

        smem: uint8 (..., bytes). source, destination: ints. size: bytes, a multiple of 16. byte_mask (.cp_mask): bit i says whether
        byte i of every 16 is written.

        Raises OperandError for other operands and for a byte_mask that the spelling lacks or needs, MisalignedAddressError,
        OutsideMemoryError.

        >>> copy = tcsim.instruction("multimem.cp.async.bulk.global.shared::cta.bulk_group", arch="sm_90")
        >>> copy.execute(np.zeros((2, 16), np.uint8), np.arange(16, dtype=np.uint8), 0, 0, 16)[:, :4].tolist()
        [[0, 1, 2, 3], [0, 1, 2, 3]]
        """
        image, own, form = self._object(replicas), byte_memory(smem, self._call), self.forms[0]
        if ("byte_mask" in form) != (byte_mask is not None):
            raise OperandError(
                f"{self._call}: byte_mask={byte_mask}; valid: {'16 bits' if 'byte_mask' in form else 'none'}"
            )
        given: dict[str, Any] = {"destination": destination, "source": source, "size": size}
        if byte_mask is not None:
            given["byte_mask"] = byte_mask
        operands = {name: integer_addresses(number, self._call, name)[..., None] for name, number in given.items()}
        view = self._view(image)
        effects = self.effects(form, operands, view)
        for name, memory in (("source", own), ("destination", image)):
            require_inside(operands[name], int(size), memory.shape[-1], "a copy", self._call, name, "copy", "memory")
        outcomes = completed(effects, Memories({"shared": own}))
        return view.after(outcomes)["global"].reshape(image.shape)


LOAD_FAMILY = Family(LOAD, load_rows, lowering, evidence, LoadReduce)
STORE_FAMILY = Family(STORE, store_rows, lowering, evidence, Store)
REDUCE_FAMILY = Family(REDUCE, reduce_rows, lowering, evidence, Store)
STORE_ASYNC_FAMILY = Family(STORE_ASYNC, async_store_rows, lowering, evidence, Store)
REDUCE_ASYNC_FAMILY = Family(REDUCE_ASYNC, async_reduce_rows, lowering, evidence, Store)
COPY_FAMILY = Family(COPY, copy_rows, lowering, evidence, BulkStore)
COPY_REDUCE_FAMILY = Family(COPY_REDUCE, copy_reduce_rows, lowering, evidence, BulkStore)
