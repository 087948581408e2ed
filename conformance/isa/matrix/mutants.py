"""Mutants of ldmatrix, stmatrix and movmatrix: mistakes about lanes, rows, order and packing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.testbench import Array, Inputs, Mutant
from tcsim.isa.matrix.semantics import (
    ALL_ADDRESSES_VALID,
    LANES,
    LoadMatrix,
    SharedMatrix,
    StoreMatrix,
    TransposeMatrix,
)
from tcsim.layouts.layout import FragmentLayout
from tcsim.memory.shared import ROW_FORMATS, RowFormat

Registers = npt.NDArray[np.uint32]
Change = Callable[[Any, Array], Array]
"""(instruction, array) -> the array as a mistaken reader takes it."""


def _always(instruction: Any) -> bool:
    return True


def _layout(instruction: SharedMatrix) -> FragmentLayout:
    return next(iter(instruction.operands.values())).layout


# --- mistakes about addresses: (samples, 32) -> (samples, 32)


def _by_lane(source: Callable[[SharedMatrix], Sequence[int]]) -> Change:
    """Lane i's address taken from another lane."""

    def change(instruction: SharedMatrix, address: Array) -> Array:
        lanes = np.arange(LANES)
        given = np.asarray(source(instruction))
        lanes[: len(given)] = given
        return address[:, lanes]

    return change


def _first_for_all(instruction: SharedMatrix) -> list[int]:
    lines = instruction.address_lanes // _layout(instruction).matrices
    return [lane % lines for lane in range(instruction.address_lanes)]


def _next_matrix(instruction: SharedMatrix) -> list[int]:
    used, lines = instruction.address_lanes, instruction.address_lanes // _layout(instruction).matrices
    return [(lane + lines) % used for lane in range(used)]


def _interleaved(instruction: SharedMatrix) -> list[int]:
    """Lanes dealt out to the matrices in turn."""
    matrices = _layout(instruction).matrices
    lines = instruction.address_lanes // matrices
    return [line * matrices + matrix for matrix in range(matrices) for line in range(lines)]


def _last_lanes(instruction: SharedMatrix) -> list[int]:
    return [LANES - instruction.address_lanes + lane for lane in range(instruction.address_lanes)]


def _reversed(instruction: SharedMatrix) -> list[int]:
    lines = instruction.address_lanes // _layout(instruction).matrices
    return [lane // lines * lines + lines - 1 - lane % lines for lane in range(instruction.address_lanes)]


def _rowed(instruction: SharedMatrix, address: Array, memory: int) -> Array:
    """Addresses brought to a row inside the memory, as a mistaken reader may be left with a stray one."""
    unit = instruction.row.stored.row_bytes
    return (address.astype(np.int64) % memory // unit * unit).astype(np.uint32)


def _loads_at(change: Change) -> Callable[[LoadMatrix, Inputs], Registers]:
    def run(instruction: LoadMatrix, inputs: Inputs) -> Registers:
        smem = inputs["smem"]
        moved = _rowed(instruction, change(instruction, inputs["address"]), smem.shape[1])
        return instruction.execute(smem=smem, address=moved)

    return run


def _stores_at(change: Change) -> Callable[[StoreMatrix, Inputs], Registers]:
    def run(instruction: StoreMatrix, inputs: Inputs) -> Registers:
        moved = _rowed(instruction, change(instruction, inputs["address"]), inputs["smem"].shape[1])
        return _stored(instruction, inputs["smem"], moved, inputs["registers"])

    return run


def _stored(instruction: StoreMatrix, smem: Array, address: Array, registers: Array) -> Registers:
    """stmatrix, the last lane's row staying where several have one address."""
    out, rows = smem.copy(), instruction.stored_rows(registers)
    samples, each = np.arange(len(out))[:, None], np.arange(rows.shape[-1])
    for lane in range(instruction.address_lanes):
        out[samples, address[:, lane, None].astype(np.int64) + each] = rows[:, lane]
    return out.view("<u4")


def _one_row_on(instruction: SharedMatrix, address: Array) -> Array:
    return address + np.uint32(instruction.row.stored.row_bytes)


ADDRESS_MISTAKES: tuple[tuple[str, str, Callable[[SharedMatrix], bool], Change], ...] = (
    ("first lanes for all", "the first matrix's lanes give the addresses of all matrices",
     lambda i: _layout(i).matrices > 1, _by_lane(_first_for_all)),
    ("next matrix's lanes", "a matrix takes the addresses of the lanes of the next one",
     lambda i: _layout(i).matrices > 1, _by_lane(_next_matrix)),
    ("lanes interleaved", "the lanes are dealt out to the matrices in turn",
     lambda i: _layout(i).matrices > 1, _by_lane(_interleaved)),
    ("last lanes", "the last lanes' addresses count, not the first ones'",
     lambda i: i.address_lanes < LANES and i.arch.name not in ALL_ADDRESSES_VALID, _by_lane(_last_lanes)),
    ("rows reversed", "lane 0 gives the last row", _always, _by_lane(_reversed)),
    ("one row on", "the address points behind the row", _always, _one_row_on),
)  # fmt: skip
"""(name, mistake, applies, change) for instructions that take addresses."""


# --- mistakes about registers: (samples, 32, n) -> (samples, 32, n)


def _halves_swapped(instruction: Any, registers: Array) -> Array:
    return (registers << np.uint32(16)) | (registers >> np.uint32(16))


def _bytes_reversed(instruction: Any, registers: Array) -> Array:
    return np.ascontiguousarray(registers, np.uint32).byteswap()


def _registers_reversed(instruction: Any, registers: Array) -> Array:
    return np.ascontiguousarray(registers[..., ::-1])


def _in_order(order: Sequence[int]) -> Change:
    return lambda instruction, registers: np.ascontiguousarray(registers[..., list(order)])


def _lanes_by_column(instruction: Any, registers: Array) -> Array:
    lane = np.arange(LANES)
    return registers[:, lane % 8 * 4 + lane // 8]


REGISTER_MISTAKES: tuple[tuple[str, str, Callable[[Any], bool], Change], ...] = (
    ("register halves swapped", "the 16-bit halves of a register change places", _always, _halves_swapped),
    ("register bytes reversed", "the first element is in the highest byte", _always, _bytes_reversed),
    ("registers reversed", "the first matrix is in the last register",
     lambda i: _layout(i).registers > 1, _registers_reversed),
    ("matrices in pairs swapped", "the second matrix is in the first register, the fourth in the third",
     lambda i: _layout(i).registers == 4, _in_order((1, 0, 3, 2))),
    ("middle matrices swapped", "the registers hold matrices 0, 2, 1, 3 (or the halves of two matrices in turn)",
     lambda i: _layout(i).registers == 4, _in_order((0, 2, 1, 3))),
    ("lanes by column", "eight neighbouring lanes share a column of words, not four a row", _always,
     _lanes_by_column),
)  # fmt: skip
"""(name, mistake, applies, change) for all instructions."""


# --- mistakes about rows


def _transposition_flipped(instruction: Any) -> Any:
    return replace(instruction, row=replace(instruction.row, transposed=not instruction.row.transposed))


def _square(instruction: SharedMatrix) -> bool:
    return _layout(instruction).rows == _layout(instruction).columns


def _trans_ignored(instruction: SharedMatrix) -> bool:
    return _square(instruction) and instruction.row.transposed


def _trans_assumed(instruction: SharedMatrix) -> bool:
    return _square(instruction) and not instruction.row.transposed


def _with_format(change: Callable[[RowFormat], RowFormat]) -> Callable[[LoadMatrix, Inputs], Registers]:
    def run(instruction: LoadMatrix, inputs: Inputs) -> Registers:
        row = replace(instruction.row, stored=change(instruction.row.stored))
        return replace(instruction, row=row).execute(**inputs)

    return run


def _packed(instruction: LoadMatrix) -> bool:
    """Elements narrower than their containers."""
    return instruction.row.stored.bits < instruction.row.stored.container_bits


def _padded(instruction: LoadMatrix) -> bool:
    kind = instruction.row.stored
    return kind.bits * kind.elements < 8 * kind.row_bytes


def _on_smem(change: Callable[[LoadMatrix, Array], Array]) -> Callable[[LoadMatrix, Inputs], Registers]:
    """The image changed before the load."""
    return lambda i, inputs: i.execute(smem=change(i, inputs["smem"]), address=inputs["address"])


def _nibbles_swapped(instruction: LoadMatrix, smem: Array) -> Array:
    return (smem << np.uint8(4)) | (smem >> np.uint8(4))


def _padding_first(instruction: LoadMatrix, smem: Array) -> Array:
    """The elements at the end of each row, behind the padding."""
    kind = instruction.row.stored
    rows = smem.reshape(len(smem), -1, kind.row_bytes)
    return np.roll(rows, kind.bits * kind.elements // 8, axis=-1).reshape(smem.shape)


def _shifted(instruction: LoadMatrix, registers: Array) -> Array:
    """Codes two bits up in their bytes: where mma wants fp4."""
    return (registers << np.uint32(2)) & np.uint32(0xFCFCFCFC)


# --- the three families


def _after(change: Change) -> Callable[[Any, Inputs], Registers]:
    """The right result, its registers misread."""
    return lambda instruction, inputs: change(instruction, instruction.execute(**inputs))


def _before(change: Change) -> Callable[[StoreMatrix, Inputs], Registers]:
    """The right store of misread registers."""

    def run(instruction: StoreMatrix, inputs: Inputs) -> Registers:
        registers = change(instruction, inputs["registers"])
        return _stored(instruction, inputs["smem"], inputs["address"], registers)

    return run


def _flipped_store(instruction: StoreMatrix, inputs: Inputs) -> Registers:
    return _stored(_transposition_flipped(instruction), inputs["smem"], inputs["address"], inputs["registers"])


def _cleared(instruction: StoreMatrix, inputs: Inputs) -> Registers:
    return _stored(instruction, np.zeros_like(inputs["smem"]), inputs["address"], inputs["registers"])


def _first_matrix_only(instruction: StoreMatrix, inputs: Inputs) -> Registers:
    lines = instruction.address_lanes // _layout(instruction).matrices
    out = instruction.execute(**inputs)
    places = inputs["address"][:, lines : instruction.address_lanes, None].astype(np.int64)
    index = (places + np.arange(instruction.row.stored.row_bytes)).reshape(len(out), -1)
    np.put_along_axis(out, index, np.take_along_axis(inputs["smem"], index, axis=1), axis=1)
    return out.view("<u4")


LOAD_MUTANTS = (
    Mutant("trans ignored", ".trans has no effect", _trans_ignored,
           lambda i, inputs: _transposition_flipped(i).execute(**inputs)),
    Mutant("trans assumed", "the matrix is transposed without .trans", _trans_assumed,
           lambda i, inputs: _transposition_flipped(i).execute(**inputs)),
    *(Mutant(name, mistake, applies, _loads_at(change)) for name, mistake, applies, change in ADDRESS_MISTAKES),
    *(Mutant(name, mistake, applies, _after(change)) for name, mistake, applies, change in REGISTER_MISTAKES),
    Mutant("not unpacked", "the row's bytes go to the registers as they are",
           lambda i: _packed(i) and i.row.stored.row_bytes == ROW_FORMATS["b8"].row_bytes,
           _with_format(lambda format: ROW_FORMATS["b8"])),
    Mutant("nibbles swapped", "the first element is in the upper half of a byte",
           lambda i: i.row.stored.bits == 4, _on_smem(_nibbles_swapped)),
    Mutant("padding first", "the padding stands before the elements", _padded, _on_smem(_padding_first)),
    Mutant("codes two bits up", "fp4 lands in bits 5:2 of its byte, fp6 in bits 7:2", _packed, _after(_shifted)),
    Mutant("zero-extended", "the sign is not extended", lambda i: i.row.stored.signed,
           _with_format(lambda format: replace(format, signed=False))),
    Mutant("sign-extended", "codes are taken as signed", lambda i: _packed(i) and not i.row.stored.signed,
           _with_format(lambda format: replace(format, signed=True))),
)  # fmt: skip
"""Every mutant of ldmatrix."""

STORE_MUTANTS = (
    Mutant("trans ignored", ".trans has no effect", _trans_ignored, _flipped_store),
    Mutant("trans assumed", "the matrix is transposed without .trans", _trans_assumed, _flipped_store),
    *(Mutant(name, mistake, applies, _stores_at(change)) for name, mistake, applies, change in ADDRESS_MISTAKES),
    *(Mutant(name, mistake, applies, _before(change)) for name, mistake, applies, change in REGISTER_MISTAKES),
    Mutant("rest cleared", "bytes that no row covers become zero", _always, _cleared),
    Mutant("first matrix only", "only the first matrix is stored", lambda i: _layout(i).matrices > 1,
           _first_matrix_only),
)  # fmt: skip
"""Every mutant of stmatrix."""


def _not_transposed(instruction: TransposeMatrix, inputs: Inputs) -> Registers:
    return inputs["a"]


MOVE_MUTANTS = (
    Mutant("not transposed", "d is a", lambda i: True, _not_transposed),
    *(
        Mutant(name, mistake, applies, _after(change))
        for name, mistake, applies, change in REGISTER_MISTAKES
        if applies is _always
    ),
)
"""Every mutant of movmatrix."""
