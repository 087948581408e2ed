"""What is wrong, or wasteful, with a matrix descriptor: reads outside memory, bytes read twice, bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer
from tcsim.core.errors import OperandError
from tcsim.descriptors.addresses import along_k
from tcsim.descriptors.matrix import CORE_BYTES, CORE_ROWS, Major, MatrixDescriptor
from tcsim.layouts.banks import bank_conflicts
from tcsim.layouts.swizzle import ATOM_32B, DESCRIPTOR_SWIZZLES, PATTERN_ROW
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format


@dataclass(frozen=True)
class TileCheck:
    """Where a descriptor reads a tile of rows x k elements, and what is remarkable about it."""

    outside: npt.NDArray[np.int64]  # (n, 2): row and k of the elements outside memory
    shared: npt.NDArray[np.int64]  # (n, 2): row and k of the elements whose place an earlier element has too
    first: int  # lowest byte read
    last: int  # highest byte read
    unused: int  # bytes between the two that no element is read from
    off_phase: (
        int  # bytes from the last multiple of the swizzle's period to the start address; 0 if the tile starts at one
    )
    conflict_degree: int  # worst of all core matrices: passes that its 8 rows of 16 bytes need; 1 is free of conflicts
    messages: tuple[str, ...]  # what to look at, one sentence each; none if all is well

    @property
    def ok(self) -> bool:
        """Nothing is wrong: every element has a place of its own inside memory."""
        return not len(self.outside) and not len(self.shared)


def check_tile(
    descriptor: MatrixDescriptor,
    rows: int,
    k: int,
    format: str | Format,
    major: Major = "K",
    memory: int = 227 * 1024,
    kind: str = "",
) -> TileCheck:
    """What `MatrixDescriptor.check` returns; its documentation says what it means and what is raised."""
    element = find_format(format)
    if integer(memory, "MatrixDescriptor.check: memory") < 1:
        raise OperandError(f"MatrixDescriptor.check: memory={memory}; valid: a number of bytes, at least 1")
    place = descriptor.bit_addresses(rows, k, element, major, kind)
    address = place // 8
    bits = element.container_bits if element.bits >= 8 else element.bits
    size = max(1, bits // 8)
    last = (place + bits - 1) // 8  # a 6-bit element may end in the next byte
    outside = np.argwhere(last + 1 > memory)
    _, first_of = np.unique(place, return_index=True)
    again = np.ones(place.size, bool)
    again[first_of] = False
    shared = np.argwhere(again.reshape(place.shape))
    read = np.unique(np.concatenate([(address[..., None] + np.arange(size)).reshape(-1), last.reshape(-1)]))
    low, high = int(read[0]), int(read[-1])
    period = DESCRIPTOR_SWIZZLES[descriptor.swizzle].period
    off = (descriptor.start_address - descriptor.base_offset * PATTERN_ROW) % period
    whole = along_k(k, element, kind, descriptor.arch).chunk if major == "K" else CORE_BYTES * 8 // bits
    degree = _conflicts(address, whole, major, CORE_ROWS // 2 if descriptor.swizzle == ATOM_32B else CORE_ROWS)
    found = (len(outside), len(shared), high + 1 - low - len(read), off, degree)
    text = _messages(descriptor, address, outside, shared, found, memory, (size, rows * k))
    return TileCheck(outside, shared, low, high, found[2], off, degree, text)


def _conflicts(address: npt.NDArray[np.int64], per_row: int, major: Major, lines: int = CORE_ROWS) -> int:
    """Passes for the 128 bytes of each core matrix: `lines` rows of 16 bytes (32 if there are 4), at multiples of that."""
    chunks = address[:, ::per_row] if major == "K" else address[::per_row].T  # (lines, 16-byte rows of each)
    parts = CORE_ROWS // lines
    whole, wide = chunks.shape[0] // lines * lines, chunks.shape[1] // parts * parts
    if not whole or not wide:
        return 1
    groups = chunks[:whole, :wide].reshape(-1, lines, wide // parts, parts).swapaxes(1, 2).reshape(-1, CORE_ROWS)
    return int(np.max(bank_conflicts(groups & ~np.int64(CORE_BYTES - 1), width=CORE_BYTES).degree))


def _messages(
    descriptor: MatrixDescriptor,
    address: npt.NDArray[np.int64],
    outside: npt.NDArray[np.int64],
    shared: npt.NDArray[np.int64],
    found: tuple[int, int, int, int, int],
    memory: int,
    sizes: tuple[int, int],
) -> tuple[str, ...]:
    out, twice, unused, off, degree = found
    size, elements = sizes
    texts = []
    if out:
        row, k = outside[0]
        texts.append(
            f"{out} of {elements} elements lie outside the {memory} bytes of shared memory; the first is row {row}, k {k} at "
            f"{int(address[row, k]):#x}"
        )
    if twice:
        row, k = shared[0]
        texts.append(
            f"{twice} of {elements} elements are read from a place that another element has too; the first is row {row}, "
            f"k {k} at {int(address[row, k]):#x}: is SBO={descriptor.stride_byte_offset} or "
            f"LBO={descriptor.leading_byte_offset} too small, or not in bytes?"
        )
    if off:
        period = DESCRIPTOR_SWIZZLES[descriptor.swizzle].period
        texts.append(
            f"the start address is {off} bytes past a multiple of {period}, the period of the {descriptor.swizzle} swizzle: right "
            "for a later K step of a tile that starts at such a multiple, wrong for the tile's own start"
        )
    if unused:
        texts.append(f"{unused} bytes between the first and the last that are read belong to no element")
    if degree > 1:
        texts.append(f"the 8 rows of a core matrix share banks: {degree} passes where a swizzle needs 1")
    return tuple(texts)
