"""tcgen05.ld and tcgen05.st: between Tensor Memory and the registers of a warp, and which lanes a warp may touch.

Source: PTX ISA, section Tensor Memory and Register Load/Store Instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.isa.tcgen05.cells import WORD_BYTES, Bytes, Ints, TensorMemoryView, cell_bytes, columns_of, read
from tcsim.isa.tcgen05.fragments import Shape
from tcsim.isa.tcgen05.ld_red import Reduction
from tcsim.layouts.compression import Selection, compress
from tcsim.layouts.layout import FragmentLayout
from tcsim.memory.tensor_memory import LaneAccessError, TensorMemory, require_tensor_memory, tmem_lane_column
from tcsim.model.effects import Access, Array, Effects, Outcome, Pending, View, Write
from tcsim.model.form import Form
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
        lanes, columns = np.array(self._starts(address, warp, half_split_offset, f"{self!r}.execute")).T
        half, row, inside = self._places
        return lanes[half] + row, columns[half] + inside

    def _starts(self, address: int, warp: int, half_split_offset: int | None, call: str) -> list[tuple[int, int]]:
        """Lane and column that each half of the shape begins at."""
        rows, halves = self.row.layout.rows, self.row.movement.halves
        if (half_split_offset is not None) != (halves == 2):
            need = "an integer: .16x32bx2 has two addresses" if halves == 2 else "None: the shape has one address"
            raise OperandError(f"{call}: half_split_offset={half_split_offset}; valid: {need}")
        starts = [address] if half_split_offset is None else [address, address + int(half_split_offset)]
        return [require_own_lanes(start, rows, warp, call) for start in starts]

    @cached_property
    def _places(self) -> tuple[Ints, Ints, Ints]:
        """Half, row and column in the half of every element: (32, elements of a lane), in register order."""
        layout = self.row.layout
        flat = layout.flat_element.astype(np.int64).reshape(layout.lanes, layout.value.size)
        row, column = np.divmod(flat, layout.columns)
        half, inside = np.divmod(column, self.row.half_columns)
        return half, row, inside

    @cached_property
    def _word(self) -> Ints:
        """Which word of all rows that are accessed, one after the other, each element is."""
        half, row, inside = self._places
        return (half * self.row.layout.rows + row) * self.row.half_columns + inside

    def _access(self, address: Array, warp: Array, half_split_offset: int | None, call: str) -> Access:
        """The rows (..., halves * rows) that warps with these numbers reach from these addresses (...)."""
        warps = np.broadcast_to(warp, address.shape)
        starts = [
            self._starts(one, number, half_split_offset, call)
            for one, number in zip(address.reshape(-1).tolist(), warps.reshape(-1).tolist(), strict=True)
        ]
        lane, column = np.moveaxis(np.array(starts, np.int64), -1, 0)[..., None]
        width = self.row.half_columns
        cells = cell_bytes(lane + np.arange(self.row.layout.rows), column, width, columns_of(self.arch), call)
        return Access("tmem", cells.reshape(*address.shape, -1), width * WORD_BYTES)

    def _asked(self, form: Form, operands: Mapping[str, Array], view: View) -> Access:
        """The rows of an instruction with these operands; addresses are those of the first lanes."""
        split = int(operands["half_split_offset"]) if "half_split_offset" in form else None
        return self._access(operands["address"][..., 0], view.warp, split, f"{self!r}.effects")

    def _registers(self, data: Bytes) -> npt.NDArray[np.uint32]:
        """The words (..., 32, registers) of a warp in the bytes of the rows."""
        flat = np.ascontiguousarray(data).view("<u4").reshape(*data.shape[:-2], -1)
        words = flat[..., self._word].astype(np.uint32, copy=False)
        if not self.row.packed:
            return words
        halves = words.reshape(*words.shape[:-1], -1, 2) & np.uint32(0xFFFF)
        packed: npt.NDArray[np.uint32] = halves[..., 0] | halves[..., 1] << np.uint32(16)
        return packed

    def _results(self, words: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.uint32]]:
        """What a load makes of the words of a warp, by operand."""
        return {"d": words}

    def _loaded(
        self, tmem: TensorMemory, address: int, warp: int, half_split_offset: int | None, cta: int
    ) -> dict[str, npt.NDArray[np.uint32]]:
        """The registers of one warp: its effects on a Tensor Memory, finished at once."""
        call = f"{self!r}.execute"
        require_tensor_memory(tmem, call)
        rows = self._access(np.asarray(address), np.asarray(warp), half_split_offset, call)
        (data,) = read(TensorMemoryView(tmem, columns_of(self.arch), cta=cta), (rows,), call)
        return self._results(self._registers(data))


@dataclass(frozen=True, eq=False, repr=False)
class TensorMemoryLoad(TensorMemoryMove):
    """A load, whose registers are in flight until tcgen05.wait::ld."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The cells are read when the work is fetched; tcgen05.wait::ld waits for the registers."""
        rows = self._asked(form, operands, view)

        def finish(data: Bytes) -> Outcome:
            found = self._results(self._registers(data))
            single = {name for name in found if form[name].kind == "register"}
            return Outcome({name: x[..., 0] if name in single else x for name, x in found.items()})

        def fetch(view: View) -> Bytes:
            return read(view, (rows,), f"{self!r}.effects")[0]

        holds = dict.fromkeys(form.results, "write")
        return Effects(pending=(Pending((rows,), (), fetch, finish, "tcgen05.ld", holds),))


@dataclass(frozen=True, eq=False, repr=False)
class LoadTensorMemory(TensorMemoryLoad):
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
        return self._loaded(tmem, address, warp, half_split_offset, cta)["d"]


@dataclass(frozen=True, eq=False, repr=False)
class ReduceTensorMemory(TensorMemoryLoad):
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
        found = self._loaded(tmem, address, warp, half_split_offset, cta)
        return found["d"], found["redval"]

    def _results(self, words: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.uint32]]:
        assert self.row.reduction is not None
        return {"d": words, "redval": self.row.reduction(words)[..., None]}


@dataclass(frozen=True, eq=False, repr=False)
class CompressTensorMemory(TensorMemoryLoad):
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
        return tuple(self._loaded(tmem, address, warp, None, cta).values())

    def _results(self, words: npt.NDArray[np.uint32]) -> dict[str, npt.NDArray[np.uint32]]:
        assert self.row.selection is not None
        metadata, kept = compress(words, 32, 2, self.row.selection)
        found = {"mdata": metadata, "cdata": kept}
        return found if self.row.reduction is None else found | {"redval": self.row.reduction(words)[..., None]}


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
        rows = self._access(np.asarray(address), np.asarray(warp), half_split_offset, call)
        write = self._stored(rows, array, half_split_offset, call)
        new = tmem.copy(broadcast([tmem.batch, array.shape[:-2]], call))
        TensorMemoryView(new, columns_of(self.arch), cta=cta).apply((Outcome(writes=(write,)),), f"{call}: write")
        return new

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The cells are written when the work is finished; tcgen05.wait::st waits for it."""
        rows = self._asked(form, operands, view)
        split = int(operands["half_split_offset"]) if "half_split_offset" in form else None
        done = Outcome(writes=(self._stored(rows, operands["registers"], split, f"{self!r}.effects"),))
        return Effects(pending=(Pending((), (rows,), lambda view: done, lambda outcome: outcome, "tcgen05.st"),))

    def _stored(self, rows: Access, registers: npt.NDArray[np.uint32], split: int | None, call: str) -> Write:
        """What registers (..., 32, n) leave in the rows."""
        width = self.row.half_columns
        if split is not None and abs(int(split)) < width:
            raise OperandError(
                f"{call}: half_split_offset={split}: both halves of {width} columns write the same cells, and which "
                f"stay is not defined; valid: {width} or more"
            )
        array = registers
        if self.row.packed:
            array = np.stack([array & np.uint32(0xFFFF), array >> np.uint32(16)], axis=-1)
        flat = np.empty((*registers.shape[:-2], self._word.size), "<u4")
        flat[..., self._word] = array.reshape(*registers.shape[:-2], *self._word.shape)
        return Write(rows, flat.view(np.uint8).reshape(*registers.shape[:-2], -1, rows.size))
