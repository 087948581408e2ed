"""st.async and red.async: values of registers stored or reduced in another block's shared memory, whose barrier gets the bytes.

Sources: PTX ISA, sections st.async, red.async; atom (what inc and dec give); ptxas 13.5.37 (targets, versions, SASS). `smem` is
the shared memory of the block that is written, as it is when the barrier's phase has ended. The other forms of the two, which
release a store to global memory and have no barrier, are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import Codes, Reduction, reduce_codes
from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import (
    Bytes,
    ContestedRowError,
    Places,
    byte_memory,
    integer_addresses,
    require_alignment,
    require_inside,
)
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.copies import barrier_access, space_of
from tcsim.isa.mbarrier.semantics import signalled
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, Pending, Signal, View, Write, completed
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Space
from tcsim.model.row import Row, present


@dataclass(frozen=True, kw_only=True)
class RemoteRow(Row):
    """A spelling of st.async or red.async."""

    type: str  # of an element: "u32", "f64", "b128", ...
    elements: int = 1  # of the vector: 1, 2 or 4
    reduction: Reduction | None = None  # of red.async

    @property
    def word_bits(self) -> int:
        """Of the codes that `execute` takes: of b128, two words of 64 bits are one element."""
        return min(int(self.type.lstrip("subf")), 64)

    @property
    def words(self) -> int:
        """Codes of one thread."""
        return self.elements * (2 if self.type == "b128" else 1)

    @property
    def bytes(self) -> int:
        """What one thread writes, and its barrier gets."""
        return self.words * self.word_bits // 8


@dataclass(frozen=True, eq=False, repr=False)
class RemoteInstruction(Instruction):
    """An instruction by which each thread writes to the shared memory of another block of its cluster."""

    row: RemoteRow

    @property
    def rules(self) -> tuple[str, ...]:
        """Whose memory and which addresses it takes, and what the barrier gets."""
        block = "another block of the cluster" if self.row.reduction else "a block of the cluster, of two or more"
        return (
            f"address: in {block}, a multiple of {self.row.bytes} bytes; the barrier in the same block",
            f"each thread completes {self.row.bytes} bytes on the barrier",
        )

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """What each lane writes or combines when it lands, in some CTA of the cluster, whose barrier then gets its bytes.

        `value` has the registers as PTX declares them; of b128 two words of 64 bits, or four of 32, the lowest first.

        Raises MisalignedAddressError for an address that is not a multiple of what a lane writes.
        """
        address = operands["address"].astype(np.int64)
        require_alignment(address, self.row.bytes, "what a thread writes", self._call, each="thread")
        value = np.ascontiguousarray(operands["value"])
        data = value.reshape(*address.shape, -1).view(np.uint8).reshape(*address.shape, self.row.bytes)
        lanes = np.arange(address.shape[-1])
        target = Access(space_of(form["address"]), address, self.row.bytes, thread=lanes)
        write = Write(target, data, self._combination)
        at = barrier_access(form["barrier"], operands["barrier"], lanes)
        signal = Signal("complete_tx", at, np.full(at.address.shape, self.row.bytes, np.int64))
        outcome = Outcome(writes=(write,), signals=(signal,))
        return Effects(pending=(Pending((), (target,), lambda view: None, lambda fetched: outcome, tells=(signal,)),))

    @property
    def _combination(self) -> Callable[[Array, Array], Array] | None:
        """Of red.async, what it makes of old and new bytes."""
        reduction = self.row.reduction
        if reduction is None:
            return None
        kind = f"<u{reduction.bits // 8}"

        def combine(old: Array, new: Array) -> Array:
            parts = (np.ascontiguousarray(part).view(kind) for part in (old, new))
            return np.ascontiguousarray(reduce_codes(reduction, *parts)).view(np.uint8)

        return combine

    def _require_blocks(self, rank: int, own_rank: int, blocks: int) -> None:
        """Raise OperandError unless the manual allows the pair of blocks."""
        if blocks < 2:
            raise OperandError(
                f"{self._call}: blocks={blocks}: the behaviour is undefined; valid: a cluster of 2 or more"
            )
        for name, number in (("rank", rank), ("own_rank", own_rank)):
            if not 0 <= number < blocks:
                raise OperandError(
                    f"{self._call}: {name}={number}: the cluster has {blocks} blocks; valid: 0 to {blocks - 1}"
                )
        if self.row.reduction is not None and rank == own_rank:
            raise OperandError(
                f"{self._call}: rank={rank} is the thread's own block: the behaviour of red.async is undefined; valid: another one"
            )

    def _places(self, address: Any, memory: int) -> Places:
        """Addresses (..., threads), checked."""
        places = np.atleast_1d(integer_addresses(address, self._call, valid="an int, or integers (..., threads)"))
        require_alignment(places, self.row.bytes, "what a thread writes", self._call, each="thread")
        require_inside(places, self.row.bytes, memory, "a value", self._call, each="thread")
        return places

    def _codes(self, value: Any) -> Codes:
        """Codes (..., threads, words): unsigned integers, or floats of the type's width."""
        row, array = self.row, np.asarray(value)
        bits, want = row.word_bits, np.dtype(f"<u{row.word_bits // 8}")
        shape = "(..., threads)" if row.words == 1 else f"(..., threads, {row.words})"
        if array.dtype.kind == "f" and row.type == f"f{bits}" and array.dtype.itemsize == bits // 8:
            array = np.ascontiguousarray(array).view(want) if array.ndim else array[None].view(want)
        elif array.dtype.kind not in "iu" or (array < 0).any() or (array > (1 << bits) - 1).any():
            raise OperandError(f"{self._call}: value is {array.dtype}; valid: codes of {bits} bits, {shape}")
        if row.words == 1:
            return np.atleast_1d(array).astype(want)[..., None]
        if array.shape[-1:] != (row.words,):
            raise OperandError(f"{self._call}: value is {array.shape}; valid: {shape}")
        return np.atleast_2d(array).astype(want)

    def execute(
        self, smem: Any, address: Any, value: Any, barrier: MBarrier, rank: int = 1, own_rank: int = 0, blocks: int = 2
    ) -> tuple[Bytes, MBarrier]:
        """The shared memory of block `rank`, and its barrier, once every thread's operation is complete.

        smem: uint8 (..., bytes), of that block. address: an int or one for each thread (..., threads), of the place in that
        block. value: unsigned codes (..., threads); of vectors (..., threads, 2 or 4), of b128 (..., threads, 2) uint64, the
        low half first; floats of the type's own width are taken too. barrier: the block's; each thread's bytes are one
        `complete_tx`. own_rank: the block of the threads; blocks: those of the cluster.

        Raises OperandError for other operands, and for blocks with which the behaviour is undefined (a cluster of one; for
        red.async the own block); MisalignedAddressError, OutsideMemoryError, BarrierError as `MBarrier.complete_tx`;
        ContestedRowError where the order of two threads would show.

        >>> store = tcsim.instruction("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32", arch="sm_90")
        >>> barrier = tcsim.MBarrier(1)
        >>> state = barrier.arrive_expect_tx(16)
        >>> out, after = store.execute(np.zeros(32, np.uint8), [8, 16], [[1, 2], [3, 4]], barrier)
        >>> out.view(np.uint32).tolist(), after.test_wait(state)
        ([0, 0, 1, 2, 3, 4, 0, 0], True)
        """
        self._require_blocks(rank, own_rank, blocks)
        image = byte_memory(smem, self._call)
        places, codes = self._places(address, image.shape[-1]), self._codes(value)
        shape = broadcast([places.shape, codes.shape[:-1]], self._call)
        batch = broadcast([image.shape[:-1], shape[:-1]], self._call)
        places = np.broadcast_to(places, (*batch, shape[-1]))
        codes = np.ascontiguousarray(np.broadcast_to(codes, (*batch, shape[-1], codes.shape[-1])))
        self._require_order_is_hidden(places, codes)
        form = self.forms[0]
        space = space_of(form["address"])
        view = Memories({space: image}, self._call, apart="addresses of their own, or the same value")
        operands = {"address": places, "value": codes, "barrier": np.zeros(shape[-1], np.int64)}
        outcomes = completed(self.effects(form, operands, view), view)
        after = signalled(barrier, outcomes, self._call)
        return np.broadcast_to(view.after(outcomes)[space], (*batch, image.shape[-1])), after

    def _require_order_is_hidden(self, places: Places, codes: Codes) -> None:
        """Raise ContestedRowError where the result of reductions depends on their order."""


@dataclass(frozen=True, eq=False, repr=False)
class RemoteStore(RemoteInstruction):
    """st.async: each thread stores a value or a vector."""

    moves = True


@dataclass(frozen=True, eq=False, repr=False)
class RemoteReduce(RemoteInstruction):
    """red.async: each thread combines a value with the one in memory."""

    def _require_order_is_hidden(self, places: Places, codes: Codes) -> None:
        reduction = self.row.reduction
        if reduction is not None and reduction.ordered:  # inc and dec, with one operand for all
            for index in np.ndindex(*places.shape[:-1]):
                self._require_same_operands(reduction, places[index] // self.row.bytes, codes[index][:, 0])

    def _require_same_operands(self, reduction: Reduction, at: Places, values: Codes) -> None:
        order = np.argsort(at, kind="stable")
        clash = (np.diff(at[order]) == 0) & (values[order][1:] != values[order][:-1])
        if clash.any():
            place = int(at[order][1:][clash][0]) * self.row.bytes
            raise ContestedRowError(
                f"{self._call}: two threads {reduction.operation} {place:#x} with different operands: the result depends on their "
                "order; valid: the same operand, or addresses of their own"
            )


STORE, REDUCE = "st.async", "red.async"

_TARGETS = since("sm_90")
_SPACES = (".shared::cluster", "")
_TO_BARRIER = ".mbarrier::complete_tx::bytes"
_TYPES = {
    "": ("b32", "b64", "f32", "s32", "u32", "u64", "s64", "f64", "b128"),
    ".v2": ("b32", "b64", "f32", "s32", "u32", "u64", "s64", "f64"),
    ".v4": ("b32", "f32", "s32", "u32"),  # 16 bytes at most
}
"""The types of each vector."""
_VERSIONS = {"b128": "9.2"}
"""Of types that came after PTX ISA 8.1."""
_REDUCTIONS = (
    *(("inc", "u32"), ("dec", "u32")),
    *product(("min", "max"), ("u32", "s32")),
    *product(("and", "or", "xor"), ("b32",)),
    *product(("add",), ("u32", "s32", "u64")),
)


def _row(
    name: str,
    mnemonic: str,
    space: str,
    arithmetic: str,
    type: str,
    elements: int = 1,
    reduction: Reduction | None = None,
) -> RemoteRow:
    where: Space = "shared::cluster" if space else "generic"
    address = Operand("address", "both" if reduction else "destination", "address", space=where)
    value = Operand("value", kind="register" if elements == 1 else "vector", type=f".{type}", count=elements)
    barrier = Operand("barrier", "both", "address", space=where)
    form = Form((address, value, barrier), _TARGETS, _VERSIONS.get(type, "8.1"), together="thread")
    return RemoteRow(
        mnemonic, name, arithmetic=arithmetic, forms=(form,), modifiers=present(space=space, type=f".{type}"),
        type=type, elements=elements, reduction=reduction,
    )  # fmt: skip


def _stores() -> Iterator[RemoteRow]:
    for order, space, vector in product((".weak", ""), _SPACES, _TYPES):
        for type in _TYPES[vector]:
            mnemonic = f"{STORE}{order}{space}{_TO_BARRIER}{vector}.{type}"
            yield _row(STORE, mnemonic, space, f"store {vector}".strip(), type, int(vector[2:] or 1))


def store_rows() -> tuple[RemoteRow, ...]:
    """Every st.async that signals a barrier."""
    return tuple(_stores())


def _reductions() -> Iterator[RemoteRow]:
    for space, (operation, type) in product(_SPACES, _REDUCTIONS):
        mnemonic = f"{REDUCE}.relaxed.cluster{space}{_TO_BARRIER}.{operation}.{type}"
        yield _row(REDUCE, mnemonic, space, operation, type, reduction=Reduction(operation, type))


def reduce_rows() -> tuple[RemoteRow, ...]:
    """Every red.async that signals a barrier."""
    return tuple(_reductions())


_SIZES = {4: "", 8: ".64", 16: ".128"}
_KINDS = {"s32": ".S32", "u64": ".64"}


def lowering(row: RemoteRow, arch: Arch) -> Lowering:
    """One machine instruction."""
    if row.reduction is None:
        return Lowering("native", (), ((f"STAS{_SIZES[row.bytes]}", 1),))
    return Lowering("native", (), ((f"REDAS.{row.reduction.operation.upper()}{_KINDS.get(row.type, '')}", 1),))


_MANUAL = {name: Evidence("literature", f"{PTX_MANUAL}, section {name}") for name in (STORE, REDUCE)}


def evidence(row: RemoteRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL[row.family])


STORE_FAMILY = Family(STORE, store_rows, lowering, evidence, RemoteStore)
REDUCE_FAMILY = Family(REDUCE, reduce_rows, lowering, evidence, RemoteReduce)
