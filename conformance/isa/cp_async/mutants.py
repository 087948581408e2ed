"""Named wrong models of asynchronous copies: mistakes about zero fill, masks, sizes, directions and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.isa import exercise_of
from conformance.slice import Array, Inputs, WrongModel
from tcsim.isa.copies import GROUPS, CopyInstruction

Change = Callable[[CopyInstruction, Inputs, Array], Array]
"""(instruction, inputs, the right memory uint8 (samples, 1024)) -> what a mistaken model would have there."""


def _wrong(name: str, mistake: str, applies: Callable[[CopyInstruction], bool], change: Change) -> WrongModel:
    def answer(instruction: Any, given: Inputs) -> Array:
        right = np.ascontiguousarray(exercise_of(instruction.row.family).model(instruction, given)).view(np.uint8)
        return np.ascontiguousarray(change(instruction, given, right.copy())).view("<u4")

    return WrongModel(name, mistake, applies, answer)


def _copies(instruction: CopyInstruction) -> bool:
    return instruction.row.operation in ("copy", "commit", "wait", "arrive") and not instruction.row.reports


def _writes(instruction: CopyInstruction) -> bool:
    return _copies(instruction) or instruction.row.operation == "reduce"


def _fills(instruction: CopyInstruction) -> bool:
    return instruction.row.has("size") and bool(instruction.row.forms[0]["size"].values)


def _reduces(instruction: CopyInstruction) -> bool:
    return instruction.row.operation == "reduce"


def _masked(instruction: CopyInstruction) -> bool:
    return instruction.row.has("byte_mask")


def _before(instruction: CopyInstruction, given: Inputs) -> Array:
    """The memory that is written, as it was."""
    row = instruction.row
    return given["memory" if row.outward or (row.operation in GROUPS and row.group == "bulk") else "smem"]


def _read(instruction: CopyInstruction, given: Inputs) -> Array:
    """The memory that is read."""
    outward = _before(instruction, given) is given["memory"]
    return given["smem" if outward else "memory"]


def _nothing(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    return _before(instruction, given).copy()


def _places(given: Inputs, sample: int) -> list[tuple[int, int, int]]:
    """Source, destination and size of each copy of a sample."""
    sizes = np.broadcast_to(given["size"][sample], given["source"][sample].shape)
    return list(
        zip(given["source"][sample].tolist(), given["destination"][sample].tolist(), sizes.tolist(), strict=True)
    )


def _first_source(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """Every byte from where the first one came from."""
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            image[to : to + size] = _read(instruction, given)[sample, start]
    return right


def _one_short(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The last byte of each copy stays."""
    old = _before(instruction, given)
    for sample, image in enumerate(right):
        for _, to, size in _places(given, sample):
            image[to + size - 1] = old[sample, to + size - 1]
    return right


def _not_filled(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """What is not read stays instead of becoming zero."""
    for sample, image in enumerate(right):
        for lane, (_, to, size) in enumerate(_places(given, sample)):
            kept = to + int(given["taken"][sample, lane])
            image[kept : to + size] = given["smem"][sample, kept : to + size]
    return right


def _filled_before(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The zeros come before what is read."""
    for sample, image in enumerate(right):
        for lane, (_, to, size) in enumerate(_places(given, sample)):
            image[to : to + size] = np.roll(image[to : to + size], size - int(given["taken"][sample, lane]))
    return right


def _mask_reversed(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """Bit i of the mask is for byte 15 - i."""
    old, read = _before(instruction, given), _read(instruction, given)
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            taken = (int(given["options"][sample, 0]) >> (15 - np.arange(size) % 16) & 1).astype(bool)
            image[to : to + size] = np.where(taken, read[sample, start : start + size], old[sample, to : to + size])
    return right


def _overwritten(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The source replaces the destination."""
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            image[to : to + size] = _read(instruction, given)[sample, start : start + size]
    return right


WRONG_COPIES = (
    _wrong("nothing written", "the memory stays as it was", _writes, _nothing),
    _wrong("first byte only", "every byte comes from where the first one does", _copies, _first_source),
    _wrong("one byte short", "the last byte of a copy is not written", _copies, _one_short),
    _wrong("no zero fill", "bytes that are not read stay", _fills, _not_filled),
    _wrong("zeros first", "zeros come before the bytes that are read", _fills, _filled_before),
    _wrong("mask reversed", "bit i of the mask is for byte 15 - i", _masked, _mask_reversed),
    _wrong("not reduced", "the source replaces the destination", _reduces, _overwritten),
)
"""Each must be contradicted by the cases of every instruction that it applies to."""
