"""What is wrong, or wasteful, with a matrix descriptor: reads outside memory, bytes read twice, bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tcsim.descriptors.forms import CORE_BYTES, CORE_ROWS
from tcsim.layouts.banks import bank_conflicts
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES
from tcsim.numbers.formats import Format


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
    conflict_degree: int  # passes that the 8 rows of 16 bytes of the worst core matrix need; 1 is free of conflicts
    messages: tuple[str, ...]  # what to look at, one sentence each; none if all is well

    @property
    def ok(self) -> bool:
        """Nothing is wrong: every element has a place of its own inside memory."""
        return not len(self.outside) and not len(self.shared)


def check_tile(
    place: npt.NDArray[np.int64],
    element: Format,
    chunk: int,
    swizzle: str,
    start: int,
    offsets: tuple[int, int],
    memory: int,
) -> TileCheck:
    """What is remarkable about a tile whose elements (rows, k) lie at the bit addresses `place`.

    `chunk` elements of a K-major row share 16 bytes; 0: MN-major, whose core matrices every swizzle spreads over all banks.
    `start` is where the swizzle's pattern counts from, `offsets` are SBO and LBO.
    """
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
    off = start % DESCRIPTOR_SWIZZLES[swizzle].period
    degree = _conflicts(address, chunk) if chunk else 1
    unused = high + 1 - low - len(read)
    texts = []
    if len(outside):
        row, k = outside[0]
        texts.append(
            f"{len(outside)} of {place.size} elements lie outside the {memory} bytes of shared memory; the first is row {row}, "
            f"k {k} at {int(address[row, k]):#x}"
        )
    if len(shared):
        row, k = shared[0]
        texts.append(
            f"{len(shared)} of {place.size} elements are read from a place that another element has too; the first is "
            f"row {row}, k {k} at {int(address[row, k]):#x}: is SBO={offsets[0]} or LBO={offsets[1]} too small, or not in bytes?"
        )
    if off:
        texts.append(
            f"the start address is {off} bytes past a multiple of {DESCRIPTOR_SWIZZLES[swizzle].period}, the period of the "
            f"{swizzle} swizzle: right for a later K step of a tile that starts at such a multiple, wrong for the tile's own start"
        )
    if unused:
        texts.append(f"{unused} bytes between the first and the last that are read belong to no element")
    if degree > 1:
        texts.append(f"the 8 rows of a core matrix share banks: {degree} passes where a swizzle needs 1")
    return TileCheck(outside, shared, low, high, unused, off, degree, tuple(texts))


def _conflicts(address: npt.NDArray[np.int64], per_row: int) -> int:
    """Passes for the 128 bytes of the worst core matrix: 8 rows of 16 bytes, which hold `per_row` elements each."""
    chunks = address[: len(address) // CORE_ROWS * CORE_ROWS, ::per_row]
    if not chunks.size:
        return 1
    groups = chunks.reshape(-1, CORE_ROWS, chunks.shape[1]).swapaxes(1, 2)
    return int(np.max(bank_conflicts(groups & ~np.int64(CORE_BYTES - 1), width=CORE_BYTES, access="matrix").degree))
