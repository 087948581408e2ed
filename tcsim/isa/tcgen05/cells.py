"""Matrices and rows of Tensor Memory as accesses, and `tcsim.TensorMemory` as a machine that applies effects to itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import bytes_at, with_bytes_at
from tcsim.core.targets import Arch
from tcsim.descriptors.kinds import tensor_arch
from tcsim.memory.tensor_memory import MOST_COLUMNS, TensorMemory, TensorMemoryError, UnallocatedError
from tcsim.memory.tmem_matrix import LANES, WORD_BITS, TmemLayout
from tcsim.model.effects import Access, Array, Outcome, View, Write

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
WORD_BYTES = 4
COLUMNS = {"sm_107": MOST_COLUMNS}
"""Archs with more columns than 512 (PTX ISA, table 58)."""


def columns_of(arch: Arch) -> int:
    """The columns of Tensor Memory on an arch."""
    return COLUMNS.get(tensor_arch(arch), TensorMemory.COLUMNS)


def cell_bytes(lane: Array, column: Array, run: int, columns: int, what: str) -> Ints:
    """The byte addresses of cells from which `run` columns are accessed.

    Raises UnallocatedError for columns or lanes that do not exist.
    """
    outside = (lane < 0) | (lane >= LANES) | (column < 0) | (column + run > columns)
    if outside.any():
        at = tuple(np.argwhere(outside)[0])
        first = np.broadcast_to(column, outside.shape)[at]
        last = first + run - 1 if 0 <= first < columns else first
        raise UnallocatedError(
            f"{what}: lane {np.broadcast_to(lane, outside.shape)[at]}, column {last}: out of bounds; valid lanes are 0 to "
            f"{LANES - 1}, columns 0 to {columns - 1}"
        )
    return np.asarray((lane * columns + column) * WORD_BYTES, np.int64)


def ranks_of(cta_group: int, rank: int) -> Ints:
    """The ranks of the CTAs whose memories an instruction works on: that of the CTA itself (), or of both of its pair (2,)."""
    return np.asarray(rank) if cta_group == 1 else (rank & ~1) + np.arange(2)


def read(view: View, accesses: Sequence[Access], what: str) -> list[Bytes]:
    """The bytes of some accesses; errors about Tensor Memory begin with what is read."""
    try:
        return [view.read(access) for access in accesses]
    except TensorMemoryError as error:
        raise type(error)(f"{what}: {error}") from None


@dataclass(frozen=True)
class Cells:
    """A matrix at a place in the Tensor Memory of one CTA or of a pair."""

    layout: TmemLayout
    base: tuple[int, int]  # lane and column of its address
    accesses: tuple[Access, ...]  # one for each length of run

    @classmethod
    def at(cls, layout: TmemLayout, base: tuple[int, int], columns: int, ranks: Ints, what: str) -> Cells:
        """The matrix from a lane and column on. Raises UnallocatedError for columns that do not exist."""
        accesses = []
        for run in layout.runs:
            address = cell_bytes(run.lane + base[0], run.column + base[1], run.columns, columns, what)
            cta = ranks[run.cta] if ranks.ndim else None
            accesses.append(Access("tmem", address, run.columns * WORD_BYTES, proxy="async", cta=cta))
        return cls(layout, base, tuple(accesses))

    def named(self, operand: str) -> tuple[Access, ...]:
        """The accesses, which say what operand they are."""
        return tuple(replace(own, operand=operand, cells=self.layout) for own in self.accesses)

    def elements(self, data: Sequence[Bytes]) -> Words:
        """The elements (..., CTAs that repeat, copies, rows, columns) in the bytes of the accesses."""
        flat = [np.ascontiguousarray(own).view("<u4").reshape(*own.shape[:-2], -1) for own in data]
        joined = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=-1)
        place = self.layout.word
        words = (
            joined.reshape(*joined.shape[:-1], *place.shape) if self.layout.in_order else joined.take(place, axis=-1)
        )
        bits = self.layout.element_bits
        if bits == WORD_BITS:
            return np.asarray(words, np.uint32)
        slot = (self.layout.cells[3] * bits).astype(np.uint32)
        return np.asarray(words >> slot & np.uint32((1 << bits) - 1), np.uint32)

    def writes(self, words: Words, kept: npt.NDArray[np.bool_] | None) -> tuple[Write, ...]:
        """The writes that leave a matrix (..., rows, columns) whose elements fill words, but for lanes (CTA, lane) that stay."""
        flat = words.reshape(*words.shape[:-2], words.shape[-2] * words.shape[-1])
        if not self.layout.in_order:
            flat = flat.take(self.layout.element, axis=-1)
        found, first = [], 0
        for run, access in zip(self.layout.runs, self.accesses, strict=True):
            last = first + run.columns * len(run.lane)
            data = flat[..., first:last].astype("<u4", copy=False).view(np.uint8)
            data, first = data.reshape(*words.shape[:-2], len(run.lane), access.size), last
            if kept is not None:
                some = ~kept[run.cta, run.lane + self.base[0]]
                cta = None if access.cta is None else access.cta[some]
                access = Access("tmem", access.address[some], access.size, proxy="async", cta=cta)
                data = data[..., some, :]
            found.append(Write(access, data))
        return tuple(found)


@dataclass(frozen=True)
class TensorMemoryView:
    """A `tcsim.TensorMemory`, and shared memory if there is any, as a view, and what outcomes make of them."""

    tmem: TensorMemory
    columns: int  # of the arch
    smem: Any = None  # uint8 (..., bytes), of a pair (..., 2, bytes)
    cta: int = 0  # that executes
    warp: Array = field(default_factory=lambda: np.zeros((), np.int64))

    @property
    def rank(self) -> int:
        """CTAs count from 0."""
        return self.cta

    def held(self, name: str) -> Array:
        """Nothing is held here."""
        raise KeyError(name)

    def read(self, access: Access) -> Bytes:
        """The bytes of an access to Tensor Memory or shared memory."""
        if access.space != "tmem":
            return self._shared(access)
        found = np.empty((*self.tmem.batch, len(access.address), access.size), np.uint8)
        for cta, own, lane, column in self._cells(access):
            words = self.tmem.read(lane, column, cta=cta, what="read")
            found[..., own, :] = np.ascontiguousarray(words, "<u4").view(np.uint8)
        return found

    def apply(self, outcomes: Sequence[Outcome], what: str) -> None:
        """Do the writes to Tensor Memory, in place."""
        for write in (write for outcome in outcomes for write in outcome.writes):
            words = np.ascontiguousarray(write.data).view("<u4").astype(np.uint32, copy=False)
            for cta, own, lane, column in self._cells(write.at):
                self.tmem.write(lane, column, words[..., own, :], cta=cta, what=what)

    def after(self, outcomes: Sequence[Outcome]) -> Bytes:
        """Shared memory, new, after writes to it."""
        memory = self.smem
        for write in (write for outcome in outcomes for write in outcome.writes):
            memory = with_bytes_at(memory, write.at.address, write.data, write.at.mask)
        return np.asarray(memory, np.uint8)

    def _cells(self, access: Access) -> list[tuple[int, npt.NDArray[np.bool_], Ints, Ints]]:
        """By CTA: which accesses are to it, and lanes and columns of their cells."""
        ctas = np.broadcast_to(self.cta if access.cta is None else access.cta, access.address.shape)
        found = []
        for cta in np.unique(ctas):
            own = ctas == cta
            lane, column = np.divmod(access.address[own][:, None] // WORD_BYTES, self.columns)
            found.append((int(cta), own, lane, column + np.arange(access.size // WORD_BYTES)))
        return found

    def _shared(self, access: Access) -> Bytes:
        if access.cta is None or access.cta.ndim == 0:
            return bytes_at(self.smem, access.address, access.size)
        flat = self.smem.reshape(*self.smem.shape[:-2], -1)
        return bytes_at(flat, access.address + access.cta * self.smem.shape[-1], access.size)
