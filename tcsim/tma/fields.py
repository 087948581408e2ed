"""The fields of a tensor map, and what follows from them: units, rows, bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tcsim.tma.types import DATA_TYPES, SLICES, TensorType, Unit

Numbers = tuple[int, ...]

WIDE_PIXELS, WIDE_HALOS = 128, 4
"""Pixels of .im2col::w::128, and how many halos it loads: one after every 32 pixels (PTX ISA)."""


@dataclass(frozen=True)
class TensorFields:
    """What a `tcsim.TensorMap` says of a tensor and its boxes: rules, walks and bits need no more of it."""

    data_type: str = "FLOAT16"
    global_dim: Numbers = ()
    global_strides: Numbers = ()
    box_dim: Numbers = ()
    element_strides: Numbers = ()
    interleave: str = "NONE"
    swizzle: str = "128B"
    oob_fill: str = "NONE"
    l2_promotion: str = "NONE"
    im2col_mode: Literal["", "im2col", "im2col_wide"] = field(default="", kw_only=True)
    pixel_box_lower_corner: Numbers = field(default=(), kw_only=True)  # W[, H[, D]]
    pixel_box_upper_corner: Numbers = field(default=(), kw_only=True)
    channels_per_pixel: int = field(default=0, kw_only=True)
    pixels_per_column: int = field(default=0, kw_only=True)
    wide_mode: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        kind = {"": "TensorMap", "im2col": "TensorMap.im2col", "im2col_wide": "TensorMap.im2col_wide"}[self.im2col_mode]
        return f"{kind}({self.data_type}, {self.global_dim})"

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @property
    def type(self) -> TensorType:
        """The data type's facts."""
        return DATA_TYPES[self.data_type]

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice of channels of an interleaved layout; 0 of any other."""
        return SLICES[self.interleave]

    @property
    def unit(self) -> Unit:
        """What copies move whole."""
        if self.slice_bytes:
            return Unit(1, self.slice_bytes, self.slice_bytes)
        return Unit(self.type.unit_elements, self.type.global_bytes, self.type.shared_bytes)

    @property
    def inner_elements(self) -> int:
        """What the map says of one row of the box."""
        return self.channels_per_pixel if self.im2col_mode else self.box_dim[0]

    @property
    def first_spatial(self) -> int:
        """The dimension that is W: 0 of an interleaved layout, where a slice of channels is not a dimension; otherwise 1."""
        return 0 if self.slice_bytes else 1

    @property
    def loaded(self) -> Numbers:
        """How many a copy moves along each dimension: the box divided by the element stride, rounded up.

        Of an im2col map: channels (or one slice of them) and pixels, without halos. The innermost element stride is
        ignored, as the driver says; in an interleaved layout it is W's and counts, and one channel slice is moved.
        """
        if self.im2col_mode:
            pixels = WIDE_PIXELS if self.wide_mode == "W128" else self.pixels_per_column
            return (1 if self.slice_bytes else self.channels_per_pixel, pixels)
        counts = [-(-size // stride) for size, stride in zip(self.box_dim, self.element_strides, strict=True)]
        if self.slice_bytes:
            counts[-2] = 1
        else:
            counts[0] = self.box_dim[0]
        return tuple(counts)

    @property
    def row_units(self) -> int:
        """Units of one row of the box."""
        return self.loaded[0] // self.unit.indices

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the box in shared memory, padding of packed types included."""
        return self.row_units * self.unit.shared_bytes

    @property
    def transaction_bytes(self) -> int:
        """Bytes that a load adds to the mbarrier's transaction count: those of the box, without gaps, padding and halos.

        Of an im2col-wide map a load adds `halo_bytes` for each pixel of wHalo. Source: measured on an H200 for plain types;
        that padding does not count: CUTLASS (sm_100 collectives, TmaTransactionBytes).

        >>> padded = tcsim.TensorMap("16U4_ALIGN16B", (128, 2), (64,), (128, 2))
        >>> padded.transaction_bytes, padded.row_bytes
        (128, 128)
        """
        return int(np.prod(self.loaded[1:])) * self.row_units * self.unit.global_bytes

    @property
    def halo_bytes(self) -> int:
        """Bytes that one halo pixel adds to a load of an im2col-wide map (of mode W128: one of each 32 pixels); 0 of others."""
        if self.im2col_mode != "im2col_wide":
            return 0
        return self.row_units * self.unit.global_bytes * (WIDE_HALOS if self.wide_mode == "W128" else 1)
