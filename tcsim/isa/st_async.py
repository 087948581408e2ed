"""st.async and red.async: values of registers stored or reduced in another block's shared memory, whose barrier gets the bytes.

Source: PTX ISA 9.4, sections st.async, red.async; atom (what inc and dec give). Not measured. `smem` is the shared memory of the
block that is written, as it is when the barrier's phase has ended.

st.async and red.async with a barrier: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 9.4, sections st.async, red.async; ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word. Their
other forms, which release a store to global memory and have no barrier, are not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import Codes, Reduction, reduce_codes
from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, ContestedRowError, MisalignedAddressError, OutsideMemoryError, Places
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.isa.plain_rows import later, plain_row
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.family import Family
from tcsim.model.formed import FormedInstruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row


@dataclass(frozen=True)
class RemoteFacts:
    """What a row stores or reduces."""

    type: str  # "u32", "f64", "b128", ...
    elements: int  # of the vector: 1, 2 or 4
    space: str  # ".shared::cluster", or "" for generic addresses
    forms: tuple[OperandForm, ...]
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


def remote_facts(row: Row) -> RemoteFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, RemoteFacts):
        raise TypeError(f"{row.mnemonic} writes to no other block")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class RemoteInstruction(FormedInstruction):
    """An instruction by which each thread writes to the shared memory of another block of its cluster."""

    @cached_property
    def facts(self) -> RemoteFacts:
        """What the spelling says."""
        return remote_facts(self.row)

    def _blocks(self, rank: int, own_rank: int, blocks: int) -> None:
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
        if self.facts.reduction is not None and rank == own_rank:
            raise OperandError(
                f"{self._call}: rank={rank} is the thread's own block: the behaviour of red.async is undefined; valid: another one"
            )

    def _image(self, smem: Any) -> Bytes:
        image = np.asarray(smem)
        if image.dtype != np.uint8 or image.ndim == 0:
            raise OperandError(f"{self._call}: smem is {image.dtype} {image.shape}; valid: uint8 (..., bytes)")
        return image

    def _places(self, address: Any, memory: int) -> Places:
        """Addresses (..., threads), checked."""
        array, size = np.asarray(address), self.facts.bytes
        if array.dtype.kind not in "iu":
            raise OperandError(f"{self._call}: address is {array.dtype}; valid: an int, or integers (..., threads)")
        places = np.atleast_1d(array.astype(np.int64))
        if (wrong := places[places % size != 0]).size:
            raise MisalignedAddressError(
                f"{self._call}: address={int(wrong[0]):#x}: each thread writes {size} bytes; valid: multiples of {size}"
            )
        if (wrong := places[(places < 0) | (places + size > memory)]).size:
            raise OutsideMemoryError(
                f"{self._call}: address={int(wrong[0]):#x}: its {size} bytes do not lie in the {memory} bytes of memory"
            )
        return places

    def _codes(self, value: Any) -> Codes:
        """Codes (..., threads, words): unsigned integers, or floats of the type's width."""
        facts, array = self.facts, np.asarray(value)
        bits, want = facts.word_bits, np.dtype(f"<u{facts.word_bits // 8}")
        shape = "(..., threads)" if facts.words == 1 else f"(..., threads, {facts.words})"
        if array.dtype.kind == "f" and facts.type == f"f{bits}" and array.dtype.itemsize == bits // 8:
            array = np.ascontiguousarray(array).view(want) if array.ndim else array[None].view(want)
        elif array.dtype.kind not in "iu" or (array < 0).any() or (array > (1 << bits) - 1).any():
            raise OperandError(f"{self._call}: value is {array.dtype}; valid: codes of {bits} bits, {shape}")
        if facts.words == 1:
            return np.atleast_1d(array).astype(want)[..., None]
        if array.shape[-1:] != (facts.words,):
            raise OperandError(f"{self._call}: value is {array.shape}; valid: {shape}")
        return np.atleast_2d(array).astype(want)

    def _completed(self, barrier: Any, threads: int) -> MBarrier:
        """The barrier after the bytes of every thread have come, one after the other."""
        if not isinstance(barrier, MBarrier):
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: an MBarrier")
        found = barrier.copy()
        for _ in range(threads):
            found.complete_tx(self.facts.bytes)
        return found

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
        self._blocks(rank, own_rank, blocks)
        image = self._image(smem)
        places, codes = self._places(address, image.shape[-1]), self._codes(value)
        shape = broadcast([places.shape, codes.shape[:-1]], self._call)
        batch = broadcast([image.shape[:-1], shape[:-1]], self._call)
        places = np.broadcast_to(places, (*batch, shape[-1]))
        codes = np.broadcast_to(codes, (*batch, shape[-1], codes.shape[-1]))
        after = self._completed(barrier, shape[-1])
        out = np.broadcast_to(image, (*batch, image.shape[-1])).copy()
        for index in np.ndindex(*batch):
            self._write(out[index], places[index], codes[index])
        return out, after

    def _write(self, memory: Bytes, places: Places, codes: Codes) -> None:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class RemoteStore(RemoteInstruction):
    """st.async: each thread stores a value or a vector."""

    def _write(self, memory: Bytes, places: Places, codes: Codes) -> None:
        size = self.facts.bytes
        data = np.ascontiguousarray(codes).view(np.uint8).reshape(len(places), size)
        at = places[:, None] + np.arange(size)
        memory[at] = data
        if (memory[at] != data).any():  # aligned to their size, two either share all bytes or none
            first = int(places[(memory[at] != data).any(axis=1)][0])
            raise ContestedRowError(
                f"{self._call}: two threads store different values to {first:#x}: which of them stays is not defined; valid: "
                "addresses of their own"
            )


@dataclass(frozen=True, eq=False, repr=False)
class RemoteReduce(RemoteInstruction):
    """red.async: each thread combines a value with the one in memory."""

    def _write(self, memory: Bytes, places: Places, codes: Codes) -> None:
        reduction = self.facts.reduction
        if reduction is None:
            raise TypeError(f"{self.mnemonic} reduces nothing")
        words = memory[: len(memory) // self.facts.bytes * self.facts.bytes].view(codes.dtype)
        at, values = places // self.facts.bytes, codes[:, 0]
        if reduction.ordered:  # inc and dec, with one operand for all
            self._same_operands(reduction, at, values)
        order = np.argsort(at, kind="stable")
        turn = np.arange(len(at)) - np.searchsorted(at[order], at[order])  # the how-many-th of its address
        for number in range(int(turn.max()) + 1):
            now = order[turn == number]
            words[at[now]] = reduce_codes(reduction, words[at[now]], values[now])

    def _same_operands(self, reduction: Reduction, at: Places, values: Codes) -> None:
        order = np.argsort(at, kind="stable")
        clash = (np.diff(at[order]) == 0) & (values[order][1:] != values[order][:-1])
        if clash.any():
            place = int(at[order][1:][clash][0]) * self.facts.bytes
            raise ContestedRowError(
                f"{self._call}: two threads {reduction.operation} {place:#x} with different operands: the result depends on their "
                "order; valid: the same operand, or addresses of their own"
            )


def bind(row: Row, *rest: Any) -> RemoteInstruction:
    """The instruction of a row."""
    return (RemoteStore if remote_facts(row).reduction is None else RemoteReduce)(row, *rest)


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
_LATE = {"b128": "9.2"}
"""Types that came after PTX ISA 8.1."""
_REDUCTIONS = (
    *(("inc", "u32"), ("dec", "u32")),
    *product(("min", "max"), ("u32", "s32")),
    *product(("and", "or", "xor"), ("b32",)),
    *product(("add",), ("u32", "s32", "u64")),
)


def _row(
    family: str, mnemonic: str, space: str, kind: str, type: str, elements: int, reduction: Reduction | None
) -> Row:
    version = later("8.1", _LATE.get(type, "8.1"))
    form = OperandForm("", (), ("value", "barrier"), _TARGETS, version)
    facts = RemoteFacts(type, elements, space, (form,), reduction)
    modifiers = {"space": space, "type": f".{type}"}
    return plain_row(family, mnemonic, _TARGETS, version, kind, facts, modifiers)


def store_rows() -> tuple[Row, ...]:
    """Every st.async that signals a barrier."""
    return tuple(
        _row(
            STORE,
            f"{STORE}{order}{space}{_TO_BARRIER}{vector}.{type}",
            space,
            f"store {vector}".strip(),
            type,
            int(vector[2:] or 1),
            None,
        )
        for order, space, vector in product((".weak", ""), _SPACES, _TYPES)
        for type in _TYPES[vector]
    )


def _reductions() -> Iterator[Row]:
    for space, (operation, type) in product(_SPACES, _REDUCTIONS):
        name = f"{REDUCE}.relaxed.cluster{space}{_TO_BARRIER}.{operation}.{type}"
        yield _row(REDUCE, name, space, operation, type, 1, Reduction(operation, type))


def reduce_rows() -> tuple[Row, ...]:
    """Every red.async that signals a barrier."""
    return tuple(_reductions())


_SIZES = {4: "", 8: ".64", 16: ".128"}
_KINDS = {"s32": ".S32", "u64": ".64"}


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    facts = remote_facts(row)
    if facts.reduction is None:
        return Lowering("native", (), ((f"STAS{_SIZES[facts.bytes]}", 1),))
    return Lowering("native", (), ((f"REDAS.{facts.reduction.operation.upper()}{_KINDS.get(facts.type, '')}", 1),))


_MANUAL = {name: Evidence("literature", f"PTX ISA 9.4, section {name}") for name in (STORE, REDUCE)}


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL[row.family])


STORE_FAMILY = Family(STORE, store_rows, lowering, evidence, bind)
REDUCE_FAMILY = Family(REDUCE, reduce_rows, lowering, evidence, bind)
