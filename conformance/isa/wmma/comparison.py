"""Where hardware and model disagree about a fragment moved from or to memory, and what to print of it."""

from __future__ import annotations

import numpy as np

from conformance.comparison.moved import LIMIT, MoveMismatch, require_same_shape
from conformance.slice import Array, Comparison, Inputs
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore
from tcsim.numbers.packing import unpack


def compare_loads(instruction: FragmentLoad, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
    """Registers of wmma.load, field by field, every copy of an element.

    Raises ValueError if the shapes differ.
    """
    require_same_shape(hardware, model)
    operand = instruction.operand
    bits = operand.layout.element_bits
    got, want = (unpack(np.ascontiguousarray(x, np.uint32), operand.format, bits) for x in (hardware, model))
    different = np.argwhere(got != want)
    first = []
    for sample, lane, value in different[:LIMIT].tolist():
        row, column = divmod(
            int(operand.layout.flat_element[lane * operand.layout.value.size + value]), operand.shape[1]
        )
        line, place = (row, column) if instruction.row_major else (column, row)
        text, at = _address(instruction, inputs, sample, line, place)
        found = inputs["memory"][sample, at : at + max(1, bits // 8)].tobytes().hex()
        first.append(
            MoveMismatch(
                f"sample {sample} {_holder(bits, lane, value)}",
                f"row {row}, column {column} at {at:#x} (bytes {found})",
                f"{int(got[sample, lane, value]):#x}",
                f"{int(want[sample, lane, value]):#x}",
                (text,),
            )
        )
    return Comparison(got.size, len(different), tuple(first))


def compare_stores(instruction: FragmentStore, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
    """The memory that wmma.store leaves, byte by byte.

    Raises ValueError if the shapes differ.
    """
    require_same_shape(hardware, model)
    got, want = (np.ascontiguousarray(array, "<u4").view(np.uint8) for array in (hardware, model))
    different = np.argwhere(got != want)
    first = []
    for sample, at in different[:LIMIT].tolist():
        source, steps = _stored(instruction, inputs, sample, at)
        bits = f"{got[sample, at]:#04x}", f"{want[sample, at]:#04x}"
        first.append(MoveMismatch(f"sample {sample} address {at:#x}", source, *bits, steps))
    return Comparison(got.size, len(different), tuple(first))


def _holder(bits: int, lane: int, value: int) -> str:
    return f"lane {lane} register {value * bits // 32}" + (f" slot {value % (32 // bits)}" if bits < 32 else "")


def _stride(instruction: FragmentMove, inputs: Inputs, sample: int) -> int:
    return int(inputs["stride"][sample]) if "stride" in inputs else instruction.default_stride


def _address(instruction: FragmentMove, inputs: Inputs, sample: int, line: int, place: int) -> tuple[str, int]:
    """How the address of an element comes about, and the byte where it begins."""
    bits, start = instruction.operand.layout.element_bits, int(inputs["address"][sample])
    stride = _stride(instruction, inputs, sample)
    at = start + (line * stride + place) * bits // 8
    return f"address {start:#x} + ({line} * stride {stride} + {place}) * {bits} bits = {at:#x}", at


def _stored(instruction: FragmentStore, inputs: Inputs, sample: int, at: int) -> tuple[str, tuple[str, ...]]:
    """Which element covers a byte, and why."""
    operand, size = instruction.operand, instruction.operand.layout.element_bits // 8
    stride = _stride(instruction, inputs, sample)
    line, rest = divmod(at - int(inputs["address"][sample]), stride * size)
    if not (0 <= line < instruction.lines and rest < instruction.line_bytes):
        return "no element covers it", ("a byte outside the lines of the tile stays",)
    place = rest // size
    row, column = (line, place) if instruction.row_major else (place, line)
    lane, register, slot = operand.layout.where(row, column)
    text, begin = _address(instruction, inputs, sample, line, place)
    source = f"byte {at - begin} of row {row}, column {column} from lane {lane} register {register}"
    return source + (f" slot {slot}" if size < 4 else ""), (text,)
