"""Tiles of matrices in memory, row after row or column after column: what wmma.load and wmma.store read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import AddressError, ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.isa.wmma.accesses import Accesses, accesses
from tcsim.isa.wmma.fragments import TileInstruction
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, View, Write
from tcsim.model.form import Form
from tcsim.model.fragment_codes import codes_of, registers_of
from tcsim.model.operand import Fragment, Space
from tcsim.model.row import check_registers
from tcsim.numbers.packing import pack, unpack


class MisalignedStrideError(AddressError):
    """A stride with which not every row (or column) starts at an address that the instruction takes."""


@dataclass(frozen=True, eq=False, repr=False)
class FragmentMove(TileInstruction):
    """A fragment moved between registers and a tile in memory. A *line* of the tile is a row or a column, contiguous."""

    batched = True
    way: ClassVar[str]  # what happens to the lines: "read from" memory or "written to" it

    @property
    def rules(self) -> tuple[str, ...]:
        """The lines, and what address and stride must be multiples of."""
        bits, taken = self.operand.layout.element_bits, self.alignment
        defined = max(taken, self.documented_alignment)
        manual = f" (by the PTX manual: of {defined} bytes)" if defined > taken else ""
        return (
            f"{self.lines} {self._line}s of {self.line_bytes} bytes {self.way} memory",
            f"address: a multiple of {taken} bytes{manual}",
            f"stride: a multiple of {8 * taken // bits} elements{manual}; without one, {self.default_stride}",
        )

    @cached_property
    def operand(self) -> Fragment:
        """The fragment."""
        (operand,) = self.operands.values()
        return operand

    @property
    def row_major(self) -> bool:
        """Whether a line is a row; else it is a column."""
        return self.row.row_major[self.operand.name]

    @property
    def space(self) -> Space:
        """The state space of the address: "generic", "global", "shared" or "shared::cta"."""
        return self.row.forms[0]["address"].space

    def matrix(self, registers: Any) -> npt.NDArray[Any]:
        """The codes (..., rows, columns) that registers uint32 (..., 32, n) hold: of copies, the first.

        Raises OperandError for another dtype or shape.
        """
        return codes_of(self.operand, registers, f"{self!r}.matrix")

    def registers(self, codes: Any) -> npt.NDArray[np.uint32]:
        """The registers uint32 (..., 32, n) that hold the codes (..., rows, columns), copies included.

        Raises OperandError for another shape, FormatError for another dtype.
        """
        return registers_of(self.operand, codes, f"{self!r}.registers")

    @property
    def lines(self) -> int:
        """The number of rows (or columns, if column-major)."""
        return self.operand.shape[0 if self.row_major else 1]

    @property
    def default_stride(self) -> int:
        """Elements from one line to the next if no stride is given: a line's own, so that the tile is packed."""
        return self.operand.shape[1 if self.row_major else 0]

    @property
    def line_bytes(self) -> int:
        """Bytes of one line."""
        return self.default_stride * self.operand.layout.element_bits // 8

    @cached_property
    def accesses(self) -> Accesses:
        """What it does with memory on its arch."""
        return accesses(self.row, self.arch)

    @property
    def alignment(self) -> int:
        """What the address of every line must be a multiple of, in bytes: the size of one access of the machine code.

        >>> load = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.f16", arch="sm_90")
        >>> shared = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", arch="sm_90")
        >>> load.alignment, shared.alignment
        (4, 16)
        """
        return self.accesses.size

    @property
    def documented_alignment(self) -> int:
        """The alignment of lines with which the PTX manual defines the result: the size of a lane's fragment.

        For f16 lines of 8 elements that is more than its own default stride gives, so a line's size is enough here.

        >>> tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.f16", arch="sm_90").documented_alignment
        32
        """
        return min(4 * self.operand.registers, self.line_bytes)

    def check(self, address: Any, stride: Any = None) -> tuple[str, ...]:
        """What the PTX manual leaves undefined about a place that the hardware takes: a sentence each; none if it is defined.

        Raises what `execute` raises for an address or stride that the hardware does not take.

        >>> load = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", arch="sm_90")
        >>> load.check(0, stride=32)
        ()
        >>> for sentence in load.check(0, stride=24):
        ...     print(sentence)
        stride 24: the PTX manual defines multiples of 16 elements only (32 bytes); the hardware takes multiples of 4 bytes
        """
        call = f"{self!r}.check"
        starts, steps = _integers("address", address, call), self._stride(stride, call)
        broadcast([starts.shape, steps.shape], call)
        self._places(starts, steps, call)
        bits, unit, default = self.operand.layout.element_bits, self.documented_alignment, self.default_stride
        multiples = f"multiples of {8 * unit // bits} elements only ({unit} bytes)"
        found = []
        for start in sorted(set(starts[starts % unit != 0].tolist())):
            found.append(
                f"address {start:#x}: the PTX manual defines multiples of {unit} bytes only; the hardware takes multiples "
                f"of {self.alignment}"
            )
        for step in sorted(set(steps.reshape(-1).tolist())):
            if step * bits % (8 * unit):
                taken = f"the hardware takes multiples of {self.alignment} bytes"
                if step % self.accesses.stride_unit:
                    taken = f"the machine code drops the remainder by {self.accesses.stride_unit} elements"
                    taken += f", except from one block of {self.accesses.block} lines to the next" * self._blocks
                found.append(f"stride {step}: the PTX manual defines {multiples}; {taken}")
            if step < default:
                found.append(f"stride {step}: the PTX manual defines {default} and more; the {self._line}s overlap")
        return tuple(found)

    @property
    def _blocks(self) -> bool:
        """Whether there is more than one block of lines."""
        return 0 < self.accesses.block < self.lines

    def _line_places(
        self, memory: npt.NDArray[np.uint8], address: Any, stride: Any, call: str
    ) -> npt.NDArray[np.int64]:
        """The address of every line (..., lines), checked; `address` and `stride` broadcast."""
        starts, steps = _integers("address", address, call), self._stride(stride, call)
        broadcast([starts.shape, steps.shape], call)
        places, size = self._places(starts, steps, call), memory.shape[-1]
        outside = (places < 0) | (places + self.line_bytes > size)
        if outside.any():
            *_, line = np.argwhere(outside)[0]
            bits = self.operand.layout.element_bits
            raise OutsideMemoryError(
                f"{call}: {self._line} {line} at {int(places[outside][0]):#x}: its {self.line_bytes} bytes do not lie in the "
                f"{size} bytes of memory; a tile takes {self.line_bytes} + {self.lines - 1} * {bits}/8 * stride bytes"
            )
        return places

    def _places(self, starts: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], call: str) -> npt.NDArray[np.int64]:
        """The address of every line (..., lines), as the machine code computes it.

        Raises MisalignedAddressError or MisalignedStrideError for a line at which an access faults.
        """
        unit, bits = self.alignment, self.operand.layout.element_bits
        opcode = self.accesses.opcodes[0][0]
        why = f"{self._line}s of {self.operand.name} start at multiples of {unit} bytes ({opcode} needs that)"
        if (starts % unit != 0).any():
            bad = int(starts[starts % unit != 0].flat[0])
            raise MisalignedAddressError(f"{call}: address={bad:#x}: {why}")
        offsets = self.accesses.offsets(steps, self.lines)
        wrong = (offsets % unit != 0).any(-1)
        if wrong.any():
            bad = int(steps[wrong].flat[0])
            raise MisalignedStrideError(f"{call}: stride={bad}: {why}; valid: multiples of {8 * unit // bits} elements")
        return starts[..., None] + offsets

    def _stride(self, stride: Any, call: str) -> npt.NDArray[np.int64]:
        if stride is None:
            return np.asarray(self.default_stride, np.int64)
        steps = _integers("stride", stride, call)
        if ((steps < 0) | (steps >= 2**32)).any():
            bad = int(steps[(steps < 0) | (steps >= 2**32)].flat[0])
            raise OperandError(f"{call}: stride={bad}: it is an unsigned 32-bit number; valid: 0 to 2**32 - 1 elements")
        return steps

    @property
    def _line(self) -> str:
        return "row" if self.row_major else "column"

    def _access(self, form: Form, operands: Mapping[str, Array]) -> Access:
        """The lines that an instruction with these operands accesses; address and stride are those of the first lane."""
        starts = operands["address"][..., 0].astype(np.int64)
        steps = operands["stride"][..., 0].astype(np.int64) if "stride" in form else np.int64(self.default_stride)
        return self._tile(self._places(starts, np.asarray(steps), f"{self!r}.effects"))

    def _tile(self, places: npt.NDArray[np.int64]) -> Access:
        space: Space = "shared" if self.space == "shared::cta" else self.space
        return Access(space, places, self.line_bytes)


@dataclass(frozen=True, eq=False, repr=False)
class FragmentLoad(FragmentMove):
    """wmma.load: a tile in memory to the registers of a warp."""

    way = "read from"

    def execute(self, memory: Any, address: Any, stride: Any = None) -> npt.NDArray[np.uint32]:
        """Memory in, registers out: uint8 (..., bytes) -> uint32 (..., 32, n).

        address: an int or an array (...) of byte addresses, the warp's pointer. stride: elements from one line to the
        next, an int or an array (...); None is the form without stride, whose tile is packed. Leading dimensions broadcast.

        Places are what the hardware takes, which is more than the PTX manual defines: `check` tells them apart.

        Raises OperandError for another dtype or shape; MisalignedAddressError, MisalignedStrideError or OutsideMemoryError
        for a place at which the instruction faults.

        >>> load = tcsim.instruction("wmma.load.c.sync.aligned.col.m16n16k16.global.f32", arch="sm_90")
        >>> tile = np.arange(16 * 16, dtype=np.float32)
        >>> c = load.execute(memory=tile.view(np.uint8), address=0)
        >>> c.view(np.float32)[0].tolist()  # rows 0 and 8, columns 0, 1, 8 and 9 of a column-major tile
        [0.0, 16.0, 8.0, 24.0, 128.0, 144.0, 136.0, 152.0]
        """
        call = f"{self!r}.execute"
        image = _memory(memory, call)
        lines = self._tile(self._line_places(image, address, stride, call))
        broadcast([image.shape[:-1], lines.address.shape[:-1]], call)
        return self._loaded(Memories({lines.space: image}).read(lines))

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The lines are read, the fragment is written."""
        lines = self._access(form, operands)
        return Effects(Outcome({self.operand.name: self._loaded(view.read(lines))}), reads=(lines,))

    def _loaded(self, lines: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        """Lines uint8 (..., lines, line_bytes) to registers."""
        words = np.ascontiguousarray(lines).view("<u4")
        codes = unpack(words, self.operand.format, self.operand.layout.element_bits)
        return self.registers(codes if self.row_major else codes.swapaxes(-1, -2))


@dataclass(frozen=True, eq=False, repr=False)
class FragmentStore(FragmentMove):
    """wmma.store: the registers of a warp to a tile in memory."""

    way = "written to"

    def execute(self, memory: Any, address: Any, registers: Any, stride: Any = None) -> npt.NDArray[np.uint8]:
        """Memory and registers in, the new memory out: uint8 (..., bytes), uint32 (..., 32, n) -> uint8 (..., bytes).

        address and stride as for wmma.load. Bytes between the lines stay. Leading dimensions broadcast.

        Raises OperandError for another dtype or shape; MisalignedAddressError, MisalignedStrideError or OutsideMemoryError
        for a place at which the instruction faults, ContestedRowError for a stride with which lines overlap.

        >>> store = tcsim.instruction("wmma.store.d.sync.aligned.row.m8n8k4.global.f64", arch="sm_90")
        >>> codes = np.arange(64, dtype=np.float64).reshape(8, 8)
        >>> memory = store.execute(np.zeros(1024, np.uint8), 0, store.registers(codes), stride=10)
        >>> memory.view(np.float64)[6:12].tolist()
        [6.0, 7.0, 0.0, 0.0, 8.0, 9.0]
        """
        call = f"{self!r}.execute"
        image, array = _memory(memory, call), np.asarray(registers)
        check_registers(array, self.operand, call)
        places = self._line_places(image, address, stride, call)
        lines = self._tile(places)
        broadcast([image.shape[:-1], places.shape[:-1], array.shape[:-2]], call)
        return Memories({lines.space: image}, call).after(
            (Outcome(writes=(self._stored(lines, array, stride, call),)),)
        )[lines.space]

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The lines are written. Raises ContestedRowError for a stride with which they overlap."""
        lines = self._access(form, operands)
        stride = operands["stride"][..., 0].tolist() if "stride" in form else None
        write = self._stored(lines, operands[self.operand.name], stride, f"{self!r}.effects")
        return Effects(Outcome(writes=(write,)))

    def _stored(self, lines: Access, registers: npt.NDArray[np.uint32], stride: Any, call: str) -> Write:
        """The bytes (..., lines, line_bytes) that registers leave in the lines of a tile."""
        if (np.diff(np.sort(lines.address, axis=-1), axis=-1) < self.line_bytes).any():
            raise ContestedRowError(
                f"{call}: stride={stride}: {self._line}s of {self.default_stride} elements overlap, and which of them stays is "
                f"not defined; valid: {self.default_stride} and more"
            )
        codes = self.matrix(registers)
        found = np.ascontiguousarray(codes if self.row_major else codes.swapaxes(-1, -2))
        words = pack(found, self.operand.format, self.operand.layout.element_bits).astype("<u4", copy=False)
        return Write(lines, np.ascontiguousarray(words).view(np.uint8))


def _memory(memory: Any, call: str) -> npt.NDArray[np.uint8]:
    array = np.asarray(memory)
    if array.dtype != np.uint8 or array.ndim == 0:
        raise OperandError(f"{call}: memory is {array.dtype} {array.shape}; valid: uint8 (..., bytes)")
    return array


def _integers(name: str, given: Any, call: str) -> npt.NDArray[np.int64]:
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise OperandError(f"{call}: {name} is {array.dtype}; valid: an integer, or an array of integers (...)")
    return array.astype(np.int64)
