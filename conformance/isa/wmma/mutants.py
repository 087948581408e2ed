"""Mutants of wmma.load and wmma.store: plausible mistakes that the committed cases must be able to see.

They compute addresses on their own, one bit position for each element, and wrap around the end of the memory, so that a
mistake never ends in an error instead of a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from conformance.testbench import Array, Inputs, Mutant
from hwkernels.device.driver import POISON
from hwkernels.probes.wmma import MEMORY_BYTES
from tcsim.core.targets import ARCHS
from tcsim.isa.wmma.fragments import accumulator, fragment_layout
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore
from tcsim.layouts.layout import FragmentLayout
from tcsim.numbers.packing import pack, unpack

Codes = npt.NDArray[np.unsignedinteger]
Place = Callable[[FragmentMove, Inputs], npt.NDArray[np.int64]]
"""The bit position of every element: (samples, rows, columns)."""


# --- places


def _positions(
    instruction: FragmentMove, address: Array, stride: Array, row_major: bool, stride_bits: int | None = None
) -> npt.NDArray[np.int64]:
    bits = instruction.operand.layout.element_bits
    row, column = np.indices(instruction.operand.shape)
    line, place = (row, column) if row_major else (column, row)
    steps = stride.astype(np.int64)[:, None, None] * (stride_bits or bits)
    return address.astype(np.int64)[:, None, None] * 8 + line * steps + place * bits


def _strides(instruction: FragmentMove, inputs: Inputs, default: int | None = None) -> Array:
    if "stride" in inputs:
        return inputs["stride"]
    return np.full(len(inputs["address"]), default or instruction.default_stride)


def _right(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    return _positions(instruction, inputs["address"], _strides(instruction, inputs), instruction.row_major)


def _flipped(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    default = instruction.operand.shape[0 if instruction.row_major else 1]
    stride = _strides(instruction, inputs, default)
    return _positions(instruction, inputs["address"], stride, not instruction.row_major)


def _stride_in_bytes(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    default = instruction.line_bytes
    stride = _strides(instruction, inputs, default)
    return _positions(instruction, inputs["address"], stride, instruction.row_major, stride_bits=8)


def _stride_ignored(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    stride = np.full(len(inputs["address"]), instruction.default_stride)
    return _positions(instruction, inputs["address"], stride, instruction.row_major)


def _address_ignored(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    zero = np.zeros_like(inputs["address"])
    return _positions(instruction, zero, _strides(instruction, inputs), instruction.row_major)


def _other_default(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    stride = _strides(instruction, inputs, instruction.lines)
    return _positions(instruction, inputs["address"], stride, instruction.row_major)


def _rows_exchanged(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    rows = np.arange(instruction.operand.shape[0]) ^ 8
    return _right(instruction, inputs)[:, rows]


def _columns_exchanged(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    columns = np.arange(instruction.operand.shape[1]) ^ 8
    return _right(instruction, inputs)[:, :, columns]


def _neighbours_exchanged(instruction: FragmentMove, inputs: Inputs) -> npt.NDArray[np.int64]:
    bits = instruction.operand.layout.element_bits
    return _right(instruction, inputs) ^ bits  # addresses are multiples of more than one element


# --- registers


def _codes_of(registers: Array, instruction: FragmentMove, layout: FragmentLayout) -> Codes:
    values = unpack(np.ascontiguousarray(registers), instruction.operand.format, layout.element_bits)
    return values.reshape(len(registers), -1)[:, layout.flat_holder].reshape(-1, *instruction.operand.shape)


def _registers_of(codes: Codes, instruction: FragmentMove, layout: FragmentLayout) -> npt.NDArray[np.uint32]:
    values = codes.reshape(len(codes), -1)[:, layout.flat_element].reshape(len(codes), layout.lanes, -1)
    return pack(values, instruction.operand.format, layout.element_bits).astype(np.uint32, copy=False)


def _halves_swapped(instruction: FragmentMove, registers: Array) -> Array:
    return (registers << np.uint32(16)) | (registers >> np.uint32(16))


def _registers_swapped(instruction: FragmentMove, registers: Array) -> Array:
    """PTX registers 0 and 1, which take two words each for f64."""
    width = instruction.operand.registers // instruction.operand.count
    order = np.arange(registers.shape[-1])
    order[: 2 * width] = np.roll(order[: 2 * width], width)
    return registers[..., order]


def _words_swapped(instruction: FragmentMove, registers: Array) -> Array:
    return registers[..., np.arange(registers.shape[-1]) ^ 1]


def _copies_empty(instruction: FragmentMove, registers: Array) -> Array:
    kept = registers.shape[-1] // instruction.operand.layout.copies
    return np.where(np.arange(registers.shape[-1]) < kept, registers, np.uint32(0))


# --- loads and stores


def _gather(instruction: FragmentMove, inputs: Inputs, positions: npt.NDArray[np.int64]) -> Codes:
    """The codes at bit positions (samples, rows, columns)."""
    bits, format = instruction.operand.layout.element_bits, instruction.operand.format
    octets = positions[..., None] // 8 + np.arange(max(1, bits // 8))
    flat = np.take_along_axis(inputs["memory"], octets.reshape(len(octets), -1) % MEMORY_BYTES, axis=1)
    found = flat.reshape(octets.shape).astype(np.uint64) << (8 * np.arange(octets.shape[-1], dtype=np.uint64))
    code = found.sum(axis=-1, dtype=np.uint64) >> (positions % 8).astype(np.uint64)
    return (code & np.uint64((1 << bits) - 1)).astype(format.dtype)


def _scatter(instruction: FragmentMove, codes: Codes, positions: npt.NDArray[np.int64], poison: int) -> Array:
    """A memory of poison with codes at bit positions; whole bytes."""
    size = instruction.operand.layout.element_bits // 8
    octets = (positions[..., None] // 8 + np.arange(size)) % MEMORY_BYTES
    memory = np.full((len(codes), MEMORY_BYTES), poison, np.uint8)
    written = np.ascontiguousarray(codes.astype(f"<u{size}")).view(np.uint8).reshape(len(codes), -1)
    np.put_along_axis(memory, octets.reshape(len(octets), -1), written, axis=1)
    return memory.view("<u4").astype(np.uint32, copy=False)


def _load(place: Place) -> Callable[[FragmentLoad, Inputs], Array]:
    def run(instruction: FragmentLoad, inputs: Inputs) -> Array:
        codes = _gather(instruction, inputs, place(instruction, inputs))
        return _registers_of(codes, instruction, instruction.operand.layout)

    return run


def _store(place: Place, poison: int = POISON) -> Callable[[FragmentStore, Inputs], Array]:
    def run(instruction: FragmentStore, inputs: Inputs) -> Array:
        codes = _codes_of(inputs["registers"], instruction, instruction.operand.layout)
        return _scatter(instruction, codes, place(instruction, inputs), poison)

    return run


Change = Callable[[FragmentMove, Array], Array]
"""A change of the registers (samples, 32, n)."""


def _load_changed(change: Change) -> Callable[[FragmentLoad, Inputs], Array]:
    return lambda instruction, inputs: change(instruction, _load(_right)(instruction, inputs))


def _store_changed(change: Change) -> Callable[[FragmentStore, Inputs], Array]:
    def run(instruction: FragmentStore, inputs: Inputs) -> Array:
        changed = change(instruction, inputs["registers"])
        return _store(_right)(instruction, {**inputs, "registers": changed})

    return run


Layout = Callable[[FragmentMove], FragmentLayout]


def _load_laid_out(layout: Layout) -> Callable[[FragmentLoad, Inputs], Array]:
    def run(instruction: FragmentLoad, inputs: Inputs) -> Array:
        return _registers_of(
            _gather(instruction, inputs, _right(instruction, inputs)), instruction, layout(instruction)
        )

    return run


def _store_laid_out(layout: Layout) -> Callable[[FragmentStore, Inputs], Array]:
    def run(instruction: FragmentStore, inputs: Inputs) -> Array:
        codes = _codes_of(inputs["registers"], instruction, layout(instruction))
        return _scatter(instruction, codes, _right(instruction, inputs), POISON)

    return run


def _volta(instruction: FragmentMove) -> FragmentLayout:
    operand = instruction.operand
    return fragment_layout(operand.name, instruction.shape, operand.format, instruction.row_major, ARCHS["sm_70"])


def _untransposed(instruction: FragmentMove) -> FragmentLayout:
    return accumulator(*instruction.operand.shape, instruction.operand.layout.element_bits, transposed=False)


# --- where a mistake can show


def _always(instruction: FragmentMove) -> bool:
    return True


def _not_bytes(instruction: FragmentMove) -> bool:
    return instruction.operand.layout.element_bits != 8


def _not_square(instruction: FragmentMove) -> bool:
    return instruction.operand.shape[0] != instruction.operand.shape[1]


def _narrow(instruction: FragmentMove) -> bool:
    return instruction.operand.layout.element_bits <= 16


def _volta_differs(instruction: FragmentMove) -> bool:
    quad_pairs = instruction.shape[2] == 16 and instruction.operand.format.name in ("f16", "f32")
    return quad_pairs and instruction.arch.number >= 75


def _is_transposed(instruction: FragmentMove) -> bool:
    layout = instruction.operand.layout
    return instruction.operand.name in "cd" and layout.columns == 32 and layout.thread.stride == (2, layout.rows)


_PLACES: tuple[tuple[str, str, Callable[[FragmentMove], bool], Place], ...] = (
    ("order flipped", "row for column, column for row", _always, _flipped),
    ("stride in bytes", "the stride counts bytes", _not_bytes, _stride_in_bytes),
    ("stride ignored", "the tile is always packed", _always, _stride_ignored),
    ("address ignored", "the tile is always at address 0", _always, _address_ignored),
    ("other default", "without a stride, that of the other order is taken", _not_square, _other_default),
    ("rows exchanged", "rows r and r + 8 change places", lambda i: i.operand.shape[0] >= 16, _rows_exchanged),
    ("columns exchanged", "columns c and c + 8 change places", lambda i: i.operand.shape[1] >= 16, _columns_exchanged),
    ("neighbours exchanged", "elements next to each other in memory change places", _always, _neighbours_exchanged),
)

_CHANGES: tuple[tuple[str, str, Callable[[FragmentMove], bool], Change], ...] = (
    ("halves swapped", "the 16-bit halves of registers change places", _narrow, _halves_swapped),
    ("registers swapped", "the first two registers change places", lambda i: i.operand.count >= 2,
     _registers_swapped),
    ("words swapped", "the words of f64 registers change places", lambda i: i.operand.format.bits == 64, _words_swapped),
)  # fmt: skip

_LAYOUTS: tuple[tuple[str, str, Callable[[FragmentMove], bool], Layout], ...] = (
    ("Volta's fragment", "the layout of sm_70", _volta_differs, _volta),
    ("not transposed", "m8n32k16 laid out like the other shapes", _is_transposed, _untransposed),
)

LOAD_MUTANTS = (
    *(Mutant(name, mistake, applies, _load(place)) for name, mistake, applies, place in _PLACES),
    *(Mutant(name, mistake, applies, _load_changed(change)) for name, mistake, applies, change in _CHANGES),
    *(Mutant(name, mistake, applies, _load_laid_out(layout)) for name, mistake, applies, layout in _LAYOUTS),
    Mutant("copies empty", "each element is loaded into its first place only",
           lambda i: i.operand.layout.copies > 1 and not i.operand.layout.copies_in_lanes, _load_changed(_copies_empty)),
)  # fmt: skip
"""Mutants of wmma.load."""

STORE_MUTANTS = (
    *(Mutant(name, mistake, applies, _store(place)) for name, mistake, applies, place in _PLACES),
    *(Mutant(name, mistake, applies, _store_changed(change)) for name, mistake, applies, change in _CHANGES),
    *(Mutant(name, mistake, applies, _store_laid_out(layout)) for name, mistake, applies, layout in _LAYOUTS),
    Mutant("memory cleared", "bytes around the tile become zero", _always, _store(_right, poison=0)),
)
"""Mutants of wmma.store."""
