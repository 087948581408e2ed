"""Tensor Memory: the cells that tcgen05 instructions work on, who owns them, which of them hold something.

Source: PTX ISA, sections Tensor Memory and Tensor Memory Allocation and Management Instructions. The guard rails that ptxas
can compile in (`-g-tensor-memory-access-check`) trap on the same uses: unallocated columns, columns out of bounds, an
address that no alloc returned, an alloc after the permit was given up.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array, broadcast_together, integer, integers, is_number
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing

GRANULE = 32
"""Columns of one unit of allocation."""
MOST_COLUMNS = 576
"""Columns of sm_107, where only `.exclusive` allocations reach those from 512 on; elsewhere there are 512."""


class TensorMemoryError(OperandError):
    """A use of Tensor Memory whose outcome the manual leaves undefined, or that would block forever."""


class AllocationError(TensorMemoryError):
    """An alloc, dealloc or relinquish_alloc_permit that the rules of allocation forbid."""


class UnallocatedError(TensorMemoryError):
    """An access to a column that is not allocated, or to a lane or column that does not exist."""


class LaneAccessError(TensorMemoryError):
    """An access by a warp to lanes that belong to another warp of its warpgroup, or to lanes off the shape's alignment."""


class UnwrittenError(TensorMemoryError):
    """A read of a cell that nothing has written."""


def tmem_address(lane: int, column: int) -> int:
    """The 32-bit address of a cell: the lane in bits 31:16, the column in bits 15:0.

    Raises UnallocatedError for a lane or column that does not exist.

    >>> hex(tcsim.memory.tensor_memory.tmem_address(32, 5))
    '0x200005'
    """
    if not (0 <= lane < TensorMemory.LANES and 0 <= column < MOST_COLUMNS):
        raise UnallocatedError(
            f"tmem_address({lane}, {column}): valid lanes are 0 to {TensorMemory.LANES - 1}, columns 0 to {MOST_COLUMNS - 1}"
        )
    return lane << 16 | column


def tmem_lane_column(address: int) -> tuple[int, int]:
    """Lane and column of a 32-bit Tensor Memory address.

    Raises UnallocatedError for a value that is not a 32-bit integer, a lane from 128 on or a column from 576 on.

    >>> tcsim.memory.tensor_memory.tmem_lane_column(0x200005)
    (32, 5)
    """
    try:
        value = index(address)
    except TypeError:
        raise UnallocatedError(f"Tensor Memory address {address!r}; valid: an integer, lane << 16 | column") from None
    lane, column = value >> 16, value & 0xFFFF
    if not (0 <= value < 1 << 32 and lane < TensorMemory.LANES and column < MOST_COLUMNS):
        raise UnallocatedError(
            f"Tensor Memory address {value:#x}: lane {lane}, column {column}; valid: lane << 16 | column with lanes 0 to "
            f"{TensorMemory.LANES - 1}, columns 0 to {MOST_COLUMNS - 1}"
        )
    return lane, column


def require_tensor_memory(memory: Any, call: str) -> None:
    """Raise OperandError unless a memory is a TensorMemory."""
    if not isinstance(memory, TensorMemory):
        raise OperandError(f"{call}: tmem is a {type(memory).__name__}; valid: a tcsim.TensorMemory")


def require_columns(columns: int, exclusive: bool, most: int, what: str) -> None:
    """Raise AllocationError for a number of columns that an allocation cannot have.

    >>> require_columns(48, False, 512, "alloc(48)")
    Traceback (most recent call last):
    tcsim.memory.tensor_memory.AllocationError: alloc(48): 48 columns; valid: 32, 64, 128, 256, 512
    """
    if exclusive:
        if columns % GRANULE or not GRANULE <= columns <= most:
            raise AllocationError(f"{what}: {columns} columns; valid: multiples of 32 from 32 to {most}")
    elif columns not in (valid := [GRANULE << i for i in range(5)]):
        raise AllocationError(f"{what}: {columns} columns; valid: {listing(valid)}")


class TensorMemory(Shown):
    """The Tensor Memory of a CTA, or of a pair of CTAs: 128 lanes x 512 columns of 32 bits each.

    `batch` are leading dimensions: memories that are allocated alike and hold different words. `ctas=2` is a CTA
    pair, for `.cta_group::2`. `columns=576` is that of sm_107, whose last 64 only an exclusive allocation reaches.

    `words` uint32 and `written` bool are (*batch, ctas, 128, columns); `owned` bool (ctas, columns) are the allocated columns.
    What a fresh allocation holds is undefined, so nothing of it counts as written.

    Raises AllocationError for other numbers of CTAs or columns.

    >>> tmem = tcsim.TensorMemory()
    >>> tmem.alloc(64), tmem.alloc(32)
    (0, 64)
    >>> tmem.write([0, 1], 5, np.uint32(7))
    >>> tmem.read([0, 1], 5)
    array([7, 7], dtype=uint32)
    >>> tmem.read(2, 5)
    Traceback (most recent call last):
    tcsim.memory.tensor_memory.UnwrittenError: read of lane 2, column 5: nothing has written that cell
    >>> other = tmem.copy()
    >>> other.dealloc(64, 32)
    >>> other.relinquish_alloc_permit()
    >>> other.check_exit()
    Traceback (most recent call last):
    tcsim.memory.tensor_memory.AllocationError: the kernel ends with allocations that were not freed: CTA 0: 0x0 (64 columns)
    """

    LANES = 128
    COLUMNS = 512

    def __init__(self, batch: tuple[int, ...] = (), *, ctas: int = 1, columns: int = COLUMNS) -> None:
        if not is_number(ctas, (1, 2)) or not is_number(columns, (self.COLUMNS, MOST_COLUMNS)):
            raise AllocationError(
                f"TensorMemory(ctas={ctas}, columns={columns}): valid: ctas 1, 2; columns 512, 576 (sm_107)"
            )
        if not isinstance(batch, tuple) or any(
            integer(size, "TensorMemory: batch", AllocationError) < 0 for size in batch
        ):
            raise AllocationError(f"TensorMemory(batch={batch!r}): valid: a tuple of sizes, () for a single memory")
        shape = (*batch, ctas, self.LANES, columns)
        self.words: npt.NDArray[np.uint32] = np.zeros(shape, np.uint32)
        self.written: npt.NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self.owned: npt.NDArray[np.bool_] = np.zeros((ctas, columns), np.bool_)
        self._allocations: list[dict[int, int]] = [{} for _ in range(ctas)]  # of each CTA: first column -> columns
        self._permit = [True] * ctas
        self._last = [columns] * ctas  # of each CTA: columns of its latest alloc
        self._exclusive: set[int] = set()  # CTAs whose only live allocation is `.exclusive`
        self._cta_group: int | None = None  # the kernel's `.cta_group`, once an instruction has said it

    @classmethod
    def allocated(cls, batch: tuple[int, ...] = (), *, ctas: int = 1) -> TensorMemory:
        """A memory whose 512 columns are all allocated at address 0, with nothing written.

        >>> bool(tcsim.TensorMemory.allocated(ctas=2).owned.all())
        True
        """
        memory = cls(batch, ctas=ctas)
        for cta in range(ctas):
            memory._own(cta, 0, cls.COLUMNS)
        return memory

    def __repr__(self) -> str:
        allocations = [{f"{start:#x}": count for start, count in own.items()} for own in self._allocations]
        return f"TensorMemory(batch={self.batch}, ctas={self.ctas}, allocations={allocations})"

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading dimensions."""
        return self.words.shape[:-3]

    @property
    def ctas(self) -> int:
        """1, or 2 for a CTA pair."""
        return self.words.shape[-3]

    @property
    def columns(self) -> int:
        """Columns that there are."""
        return self.words.shape[-1]

    def copy(self, batch: tuple[int, ...] | None = None) -> TensorMemory:
        """An independent memory with the same words and allocations, if asked with other leading dimensions.

        Raises OperandError if the words do not broadcast to `batch`.
        """
        shape = (*(self.batch if batch is None else batch), *self.words.shape[-3:])
        new = TensorMemory.__new__(TensorMemory)
        try:
            new.words = np.broadcast_to(self.words, shape).copy()
            new.written = np.broadcast_to(self.written, shape).copy()
        except ValueError:
            raise OperandError(f"a Tensor Memory of batch {self.batch} does not broadcast to {batch}") from None
        new.owned = self.owned.copy()
        new._allocations = [dict(own) for own in self._allocations]
        new._permit, new._last = list(self._permit), list(self._last)
        new._exclusive, new._cta_group = set(self._exclusive), self._cta_group
        return new

    def alloc(self, columns: int, *, cta_group: int = 1, cta: int = 0, exclusive: bool = False) -> int:
        """tcgen05.alloc: the address of `columns` free columns, of all lanes; with `cta_group=2` of both CTAs.

        Where they lie is not documented: here the lowest free columns that are aligned to their own number (opcode
        UTCATOMSWS.FIND_AND_SET.ALIGN), or, exclusive, the lowest.

        Raises AllocationError for a number of columns that is not a power of two from 32 to 512 (exclusive: not a multiple of 32),
        more columns than an earlier alloc of the CTA had, columns that are not free, an exclusive allocation beside another
        one (in both cases the instruction would block forever), an alloc after relinquish_alloc_permit, or another
        cta_group than before.

        >>> hex(tcsim.TensorMemory(ctas=2).alloc(256, cta_group=2))
        '0x0'
        """
        name = f"alloc({columns}, cta_group={cta_group}, cta={cta}{', exclusive=True' if exclusive else ''})"
        group = self._group(cta_group, cta, name)
        columns = integer(columns, f"{name}: columns", AllocationError)
        require_columns(columns, exclusive, self.columns, name)
        for member in group:
            if not self._permit[member]:
                raise AllocationError(
                    f"{name}: CTA {member} has executed relinquish_alloc_permit and may not allocate again"
                )
            if columns > self._last[member]:
                raise AllocationError(
                    f"{name}: an earlier alloc of CTA {member} had {self._last[member]} columns, and a later one must not have more"
                )
            if self._allocations[member] and (exclusive or member in self._exclusive):
                raise AllocationError(
                    f"{name}: blocks forever: no other allocation may live beside an exclusive one; valid: dealloc "
                    f"{self._listing(member)} first"
                )
        step = GRANULE if exclusive else columns
        taken = np.asarray(self.owned[list(group)].any(axis=0))
        starts = [s for s in range(0, self.columns - columns + 1, step) if not taken[s : s + columns].any()]
        if not starts:
            free = int((~taken).sum())
            raise AllocationError(
                f"{name}: blocks forever: {free} of {self.columns} columns are free, and no {columns} of them together; "
                f"valid: dealloc one of {self._listing(group[0])} first"
            )
        for member in group:
            self._own(member, starts[0], columns)
            if exclusive:
                self._exclusive.add(member)
        return tmem_address(0, starts[0])

    def dealloc(self, address: int, columns: int, *, cta_group: int = 1, cta: int = 0, exclusive: bool = False) -> None:
        """tcgen05.dealloc: give the columns of one alloc back; what they hold is lost.

        Raises AllocationError for an address that no alloc of the CTA returned, another number of columns than it had,
        another cta_group than before, or `exclusive` unlike the alloc.
        """
        address = integer(address, "dealloc: address", AllocationError)
        name = f"dealloc({address:#x}, {columns}, cta_group={cta_group}, cta={cta}{', exclusive=True' if exclusive else ''})"
        group = self._group(cta_group, cta, name)
        start = address
        for member in group:
            if start not in self._allocations[member]:
                raise AllocationError(
                    f"{name}: no alloc of CTA {member} returned that address, or it is freed; valid: {self._listing(member)}"
                )
            if columns != self._allocations[member][start]:
                raise AllocationError(
                    f"{name}: that alloc of CTA {member} had {self._allocations[member][start]} columns; valid: "
                    f"{self._listing(member)}"
                )
            if exclusive != (member in self._exclusive):
                raise AllocationError(
                    f"{name}: the alloc was {'' if member in self._exclusive else 'not '}.exclusive; valid: a dealloc alike"
                )
        for member in group:
            del self._allocations[member][start]
            self.owned[member, start : start + columns] = False
            self._exclusive.discard(member)
            self.written[..., member, :, start : start + columns] = False

    def relinquish_alloc_permit(self, *, cta_group: int = 1, cta: int = 0) -> None:
        """tcgen05.relinquish_alloc_permit: the CTA (with `cta_group=2` both) will not allocate again.

        Raises AllocationError for another cta_group than before.
        """
        for member in self._group(cta_group, cta, f"relinquish_alloc_permit(cta_group={cta_group}, cta={cta})"):
            self._permit[member] = False

    def check_exit(self) -> None:
        """What must hold as the kernel ends: every allocation was given back.

        Raises AllocationError that lists those that were not.
        """
        left = [f"CTA {cta}: {self._listing(cta)}" for cta in range(self.ctas) if self._allocations[cta]]
        if left:
            raise AllocationError(f"the kernel ends with allocations that were not freed: {'; '.join(left)}")

    def use_cta_group(self, cta_group: int, what: str) -> None:
        """Note the `.cta_group` of an instruction: all of a kernel must name the same.

        Raises AllocationError if an earlier one named the other, or if a pair is asked of a single CTA's memory.

        >>> tmem = tcsim.TensorMemory(ctas=2)
        >>> tmem.use_cta_group(2, "tcgen05.mma")
        """
        if not is_number(cta_group, (1, 2)) or cta_group > self.ctas:
            raise AllocationError(
                f"{what}: cta_group {cta_group} of a memory with {self.ctas} CTA; valid: {listing(range(1, self.ctas + 1))}"
            )
        if self._cta_group not in (None, cta_group):
            raise AllocationError(
                f"{what}: .cta_group::{cta_group} after .cta_group::{self._cta_group}; all tcgen05 instructions of a kernel must "
                "name the same"
            )
        self._cta_group = cta_group

    def read(self, lanes: Any, columns: Any, *, cta: int = 0, what: str = "read") -> npt.NDArray[np.uint32]:
        """The words of cells: lanes and columns are integers or arrays that broadcast; the result is (*batch, *broadcast).

        `what` begins the error's text.

        Raises UnallocatedError for cells that do not exist or are not allocated, UnwrittenError for those never written.
        """
        lane, column = self._cells(lanes, columns, cta, what)
        holds: npt.NDArray[np.bool_] = np.asarray(self.written[..., cta, lane, column], np.bool_)
        if not holds.all():
            at = tuple(np.argwhere(~holds)[0][len(self.batch) :])
            raise UnwrittenError(
                f"{what} of lane {lane[at]}, column {column[at]}{self._of(cta)}: nothing has written that cell"
            )
        return np.asarray(self.words[..., cta, lane, column], np.uint32)

    def write(
        self, lanes: Any, columns: Any, words: Any, *, cta: int = 0, where: Any = None, what: str = "write"
    ) -> None:
        """Write words (*batch, *broadcast of lanes and columns, or what broadcasts to it), in place, where `where` is true.

        Raises UnallocatedError for cells that do not exist or are not allocated, OperandError for words of another dtype.
        """
        lane, column = self._cells(lanes, columns, cta, what)
        given = as_array(words, f"{what}: words")
        shape = (*self.batch, *lane.shape)
        if given.dtype != np.uint32:
            raise OperandError(f"{what}: the words are {given.dtype}; valid: uint32, shape {shape}")
        try:
            values = np.broadcast_to(given, shape)
            mask = np.broadcast_to(np.asarray(True if where is None else where, np.bool_), shape)
        except ValueError:
            raise OperandError(f"{what}: words {given.shape} and where do not broadcast to {shape}") from None
        cells = (..., cta, lane, column)
        if not mask.all():
            values = np.where(mask, values, self.words[cells])
            mask = mask | self.written[cells]
        self.words[cells] = values
        self.written[cells] = mask

    def _cells(
        self, lanes: Any, columns: Any, cta: int, what: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if not is_number(cta, range(self.ctas)):
            raise UnallocatedError(f"{what}: CTA {cta}; valid: {listing(range(self.ctas))}")
        given = [integers(lanes, f"{what}: lanes"), integers(columns, f"{what}: columns")]
        lane, column = broadcast_together(f"{what}: lanes, columns", *given)
        outside = (lane < 0) | (lane >= self.LANES) | (column < 0) | (column >= self.columns)
        if outside.any():
            at = tuple(np.argwhere(outside)[0])
            raise UnallocatedError(
                f"{what} of lane {lane[at]}, column {column[at]}{self._of(cta)}: out of bounds; valid lanes are 0 to "
                f"{self.LANES - 1}, columns 0 to {self.columns - 1}"
            )
        free = ~self.owned[cta][column]
        if free.any():
            at = tuple(np.argwhere(free)[0])
            raise UnallocatedError(
                f"{what} of lane {lane[at]}, column {column[at]}{self._of(cta)}: that column is not allocated; allocated are "
                f"{self._listing(cta)}"
            )
        return lane, column

    def _group(self, cta_group: int, cta: int, name: str) -> tuple[int, ...]:
        self.use_cta_group(cta_group, name)
        if not is_number(cta, range(self.ctas)):
            raise AllocationError(f"{name}: CTA {cta}; valid: {listing(range(self.ctas))}")
        return (0, 1) if cta_group == 2 else (cta,)

    def _own(self, cta: int, start: int, columns: int) -> None:
        self._allocations[cta][start] = columns
        self._last[cta] = columns
        self.owned[cta, start : start + columns] = True
        self.written[..., cta, :, start : start + columns] = False

    def _listing(self, cta: int) -> str:
        own = self._allocations[cta]
        return listing(f"{start:#x} ({count} columns)" for start, count in sorted(own.items())) or "none"

    def _of(self, cta: int) -> str:
        return f" of CTA {cta}" if self.ctas > 1 else ""
