"""The bytes of shared memory that matrix descriptors name, as runs of at most 16 bytes, and the codes in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.descriptors.addresses import along_k, element_bit_addresses
from tcsim.descriptors.forms import CORE_BYTES, Major, form_of
from tcsim.numbers.formats import Format
from tcsim.numbers.packing import unpacked_fields

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TileBytes:
    """Where the rows x k elements of a tile lie: runs of `size` bytes, which no swizzle parts.

    >>> from tcsim.numbers.formats import FORMATS
    >>> tile = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", swizzle="NONE")
    >>> found = tile_bytes(tile.descriptor.encode(), 8, 16, FORMATS["f16"], "K")
    >>> found.size, found.address[:4].tolist()  # row 0, then row 1
    (16, [0, 128, 16, 144])
    >>> data = tile.image(np.arange(128, dtype=np.uint16).reshape(8, 16))[found.address[:, None] + np.arange(16)]
    >>> bool((found.codes(data) == np.arange(128).reshape(8, 16)).all())
    True
    """

    address: Ints  # (..., runs)
    size: int
    rows: int
    k: int
    format: Format
    major: Major
    descriptor: Any = 0  # what names the tile: an int, or uint64 (...)
    arch: str = "sm_90"
    kind: str = ""

    @property
    def lines(self) -> int:
        """How many rows (K-major) or steps of k (MN-major) follow each other in `address`, each with as many runs."""
        return self.rows if self.major == "K" else self.k

    def under(self, descriptor: int) -> TileBytes:
        """The same tile through another descriptor. Raises as `tile_bytes` does."""
        return tile_bytes(descriptor, self.rows, self.k, self.format, self.major, self.arch, self.kind)

    def codes(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """The codes (..., rows, k) in the bytes (..., runs, size) of the runs."""
        batch, bits = data.shape[:-2], self.format.bits
        if bits < 8:
            codes = unpacked_fields(data, bits)
        else:
            codes = np.ascontiguousarray(data).view(f"<u{self.format.container_bits // 8}")
        if self.major == "K":
            return codes.reshape(*batch, self.rows, self.k).astype(self.format.dtype, copy=False)
        found = codes.reshape(*batch, self.k, self.rows).swapaxes(-1, -2)
        return found.astype(self.format.dtype, copy=False)

    def require_inside(self, end: int, what: str) -> None:
        """Raise OperandError unless all runs end before byte `end`."""
        wrong = np.argwhere(self.address + self.size > end)
        if not len(wrong):
            return
        byte = int(self.address[tuple(wrong[0])])
        lines, run = (self.rows, self.k) if self.major == "K" else (self.k, self.rows)
        line, place = divmod(int(wrong[0][-1]), self.address.shape[-1] // lines)
        place *= run * lines // self.address.shape[-1]
        row, column = (line, place) if self.major == "K" else (place, line)
        raise OperandError(f"{what}: row {row}, k {column} lies at byte {byte}, outside the {end} bytes of smem")


def tile_bytes(
    descriptors: Any, rows: int, k: int, format: Format, major: Major, arch: str = "sm_90", kind: str = ""
) -> TileBytes:
    """The runs of the tiles that descriptors (...) name; those of each descriptor are computed once.

    Raises as `MatrixDescriptor.addresses` does.
    """
    value = np.asarray(descriptors, np.uint64)
    if value.size == 1:
        one = _one(int(value.flat[0]), rows, k, format, major, arch, kind)
        return one if value.ndim == 0 else _reshaped(one, one.address, value)
    if not value.size:  # as many runs as any descriptor has, of none
        fixed = sum(number << field.low for field, number in form_of(arch)[1].fixed)
        one = _one(fixed, rows, k, format, major, arch, kind)
        return _reshaped(one, np.zeros((0, one.address.size), one.address.dtype), value)
    return _several(value.tobytes(), value.shape, rows, k, format, major, arch, kind)


def _reshaped(one: TileBytes, address: Ints, descriptors: npt.NDArray[np.uint64]) -> TileBytes:
    return replace(one, address=address.reshape(*descriptors.shape, one.address.shape[-1]), descriptor=descriptors)


@lru_cache(maxsize=256)
def _several(
    descriptors: bytes, shape: tuple[int, ...], rows: int, k: int, format: Format, major: Major, arch: str, kind: str
) -> TileBytes:
    """Of the blocks of a batch: a loop over stages names the same again and again."""
    value = np.frombuffer(descriptors, np.uint64).reshape(shape)
    different, place = np.unique(value, return_inverse=True)
    found = [_one(int(own), rows, k, format, major, arch, kind) for own in different]
    made = _reshaped(found[0], np.stack([own.address for own in found])[place], value)
    made.address.flags.writeable = False
    return made


@lru_cache(maxsize=4096)
def _one(descriptor: int, rows: int, k: int, format: Format, major: Major, arch: str, kind: str) -> TileBytes:
    value = np.array(descriptor, np.uint64)
    bits = element_bit_addresses(value, rows, k, format, major, arch, kind)
    if major == "K":
        elements = gcd(k, along_k(k, format, kind, form_of(arch)[0]).chunk)
        first = bits[:, ::elements]
    else:
        elements = gcd(rows, CORE_BYTES * 8 // format.container_bits)
        first = bits[::elements].T
    size = elements * (format.bits if format.bits < 8 else format.container_bits) // 8
    return TileBytes(np.ascontiguousarray(first).reshape(-1) // 8, size, rows, k, format, major, descriptor, arch, kind)
