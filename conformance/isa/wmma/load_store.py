"""wmma.load and wmma.store under test: a memory, an address and a stride for each warp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from conformance.comparison import Comparison, Expected, Place, check_shapes, compare_moved
from conformance.isa.wmma.mutants import LOAD_MUTANTS, STORE_MUTANTS
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Testbench
from hwkernels.device.driver import POISON
from hwkernels.probes.wmma import MEMORY_BYTES
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore
from tcsim.numbers.packing import unpack


@dataclass(frozen=True)
class TileClass:
    """A named way to place tiles and to fill them."""

    name: str
    contents: Literal["index", "random", "ramp"]  # the element's index in the tile; every bit; ascending numbers
    stride: Literal["none", "packed", "wide"]  # the form without stride; the default, given; more than that
    offset: bool  # the address is not 0
    samples: int  # 0: enough to spell out the index


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


def _places(instruction: FragmentMove, item: TileClass, stream: Stream, samples: int) -> dict[str, Array]:
    """Addresses and strides (samples,): valid, and inside the memory."""
    bits = instruction.operand.layout.element_bits
    unit = max(
        instruction.alignment, instruction.documented_alignment
    )  # taken by the hardware and defined by the manual
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


class _Tiles(Testbench):
    """What wmma.load and wmma.store share."""

    names = tuple(CLASSES)

    def samples(self, instruction: FragmentMove, name: str) -> int:
        """One or two; for `identity`, one for each part of the element's index that fits an element."""
        bits, elements = instruction.operand.layout.element_bits, instruction.lines * instruction.default_stride
        return CLASSES[name].samples or -(-(elements - 1).bit_length() // bits)


class LoadTestbench(_Tiles):
    """wmma.load: a memory in, registers (samples, 32, n) out."""

    mutants = LOAD_MUTANTS

    def inputs(self, instruction: FragmentLoad, name: str, seed: int, samples: int) -> Inputs:
        """memory uint8 (samples, MEMORY_BYTES), address uint32 (samples,), and stride likewise unless it is left out."""
        item, stream = CLASSES[name], Stream(instruction.mnemonic, name, seed)
        places = _places(instruction, item, stream, samples)
        bits = instruction.operand.layout.element_bits
        codes = _codes(instruction, item, stream, (samples, MEMORY_BYTES * 8 // bits))
        return {"memory": _bytes(codes, bits), **places}

    def compare(self, instruction: FragmentLoad, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Field by field of the registers, every copy of an element."""
        check_shapes(hardware, model)
        format, bits = instruction.operand.format, instruction.operand.layout.element_bits
        got, want = (unpack(np.ascontiguousarray(x, np.uint32), format, bits) for x in (hardware, model))
        return compare_moved(instruction, got, want, lambda place: self.explain(instruction, inputs, place), "#x")

    def explain(self, instruction: FragmentLoad, inputs: Inputs, place: Place) -> Expected:
        """A field of a register."""
        (sample, lane, value), layout = place, instruction.operand.layout
        bits, element = layout.element_bits, int(layout.flat_element[lane * layout.value.size + value])
        row, column = divmod(element, instruction.operand.shape[1])
        text, at = _address(instruction, inputs, sample, row, column)
        found = inputs["memory"][sample, at : at + max(1, bits // 8)].tobytes().hex()
        where = {"sample": sample, "lane": lane, "register": value * bits // 32}
        where |= {"slot": value % (32 // bits)} if bits < 32 else {}
        return Expected(where, f"row {row}, column {column} at {at:#x} (bytes {found})", (text,))


class StoreTestbench(_Tiles):
    """wmma.store: registers in, a memory out that was full of poison."""

    bytewise = True
    mutants = STORE_MUTANTS

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

    def explain(self, instruction: FragmentStore, inputs: Inputs, place: Place) -> Expected:
        """A byte of the memory: which element covers it."""
        sample, at = place
        where = {"sample": sample, "address": hex(at)}
        operand, size = instruction.operand, instruction.operand.layout.element_bits // 8
        line, rest = divmod(at - int(inputs["address"][sample]), _stride(instruction, inputs, sample) * size)
        if not (0 <= line < instruction.lines and rest < instruction.line_bytes):
            return Expected(where, "no element covers it", ("a byte outside the lines of the tile stays",))
        row, column = (line, rest // size) if instruction.row_major else (rest // size, line)
        lane, register, slot = operand.layout.where(row, column)
        text, begin = _address(instruction, inputs, sample, row, column)
        source = f"byte {at - begin} of row {row}, column {column} from lane {lane} register {register}"
        return Expected(where, source + (f" slot {slot}" if size < 4 else ""), (text,))


def _stride(instruction: FragmentMove, inputs: Inputs, sample: int) -> int:
    return int(inputs["stride"][sample]) if "stride" in inputs else instruction.default_stride


def _address(instruction: FragmentMove, inputs: Inputs, sample: int, row: int, column: int) -> tuple[str, int]:
    """How the address of an element comes about, and the byte where it begins."""
    line, place = (row, column) if instruction.row_major else (column, row)
    bits, start = instruction.operand.layout.element_bits, int(inputs["address"][sample])
    stride = _stride(instruction, inputs, sample)
    at = start + (line * stride + place) * bits // 8
    return f"address {start:#x} + ({line} * stride {stride} + {place}) * {bits} bits = {at:#x}", at


def _bytes(codes: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Memory (samples, bytes) that holds codes (samples, elements) of 1, 4, 8 or more bits from the lowest up."""
    if bits >= 8:
        return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view(np.uint8)
    planes = (codes[..., None] >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    packed: Any = np.packbits(planes.reshape(len(codes), -1), axis=-1, bitorder="little")
    return packed
