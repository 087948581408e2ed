"""Tensor maps: what a TMA copy makes of a tensor in global memory and a box in shared memory.

Memory is bytes: `memory` uint8 (..., bytes), whose index is the offset from the map's global address, and `smem` uint8
(..., bytes), whose index is the shared address. What was seen on hardware and what was not: `tcsim.tma.box`, `docs/tma.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from tcsim.core.addresses import Bytes
from tcsim.core.display import Shown
from tcsim.tma import bits as tensor_bits
from tcsim.tma import copy as tensor_copy
from tcsim.tma import rules as tensor_rules
from tcsim.tma.bits import Buffer
from tcsim.tma.fields import Numbers, TensorFields
from tcsim.tma.types import DATA_TYPES, TensorMapError, find_mode


@dataclass(frozen=True)
class TensorMap(TensorFields, Shown):
    """What a CUtensorMap says of a tensor, without its address. Dimensions are listed innermost first.

    data_type, interleave, swizzle, l2_promotion, oob_fill: the driver's enumerators without their prefix. global_dim: size
    of each dimension in elements. global_strides: bytes from one index to the next of each dimension but the innermost.
    box_dim: what a copy moves, in elements. element_strides: with n a copy takes every n-th element; 1 where left out.
    interleave: with "16B" and "32B" the dimensions are W[, H[, D]], channel slices, N, in slices; a copy moves one channel
    slice, whatever box_dim says of them.

    `TensorMap.im2col(...)` and `TensorMap.im2col_wide(...)` make the other two kinds.

    Raises a subclass of TensorMapError, named after the rule, for what cuTensorMapEncodeTiled would not encode.
    Source: cuda.h 13.5 and the PTX ISA, section Tensors.

    >>> matrix = tcsim.TensorMap("FLOAT16", global_dim=(256, 100), global_strides=(512,), box_dim=(64, 8))
    >>> matrix.transaction_bytes, matrix.loaded
    (1024, (64, 8))
    >>> tcsim.TensorMap("FLOAT16", global_dim=(256, 100), global_strides=(520,), box_dim=(64, 8))
    Traceback (most recent call last):
    ...
    tcsim.tma.rules.GlobalStrideError: TensorMap(FLOAT16, (256, 100)): global_strides[0]=520 bytes (from one index of dimension 1 to the next); valid: multiples of 16 bytes below 2**40
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            given = getattr(self, item.name)
            if isinstance(item.default, tuple):
                object.__setattr__(self, item.name, _numbers(item.name, given))
            elif isinstance(item.default, int):
                object.__setattr__(self, item.name, _numbers(item.name, (given,))[0])
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * self.rank)
        find_mode("data_type", self.data_type, DATA_TYPES)
        tensor_rules.check(self)

    @staticmethod
    def im2col(
        data_type: str = "FLOAT16",
        global_dim: Sequence[int] = (),
        global_strides: Sequence[int] = (),
        pixel_box_lower_corner: Sequence[int] = (),
        pixel_box_upper_corner: Sequence[int] = (),
        channels_per_pixel: int = 0,
        pixels_per_column: int = 0,
        element_strides: Sequence[int] = (),
        interleave: str = "NONE",
        swizzle: str = "128B",
        oob_fill: str = "NONE",
        l2_promotion: str = "NONE",
    ) -> TensorMap:
        """An im2col map, as cuTensorMapEncodeIm2col makes it: dimensions C, W[, H[, D]], N, corners W[, H[, D]].

        The pixel box reaches from the lower corner to size - 1 + upper corner, both included; a copy moves
        `pixels_per_column` rows of `channels_per_pixel` elements. (cuda.h lists corners as {D, H, W}; CUTLASS passes W
        first, and so does this.)

        Raises a subclass of TensorMapError, named after the rule, for what the driver would not encode.

        >>> image = tcsim.TensorMap.im2col("FLOAT16", (64, 9, 14, 64), (128, 1152, 16128), (-1, -1), (-1, -1), 8, 64, swizzle="NONE")
        >>> image.transaction_bytes
        1024
        """
        return TensorMap(
            data_type, tuple(global_dim), tuple(global_strides), (), tuple(element_strides), interleave, swizzle,
            oob_fill, l2_promotion, im2col_mode="im2col", pixel_box_lower_corner=tuple(pixel_box_lower_corner),
            pixel_box_upper_corner=tuple(pixel_box_upper_corner), channels_per_pixel=channels_per_pixel,
            pixels_per_column=pixels_per_column,
        )  # fmt: skip

    @staticmethod
    def im2col_wide(
        data_type: str = "FLOAT16",
        global_dim: Sequence[int] = (),
        global_strides: Sequence[int] = (),
        pixel_box_lower_corner_width: int = 0,
        pixel_box_upper_corner_width: int = 0,
        channels_per_pixel: int = 0,
        pixels_per_column: int = 0,
        element_strides: Sequence[int] = (),
        interleave: str = "NONE",
        mode: str = "W",
        swizzle: str = "128B",
        oob_fill: str = "NONE",
        l2_promotion: str = "NONE",
    ) -> TensorMap:
        """An im2col-wide map of sm_100, as cuTensorMapEncodeIm2colWide makes it: dimensions C, W[, H[, D]], N.

        A copy walks along W and N only, H and D stay. mode "W": `pixels_per_column` pixels, then the halo; "W128": 128
        pixels, then four halos, one of each 32 pixels.

        Raises a subclass of TensorMapError, named after the rule, for what the driver would not encode.

        >>> tcsim.TensorMap.im2col_wide("FLOAT16", (64, 9, 3), (128, 1152), 0, 0, 64, 128, swizzle="NONE")
        Traceback (most recent call last):
        ...
        tcsim.tma.rules.SwizzleModeError: TensorMap.im2col_wide(FLOAT16, (64, 9, 3)): swizzle='NONE' of an im2col-wide map; valid: 64B, 128B, 128B_ATOM_32B
        """
        return TensorMap(
            data_type, tuple(global_dim), tuple(global_strides), (), tuple(element_strides), interleave, swizzle,
            oob_fill, l2_promotion, im2col_mode="im2col_wide", pixel_box_lower_corner=(pixel_box_lower_corner_width,),
            pixel_box_upper_corner=(pixel_box_upper_corner_width,), channels_per_pixel=channels_per_pixel,
            pixels_per_column=pixels_per_column, wide_mode=mode,
        )  # fmt: skip

    def load(self, memory: Any, coordinates: Any, smem: Any, address: Any = 0, offsets: Any = None) -> Bytes:
        """cp.async.bulk.tensor, global to shared: a copy of smem with the box written at `address`.

        memory: uint8 (..., bytes); its index is the offset from the tensor's global address. coordinates: integers (...,
        rank), innermost first, perhaps negative or beyond the tensor. smem: uint8 (..., bytes); its index is the shared
        address. address: multiples of 128 (...). offsets: of an im2col map, integers (..., rank - 2), W first; of an
        im2col-wide map wHalo and wOffset (..., 2), with one wHalo for all; zeros if left out. Leading dimensions broadcast.
        Bytes between rows stay.

        Raises OperandError for another dtype or shape; MisalignedCoordinateError, MisalignedAddressError,
        OutsideMemoryError, CoordinateError for a place that cannot be; NotModelledError where nothing is known.

        >>> memory = np.arange(64, dtype=np.uint16).view(np.uint8)  # 4 rows of 16
        >>> rows = tcsim.TensorMap("UINT16", (16, 4), (32,), (8, 2), swizzle="NONE")
        >>> smem = rows.load(memory, (8, 3), smem=np.full(128, 0xA5, np.uint8))
        >>> smem.view(np.uint16)[:16].tolist()  # the second row lies outside
        [56, 57, 58, 59, 60, 61, 62, 63, 0, 0, 0, 0, 0, 0, 0, 0]
        """
        return tensor_copy.load(self, memory, coordinates, smem, address, offsets)

    def gather4(self, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """cp.async.bulk.tensor.2d with .tile::gather4 (sm_100): coordinates (..., 5) are the column and four rows.

        Everything else as `load`. The map has 2 dimensions and box_dim[1] = 1. Source: PTX ISA.

        >>> memory = np.arange(64, dtype=np.uint16).view(np.uint8)
        >>> rows = tcsim.TensorMap("UINT16", (16, 4), (32,), (8, 1), swizzle="NONE")
        >>> rows.gather4(memory, (0, 3, 1, 1, 9), smem=np.zeros(128, np.uint8)).view(np.uint16)[::8].tolist()
        [48, 16, 16, 0, 0, 0, 0, 0]
        """
        return tensor_copy.load(self, memory, coordinates, smem, address, None, rows4=True)

    def store(self, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """cp.async.bulk.tensor, shared to global: a copy of memory with the box from `address` written.

        Operands as `load`; elements outside the tensor are not written, **except** behind the end of a row in its last 16
        bytes: what lies there is overwritten (measured on an H200). An im2col map is one of .im2col_no_offs, an
        im2col-wide one of .im2col_no_offs::w (sm_107).

        Raises as `load`, DirectionError for a type or swizzle of loads only, ContestedRowError if two elements of the box
        are one place of the tensor, and StoreCoordinateError for negative coordinates, which the PTX manual excludes.

        >>> rows = tcsim.TensorMap("UINT16", (16, 4), (32,), (8, 2), swizzle="NONE")
        >>> smem = np.arange(1, 65, dtype=np.uint16).view(np.uint8)
        >>> rows.store(np.zeros(128, np.uint8), (8, 3), smem).view(np.uint16)[56:].tolist()
        [1, 2, 3, 4, 5, 6, 7, 8]
        """
        return tensor_copy.store(self, memory, coordinates, smem, address)

    def scatter4(self, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """cp.async.bulk.tensor.2d with .tile::scatter4 (sm_100): coordinates (..., 5) are the column and four rows.

        Raises as `store`.

        >>> rows = tcsim.TensorMap("UINT8", (16, 9), (16,), (16, 1), swizzle="NONE")
        >>> smem = np.repeat(np.uint8([1, 2, 3, 4]), 16)
        >>> rows.scatter4(np.zeros(144, np.uint8), (0, 8, 0, 2, 5), smem)[::16].tolist()
        [2, 0, 3, 0, 0, 4, 0, 0, 1]
        """
        return tensor_copy.store(self, memory, coordinates, smem, address, rows4=True)

    def reduce(self, op: str, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """cp.reduce.async.bulk.tensor: a copy of memory, each element combined with the box's.

        op: add, min, max, inc, dec, and, or, xor. Operands as `store`.

        Raises as `store`, and ReductionError for a reduction that the data type does not have.

        >>> counts = tcsim.TensorMap("UINT32", (4,), (), (4,), swizzle="NONE")
        >>> smem = np.uint32([1, 2, 3, 4] * 8).view(np.uint8)
        >>> counts.reduce("add", np.uint32([10, 20, 30, 40]).view(np.uint8), (0,), smem).view(np.uint32).tolist()
        [11, 22, 33, 44]
        """
        return tensor_copy.store(self, memory, coordinates, smem, address, op="" if op is None else op)

    def encode(self, global_address: int, allocation: Literal["SMALL", "LARGE"] = "SMALL") -> bytes:
        """The 128 bytes of the CUtensorMap, as the driver makes them on an sm_90. Bits: `tcsim.tma.bits`.

        allocation: the class that the driver chooses for itself (LARGE on Blackwell for tensors of 128 KiB and more), a
        promise about memory that is not a property of the tensor.

        Raises GlobalAddressError for an address that the map cannot have, NotModelledError for an im2col-wide map.

        >>> matrix = tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64), l2_promotion="L2_128B", swizzle="NONE")
        >>> matrix.encode(0x7FFF00010000).hex(" ", 4)[:35]
        '00000100 ff7f0000 10030400 20000000'
        >>> tcsim.TensorMap.decode(matrix.encode(0x7FFF00010000)) == matrix
        True
        """
        return tensor_bits.encode(self, global_address, allocation)

    @staticmethod
    def decode(data: Buffer, strict: bool = True) -> TensorMap:
        """The map that 64 or 128 bytes of a CUtensorMap describe, in any object with a buffer. Its address: `TensorMap.address_of`.

        strict: every bit must follow from the map and its address. With False they are left out, and `TensorMap.unexplained`
        lists them: so one reads maps whose box tensormap.replace has changed, which leaves the second half as it was.

        Raises TensorMapError for another length, or bits that nothing explains, all of which it lists; of a map that the
        driver would not have made, the error of the rule it breaks.

        >>> data = bytearray(tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64)).encode(0))
        >>> data[57] = 7  # the size of the box in dimension 2, less 1
        >>> tcsim.TensorMap.decode(data)
        Traceback (most recent call last):
        ...
        tcsim.tma.types.TensorMapError: TensorMap.decode: box_dim[2] is 8: the map has 2 dimensions
        >>> tcsim.TensorMap.decode(data, strict=False).box_dim
        (64, 64)
        """
        found = TensorMap(**tensor_bits.decode(data))
        if strict and (lines := tensor_bits.unexplained(found, data)):
            raise TensorMapError(f"TensorMap.decode: {'; '.join(lines)}")
        return found

    @staticmethod
    def unexplained(data: Buffer) -> tuple[str, ...]:
        """What 64 or 128 bytes say that does not follow from the map they decode to and its address, a line for each.

        Set bits beyond the rank, bits that belong to no field, and in the second half a number of bytes or an alignment that
        are not this map's. Nothing if the second half is zeros, as CuTe DSL leaves it.

        Raises TensorMapError as `decode` does for bytes that are no map at all.

        >>> data = bytearray(tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64)).encode(0))
        >>> data[64] ^= 1
        >>> data[127] = 0x80
        >>> print(*tcsim.TensorMap.unexplained(data), sep="\\n")
        box_bytes is 8193: of this map it is 8192
        bits 1023 are set, and what they mean is not known
        """
        return tensor_bits.unexplained(TensorMap.decode(data, strict=False), data)

    @staticmethod
    def address_of(data: Buffer) -> int:
        """The global address in the bytes of a CUtensorMap.

        >>> matrix = tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64))
        >>> hex(tcsim.TensorMap.address_of(matrix.encode(0x7FFF00010000)))
        '0x7fff00010000'
        """
        return tensor_bits.read(data)["global_address"]


def _numbers(name: str, given: Any) -> Numbers:
    """Integers of any kind as a tuple of ints. Raises TensorMapError for anything else."""
    try:
        items = tuple(given)
    except TypeError:
        raise TensorMapError(f"TensorMap: {name}={given!r}; valid: a sequence of integers, innermost first") from None
    if any(isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer) for item in items):
        raise TensorMapError(f"TensorMap: {name}={given!r}; valid: integers")
    return tuple(int(item) for item in items)
