"""tcgen05.ld and tcgen05.st: between Tensor Memory and the registers of a warp, and which lanes a warp may touch.

Source: PTX ISA 9.4, section Tensor Memory and Register Load/Store Instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.isa.tcgen05.fragments import Shape
from tcsim.isa.tcgen05.ld_red import Reduction
from tcsim.layouts.compression import Selection, compress
from tcsim.layouts.layout import FragmentLayout
from tcsim.memory.tensor_memory import LaneAccessError, TensorMemory, require_tensor_memory, tmem_lane_column
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row, check_registers

WARP_LANES = 32
"""Lanes of Tensor Memory that each warp of a warpgroup reaches: those from 32 times its number on."""

Cells = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class MoveRow(Row):
    """What a spelling of ld or st reaches, and what it makes of it on the way."""

    movement: Shape  # .16x64b; two halves have an address each
    layout: FragmentLayout  # (lane, register, slot) <-> (row, column) from the address on
    packed: bool = False  # `.pack::16b` or `.unpack::16b`
    reduction: Reduction | None = None  # `.red`
    selection: Selection | None = None  # `.spcompress`

    @property
    def half_columns(self) -> int:
        """Columns that each address reaches."""
        return self.layout.columns // self.movement.halves


def require_own_lanes(address: int, rows: int, warp: int, call: str) -> tuple[int, int]:
    """Lane and column of an address from which a warp may reach `rows` lanes.

    Raises LaneAccessError for lanes of another warp, or a start that is not a multiple of that number.

    >>> require_own_lanes(0x300004, 16, 5, "ld")
    (48, 4)
    """
    lane, column = tmem_lane_column(address)
    first = warp % 4 * WARP_LANES
    valid = list(range(first, first + WARP_LANES, rows))
    if lane not in valid:
        raise LaneAccessError(
            f"{call}: {rows} lanes from lane {lane} on: warp {warp} (number {warp % 4} of its warpgroup) may touch lanes {first} "
            f"to {first + WARP_LANES - 1}; valid first lanes: {listing(valid)}"
        )
    return lane, column


@dataclass(frozen=True, eq=False, repr=False)
class TensorMemoryMove(Instruction):
    """An instruction of one warp on the lanes of Tensor Memory that are its own."""

    row: MoveRow

    def cells(self, address: int, warp: int = 0, half_split_offset: int | None = None) -> Cells:
        """Lanes and columns of the cells that the instruction reaches: (32, elements of a lane), in register order.

        Raises LaneAccessError for lanes that the warp may not touch, OperandError for `half_split_offset` (PTX's
        immHalfSplitoff, in columns) missing where the shape is .16x32bx2, or given where it is not.

        >>> load = tcsim.instruction("tcgen05.ld.sync.aligned.16x32bx2.x1.b32", arch="sm_100")
        >>> lanes, columns = load.cells(0x200008, warp=1, half_split_offset=4)
        >>> lanes[17, 0], columns[17, 0]
        (np.int64(33), np.int64(12))
        """
        call = f"{self!r}.execute"
        layout, halves = self.row.layout, self.row.movement.halves
        if (half_split_offset is not None) != (halves == 2):
            need = "an integer: .16x32bx2 has two addresses" if halves == 2 else "None: the shape has one address"
            raise OperandError(f"{call}: half_split_offset={half_split_offset}; valid: {need}")
        starts = [address] if half_split_offset is None else [address, address + int(half_split_offset)]
        places = [require_own_lanes(start, layout.rows, warp, call) for start in starts]
        flat = layout.flat_element.astype(np.int64).reshape(layout.lanes, layout.value.size)
        row, column = np.divmod(flat, layout.columns)
        half, inside = np.divmod(column, self.row.half_columns)
        lanes, columns = np.array(places).T
        return lanes[half] + row, columns[half] + inside

    def _load(
        self, tmem: TensorMemory, address: int, warp: int, half_split_offset: int | None, cta: int
    ) -> npt.NDArray[np.uint32]:
        require_tensor_memory(tmem, f"{self!r}.execute")
        lanes, columns = self.cells(address, warp, half_split_offset)
        words = tmem.read(lanes, columns, cta=cta, what=f"{self!r}.execute: read")
        if not self.row.packed:
            return words
        halves = words.reshape(*words.shape[:-1], -1, 2) & np.uint32(0xFFFF)
        packed: npt.NDArray[np.uint32] = halves[..., 0] | halves[..., 1] << np.uint32(16)
        return packed


@dataclass(frozen=True, eq=False, repr=False)
class LoadTensorMemory(TensorMemoryMove):
    """tcgen05.ld: cells of Tensor Memory to registers."""

    def execute(
        self, tmem: TensorMemory, address: int, *, warp: int = 0, half_split_offset: int | None = None, cta: int = 0
    ) -> npt.NDArray[np.uint32]:
        """Load: registers uint32 (*batch, 32, n) of one warp, whose number in the CTA is `warp`.

        With `.pack::16b` a register is the low halves of two neighbouring columns, the first one's below.

        Raises LaneAccessError for lanes that are not the warp's, UnallocatedError and UnwrittenError for cells that hold
        nothing, OperandError for `half_split_offset` where the shape does not have one, or its absence where it has.

        >>> tmem = tcsim.TensorMemory.allocated()
        >>> tmem.write(np.arange(128)[:, None], np.arange(2), np.arange(256, dtype=np.uint32).reshape(128, 2))
        >>> load = tcsim.instruction("tcgen05.ld.sync.aligned.32x32b.x2.b32", arch="sm_100")
        >>> load.execute(tmem=tmem, address=0x200000, warp=1)[5]  # lane 5 of warp 1: row 37
        array([74, 75], dtype=uint32)
        """
        return self._load(tmem, address, warp, half_split_offset, cta)


@dataclass(frozen=True, eq=False, repr=False)
class ReduceTensorMemory(TensorMemoryMove):
    """tcgen05.ld.red: a load, and the smallest or largest of what each lane of the warp loaded."""

    def execute(
        self, tmem: TensorMemory, address: int, *, warp: int = 0, half_split_offset: int | None = None, cta: int = 0
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Load and reduce: registers (*batch, 32, n) and redval (*batch, 32, 1), both uint32.

        Raises as `tcgen05.ld` does.

        >>> tmem = tcsim.TensorMemory.allocated()
        >>> tmem.write(np.arange(32)[:, None], np.arange(2), np.array([[1.0, -3.0]] * 32, np.float32).view(np.uint32))
        >>> load = tcsim.instruction("tcgen05.ld.red.sync.aligned.32x32b.x2.max.abs.f32", arch="sm_103")
        >>> d, redval = load.execute(tmem=tmem, address=0)
        >>> redval[0].view(np.float32)
        array([3.], dtype=float32)
        """
        assert self.row.reduction is not None
        words = self._load(tmem, address, warp, half_split_offset, cta)
        return words, self.row.reduction(words)[..., None]


@dataclass(frozen=True, eq=False, repr=False)
class CompressTensorMemory(TensorMemoryMove):
    """tcgen05.ld.spcompress: a load that keeps two of every four values, with or without `.red`."""

    def execute(self, tmem: TensorMemory, address: int, *, warp: int = 0, cta: int = 0) -> tuple[Any, ...]:
        """Load and compress: mdata (*batch, 32, m), cdata (*batch, 32, n), and with `.red` redval (*batch, 32, 1), all uint32.

        Raises as `tcgen05.ld` does. Which of equal values stay is up to the hardware: here the first ones.

        >>> tmem = tcsim.TensorMemory.allocated()
        >>> tmem.write(np.arange(32)[:, None], np.arange(4), np.array([[1, 4, 2, 3]] * 32, np.float32).view(np.uint32))
        >>> name = "tcgen05.ld.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2"
        >>> mdata, cdata = tcsim.instruction(name, arch="sm_107").execute(tmem=tmem, address=0)
        >>> bin(mdata[0, 0]), cdata[0].view(np.float32).tolist()
        ('0b1101', [4.0, 3.0])
        """
        assert self.row.selection is not None
        words = self._load(tmem, address, warp, None, cta)
        metadata, kept = compress(words, 32, 2, self.row.selection)
        if self.row.reduction is None:
            return metadata, kept
        return metadata, kept, self.row.reduction(words)[..., None]


@dataclass(frozen=True, eq=False, repr=False)
class StoreTensorMemory(TensorMemoryMove):
    """tcgen05.st: registers to cells of Tensor Memory."""

    def execute(
        self,
        tmem: TensorMemory,
        address: int,
        registers: Any,
        *,
        warp: int = 0,
        half_split_offset: int | None = None,
        cta: int = 0,
    ) -> TensorMemory:
        """Store: registers uint32 (..., 32, n) of one warp -> the new Tensor Memory, a copy.

        Leading dimensions broadcast. With `.unpack::16b` the halves of a register go to two neighbouring columns, whose upper
        halves become zero (inferred: the manual does not say what becomes of them).

        Raises LaneAccessError for lanes that are not the warp's, UnallocatedError for columns that are not allocated,
        OperandError for registers of another dtype or shape, for `half_split_offset` where the shape does not have one, and for one
        with which both halves write the same cells.

        >>> store = tcsim.instruction("tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32", arch="sm_100")
        >>> tmem = store.execute(tcsim.TensorMemory.allocated(), 0, np.full((32, 1), 0xABCD1234, np.uint32))
        >>> [hex(word) for word in tmem.read(0, [0, 1])]
        ['0x1234', '0xabcd']
        """
        call = f"{self!r}.execute"
        require_tensor_memory(tmem, call)
        array = np.asarray(registers)
        check_registers(array, self.operands["registers"], call)
        lanes, columns = self.cells(address, warp, half_split_offset)
        width = self.row.half_columns
        if half_split_offset is not None and abs(int(half_split_offset)) < width:
            raise OperandError(
                f"{call}: half_split_offset={half_split_offset}: both halves of {width} columns write the same cells, and which "
                f"stay is not defined; valid: {width} or more"
            )
        new = tmem.copy(broadcast([tmem.batch, array.shape[:-2]], call))
        if self.row.packed:
            array = np.stack([array & np.uint32(0xFFFF), array >> np.uint32(16)], axis=-1).reshape(
                *array.shape[:-1], 2 * array.shape[-1]
            )
        new.write(lanes, columns, array, cta=cta, what=f"{call}: write")
        return new
