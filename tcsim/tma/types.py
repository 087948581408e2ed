"""What a tensor map can name: data types, swizzles, interleaves, L2 promotions, fills. Each is a row of data.

Names are the suffixes of the driver's enumerators (CU_TENSOR_MAP_DATA_TYPE_FLOAT16). Sources: cuda.h 13.5 (names, numbers,
sizes); PTX ISA, tensormap.replace (its numbers) and section Tensors (packed types, swizzles).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar

from tcsim.core import errors
from tcsim.core.arguments import is_name
from tcsim.core.errors import OperandError, listing, nearest
from tcsim.layouts.swizzle import SWIZZLES, Swizzle


class TensorMapError(OperandError):
    """A tensor map, or a use of one, that the driver or the hardware does not take."""


class UnknownModeError(TensorMapError):
    """A data type, swizzle, interleave, promotion or fill that does not exist."""


class NotModelledError(TensorMapError, errors.NotModelledError):
    """Something that the assembler or the driver accepts and whose effect nobody has documented or measured."""


@dataclass(frozen=True)
class TensorType:
    """A data type of tensor maps. A *unit* is what is moved whole: one element, or a group of packed ones."""

    name: str  # suffix of CU_TENSOR_MAP_DATA_TYPE_
    driver: int  # the enumerator's number
    ptx: int  # `new_val` of tensormap.replace.elemtype: another numbering
    bits: int  # of an element in global memory
    unit_elements: int = 1
    unit_global: int = 0  # bytes in global memory; 0: the element's own
    unit_shared: int = 0  # bytes in shared memory, padding included
    floating: bool = False  # may be filled with NaN
    rounds: bool = False  # loads round to tf32 (measured on an H200); that stores copy was not asked
    box: int = 0  # the only innermost box that the type takes, in elements; 0: any
    dim_multiple: int = 1  # of the innermost dimension and, with `box`, of its coordinate
    address_multiple: int = 16  # of the global address and the strides, in bytes
    load_only: bool = False  # no copy from shared to global memory (PTX ISA, restrictions on tensor copies)

    @property
    def global_bytes(self) -> int:
        """Bytes of a unit in global memory."""
        return self.unit_global or self.bits // 8

    @property
    def shared_bytes(self) -> int:
        """Bytes of a unit in shared memory."""
        return self.unit_shared or self.bits // 8

    @property
    def packed(self) -> bool:
        """Elements smaller than a byte: sm_100 and later."""
        return self.bits < 8


DATA_TYPES: MappingProxyType[str, TensorType] = MappingProxyType(
    {
        row.name: row
        for row in (
            TensorType("UINT8", 0, 0, 8),
            TensorType("UINT16", 1, 1, 16),
            TensorType("UINT32", 2, 2, 32),
            TensorType("INT32", 3, 3, 32),
            TensorType("UINT64", 4, 4, 64),
            TensorType("INT64", 5, 5, 64),
            TensorType("FLOAT16", 6, 6, 16, floating=True),
            TensorType("FLOAT32", 7, 7, 32, floating=True),
            TensorType("FLOAT64", 8, 9, 64, floating=True),
            TensorType("BFLOAT16", 9, 10, 16, floating=True),
            # A load copies its bits: additions alone flush subnormal numbers (measured on an H200).
            TensorType("FLOAT32_FTZ", 10, 8, 32, floating=True),
            TensorType("TFLOAT32", 11, 11, 32, floating=True, rounds=True),
            TensorType("TFLOAT32_FTZ", 12, 12, 32, floating=True, rounds=True),
            # 16 elements of 4 bits in 8 bytes, without gaps: moved byte by byte.
            TensorType("16U4_ALIGN8B", 13, 13, 4, 2, 1, 1, dim_multiple=2),
            # 16 elements of 4 bits: 8 bytes become 16; the upper 8 are padding.
            TensorType("16U4_ALIGN16B", 14, 14, 4, 16, 8, 16, box=128, dim_multiple=128, address_multiple=32, load_only=True),
            # 16 elements of 6 bits: 12 bytes become 16; the upper 4 are padding. A store takes 6 bits a byte.
            TensorType("16U6_ALIGN16B", 15, 15, 6, 16, 12, 16, box=128, dim_multiple=128, address_multiple=32),
        )
    }
)  # fmt: skip
"""Data types by name."""


@dataclass(frozen=True)
class Unit:
    """What a map's copies move whole: an element, a group of packed ones, or a slice of an interleaved layout."""

    indices: int  # of the innermost dimension
    global_bytes: int
    shared_bytes: int  # padding included


@dataclass(frozen=True)
class TensorSwizzle:
    """How rows of the box are permuted in shared memory: XORs of bits of the absolute address."""

    name: str  # suffix of CU_TENSOR_MAP_SWIZZLE_
    driver: int  # the enumerator's number
    mode: int  # `new_val` of tensormap.replace.swizzle_mode
    atomicity: int  # `new_val` of tensormap.replace.swizzle_atomicity: sm_100 and later
    span: int  # bytes of a row in shared memory, and the most an inner box may have; 0: rows are packed
    parts: tuple[Swizzle, ...]  # applied together; they do not change the bits that they read
    load_only: bool = False  # no copy from shared to global memory (PTX ISA, swizzling modes)

    def __call__(self, address: int) -> int:
        """Where the byte of an address lies: an int, or an array of integers."""
        for part in self.parts:
            address = part(address)
        return address


SWIZZLE_MODES: MappingProxyType[str, TensorSwizzle] = MappingProxyType(
    {
        row.name: row
        for row in (
            TensorSwizzle("NONE", 0, 0, 0, 0, ()),
            TensorSwizzle("32B", 1, 1, 0, 32, (SWIZZLES["32B"],)),
            TensorSwizzle("64B", 2, 2, 0, 64, (SWIZZLES["64B"],)),
            TensorSwizzle("128B", 3, 3, 0, 128, (SWIZZLES["128B"],)),
            # Chunks of 32 bytes: bits 6:5 ^= bits 8:7.
            TensorSwizzle("128B_ATOM_32B", 4, 3, 1, 128, (Swizzle(2, 5, 2),)),
            # The same, and in every second line of 128 bytes the 8-byte halves of 16 bytes change places: bit 3 ^= bit 7.
            TensorSwizzle("128B_ATOM_32B_FLIP_8B", 5, 3, 2, 128, (Swizzle(2, 5, 2), Swizzle(1, 3, 4)), load_only=True),
            # Chunks of 64 bytes: bit 6 ^= bit 7.
            TensorSwizzle("128B_ATOM_64B", 6, 3, 3, 128, (Swizzle(1, 6, 1),)),
        )
    }
)
"""Swizzles by name. 32B, 64B and 128B were seen on an H200 (no recording); the ATOM forms are the PTX manual's tables (sm_100)."""

INTERLEAVES: MappingProxyType[str, int] = MappingProxyType({"NONE": 0, "16B": 1, "32B": 2})
"""Interleaves by name: the driver's number, which is tensormap.replace's too."""

SLICES: MappingProxyType[str, int] = MappingProxyType({"NONE": 0, "16B": 16, "32B": 32})
"""Bytes of channels that an interleaved layout keeps together, by interleave; 0: the layout is not interleaved."""

L2_PROMOTIONS: MappingProxyType[str, int] = MappingProxyType({"NONE": 0, "L2_64B": 1, "L2_128B": 2, "L2_256B": 3})
"""L2 promotions by name: a hint without effect on values."""

OOB_FILLS: MappingProxyType[str, int] = MappingProxyType({"NONE": 0, "NAN_REQUEST_ZERO_FMA": 1})
"""Fills of elements outside the tensor by name."""

WIDE_MODES: MappingProxyType[str, int] = MappingProxyType({"W": 0, "W128": 1})
"""Modes of cuTensorMapEncodeIm2colWide by name."""

NAN_FILL = 0x7FF7
"""The 16-bit pattern that a NaN fill repeats over the element (seen on an H200; no recording)."""

Mode = Literal["data_type", "swizzle", "interleave", "l2_promotion", "oob_fill", "wide_mode"]
_PREFIXES: dict[str, str] = {
    "data_type": "CU_TENSOR_MAP_DATA_TYPE_",
    "swizzle": "CU_TENSOR_MAP_SWIZZLE_",
    "interleave": "CU_TENSOR_MAP_INTERLEAVE_",
    "l2_promotion": "CU_TENSOR_MAP_L2_PROMOTION_",
    "oob_fill": "CU_TENSOR_MAP_FLOAT_OOB_FILL_",
    "wide_mode": "CU_TENSOR_MAP_IM2COL_WIDE_MODE_",
}
_Entry = TypeVar("_Entry")


def find_mode(mode: Mode, name: str, table: MappingProxyType[str, _Entry]) -> _Entry:
    """The entry of a table by its name.

    Raises UnknownModeError, which names the nearest and all, for a name that is not in it.
    """
    if not is_name(name, table):
        close = nearest(str(name), table, 1)
        raise UnknownModeError(
            f"{mode}={name!r}: there is no {_PREFIXES[mode]}{name}; nearest: {close[0]}; all: {listing(table)}"
        )
    return table[name]


def padded_swizzles(data_type: TensorType) -> dict[str, tuple[str, ...]]:
    """Swizzles that a padded type takes, by direction ("load", "store"); empty for a type that takes all.

    Source: cuda.h 13.5, cuTensorMapEncodeTiled.
    """
    if data_type.name == "16U6_ALIGN16B":
        both = ("NONE", "128B", "128B_ATOM_32B")
        return {"load": both, "store": (*both, "128B_ATOM_64B")}
    if data_type.name == "16U4_ALIGN16B":
        return {"load": ("NONE", "128B", "128B_ATOM_32B"), "store": ()}
    return {}
