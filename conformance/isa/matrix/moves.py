"""ldmatrix, stmatrix and movmatrix under test: images of shared memory, addresses of rows, registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.comparison import Comparison, Expected, Place, check_shapes, compare_moved, place_text
from conformance.isa.matrix.mutants import LOAD_MUTANTS, MOVE_MUTANTS, STORE_MUTANTS
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Testbench
from hwkernels.probes.matrix import LOAD_BYTES, STORE_BYTES
from tcsim.isa.matrix.semantics import ALL_ADDRESSES_VALID, LANES, LoadMatrix, MatrixMove, SharedMatrix, StoreMatrix
from tcsim.model.operand import Fragment

Registers = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Rows:
    """What a class needs to know to place rows in a memory."""

    instruction: SharedMatrix
    samples: int
    memory: int  # bytes

    @property
    def unit(self) -> int:
        """Bytes of a row."""
        return self.instruction.row.stored.row_bytes

    @property
    def lines(self) -> int:
        """Rows that fit into the memory."""
        return self.memory // self.unit

    @property
    def used(self) -> int:
        """Lanes whose addresses count."""
        return self.instruction.address_lanes


Placement = Callable[[Rows, Stream], npt.NDArray[np.int64]]
"""The line of memory of each row: (samples, used)."""


def sequential(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """Row after row without gaps, from a random line on."""
    start = stream.below(rows.lines - rows.used + 1, (rows.samples, 1))
    return start + np.arange(rows.used)


def pitched(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """Row after row at a distance of 1 to 8 rows, or as much as the memory has room for."""
    pitch = 1 + stream.below(min(8, rows.lines // rows.used), (rows.samples, 1))
    slack = rows.lines - pitch * rows.used
    start = (stream.below(2**20, (rows.samples, 1)) * (slack + 1)) >> 20
    return start + pitch * np.arange(rows.used)


def scattered(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """Different random lines."""
    return np.argsort(stream.words((rows.samples, rows.lines)), axis=1)[:, : rows.used]


def permuted(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """Neighbouring lines in a random order."""
    start = stream.below(rows.lines - rows.used + 1, (rows.samples, 1))
    return start + np.argsort(stream.words((rows.samples, rows.used)), axis=1)


def few(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """Four lines for all rows: most of them share one."""
    lines = np.argsort(stream.words((rows.samples, rows.lines)), axis=1)[:, :4]
    return np.take_along_axis(lines, stream.below(4, (rows.samples, rows.used)), axis=1)


def last(rows: Rows, stream: Stream) -> npt.NDArray[np.int64]:
    """The last lines of the memory, from the very last one down, lanes rotated."""
    turn = stream.below(rows.used, (rows.samples, 1))
    return rows.lines - 1 - (np.arange(rows.used) + turn) % rows.used


@dataclass(frozen=True)
class RowClass:
    """A named way to place rows and to fill what is moved."""

    name: str
    place: Placement
    contents: str  # of the matrices: "distinct" elements, "random" ones, or rows that are "shared" by one address
    background: str  # of the rest of stmatrix's memory: "plain" (one byte a sample) or "random"
    samples: int
    stray: bool = False  # addresses of lanes that do not count are arbitrary


CLASSES: Mapping[str, RowClass] = {
    item.name: item
    for item in (
        RowClass("identity", sequential, "distinct", "plain", 2),
        RowClass("uniform", pitched, "random", "random", 3),
        RowClass("scattered", scattered, "random", "plain", 4),
        RowClass("permuted", permuted, "random", "plain", 4),
        RowClass("overlapping", few, "shared", "plain", 4),
        RowClass("ignored", scattered, "random", "plain", 4, stray=True),
        RowClass("end", last, "random", "plain", 3),
    )
}
"""Input classes of ldmatrix and stmatrix, in the order they run."""


def _addresses(rows: Rows, lines: npt.NDArray[np.int64], item: RowClass, stream: Stream) -> npt.NDArray[np.uint32]:
    """Byte addresses (samples, 32): lanes that do not count repeat those that do, or are stray."""
    address = (lines * rows.unit)[:, np.arange(LANES) % rows.used].astype(np.uint32)
    if item.stray:
        address[:, rows.used :] = stream.words((rows.samples, LANES - rows.used)).astype(np.uint32)
    return address


def _bytes(stream: Stream, shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    return stream.words((shape[0], shape[1] // 8)).astype("<u8").view(np.uint8)


class _Rows(Testbench):
    """What ldmatrix and stmatrix share."""

    def classes(self, instruction: SharedMatrix) -> list[str]:
        """All, but stray addresses only where lanes are left over and the arch ignores them."""
        stray = instruction.address_lanes < LANES and instruction.arch.name not in ALL_ADDRESSES_VALID
        return [item.name for item in CLASSES.values() if not item.stray or stray]

    def samples(self, instruction: SharedMatrix, name: str) -> int:
        """A few: each has every element of every matrix."""
        return CLASSES[name].samples


class _Elements(Testbench):
    """What ldmatrix and movmatrix share: registers of d, compared element by element."""

    def compare(self, instruction: MatrixMove, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """The elements (samples, matrices, rows, columns)."""
        check_shapes(hardware, model)
        d = instruction.operands["d"]
        shape = (-1, d.layout.matrices, *d.shape)
        got, want = (
            instruction.matrix("d", np.asarray(array, np.uint32)).reshape(shape) for array in (hardware, model)
        )
        digits = f"#0{d.format.bits // 4 + 2}x"
        return compare_moved(instruction, got, want, lambda place: self.explain(instruction, inputs, place), digits)


class LoadTestbench(_Rows, _Elements):
    """ldmatrix: an image and addresses in, registers (samples, 32, n) out."""

    mutants = LOAD_MUTANTS

    def inputs(self, instruction: LoadMatrix, name: str, seed: int, samples: int) -> Inputs:
        """smem uint8 (samples, bytes), address uint32 (samples, 32)."""
        item, rows = CLASSES[name], Rows(instruction, samples, LOAD_BYTES)
        stream = Stream(instruction.mnemonic, name, seed)
        lines = item.place(rows, stream)
        address = _addresses(rows, lines, item, stream)
        if item.contents == "distinct":  # every 16-bit element of the image is another one
            image = np.arange(LOAD_BYTES // 2, dtype="<u2") ^ stream.below(2**16, (samples, 1)).astype("<u2")
            return {"smem": image.view(np.uint8), "address": address}
        return {"smem": _bytes(stream, (samples, LOAD_BYTES)), "address": address}

    def explain(self, instruction: LoadMatrix, inputs: Inputs, place: Place) -> Expected:
        """An element of a matrix."""
        sample, matrix, row, column = place
        lane, index = _address_lane(instruction, matrix, row, column)
        address, kind = int(inputs["address"][sample, lane]), instruction.row.stored
        line = inputs["smem"][sample, address : address + kind.row_bytes]
        bits = (
            f"{kind.name}: element {index} is bits {index * kind.bits} to {(index + 1) * kind.bits - 1} of those bytes"
        )
        return Expected(
            {"sample": sample, **_holder(instruction.operands["d"], matrix, row, column)},
            f"element {index} of the {_line_word(instruction)} at {address:#x} (lane {lane}), bytes {line.tobytes().hex()}",
            (
                f"{_element_text(matrix, row, column)}: {_provenance(instruction, lane, index)}",
                bits + (", sign-extended" if kind.signed else ""),
            ),
            _element_text(matrix, row, column),
        )


class StoreTestbench(_Rows):
    """stmatrix: an image, addresses and registers in, the new image out."""

    bytewise = True
    mutants = STORE_MUTANTS

    def inputs(self, instruction: StoreMatrix, name: str, seed: int, samples: int) -> Inputs:
        """smem uint8 (samples, bytes), address uint32 (samples, 32), registers uint32 (samples, 32, n)."""
        item, rows = CLASSES[name], Rows(instruction, samples, STORE_BYTES)
        stream = Stream(instruction.mnemonic, name, seed)
        lines = item.place(rows, stream)
        address = _addresses(rows, lines, item, stream)
        registers = self._registers(instruction, item, lines, stream)
        smem = _bytes(stream, (samples, STORE_BYTES))
        if item.background == "plain":
            smem = np.repeat(smem[:, :1], STORE_BYTES, axis=1)
        return {"smem": smem, "address": address, "registers": registers}

    @staticmethod
    def _registers(
        instruction: StoreMatrix, item: RowClass, lines: npt.NDArray[np.int64], stream: Stream
    ) -> npt.NDArray[np.uint32]:
        operand, samples = instruction.operands["registers"], len(lines)
        codes = (operand.layout.matrices, *operand.shape)
        if item.contents == "distinct":
            table = np.arange(np.prod(codes)).reshape(codes) + 256 * np.arange(1, samples + 1)[:, None, None, None]
            array = table.astype(operand.format.dtype)
            return instruction.registers("registers", array if codes[0] > 1 else array[:, 0])
        if item.contents == "shared":  # rows of one address have the same elements
            elements = instruction.row.stored.elements
            noise = stream.words((samples, int(lines.max()) + 1, elements)).astype(operand.format.dtype)
            stacked = np.take_along_axis(noise, lines[..., None], axis=1).reshape(samples, codes[0], -1, elements)
            array = stacked.swapaxes(-1, -2) if instruction.row.transposed else stacked
            return instruction.registers("registers", array if codes[0] > 1 else array[:, 0])
        return stream.words((samples, operand.lanes, operand.registers)).astype(np.uint32)

    def model(self, instruction: StoreMatrix, inputs: Inputs) -> Registers:
        """The new image as words (samples, bytes / 4)."""
        return instruction.execute(**inputs).view("<u4")

    def explain(self, instruction: StoreMatrix, inputs: Inputs, place: Place) -> Expected:
        """A byte of the image."""
        sample, address = place
        kind, operand = instruction.row.stored, instruction.operands["registers"]
        places = inputs["address"][sample, : instruction.address_lanes].astype(np.int64)
        lanes = np.flatnonzero((places <= address) & (address < places + kind.row_bytes))
        where = {"sample": sample, "address": hex(address)}
        before = f"before {inputs['smem'][sample, address]:#04x}"
        if not lanes.size:
            return Expected(where, f"no row covers it, {before}", ("a byte that no row covers stays",))
        lane = int(lanes[-1])
        index = int(address - places[lane]) * 8 // kind.bits
        element = _element(instruction, lane, index)
        holder = place_text(_holder(operand, *element), _element_text(*element))
        return Expected(
            where,
            f"element {index} of the {_line_word(instruction)} at {places[lane]:#x} (lane {lane}), {before}, "
            f"from {holder}",
            (f"{_element_text(*element)}: {_provenance(instruction, lane, index)}",),
        )


class MoveTestbench(_Elements):
    """movmatrix: registers in, registers out."""

    names, count = ("identity", "uniform"), 8  # distinct elements, and random ones
    mutants = MOVE_MUTANTS

    def inputs(self, instruction: MatrixMove, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, 32, 1)."""
        stream = Stream(instruction.mnemonic, name, seed)
        if name == "identity":
            table = np.arange(64).reshape(8, 8) ^ stream.below(2**16, (samples, 1, 1))
            return {"a": instruction.registers("a", table.astype(np.uint16))}
        return {"a": stream.words((samples, LANES, 1)).astype(np.uint32)}

    def explain(self, instruction: MatrixMove, inputs: Inputs, place: Place) -> Expected:
        """An element of the matrix."""
        sample, matrix, row, column = place
        a, d = instruction.operands["a"], instruction.operands["d"]
        holder = place_text(_holder(a, matrix, column, row), _element_text(matrix, column, row))
        return Expected(
            {"sample": sample, **_holder(d, matrix, row, column)},
            f"row {column}, column {row} of a in {holder}",
            (f"d[{row}][{column}] = a[{column}][{row}]",),
            _element_text(matrix, row, column),
        )


# --- elements of matrices


def _address_lane(instruction: SharedMatrix, matrix: int, row: int, column: int) -> tuple[int, int]:
    """The lane that gives the address of an element's row (or column), and its index in there."""
    lines = instruction.address_lanes // next(iter(instruction.operands.values())).layout.matrices
    line, index = (column, row) if instruction.row.transposed else (row, column)
    return matrix * lines + line, index


def _element(instruction: SharedMatrix, lane: int, index: int) -> tuple[int, int, int]:
    """Matrix, row and column of an element of the row (or column) whose address a lane gives."""
    lines = instruction.address_lanes // next(iter(instruction.operands.values())).layout.matrices
    matrix, line = divmod(lane, lines)
    return (matrix, index, line) if instruction.row.transposed else (matrix, line, index)


def _holder(operand: Fragment, matrix: int, row: int, column: int) -> dict[str, int]:
    return dict(zip(("lane", "register", "slot"), operand.layout.where(row, column, matrix), strict=True))


def _element_text(matrix: int, row: int, column: int) -> str:
    return f"matrix {matrix}, row {row}, column {column}"


def _line_word(instruction: SharedMatrix) -> str:
    return "column" if instruction.row.transposed else "row"


def _provenance(instruction: SharedMatrix, lane: int, index: int) -> str:
    word = _line_word(instruction)
    note = ".trans: an address points to a column" if instruction.row.transposed else "an address points to a row"
    return f"{note}; the {word} of lane {lane}, element {index}"
