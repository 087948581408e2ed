"""Structured sparsity in registers: which two of four elements stay, and where each goes back to.

Source: PTX ISA, sections spcompress and spdecompress. Two things it leaves to the hardware: which of equal elements stay
(here those of lower index), and metadata that name no element of the group (here an error).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.numbers.formats import FORMATS, Format

Words = npt.NDArray[np.uint32]

OPERATIONS = ("MAX", "MAXABS", "MIN", "MINABS")
"""Bits 1:0 of the sparsity descriptor."""
ELEMENTS: dict[int, tuple[str, ...]] = {
    8: ("u8", "s8", "e5m2", "e4m3", "e3m2", "e2m3"),
    16: ("f16", "bf16"),
    32: ("f32",),  # of tcgen05.ld.spcompress
}
"""By the bits of an element, what bits 4:2 of the sparsity descriptor mean."""


@dataclass(frozen=True)
class Selection:
    """Which two elements of a group of four stay.

    >>> Selection.decode(5, 8)
    Selection(operation='MAXABS', format='s8')
    """

    operation: str  # one of OPERATIONS
    format: str  # of an element

    @staticmethod
    def decode(descriptor: int, bits: int) -> Selection:
        """The 32-bit operand `spdesc` of an instruction whose elements have `bits` bits.

        Raises OperandError for an element type that has another size, or reserved bits.
        """
        value = int(descriptor)
        kinds = ELEMENTS[bits]
        if not 0 <= value < 1 << 5 or value >> 2 >= len(kinds):
            named = listing(f"{code} {name}" for code, name in enumerate(kinds))
            raise OperandError(
                f"sparsity descriptor {value:#x}: valid are bits 1:0 {listing(f'{i} {name}' for i, name in enumerate(OPERATIONS))}; "
                f"bits 4:2 for .b{bits} {named}; bits 31:5 zero"
            )
        return Selection(OPERATIONS[value & 3], kinds[value >> 2])

    def encode(self) -> int:
        """The operand `spdesc`.

        >>> Selection("MIN", "bf16").encode()
        6
        """
        kinds = next(kinds for kinds in ELEMENTS.values() if self.format in kinds)
        return kinds.index(self.format) << 2 | OPERATIONS.index(self.operation)

    def keep(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The two indices that stay of codes (..., 4): (..., 2), ascending.

        A NaN stays whatever the operation; -0 is below +0.

        >>> Selection("MAXABS", "s8").keep(np.array([0, 0xF9, 3, 0], np.uint8))
        array([1, 2])
        """
        rank = self._rank(codes)
        first = np.argsort(rank, axis=-1, kind="stable")[..., :2]  # equal ones by index
        return np.sort(first, axis=-1).astype(np.int64)

    def ambiguous(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Groups (...) of codes (..., 4) in which the choice is up to the hardware: the second and third best are equal."""
        rank = np.sort(self._rank(codes), axis=-1)
        return np.asarray(rank[..., 1] == rank[..., 2])

    def _rank(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """A number for each code, the lower the better; NaNs all alike and best."""
        format = FORMATS[self.format]
        values = codes.astype(np.int64)
        if (values >> format.bits).any():
            raise OperandError(f"codes of {format.name} have {format.bits} bits; the rest of the element must be zero")
        magnitude, negative, number = _parts(values, format)
        order = magnitude if self.operation.endswith("ABS") else np.where(negative, -1 - magnitude, magnitude)
        rank = order if self.operation.startswith("MIN") else -order
        return np.where(number, rank, -(1 << 40))


def _parts(
    values: npt.NDArray[np.int64], format: Format
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Magnitude, sign, and whether it is a number; -1 - magnitude orders negative ones."""
    sign = 1 << (format.bits - 1)
    if format.kind == "integer":
        negative = (values & sign).astype(bool) & format.signed
        return np.where(negative, 2 * sign - values, values), negative, np.ones(values.shape, np.bool_)
    magnitude = values & (sign - 1)
    top = ((1 << format.exponent_bits) - 1) << format.fraction_bits
    match format.nan:
        case "ieee":
            number = magnitude <= top
        case "all_ones":
            number = magnitude != sign - 1
        case _:
            number = np.ones(values.shape, np.bool_)
    return magnitude, (values & sign).astype(bool), number


def elements(words: Words, bits: int) -> Words:
    """Registers (..., n) as elements of `bits` bits, from the lowest up: (..., n * 32 / bits), one in each word."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    spread = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1 if bits < 32 else 0xFFFFFFFF)
    return spread.reshape(*words.shape[:-1], words.shape[-1] * len(shifts))


def packed(values: npt.NDArray[Any], bits: int) -> Words:
    """The inverse of `elements`; the last register's rest is zero."""
    per = 32 // bits
    count = -(-values.shape[-1] // per)
    padded = np.zeros((*values.shape[:-1], count * per), np.uint32)
    padded[..., : values.shape[-1]] = values
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    spread = padded.reshape(*values.shape[:-1], count, per) << shifts
    return np.asarray(np.bitwise_or.reduce(spread, axis=-1), np.uint32)


def compress(data: Words, bits: int, index_bits: int, selection: Selection) -> tuple[Words, Words]:
    """Dense registers (..., 2n) to metadata and compressed registers (..., n); two of every four elements stay, in order."""
    codes = elements(data, bits)
    groups = codes.reshape(*codes.shape[:-1], -1, 4)
    kept = selection.keep(groups)
    values = np.take_along_axis(groups, kept, axis=-1)
    flat = (*codes.shape[:-1], codes.shape[-1] // 2)
    return packed(kept.reshape(flat), index_bits), packed(values.reshape(flat), bits)


def decompress(metadata: Words, data: Words, bits: int, index_bits: int, source: int, target: int, count: int) -> Words:
    """Compressed registers to dense ones: `source` elements of each of `count` groups to their places among `target`.

    Places that no element goes to are zero; of two elements for one place the later one stays.

    Raises OperandError for an index from `target` on.
    """
    values = elements(data, bits)[..., : source * count]
    places = elements(metadata, index_bits)[..., : source * count].astype(np.int64)
    if (places >= target).any():
        raise OperandError(
            f"metadata index {int(places.max())}: a group has {target} elements, and what a larger index does is up to the "
            f"hardware; valid: 0 to {target - 1}"
        )
    batch = np.broadcast_shapes(values.shape[:-1], places.shape[:-1])
    groups = (*batch, count, source)
    own = np.broadcast_to(values, (*batch, source * count)).reshape(groups)
    at = np.broadcast_to(places, (*batch, source * count)).reshape(groups)
    dense = np.zeros((*batch, count, target), np.uint32)
    for each in range(source):  # in order: a later one overwrites
        np.put_along_axis(dense, at[..., each, None], own[..., each, None], axis=-1)
    return packed(dense.reshape(*batch, count * target), bits)
