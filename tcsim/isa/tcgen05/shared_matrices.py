"""Matrices of tcgen05.mma in the shared memory of one CTA or a pair, as matrix descriptors name them.

Which bytes a descriptor reads is in `tcsim.descriptors.addresses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.descriptors.addresses import check_descriptors
from tcsim.descriptors.forms import Major, form_of
from tcsim.descriptors.matrix import descriptor_values
from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.isa.tcgen05.cells import Bytes, Ints
from tcsim.isa.tcgen05.lookup_table import INDEX_BITS, ROW_BYTES
from tcsim.model.effects import Access
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.packing import unpacked_fields

Codes = npt.NDArray[Any]


def shared_bytes(smem: Any, ctas: int, call: str) -> Bytes:
    """Shared memory as an array uint8 (..., bytes), for a pair of CTAs (..., 2, bytes).

    Raises OperandError for another dtype or shape.
    """
    memory, pair = np.asarray(smem), ctas == 2
    if memory.dtype != np.uint8 or memory.ndim < 1 + pair or (pair and memory.shape[-2] != 2):
        need = "(..., 2, bytes), one for each CTA" if pair else "(..., bytes)"
        raise OperandError(f"{call}: smem is {memory.dtype} {memory.shape}; valid: uint8 {need}")
    return memory


def descriptor_array(descriptor: Any, what: str) -> npt.NDArray[np.uint64]:
    """64-bit matrix descriptors (...). Raises OperandError for what is not an integer."""
    value = np.asarray(descriptor_values(descriptor))
    if value.dtype.kind not in "iu" or (value.dtype.kind == "i" and (value < 0).any()):
        raise OperandError(f"{what} is {value.dtype} {value.shape}; valid: a 64-bit matrix descriptor")
    return value.astype(np.uint64)


@dataclass(frozen=True)
class SharedTile:
    """The rows of a matrix, each CTA's share of them, behind one descriptor that all CTAs use."""

    tile: TileBytes
    access: Access
    ctas: int
    skip: int = 0  # rows of each CTA that do not count

    @classmethod
    def of(
        cls, descriptor: npt.NDArray[np.uint64], rows: int, k: int, format: Format, major: Major,
        arch: str, kind: str, ranks: Ints, what: str, skip: int = 0, halves: bool = False, operand: str = "",
    ) -> SharedTile:  # fmt: skip
        """The tile of rows x k elements that a descriptor names in each CTA with these ranks: (), or (2,) for a pair.

        Raises OperandError for a descriptor that cannot be.
        """
        check_descriptors(descriptor, arch, what, halves=halves)
        tile = tile_bytes(descriptor, rows, k, format, major, arch, kind)
        address, cta = tile.address, ranks
        if ranks.ndim:
            cta = np.repeat(ranks, address.shape[-1])
            address = np.concatenate([address] * len(ranks), axis=-1)
        return cls(
            tile,
            Access("shared", address, tile.size, proxy="async", cta=cta, tile=tile, operand=operand),
            ranks.size,
            skip,
        )

    def codes(self, data: Bytes) -> Codes:
        """The codes (..., rows of all CTAs, k) in the bytes of the access."""
        if self.ctas == 1:
            found = self.tile.codes(data)
            return found[..., self.skip :, :] if self.skip else found
        parts = data.reshape(*data.shape[:-2], self.ctas, -1, data.shape[-1])
        codes = self.tile.codes(parts)[..., self.skip :, :]
        return codes.reshape(*codes.shape[:-3], -1, codes.shape[-1])


@dataclass(frozen=True)
class SharedIndices:
    """Indices of lookup tables that stand for B."""

    shared: SharedTile
    upper: npt.NDArray[np.bool_]  # (...): which half of each row counts
    k: int

    @classmethod
    def of(
        cls, descriptor: npt.NDArray[np.uint64], rows: int, k: int, arch: str, kind: str, ranks: Ints, what: str
    ) -> SharedIndices:
        """The indices of k rows of B and of each CTA's columns. Raises OperandError as `SharedTile.of` does."""
        tile = SharedTile.of(descriptor, rows, ROW_BYTES, FORMATS["u8"], "K", arch, kind, ranks, what, halves=True)
        return cls(tile, form_of(arch)[1].field("k_half").take_array(descriptor) != 0, k)

    def indices(self, data: Bytes) -> Codes:
        """The indices (..., k, columns of all CTAs)."""
        found = unpacked_fields(self.shared.codes(data), INDEX_BITS)
        chosen = np.where(self.upper[..., None, None], found[..., self.k :], found[..., : self.k])
        return np.asarray(chosen.swapaxes(-1, -2))
