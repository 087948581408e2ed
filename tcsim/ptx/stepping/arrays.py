"""Arrays in global memory that have a name: elements from addresses, and text of many of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tcsim.core.errors import FormatError, OperandError, listing, shortened
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.stepping.state import refused

Index = tuple[int, ...]
_OF_DTYPE = {f"float{bits}": f"f{bits}" for bits in (16, 32, 64)}
_OF_DTYPE |= {"bfloat16": "bf16", "int8": "s8", "uint8": "u8", "int32": "s32"}


@dataclass(frozen=True)
class Named:
    """An array in global memory.

    >>> a = Named.of("a", 0x1000, (4, 8), "f16")
    >>> a.index(0x1000 + 2 * (8 + 3)), a.address((1, 3)) - 0x1000, a.text([(1, 0), (1, 1), (1, 2)])
    ((1, 3), 22, 'a[1, 0:3]')
    """

    name: str
    start: int
    shape: tuple[int, ...]
    size: int  # bytes of an element
    format: Format | None
    strides: tuple[int, ...]

    @staticmethod
    def of(name: str, address: int, shape: Sequence[int], format: Any, strides: Sequence[int] | None = None) -> Named:
        """An array by its shape and the format of its elements. Raises OperandError for what is none."""
        extents = tuple(int(extent) for extent in shape)
        known, size = _format(format)
        if not extents or any(extent <= 0 for extent in extents):
            raise refused(f"array {shortened(name)}: shape {shortened(shape)}", "extents above 0")
        packed = tuple(size * prod(extents[place + 1 :]) for place in range(len(extents)))
        own = packed if strides is None else tuple(int(stride) for stride in strides)
        if len(own) != len(extents):
            valid = f"one for each of {len(extents)} dimensions"
            raise refused(f"array {shortened(name)}: {len(own)} strides", valid)
        return Named(name, int(address), extents, size, known, own)

    def index(self, address: int) -> Index | None:
        """The element that holds a byte; None if none does."""
        rest, found = address - self.start, [0] * len(self.shape)
        for place in sorted(range(len(self.shape)), key=lambda own: -self.strides[own]):
            stride = self.strides[place]
            found[place], rest = divmod(rest, stride) if stride else (0, rest)
        inside = all(0 <= own < extent for own, extent in zip(found, self.shape, strict=True))
        return tuple(found) if inside and 0 <= rest < self.size else None

    def address(self, index: Index) -> int:
        """Where an element begins. Raises OperandError for one that there is not."""
        pairs = zip(index, self.shape, strict=False)
        if len(index) != len(self.shape) or any(not 0 <= own < extent for own, extent in pairs):
            raise OperandError(f"{self.name}{list(index)}: valid: indices below {self.shape}")
        return self.start + sum(own * stride for own, stride in zip(index, self.strides, strict=True))

    def value(self, data: Array) -> Any:
        """The number that the bytes of one element are."""
        code = np.ascontiguousarray(data).view(f"u{self.size}")
        if self.format is None:
            return int(code[0])
        return decode(code.astype(self.format.dtype), self.format)[0].item()

    def text(self, indices: Sequence[Index], most: int = 4) -> str:
        """Elements in the order that they are given in, those that follow each other along one dimension as a slice."""
        found: list[list[Index]] = []
        for index in indices:
            step = _step(found[-1][-1], index) if found else None
            if step is not None and (len(found[-1]) == 1 or _step(*found[-1][-2:]) == step):
                found[-1].append(index)
            else:
                found.append([index])
        shown = [f"{self.name}[{_slice(own)}]" for own in found[:most]]
        return ", ".join(shown) + (f", {len(found) - most} more" if len(found) > most else "")


def _step(one: Index, two: Index) -> int | None:
    """The dimension along which one element follows another; None if it does not."""
    differing = [place for place, (x, y) in enumerate(zip(one, two, strict=True)) if x != y]
    return differing[0] if len(differing) == 1 and two[differing[0]] == one[differing[0]] + 1 else None


def _slice(indices: list[Index]) -> str:
    first, last = indices[0], indices[-1]
    parts = [str(x) if x == y else f"{x}:{y + 1}" for x, y in zip(first, last, strict=True)]
    return ", ".join(parts)


def _format(format: Any) -> tuple[Format | None, int]:
    if isinstance(format, (str, Format)):
        try:
            known = find_format(format)
        except FormatError:
            known = None
        if known is not None:
            return known, known.container_bits // 8
    try:
        dtype = np.dtype(format)
    except TypeError:
        raise refused(f"array: format {shortened(format)}", "a number format or a NumPy dtype") from None
    name = _OF_DTYPE.get(dtype.name)
    return (find_format(name) if name else None), dtype.itemsize


def element(arrays: dict[str, Named], text: str) -> tuple[Named, Index]:
    """An element by its text: "c[3, 5]". Raises OperandError for a text that is none, or of an array that has no name here."""
    found = re.fullmatch(r"\s*([A-Za-z_]\w{0,63})\s*\[\s*([0-9]{1,12}(?:\s*,\s*[0-9]{1,12}){0,7})\s*\]\s*", text[:200])
    if found is None or found[1] not in arrays:
        valid = f"an element of {listing(arrays) or 'an array; none has a name yet'}, as in c[3, 5]"
        raise refused(f"why: {shortened(text)}", valid)
    own, index = arrays[found[1]], tuple(int(part) for part in found[2].split(","))
    own.address(index)
    return own, index
