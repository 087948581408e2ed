"""Zero-column masks: the 64 bits that tell tcgen05.mma.ws which columns of B count as zeros, and where B begins.

Source: PTX ISA, section Zero-Column Mask Descriptor. Where its table (Skip Span counts columns that are used) and its four
examples (it counts columns that are zeroed) differ, the examples are followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.bit_field import Field

SUB_MASKS = {128: 1, 64: 2, 32: 4}
"""M -> equal runs that the N columns are divided into, each with a beginning of its own."""
FIELDS = (
    *(Field(f"start_{i}", 8 * i, 8, 1, f"columns of the first span that run {i} leaves out") for i in range(4)),
    *(Field(f"first_{i}", 32 + i, 1, 1, f"1: run {i} begins with zeroed columns") for i in range(4)),
    Field("nonzero", 39, 1, 1, "0: no column is zeroed"),
    Field("skip_span", 40, 8, 1, "zeroed columns in a row, less 1"),
    Field("use_span", 48, 8, 1, "used columns in a row, less 1"),
    Field("shift", 56, 6, 1, "column of the matrix in shared memory that is column 0 of B"),
)


@dataclass(frozen=True)
class ZeroColumnMask:
    """One descriptor, field by field.

    >>> mask = ZeroColumnMask(nonzero=1, skip_span=2, use_span=3)
    >>> hex(mask.encode()), mask.columns(128, 64)[:9].astype(int).tolist()
    ('0x3028000000000', [0, 0, 0, 0, 1, 1, 1, 0, 0])
    >>> ZeroColumnMask.decode(mask.encode()) == mask
    True
    """

    start_0: int = 0
    start_1: int = 0
    start_2: int = 0
    start_3: int = 0
    first_0: int = 0
    first_1: int = 0
    first_2: int = 0
    first_3: int = 0
    nonzero: int = 0
    skip_span: int = 0
    use_span: int = 0
    shift: int = 0

    @staticmethod
    def decode(value: int) -> ZeroColumnMask:
        """Take a 64-bit descriptor apart.

        Raises OperandError if bits that must be 0 are set.
        """
        known = sum(field.mask for field in FIELDS)
        if not 0 <= value < 1 << 64 or value & ~known:
            raise OperandError(f"zero-column mask {value:#x}: bits {value & ~known:#x} are reserved; valid: 0")
        return ZeroColumnMask(**{field.name: field.take(value) for field in FIELDS})

    def encode(self) -> int:
        """The 64-bit descriptor."""
        return sum(field.put(getattr(self, field.name)) for field in FIELDS)

    def columns(self, m: int, n: int) -> npt.NDArray[np.bool_]:
        """Which of the N columns count as zeros, for an M.

        Raises OperandError for an M that is not in `SUB_MASKS`, a shift beyond its limit, or a start beyond the first span, which the manual does
        not explain.

        >>> ZeroColumnMask(start_1=1, first_0=1, first_1=1, nonzero=1, skip_span=2, use_span=3).columns(64, 16).astype(int)
        array([1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1])
        """
        if m not in SUB_MASKS:
            raise OperandError(f"zero-column mask with M = {m}; valid: {listing(SUB_MASKS)}")
        limit = 16 if m == 32 else 32
        if self.shift > limit:
            raise OperandError(f"zero-column mask with M = {m}: shift={self.shift}; valid: 0 to {limit}")
        if not self.nonzero:
            return np.zeros(n, np.bool_)
        spans = np.repeat([False, True], [self.use_span + 1, self.skip_span + 1])
        runs = []
        for i in range(SUB_MASKS[m]):
            start, first = getattr(self, f"start_{i}"), getattr(self, f"first_{i}")
            length = (self.skip_span if first else self.use_span) + 1
            if start >= length:
                raise OperandError(
                    f"zero-column mask: start_{i}={start} leaves nothing of a first span of {length}; valid: 0 to {length - 1}"
                )
            place = np.arange(n // SUB_MASKS[m]) + start + (self.use_span + 1 if first else 0)
            runs.append(spans[place % len(spans)])
        return np.concatenate(runs)
