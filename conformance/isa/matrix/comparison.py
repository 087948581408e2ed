"""Where hardware and model disagree about a moved matrix, and what to print of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.comparison.moved import LIMIT, MoveMismatch, require_same_shape
from conformance.slice import Array, Comparison, Inputs
from tcsim.isa.matrix.semantics import LoadMatrix, MatrixMove, SharedMatrix, StoreMatrix
from tcsim.model.operand import Fragment


def compare_loads(instruction: LoadMatrix, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
    """Registers of ldmatrix, element by element.

    Raises ValueError if the shapes differ.
    """
    operand = instruction.operands["d"]

    def explain(sample: int, matrix: int, row: int, column: int, bits: tuple[str, str]) -> MoveMismatch:
        lane, index = _address_lane(instruction, matrix, row, column)
        address = int(inputs["address"][sample, lane])
        line = inputs["smem"][sample, address : address + instruction.row.stored.row_bytes]
        kind = instruction.row.stored
        return MoveMismatch(
            f"sample {sample} {_holder(operand, matrix, row, column)}",
            f"element {index} of the {_line_word(instruction)} at {address:#x} (lane {lane}), bytes {line.tobytes().hex()}",
            *bits,
            (
                f"matrix {matrix}, row {row}, column {column}: {_provenance(instruction, lane, index)}",
                f"{kind.name}: element {index} is bits {index * kind.bits} to {(index + 1) * kind.bits - 1} of those bytes"
                + (", sign-extended" if kind.signed else ""),
            ),
        )

    return _compare_registers(instruction, operand, hardware, model, explain)


def compare_moves(instruction: MatrixMove, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
    """Registers of movmatrix, element by element.

    Raises ValueError if the shapes differ.
    """
    a, d = instruction.operands["a"], instruction.operands["d"]

    def explain(sample: int, matrix: int, row: int, column: int, bits: tuple[str, str]) -> MoveMismatch:
        return MoveMismatch(
            f"sample {sample} {_holder(d, matrix, row, column)}",
            f"row {column}, column {row} of a in {_holder(a, matrix, column, row)}",
            *bits,
            (f"d[{row}][{column}] = a[{column}][{row}]",),
        )

    return _compare_registers(instruction, d, hardware, model, explain)


def compare_stores(instruction: StoreMatrix, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
    """The image that stmatrix leaves, byte by byte.

    Raises ValueError if the shapes differ.
    """
    require_same_shape(hardware, model)
    got, want = (np.ascontiguousarray(array, "<u4").view(np.uint8) for array in (hardware, model))
    different = np.argwhere(got != want)
    first = []
    for sample, address in different[:LIMIT]:
        bits = f"{got[sample, address]:#04x}", f"{want[sample, address]:#04x}"
        first.append(_store_mismatch(instruction, inputs, int(sample), int(address), bits))
    return Comparison(got.size, len(different), tuple(first))


def _store_mismatch(
    instruction: StoreMatrix, inputs: Inputs, sample: int, address: int, bits: tuple[str, str]
) -> MoveMismatch:
    kind, operand = instruction.row.stored, instruction.operands["registers"]
    places = inputs["address"][sample, : instruction.address_lanes].astype(np.int64)
    lanes = np.flatnonzero((places <= address) & (address < places + kind.row_bytes))
    where, before = f"sample {sample} address {address:#x}", f"before {inputs['smem'][sample, address]:#04x}"
    if not lanes.size:
        return MoveMismatch(where, f"no row covers it, {before}", *bits, ("a byte that no row covers stays",))
    lane = int(lanes[-1])
    index = int(address - places[lane]) * 8 // kind.bits
    matrix, row, column = _element(instruction, lane, index)
    return MoveMismatch(
        where,
        f"element {index} of the {_line_word(instruction)} at {places[lane]:#x} (lane {lane}), {before}, "
        f"from {_holder(operand, matrix, row, column)}",
        *bits,
        (f"matrix {matrix}, row {row}, column {column}: {_provenance(instruction, lane, index)}",),
    )


def _compare_registers(
    instruction: MatrixMove,
    operand: Fragment,
    hardware: Array,
    model: Array,
    explain: Callable[[int, int, int, int, tuple[str, str]], MoveMismatch],
) -> Comparison:
    require_same_shape(hardware, model)
    shape = (-1, operand.layout.matrices, *operand.shape)
    got, want = (
        instruction.matrix(operand.name, np.asarray(array, np.uint32)).reshape(shape) for array in (hardware, model)
    )
    different = np.argwhere(got != want)
    digits = operand.format.bits // 4 + 2
    first = []
    for place in different[:LIMIT]:
        sample, matrix, row, column = (int(i) for i in place)
        bits = tuple(f"{int(array[sample, matrix, row, column]):#0{digits}x}" for array in (got, want))
        first.append(explain(sample, matrix, row, column, (bits[0], bits[1])))
    return Comparison(got.size, len(different), tuple(first))


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


def _holder(operand: Fragment, matrix: int, row: int, column: int) -> str:
    lane, register, slot = operand.layout.where(row, column, matrix)
    return f"lane {lane} register {register} slot {slot} (matrix {matrix}, row {row}, column {column})"


def _line_word(instruction: SharedMatrix) -> str:
    return "column" if instruction.row.transposed else "row"


def _provenance(instruction: SharedMatrix, lane: int, index: int) -> str:
    word = _line_word(instruction)
    note = ".trans: an address points to a column" if instruction.row.transposed else "an address points to a row"
    return f"{note}; the {word} of lane {lane}, element {index}"
