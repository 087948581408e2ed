"""What the bytes of an array in memory are: codes of a number format, or integers; how two of them are compared."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing, nearest, shortened
from tcsim.numbers.codec import FLOAT_DTYPES, decode, encode
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.packing import unpacked_fields

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_INTEGERS = {f"{sign}{bits}": (sign == "s", bits) for sign in "su" for bits in (8, 16, 32, 64)}
NAMES = (*FORMATS, *(name for name in _INTEGERS if name not in FORMATS))
"""Every name: the number formats of tcsim, and integers of 8 to 64 bits as PTX spells them."""
_NATURAL: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
APART = 2**64 - 1
"""The distance of what cannot be compared."""


@dataclass(frozen=True)
class Elements:
    """One element of an array: its name, the unsigned integer that holds its code, and how many bits it has in memory.

    Formats of 4 bits and b1 lie packed in memory, the first element in the low bits; those of 6 bits have a byte each.
    """

    name: str

    @property
    def format(self) -> Format | None:
        """The number format; None of an integer that no format describes."""
        return FORMATS.get(self.name)

    @property
    def bits(self) -> int:
        """Bits in memory."""
        format = self.format
        if format is None:
            return _INTEGERS[self.name][1]
        return format.bits if format.bits in (1, 4) else format.container_bits

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of codes."""
        return np.dtype(f"<u{max(8, self.bits) // 8}")

    @property
    def natural(self) -> np.dtype[Any]:
        """The dtype that NumPy has for the values, without ml_dtypes; that of codes if it has none."""
        if self.name in _INTEGERS:
            return np.dtype(("<i" if self.signed else "<u") + str(self.bits // 8))
        return _NATURAL.get(self.name, self.dtype)

    @property
    def signed(self) -> bool:
        """Whether there are negative numbers."""
        return self.format.signed if self.format else _INTEGERS[self.name][0]

    def size(self, shape: tuple[int, ...]) -> int:
        """Bytes in memory. Raises OperandError if packed elements do not fill the last byte."""
        bits = prod(shape) * self.bits
        if bits % 8:
            raise OperandError(
                f"{prod(shape)} elements of {self.name} do not fill their last byte; valid: multiples of {8 // self.bits}"
            )
        return bits // 8

    def to_bytes(self, codes: Array) -> Bytes:
        """Codes as they lie in memory."""
        flat = np.ascontiguousarray(codes, self.dtype).reshape(-1)
        if self.bits == 1:
            return np.packbits(flat, bitorder="little")
        if self.bits == 4:
            return flat[::2] | flat[1::2] << np.uint8(4)
        return flat.view(np.uint8)

    def to_codes(self, data: Bytes) -> Array:
        """Bytes of memory as codes."""
        if self.bits < 8:
            return unpacked_fields(data, self.bits)
        return np.ascontiguousarray(data).view(self.dtype)

    def encoded(self, values: Array) -> Array:
        """Numbers as codes: rounded to nearest even, beyond the format its largest; integers must be in range.

        Raises OperandError for an integer beyond the type, or a number that is not whole where integers are meant.
        """
        format = self.format
        if format is not None and (format.kind != "integer" or format.sign_magnitude):
            return np.asarray(encode(values, format, saturate=format.kind == "float"))
        low, high = (-(1 << self.width - 1), (1 << self.width - 1) - 1) if self.signed else (0, (1 << self.width) - 1)
        wide = np.asarray(values)
        if wide.dtype.kind == "f" and not (np.isfinite(wide) & (wide == np.trunc(wide))).all():
            raise OperandError(f"{self.name} holds whole numbers; valid: {low} to {high}")
        if wide.size and not (low <= int(wide.min()) and int(wide.max()) <= high):
            raise OperandError(f"{self.name} holds {low} to {high}; there is {wide.min()} to {wide.max()}")
        mask = (1 << self.width) - 1
        if wide.dtype.kind in "fO":  # floats of 2^63 and above, integers beyond 64 bits
            return np.array([int(value) & mask for value in wide.reshape(-1)], self.dtype).reshape(wide.shape)
        return (wide.astype(np.uint64) & np.uint64(mask)).astype(self.dtype)

    @property
    def width(self) -> int:
        """Bits of an integer."""
        return self.format.bits if self.format else self.bits

    def values(self, codes: Array) -> Array:
        """Codes as numbers. Raises FormatError for a code that the format does not have."""
        if self.format is not None:
            return decode(codes, self.format)
        return np.ascontiguousarray(codes, self.dtype).view(self.natural)

    def code_text(self, code: int) -> str:
        """A code in hexadecimal."""
        return f"0x{code:0{max(1, -(-self.bits // 4))}x}"

    def value_text(self, code: int) -> str:
        """What a code means, shortest."""
        if code & ~self._mask:
            return "not a code"
        value = self.values(np.array([code], self.dtype))[0]
        if self.natural.kind == "f":
            return str(value.astype(self.natural))
        return f"{value:.9g}" if self._float else str(int(value))

    @property
    def _mask(self) -> int:
        """The bits that a code may set."""
        return self.format.code_mask if self.format else (1 << self.bits) - 1

    @property
    def _float(self) -> bool:
        return self.format is not None and self.format.kind == "float"

    def ulps(self, got: Array, want: Array) -> npt.NDArray[np.uint64]:
        """How many codes lie between two numbers, from one to the other; `APART` if one of them is NaN, or not a code.

        Two NaN are 0 apart, as +0 and -0 are.

        >>> Elements("f16").ulps(np.uint16([0x3C00, 0x8000, 0x7E00]), np.uint16([0x3C02, 0x0001, 0x7E01])).tolist()
        [2, 1, 0]
        """
        mask, sides = self.dtype.type(self._mask), (got, want)
        first, second = (self._places(codes & mask) for codes in sides)
        apart = np.where(first > second, first - second, second - first)
        if self.format is not None:
            apart >>= np.uint64(self.format.ignored_low_bits)
        if self._float:
            nan = [np.isnan(self.values(codes & mask)) for codes in sides]
            apart[nan[0] & nan[1]] = 0
            apart[nan[0] ^ nan[1]] = APART
        apart[((got | want) & ~mask) != 0] = APART
        return apart

    def _places(self, codes: Array) -> npt.NDArray[np.uint64]:
        """Integers in the order of the numbers; neighbours are 1 apart."""
        wide, format = np.asarray(codes).astype(np.uint64), self.format
        if not self.signed:
            return wide
        width = self.width + (format.ignored_low_bits if format else 0)
        half = np.uint64(1 << width - 1)
        if self._float or (format is not None and format.sign_magnitude):
            size, zero = wide & (half - np.uint64(1)), np.uint64(1 << 63)
            return np.where(wide & half, zero - size, zero + size)
        return wide ^ half


OCTETS = Elements("u8")
"""Bytes of which nothing else is known."""


def elements(name: Any, what: str) -> Elements:
    """The elements of a name. Raises OperandError for another, with the nearest."""
    if not isinstance(name, str) or name not in NAMES:
        close = f"nearest: {listing(nearest(name, NAMES))}; " if isinstance(name, str) else ""
        raise OperandError(f"{what}={shortened(name)}; {close}valid: {listing(NAMES, 40)}")
    return Elements(name)


def elements_of(dtype: np.dtype[Any], what: str) -> Elements:
    """The elements that an array of a dtype holds. Raises OperandError for one that holds none."""
    if dtype == np.bool_:
        return Elements("u8")
    if dtype in FLOAT_DTYPES:
        return Elements(FLOAT_DTYPES[dtype])
    if dtype.kind in "iu" and dtype.itemsize <= 8:
        return Elements(f"{'s' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}")
    raise OperandError(f"{what} is an array of {dtype}; valid: integers, and floats of 16, 32 and 64 bits")
