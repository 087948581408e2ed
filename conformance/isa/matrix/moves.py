"""Exercises of ldmatrix, stmatrix and movmatrix: images of shared memory, addresses of rows, registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.isa.matrix.comparison import compare_loads, compare_moves, compare_stores
from conformance.isa.matrix.mutants import WRONG_LOADS, WRONG_MOVES, WRONG_STORES
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli.stream import Stream
from hwkernels.probes.matrix import LOAD_BYTES, STORE_BYTES
from tcsim.isa.matrix.semantics import (
    ALL_ADDRESSES_VALID,
    LANES,
    LoadMatrix,
    MatrixMove,
    SharedMatrix,
    StoreMatrix,
    TransposeMatrix,
)

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


Place = Callable[[Rows, Stream], npt.NDArray[np.int64]]
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
    place: Place
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


def _stray_possible(instruction: SharedMatrix) -> bool:
    return instruction.address_lanes < LANES and instruction.arch.name not in ALL_ADDRESSES_VALID


def _row_classes(instruction: SharedMatrix) -> list[str]:
    return [item.name for item in CLASSES.values() if not item.stray or _stray_possible(instruction)]


def _bytes(stream: Stream, shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    return stream.words((shape[0], shape[1] // 8)).astype("<u8").view(np.uint8)


class LoadExercise:
    """ldmatrix: an image and addresses in, registers out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_LOADS

    def classes(self, instruction: LoadMatrix) -> list[str]:
        """All, but stray addresses only where lanes are left over and the arch ignores them."""
        return _row_classes(instruction)

    def samples(self, instruction: LoadMatrix, name: str) -> int:
        """A few: each has every element of every matrix."""
        return CLASSES[name].samples

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

    def model(self, instruction: LoadMatrix, inputs: Inputs) -> Registers:
        """Registers (samples, 32, n)."""
        return instruction.execute(**inputs)

    def compare(self, instruction: LoadMatrix, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of every matrix."""
        return compare_loads(instruction, inputs, hardware, model)


class StoreExercise:
    """stmatrix: an image, addresses and registers in, the new image out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_STORES

    def classes(self, instruction: StoreMatrix) -> list[str]:
        """All, but stray addresses only where lanes are left over."""
        return _row_classes(instruction)

    def samples(self, instruction: StoreMatrix, name: str) -> int:
        """A few: each has every element of every matrix."""
        return CLASSES[name].samples

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

    def compare(self, instruction: StoreMatrix, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte of the whole image."""
        return compare_stores(instruction, inputs, hardware, model)


class MoveExercise:
    """movmatrix: registers in, registers out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_MOVES

    def classes(self, instruction: MatrixMove) -> list[str]:
        """Distinct elements, and random ones."""
        return ["identity", "uniform"]

    def samples(self, instruction: MatrixMove, name: str) -> int:
        """A few: each has every element."""
        return 8

    def inputs(self, instruction: MatrixMove, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, 32, 1)."""
        stream = Stream(instruction.mnemonic, name, seed)
        if name == "identity":
            table = np.arange(64).reshape(8, 8) ^ stream.below(2**16, (samples, 1, 1))
            return {"a": instruction.registers("a", table.astype(np.uint16))}
        return {"a": stream.words((samples, LANES, 1)).astype(np.uint32)}

    def model(self, instruction: TransposeMatrix, inputs: Inputs) -> Registers:
        """Registers of d."""
        return instruction.execute(**inputs)

    def compare(self, instruction: MatrixMove, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element."""
        return compare_moves(instruction, inputs, hardware, model)


LOAD = LoadExercise()
STORE = StoreExercise()
MOVE = MoveExercise()

EXERCISES = {"ldmatrix": LOAD, "stmatrix": STORE, "movmatrix": MOVE}
