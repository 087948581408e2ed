"""Matrices between shared memory and the registers of a warp: what ldmatrix, stmatrix and movmatrix do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import (
    Places,
    byte_memory,
    integer_addresses,
    require_alignment,
    require_inside,
    require_uncontested,
)
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.isa.copies import space_of
from tcsim.isa.matrix.rows import MatrixRow, evidence, loads, lowering, moves, stores
from tcsim.layouts.banks import BankConflicts, bank_conflicts
from tcsim.layouts.layout import FragmentLayout
from tcsim.memory.shared import unpack_rows
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, View, Write
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes

LANES = 32
ALL_ADDRESSES_VALID = ("sm_75",)
"""Archs on which the address of every lane must be valid, even of one that is not used (PTX ISA, section ldmatrix)."""


@dataclass(frozen=True, eq=False, repr=False)
class MatrixMove(Instruction):
    """An instruction whose operands are matrices of codes that are moved, never changed."""

    row: MatrixRow

    def matrix(self, name: str, registers: Any) -> npt.NDArray[Any]:
        """The codes that registers uint32 (..., 32, n) hold of an operand: (..., [matrices,] rows, columns).

        Raises OperandError for another dtype or shape.

        >>> move = tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90")
        >>> lanes = np.arange(32, dtype=np.uint32)[:, None]
        >>> move.matrix("a", lanes | lanes + 100 << 16)[1].tolist()
        [4, 104, 5, 105, 6, 106, 7, 107]
        """
        array = np.asarray(registers)
        check_registers(array, self.operands[name], f"{self!r}.matrix")
        codes = _matrices(array, self.operands[name])
        return codes if codes.shape[-3] > 1 else codes[..., 0, :, :]

    def registers(self, name: str, codes: Any) -> npt.NDArray[np.uint32]:
        """The registers that hold the codes (..., [matrices,] rows, columns) of an operand: inverse of `matrix`.

        Raises OperandError for another shape, FormatError for another dtype.
        """
        operand = self.operands[name]
        array = as_codes(codes, operand.format, f"{self!r}.registers: {name}")
        inner = (operand.layout.matrices, *operand.shape) if operand.layout.matrices > 1 else operand.shape
        if array.shape[-len(inner) :] != inner:
            valid = ", ".join(str(extent) for extent in inner)
            raise OperandError(f"{self!r}.registers: {name} has shape {array.shape}; valid: (..., {valid})")
        stacked = array.reshape(*array.shape[: -len(inner)], operand.layout.matrices, *operand.shape)
        return _registers(stacked, operand)


@dataclass(frozen=True, eq=False, repr=False)
class SharedMatrix(MatrixMove):
    """An instruction that loads or stores rows of matrices, each at the address that one lane gives."""

    batched = True

    way: ClassVar[str]  # "from" memory or "to" it

    @cached_property
    def address_lanes(self) -> int:
        """How many lanes' addresses count: lane i gives the i-th row (with `.trans`: column), matrix after matrix."""
        layout = self._layout
        return layout.matrices * (layout.columns if self.row.transposed else layout.rows)

    @property
    def rules(self) -> tuple[str, ...]:
        """Which lanes give addresses, and what lies there."""
        row, line = self.row.stored, "column" if self.row.transposed else "row"
        lines = [
            f"lanes 0 to {self.address_lanes - 1} give the addresses: lane i that of the i-th {line}, matrix after matrix",
            f"each {line} is {row.elements} elements {self.way} {row.row_bytes} bytes, at a multiple of {row.row_bytes}",
        ]
        if self.arch.name in ALL_ADDRESSES_VALID and self.address_lanes < LANES:
            lines.append(f"on {self.arch.name} the address of every lane must be valid")
        return tuple(lines)

    def bank_conflicts(self, address: Any) -> BankConflicts:
        """What the row addresses (..., 32) cost: the 8 rows of 16 bytes of one matrix are one phase.

        Rows of 8 bytes (s8.s4) are taken as 8-byte accesses, 16 rows a phase. Addresses of lanes that do not count are
        ignored. Source: see `tcsim.bank_conflicts`.

        Raises OperandError, MisalignedAddressError.

        >>> load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_90")
        >>> load.bank_conflicts(np.arange(32) * 64).degree, load.bank_conflicts(np.arange(32) * 80).degree
        (4, 1)
        """
        call = f"{self!r}.bank_conflicts"
        places = self._addresses(address, call)[..., : self.address_lanes]
        require_alignment(places, self.row.stored.row_bytes, self._row_text, call)
        return bank_conflicts(places, self.row.stored.row_bytes, access="matrix")

    @cached_property
    def _layout(self) -> FragmentLayout:
        return next(iter(self.operands.values())).layout

    @cached_property
    def _effects(self) -> str:
        return f"{self!r}.effects"

    @cached_property
    def _row_text(self) -> str:
        return f"a {'column' if self.row.transposed else 'row'} of {self.row.stored.name}"

    def _addresses(self, address: Any, call: str) -> Places:
        places = integer_addresses(address, call)
        if places.shape[-1:] != (LANES,):
            raise OperandError(f"{call}: address has shape {places.shape}; valid: (..., {LANES}), one for each lane")
        return places

    def _access(self, form: Form, address: Any, call: str, memory: int | None = None) -> Access:
        """The rows in memory, one for each lane whose address counts.

        Raises OperandError, MisalignedAddressError, or OutsideMemoryError for rows that do not lie in `memory` bytes.
        """
        places, size = self._addresses(address, call), self.row.stored.row_bytes
        counting, what = places[..., : self.address_lanes], self._row_text
        checked = places if self.arch.name in ALL_ADDRESSES_VALID else counting
        if checked.shape != counting.shape:
            what += f" (on {self.arch.name} the address of every lane must be valid, though {self.address_lanes} count)"
        require_alignment(checked, size, what, call)
        if memory is not None:
            require_inside(checked, size, memory, what, call)
        return Access(space_of(form["address"]), counting, size)


@dataclass(frozen=True, eq=False, repr=False)
class LoadMatrix(SharedMatrix):
    """ldmatrix: rows of shared memory to matrices in registers."""

    heard = False
    way = "from"

    def execute(self, smem: Any, address: Any) -> npt.NDArray[np.uint32]:
        """Load: smem uint8 (..., bytes), whose index is the shared address, and address (..., 32) -> uint32 (..., 32, n).

        Leading dimensions broadcast. Of the addresses, those of the first `address_lanes` lanes count.

        Raises OperandError for another dtype or shape, MisalignedAddressError or OutsideMemoryError for an address that
        the hardware cannot take.

        >>> load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", arch="sm_90")
        >>> smem = np.arange(64, dtype=np.uint16).view(np.uint8)  # an 8 x 8 matrix, row after row
        >>> d = load.execute(smem=smem, address=np.arange(32) % 8 * 16)
        >>> load.matrix("d", d)[0].tolist()  # its first column, since .trans transposes
        [0, 8, 16, 24, 32, 40, 48, 56]
        """
        memory, (form,) = byte_memory(smem, self._call), self.row.forms
        rows = self._access(form, address, self._call, memory.shape[-1])
        broadcast([memory.shape[:-1], rows.address.shape[:-1]], self._call)
        view = Memories({rows.space: memory})
        return self.effects(form, {"address": address}, view).now.registers["d"]

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The rows are read, d is written."""
        rows = self._access(form, operands["address"], self._effects)
        return Effects(Outcome({"d": self._loaded(view.read(rows))}), reads=(rows,))

    def _loaded(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        """Rows (..., address_lanes, row_bytes) to registers (..., 32, n)."""
        codes = unpack_rows(rows, self.row.stored)
        each = self.address_lanes // self._layout.matrices
        lines = codes.reshape(*codes.shape[:-2], self._layout.matrices, each, self.row.stored.elements)
        return _registers(lines.swapaxes(-1, -2) if self.row.transposed else lines, self.operands["d"])


@dataclass(frozen=True, eq=False, repr=False)
class StoreMatrix(SharedMatrix):
    """stmatrix: matrices in registers to rows of shared memory."""

    way = "to"

    def execute(self, smem: Any, address: Any, registers: Any) -> npt.NDArray[np.uint8]:
        """Store: smem uint8 (..., bytes), address (..., 32), registers uint32 (..., 32, n) -> the new smem, a copy.

        Leading dimensions broadcast. Of the addresses, those of the first `address_lanes` lanes count.

        Raises OperandError for another dtype or shape; MisalignedAddressError or OutsideMemoryError for an address that
        the hardware cannot take, ContestedRowError for two different rows at one address.

        >>> store = tcsim.instruction("stmatrix.sync.aligned.m8n8.x1.shared.b16", arch="sm_90")
        >>> registers = store.registers("registers", np.arange(64, dtype=np.uint16).reshape(8, 8))
        >>> smem = store.execute(smem=np.zeros(256, np.uint8), address=np.arange(32) % 8 * 32, registers=registers)
        >>> smem.view(np.uint16)[:24].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0, 8, 9, 10, 11, 12, 13, 14, 15]
        """
        memory, array, (form,) = byte_memory(smem, self._call), np.asarray(registers), self.row.forms
        check_registers(array, self.operands["registers"], self._call)
        rows = self._access(form, address, self._call, memory.shape[-1])
        broadcast([memory.shape[:-1], rows.address.shape[:-1], array.shape[:-2]], self._call)
        view = Memories({rows.space: memory})
        done = self.effects(form, {"address": address, "registers": array}, view).now
        require_uncontested(rows.address, done.writes[0].data, self._call)
        return view.after((done,))[rows.space]

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The rows are written. Of two different rows at one address either may stay."""
        rows = self._access(form, operands["address"], self._effects)
        return Effects(Outcome(writes=(Write(rows, self._rows_of(operands["registers"])),)))

    def stored_rows(self, registers: Any) -> npt.NDArray[np.uint8]:
        """The bytes that go to each lane's address: registers uint32 (..., 32, n) -> uint8 (..., address_lanes, 16).

        Raises OperandError for another dtype or shape.
        """
        array = np.asarray(registers)
        check_registers(array, self.operands["registers"], f"{self!r}.stored_rows")
        return self._rows_of(array)

    def _rows_of(self, registers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
        codes = _matrices(registers, self.operands["registers"])
        lines = np.ascontiguousarray(codes.swapaxes(-1, -2) if self.row.transposed else codes)
        rows = lines.astype(f"<u{lines.dtype.itemsize}").view(np.uint8)
        return rows.reshape(*registers.shape[:-2], self.address_lanes, self.row.stored.row_bytes)


@dataclass(frozen=True, eq=False, repr=False)
class TransposeMatrix(MatrixMove, RegisterInstruction):
    """movmatrix: d is the transpose of a."""

    moves = True

    def execute(self, a: Any) -> npt.NDArray[np.uint32]:
        """Transpose: registers uint32 (..., 32, 1) -> (..., 32, 1).

        Raises OperandError for another dtype or shape.

        >>> move = tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90")
        >>> matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
        >>> d = move.execute(a=move.registers("a", matrix))
        >>> bool((move.matrix("d", d) == matrix.T).all())
        True
        """
        array = np.asarray(a)
        check_registers(array, self.operands["a"], self._call)
        return self.compute(self.row.forms[0], {"a": array})["d"]

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The transpose of a."""
        codes = _matrices(operands["a"], self.operands["a"])
        return {"d": _registers(codes.swapaxes(-1, -2), self.operands["d"])}


def _matrices(registers: npt.NDArray[np.uint32], operand: Fragment) -> npt.NDArray[Any]:
    """Registers (..., 32, n) to codes (..., matrices, rows, columns); the codes fill the registers without padding."""
    layout, batch = operand.layout, registers.shape[:-2]
    values = np.ascontiguousarray(registers, "<u4").view(f"<u{layout.element_bits // 8}")
    ordered = values.reshape(*batch, layout.lanes * layout.value.size).take(layout.flat_holder, axis=-1)
    return ordered.reshape(*batch, layout.matrices, layout.rows, layout.columns)


def _registers(codes: npt.NDArray[Any], operand: Fragment) -> npt.NDArray[np.uint32]:
    """Codes (..., matrices, rows, columns) to registers (..., 32, n)."""
    layout, batch = operand.layout, codes.shape[:-3]
    ordered = codes.reshape(*batch, layout.flat_element.size).take(layout.flat_element, axis=-1)
    values = np.ascontiguousarray(ordered.reshape(*batch, layout.lanes, layout.value.size))
    return values.astype(f"<u{layout.element_bits // 8}", copy=False).view("<u4").astype(np.uint32, copy=False)


FAMILIES = (
    Family("ldmatrix", loads, lowering, evidence, LoadMatrix),
    Family("stmatrix", stores, lowering, evidence, StoreMatrix),
    Family("movmatrix", moves, lowering, evidence, TransposeMatrix),
)
