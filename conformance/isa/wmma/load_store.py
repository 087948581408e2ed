"""Exercises of wmma.load and wmma.store: a memory, an address and a stride for each warp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from conformance.isa.wmma.comparison import compare_loads, compare_stores
from conformance.isa.wmma.mutants import WRONG_LOADS, WRONG_STORES
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli.stream import Stream
from hwkernels.device.driver import POISON
from hwkernels.probes.wmma import MEMORY_BYTES
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore


@dataclass(frozen=True)
class TileClass:
    """A named way to place tiles and to fill them."""

    name: str
    contents: Literal["index", "random", "ramp"]  # the element's index in the tile; every bit; ascending numbers
    stride: Literal["none", "packed", "wide"]  # the form without stride; the default, given; more than that
    offset: bool  # the address is not 0
    samples: int  # 0: as many as the index needs


CLASSES: Mapping[str, TileClass] = {
    item.name: item
    for item in (
        TileClass("identity", "index", "packed", False, 0),
        TileClass("packed", "random", "none", False, 1),
        TileClass("wide", "ramp", "wide", True, 2),
        TileClass("offset", "ramp", "none", True, 1),
    )
}
"""Input classes of wmma.load and wmma.store, in the order they run."""


def _samples(instruction: FragmentMove, name: str) -> int:
    """Warps of a case: for `identity`, one for each part of the element's index that fits an element."""
    bits, elements = instruction.operand.layout.element_bits, instruction.lines * instruction.default_stride
    return CLASSES[name].samples or -(-(elements - 1).bit_length() // bits)


def _places(instruction: FragmentMove, item: TileClass, stream: Stream, samples: int) -> dict[str, Array]:
    """Addresses and strides (samples,): valid, and inside the memory."""
    bits, unit = instruction.operand.layout.element_bits, instruction.alignment
    step = 8 * unit // bits  # elements by which a stride may grow
    growth = step * (1 + np.arange(samples) % 2) if item.stride == "wide" else np.zeros(samples, np.int64)
    stride = instruction.default_stride + growth
    room = MEMORY_BYTES - ((instruction.lines - 1) * stride * bits // 8 + instruction.line_bytes)
    units = (
        1 + (stream.below(2**20, (samples,)) * (room // unit)) // 2**20 if item.offset else np.zeros(samples, np.int64)
    )
    places = {"address": (units * unit).astype(np.uint32)}
    return places if item.stride == "none" else {**places, "stride": stride.astype(np.uint32)}


def _codes(instruction: FragmentMove, item: TileClass, stream: Stream, shape: tuple[int, ...]) -> Array:
    """Codes (samples, ...) of the memory or the tile, counted along the last axes in the order of memory."""
    format, bits = instruction.operand.format, instruction.operand.layout.element_bits
    mask, count = np.uint64((1 << bits) - 1), np.arange(int(np.prod(shape[1:])), dtype=np.uint64).reshape(shape[1:])
    if item.contents == "random" or (item.contents == "ramp" and bits < 8):
        codes = stream.words(shape)
    elif item.contents == "ramp":
        codes = count + stream.words((shape[0],) + (1,) * (len(shape) - 1)) % np.uint64(256)
    else:
        part = np.arange(shape[0], dtype=np.uint64).reshape(-1, *(1,) * (len(shape) - 1)) * np.uint64(bits)
        codes = count >> np.minimum(part, np.uint64(63))
    return (codes & mask).astype(format.dtype)


class LoadExercise:
    """wmma.load: a memory in, registers out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_LOADS

    def classes(self, instruction: FragmentLoad) -> list[str]:
        """All."""
        return list(CLASSES)

    def samples(self, instruction: FragmentLoad, name: str) -> int:
        """One or two, or enough to spell out an index."""
        return _samples(instruction, name)

    def inputs(self, instruction: FragmentLoad, name: str, seed: int, samples: int) -> Inputs:
        """memory uint8 (samples, MEMORY_BYTES), address uint32 (samples,), and stride likewise unless it is left out."""
        item, stream = CLASSES[name], Stream(instruction.mnemonic, name, seed)
        places = _places(instruction, item, stream, samples)
        bits = instruction.operand.layout.element_bits
        codes = _codes(instruction, item, stream, (samples, MEMORY_BYTES * 8 // bits))
        return {"memory": _bytes(codes, bits), **places}

    def model(self, instruction: FragmentLoad, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Registers (samples, 32, n)."""
        return instruction.execute(**inputs)

    def compare(self, instruction: FragmentLoad, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Field by field of the registers, copies included."""
        return compare_loads(instruction, inputs, hardware, model)


class StoreExercise:
    """wmma.store: registers in, a memory out that was full of poison."""

    wrong_models: tuple[WrongModel, ...] = WRONG_STORES

    def classes(self, instruction: FragmentStore) -> list[str]:
        """All."""
        return list(CLASSES)

    def samples(self, instruction: FragmentStore, name: str) -> int:
        """One or two."""
        return _samples(instruction, name)

    def inputs(self, instruction: FragmentStore, name: str, seed: int, samples: int) -> Inputs:
        """registers uint32 (samples, 32, n), address uint32 (samples,), and stride likewise unless it is left out."""
        item, stream = CLASSES[name], Stream(instruction.mnemonic, name, seed)
        places = _places(instruction, item, stream, samples)
        tile = _codes(instruction, item, stream, (samples, instruction.lines, instruction.default_stride))
        codes = tile if instruction.row_major else tile.swapaxes(1, 2)
        return {"registers": instruction.registers(codes), **places}

    def model(self, instruction: FragmentStore, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Words of the memory (samples, MEMORY_BYTES / 4)."""
        memory = instruction.execute(np.full(MEMORY_BYTES, POISON, np.uint8), **inputs)
        return memory.view("<u4").astype(np.uint32, copy=False)

    def compare(self, instruction: FragmentStore, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte of the memory."""
        return compare_stores(instruction, inputs, hardware, model)


def _bytes(codes: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Memory (samples, bytes) that holds codes (samples, elements) of 1, 4, 8 or more bits from the lowest up."""
    if bits >= 8:
        return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view(np.uint8)
    planes = (codes[..., None] >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    packed: Any = np.packbits(planes.reshape(len(codes), -1), axis=-1, bitorder="little")
    return packed


LOAD = LoadExercise()
STORE = StoreExercise()

EXERCISES = {"wmma.load": LOAD, "wmma.store": STORE}
