"""Matrices where a stopped launch has them: fragments in registers, tiles in shared memory, Tensor Memory. Plain data with a text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, shortened
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, Swizzle
from tcsim.model.statement import Operand, Register, Vector
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.formats import format as find_format
from tcsim.ptx.compile.compiled import Compiled, Site
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Memory
from tcsim.ptx.stepping import text
from tcsim.ptx.stepping.arrays import Named
from tcsim.ptx.stepping.state import Shown, refused
from tcsim.ptx.text.fitting import apart
from tcsim.ptx.text.syntax import unscoped
from tcsim.tma.box import WALK
from tcsim.tma.map import TensorMap

_TENSOR_FORMATS = {
    "UINT8": "u8", "INT32": "s32", "FLOAT16": "f16", "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16", "FLOAT32_FTZ": "f32",
    "TFLOAT32": "tf32", "TFLOAT32_FTZ": "tf32",
}  # fmt: skip
"""Formats of the elements of a tensor map; of a type that is not here the bits are shown."""


Extent = tuple[int, int]
"""The first, and the one behind the last."""
MOST_ELEMENTS = 1 << 16
"""Elements of a tile, or of an array in global memory, that is shown."""


@dataclass(frozen=True)
class Matrix(Shown):
    """A matrix and where its elements are.

    values: decoded. codes: their bits. places: for each element where it lies: "%r4 lane 5 [15:0]", or a byte address.
    """

    name: str  # "A", "D", "tile"
    title: str  # what it is, in words
    format: str
    values: tuple[tuple[Any, ...], ...]
    codes: tuple[tuple[int, ...], ...]
    places: tuple[tuple[str, ...], ...] = field(repr=False, default=())

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.values), len(self.values[0]) if self.values else 0

    def element(self, row: int, column: int) -> dict[str, Any]:
        """One element: its name, value, bits and place."""
        return {
            "name": f"{self.name}[{row}, {column}]", "value": self.values[row][column], "code": self.codes[row][column],
            "place": self.places[row][column],
        }  # fmt: skip

    def lines(self, rows: int = 64) -> list[str]:
        """The title, then the values with the numbers of rows and columns."""
        cells = [[text.number(value) for value in line] for line in self.values]
        named = [f"{self.name}[{row}]" if not row else f"[{row}]" for row in range(len(cells))]
        columns = [str(column) for column in range(self.shape[1])]
        return [*(text.cut(line) for line in self.title.split("\n")), *text.matrix(cells, named, columns, most=rows)]


def _matrix(name: str, title: str, format: Format | None, codes: Array, places: Sequence[Sequence[str]]) -> Matrix:
    values = decode(codes, format) if format is not None else codes
    return Matrix(
        name, title, format.name if format else f"b{codes.dtype.itemsize * 8}",
        tuple(tuple(line) for line in values.tolist()), tuple(tuple(line) for line in codes.tolist()),
        tuple(tuple(line) for line in places),
    )  # fmt: skip


# --- fragments


def at_line(program: Compiled, line: int) -> tuple[Site, Bound]:
    """The instruction of the catalog at a line of PTX. Raises OperandError if none is there."""
    site = next((own for own in program.names.values() if isinstance(own, Site) and own.item.line == line), None)
    bound = next((own for own in program.names.values() if isinstance(own, Bound) and own.line == line), None)
    if site is None or bound is None:
        lines = sorted({own.line for own in program.names.values() if isinstance(own, Bound) and own.model.operands})
        what = f"line {line} has {site.item.opcode}" if site else f"line {line} has no instruction"
        raise OperandError(f"fragment: {what}; valid: an instruction on matrices: lines {listing(lines) or 'none'}")
    return site, bound


def operands_of(site: Site, bound: Bound) -> dict[str, Operand]:
    """What an instruction of the catalog has for each operand of its form."""
    return dict(zip(bound.form.names, (operand for operand, _ in apart(site.item.operands)), strict=False))


def registers_of(site: Site, operand: Operand) -> list[int | None]:
    """The registers of a vector or of one register, by number; None for what is not one."""
    return [site.numbers[own.name] if isinstance(own, Register) else None for own in items_of(operand)]


def words_of(numbers: Sequence[int | None], rows: Mapping[int, Array] | Sequence[Array], threads: slice) -> Array:
    """Registers as 32-bit words (lanes, words); a 64-bit one is two, low first; what is not a register is zero."""
    count = threads.stop - threads.start
    parts = []
    for number in numbers:
        row = np.zeros(count, np.uint32) if number is None else np.ascontiguousarray(rows[number][threads])
        words = row.view(np.uint32) if row.dtype.itemsize >= 4 else row.astype(np.uint32)
        parts.append(words.reshape(count, -1))
    return np.concatenate(parts, axis=1)


def fragment(block: Block, line: int, name: str, warp: int, format: str | Format | None = None) -> Matrix:
    """An operand of a tensor instruction as the matrix that it is.

    Raises OperandError for a line without such an instruction, and for an operand that is not a matrix.
    """
    site, bound = at_line(block.program, line)
    operands, key = operands_of(site, bound), name.lower()
    operand = bound.model.operands.get(key)
    described = isinstance(bound.model, WarpgroupMultiply) and key in ("a", "b") and key in operands
    if described and bound.form[key].type == ".b64":
        return _described(block, site, bound, key, warp)
    if operand is None or key not in operands:
        valid = [own for own in operands if own in bound.model.operands] or ["none"]
        what = f"fragment: line {line}, {bound.model.mnemonic}: no matrix {shortened(name)}"
        raise refused(what, listing(valid))
    lanes = max(bound.lanes, LANES)
    first = warp * LANES // lanes * lanes
    words = words_of(registers_of(site, operands[key]), block.registers, slice(first, first + lanes))
    found = np.asarray(bound.model.matrix(operand.name, words))
    codes = found.reshape(-1, found.shape[-1])  # several matrices one below the other
    names = [unscoped(own.name) if isinstance(own, Register) else "-" for own in items_of(operands[key])]
    known = operand.format if format is None else find_format(format)
    if known.container_bits != operand.format.container_bits:
        raise OperandError(f"fragment: elements of {operand.format.name} as {known.name}; valid: formats as wide")
    unit = "warpgroup" if lanes > LANES else "warp"
    where = f"{unit} {first // lanes}, {text.block(block.index)}"
    title = f"{operand.name.upper()} of line {line}, {where}: {known.name}\n{bound.model.mnemonic}"
    places = _places(operand.layout, names)
    return _matrix(operand.name.upper(), title, known, codes.astype(known.dtype, copy=False), places)


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a vector; of anything else itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _places(layout: FragmentLayout, names: Sequence[str]) -> list[list[str]]:
    wide = 2 if layout.element_bits > 32 else 1

    def place(row: int, column: int, matrix: int) -> str:
        lane, register, slot = layout.where(row, column, matrix)
        low = slot * layout.element_bits
        bits = f" [{low + layout.element_bits - 1}:{low}]" if layout.slots > 1 else ""
        return f"{names[register // wide]} lane {lane}{bits}"

    lines = product(range(layout.matrices), range(layout.rows))
    return [[place(row, column, matrix) for column in range(layout.columns)] for matrix, row in lines]


def _described(block: Block, site: Site, bound: Bound, name: str, warp: int) -> Matrix:
    """A matrix of wgmma behind a descriptor."""
    assert isinstance(bound.model, WarpgroupMultiply)
    operands, row = operands_of(site, bound), bound.model.row
    (number,) = registers_of(site, operands[name])
    if number is None:
        raise OperandError(f"fragment: line {site.item.line}: operand {name} is not a register")
    descriptor = MatrixDescriptor.decode(int(block.registers[number][warp * LANES]), arch=block.arch)
    m, n, k = row.shape
    trans = operands.get(f"trans_{name}")
    major: Major = "MN" if getattr(trans, "value", 0) else "K"
    depth = bound.model.operands["a"].shape[1] if name == "a" else k
    rows, format = m if name == "a" else n, bound.model.formats[name]
    return tile(block, descriptor, rows, depth, format, major=major, name=name.upper())


# --- tiles in shared memory


def tile(
    block: Block, what: int | MatrixDescriptor | TensorMap | Layout, rows: int | None = None, columns: int | None = None,
    format: str | Format | None = None, *, address: int = 0, swizzle: str = "NONE", pitch: int | None = None, major: Major = "K",
    name: str = "tile",
) -> Matrix:  # fmt: skip
    """Shared memory as the matrix that it is: behind a matrix descriptor, as a box of a tensor map, by a layout, or row after row.

    what: a MatrixDescriptor; a TensorMap whose box lies at `address`; a Layout in elements from `address` on; or an address, then rows
    are `pitch` bytes apart, packed if left out. swizzle: what the bytes of a layout or of rows went through.
    Raises OperandError for what does not fit, or lies outside the block's shared memory.
    """
    known = find_format(format) if format is not None else None
    if isinstance(what, TensorMap):
        known = known or (FORMATS[_TENSOR_FORMATS[what.data_type]] if what.data_type in _TENSOR_FORMATS else None)
        if what.type.packed or what.slice_bytes:
            raise OperandError(f"shared: a box of {what}; valid: whole elements without interleave")
        lines, size = prod(what.box_dim[1:]), what.type.shared_bytes
        box = WALK.shared_bytes(what, lines, np.array(address)).reshape(lines, -1)
        addresses = box[:, ::size][:, : what.box_dim[0]]
        return _tile(block, addresses, known, size, f"box of {what} at {address:#x}, swizzle {what.swizzle}", name)
    if known is None or ((rows is None or columns is None) and not isinstance(what, Layout)):
        raise OperandError("shared: a tile has rows, columns and a format; valid: all three")
    rows, columns, size = rows or 0, columns or 0, known.container_bits // 8
    if isinstance(what, MatrixDescriptor):
        said = f"tile at {what.start_address:#x}, swizzle {what.swizzle}, {major}-major, LBO {what.leading_byte_offset}, SBO {what.stride_byte_offset}"
        return _tile(block, what.addresses(rows, columns, known, major), known, size, said, name)
    count = what.size if isinstance(what, Layout) else rows * columns
    if not 0 < count <= MOST_ELEMENTS:
        raise OperandError(f"shared: a tile of {count} elements; valid: 1 to {MOST_ELEMENTS}")
    swizzled = _swizzle(swizzle)
    if isinstance(what, Layout):
        first = what.shape if isinstance(what.shape, int) else what.shape[0]
        index = what(np.arange(what.size)).reshape(-1, Layout(first).size).T
        plain, said = address + size * index, f"{what} at {address:#x}"
    else:
        step = columns * size if pitch is None else pitch
        plain = what + np.arange(rows)[:, None] * step + np.arange(columns) * size
        said = f"rows of {step} bytes at {what:#x}"
    return _tile(block, swizzled(plain), known, size, f"{said}, swizzle {swizzle}", name)


def _swizzle(name: str) -> Swizzle:
    if name not in DESCRIPTOR_SWIZZLES:
        raise refused(f"shared: no swizzle {shortened(name)}", listing(DESCRIPTOR_SWIZZLES))
    return DESCRIPTOR_SWIZZLES[name]


def _tile(block: Block, addresses: Array, format: Format | None, size: int, said: str, name: str) -> Matrix:
    outside = (addresses < 0) | (addresses + size > block.spaces.shared.size)
    if outside.any():
        first, room = int(addresses[outside].flat[0]), block.spaces.shared.size
        raise refused(f"shared: {size} bytes at {first:#x} of {room}", "inside the block's shared memory")
    title = f"{name}: {said}" + (f", {format.name}" if format is not None else "")
    return _stored(name, title, format, block.spaces.shared.data, addresses, size, addresses)


def _stored(
    name: str, title: str, format: Format | None, data: Array, offsets: Array, size: int, addresses: Array
) -> Matrix:
    """Elements of some bytes each, from where they begin in data; addresses: what is said of where they lie."""
    codes = np.ascontiguousarray(data[offsets[..., None] + np.arange(size)]).view(f"u{size}")[..., 0]
    places = [[f"{address:#x}" for address in line] for line in addresses.tolist()]
    return _matrix(name, title, format, codes if format is None else codes.astype(format.dtype, copy=False), places)


@dataclass(frozen=True)
class Octets(Shown):
    """Bytes of shared memory."""

    address: int
    data: bytes
    swizzle: str = "NONE"

    def lines(self) -> list[str]:
        """Sixteen bytes a line."""
        return list(text.octets(np.frombuffer(self.data, np.uint8), self.address))

    def as_dict(self) -> dict[str, Any]:
        """The bytes in hexadecimal."""
        return {"address": self.address, "swizzle": self.swizzle, "bytes": self.data.hex()}


def octets(block: Block, address: int, size: int, swizzle: str) -> Octets:
    """Bytes of shared memory, in the order in which they were before a swizzle. Raises OperandError for bytes outside it."""
    swizzled = _swizzle(swizzle)
    inside = 0 <= size <= block.spaces.shared.size and 0 <= address <= block.spaces.shared.size
    places = np.asarray(swizzled(address + np.arange(size if inside else 0)))
    if not inside or (places >= block.spaces.shared.size).any():
        raise OperandError(f"shared: {size} bytes at {address:#x}; valid: 0 to {block.spaces.shared.size - 1:#x}")
    return Octets(address, block.spaces.shared.data[places].tobytes(), swizzle)


def in_global_memory(memory: Memory, own: Named) -> Matrix:
    """An array of global memory."""
    if prod(own.shape) > MOST_ELEMENTS:
        raise refused(f"{own.name} has {prod(own.shape)} elements", f"up to {MOST_ELEMENTS}; Memory.read has all")
    index = np.indices(own.shape).reshape(len(own.shape), -1)
    offsets = (index * np.array(own.strides)[:, None]).sum(0).reshape(-1, own.shape[-1])
    data = memory.read(own.start, int(offsets.max()) + own.size)
    kind = own.format.name if own.format else f"b{8 * own.size}"
    title = f"{own.name} at {own.start:#x}: {' x '.join(map(str, own.shape))} {kind}"
    return _stored(own.name, title, own.format, data, offsets, own.size, own.start + offsets)


# --- Tensor Memory


def tensor_memory(block: Block, lanes: Extent, columns: Extent, format: str) -> Matrix:
    """Cells of Tensor Memory: lanes are rows; of a 16-bit format two elements a column.

    Raises OperandError for cells that there are not, and a format that does not fill cells.
    """
    known = find_format(format)
    total = block.spaces.columns.columns
    if not (0 <= lanes[0] < lanes[1] <= 128 and 0 <= columns[0] < columns[1] <= total):
        valid = f"up to 128 lanes, {total} columns, first below last"
        raise refused(f"tmem: lanes {lanes}, columns {columns}", valid)
    if known.bits != known.container_bits or known.bits > 32:
        raise OperandError(f"tmem: {known.name} does not fill cells of 32 bits; valid: f32, s32, f16, bf16, u8, ...")
    cells = block.spaces.image().data.view(np.uint32).reshape(128, total)[slice(*lanes), slice(*columns)]
    codes = np.ascontiguousarray(cells).view(known.dtype)
    each = 4 // known.dtype.itemsize
    cells_of_row = range(columns[0] * each, columns[0] * each + codes.shape[1])
    places = [[f"lane {lane} column {place // each}" for place in cells_of_row] for lane in range(*lanes)]
    title = f"Tensor Memory of {text.block(block.index)}, lanes {lanes[0]} to {lanes[1] - 1}, columns {columns[0]} to {columns[1] - 1}: {known.name}"
    return _matrix("TMEM", title, known, codes, places)
