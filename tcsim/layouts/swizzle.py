"""Shared-memory swizzles: CuTe's `Swizzle<bits, base, shift>`, and those that the hardware has."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tcsim.core.arguments import as_array, integer
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing, nearest, shortened

PATTERN_ROW = 128
"""Bytes of shared memory in which a hardware swizzle exchanges the same bits: one row of its pattern."""

ADDRESS_BITS = 64
"""Of the widest address that a swizzle takes."""


@dataclass(frozen=True)
class Swizzle(Shown):
    """XOR `bits` address bits from position `base` with those `shift` positions higher; its own inverse.

    Source: CuTe, class Swizzle. The hardware applies it to the absolute shared address (measured on an H200).

    >>> swizzle = Swizzle(3, 4, 3)
    >>> str(swizzle), swizzle(0x80), swizzle(swizzle(0x1234)) == 0x1234
    ('Swizzle<3,4,3>', 144, True)
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            object.__setattr__(self, name, integer(getattr(self, name), f"Swizzle: {name}"))
        if self.bits < 0 or self.base < 0 or self.shift < self.bits:
            raise OperandError(f"{self}: bits and base must not be negative, and shift must be at least bits")
        if self.base + self.shift + self.bits > ADDRESS_BITS:
            raise OperandError(f"{self}: an address has {ADDRESS_BITS} bits; valid: base + shift + bits up to that")

    def __str__(self) -> str:
        if max(abs(self.bits), abs(self.base), abs(self.shift)) >> ADDRESS_BITS:
            return "Swizzle of huge numbers"  # Python does not write them out
        return f"Swizzle<{self.bits},{self.base},{self.shift}>"

    def __call__(self, address: Any, base_offset: Any = 0) -> Any:
        """Swizzle byte addresses: an int, or an array of integers.

        The `base_offset` of a matrix descriptor moves the pattern on by that number of rows of 128 bytes: the bits that are
        exchanged come from the address less 128 times it (measured on an H200: 72 cases of random descriptors, every output).

        Post-conditions:
            result // self.span == address // self.span
            result % (1 << self.base) == address % (1 << self.base)
            base_offset or self(result) == address
            self(address + self.period, base_offset) == result + self.period

        >>> hex(SWIZZLES["128B"](0x480)), hex(SWIZZLES["128B"](0x480, base_offset=1))
        ('0x490', '0x480')
        """
        mask = ((1 << self.bits) - 1) << self.base
        if not isinstance(address, int):
            address = as_array(address, "address")
            if address.dtype.kind not in "iu":
                raise OperandError(f"{self}: addresses are {address.dtype}; valid: integers")
        return address ^ (address - base_offset * PATTERN_ROW >> self.shift & mask)

    @property
    def span(self) -> int:
        """Bytes of a row of the pattern: 128 for the 128-byte swizzle."""
        return 1 << (self.base + self.bits)

    @property
    def period(self) -> int:
        """Bytes after which the pattern repeats: tiles must start at multiples of it to be read as written.

        Post-conditions:
            result % self.span == 0
            all(self(i) < result and self(i + result) == self(i) + result for i in range(0, result, 1 << self.base))
        """
        return 1 << (self.base + self.shift + self.bits) if self.bits else 1 << self.base


SWIZZLES: MappingProxyType[str, Swizzle] = MappingProxyType(
    {
        "NONE": Swizzle(0, 4, 3),
        "32B": Swizzle(1, 4, 3),
        "64B": Swizzle(2, 4, 3),
        "128B": Swizzle(3, 4, 3),
    }
)
"""By the suffix of the driver's enumerators (CU_TENSOR_MAP_SWIZZLE_128B) and of the matrix descriptor's modes."""

ATOM_32B = "128B_ATOM_32B"
DESCRIPTOR_SWIZZLES: MappingProxyType[str, Swizzle] = MappingProxyType({**SWIZZLES, ATOM_32B: Swizzle(2, 5, 2)})
"""Those of every matrix descriptor: sm_100 also swizzles pieces of 32 bytes (PTX ISA; CUTLASS, SWIZZLE_128B_BASE32B)."""


def swizzle(name: str) -> Swizzle:
    """A hardware swizzle by name.

    Raises OperandError for a name that is not in `SWIZZLES`.

    Pre-conditions:
        name in SWIZZLES
    Post-conditions:
        result is SWIZZLES[name]
    """
    if not isinstance(name, str) or name not in SWIZZLES:
        close = nearest(str(name), SWIZZLES, 1)
        raise OperandError(f"no swizzle {shortened(name)}; nearest: {close[0]}; all: {listing(SWIZZLES)}")
    return SWIZZLES[name]
