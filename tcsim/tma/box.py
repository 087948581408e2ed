"""Where the bytes of a box lie: in the tensor (and which are outside it), and in shared memory.

Measured on an H200 for tiled and im2col copies (random maps, ranks 1 to 5, every swizzle of sm_90, element strides, boxes
across the edges; none interleaved). gather4 is the PTX manual's. Three things the manual leaves open are NumSim's (the emulator of mlc-ai/TIRx-harness), whose authors checked
their rows on an sm_100: the order of halos, the element stride along N, and the dimensions of interleaved layouts. The
last agree with which interleaved boxes were seen to complete and which to fault on an H100 (`docs/tma.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.tma.fields import TensorFields
from tcsim.tma.types import SWIZZLE_MODES, TensorSwizzle, Unit

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


HALO_STEP = 32
"""After how many pixels .im2col::w::128 loads a halo (PTX ISA)."""


STORED_BYTES = 16
"""Stores and reductions end a row of the tensor at a multiple of this many bytes (measured on an H200)."""


@dataclass(frozen=True)
class Places:
    """The rows of boxes. What a *unit* is: `Unit`."""

    rows: Integers  # (..., rows): byte offset of the row's index 0 from the tensor's address
    rows_inside: Flags  # (..., rows): the row is inside the tensor in every dimension but the innermost
    units: Integers  # (..., units): index of each unit along the innermost dimension
    units_inside: Flags  # (..., units)

    def offsets(self, unit: Unit) -> Integers:
        """Byte offset of every unit from the tensor's address: (..., rows, units)."""
        return self.rows[..., :, None] + self.units[..., None, :] * unit.global_bytes

    @property
    def inside(self) -> Flags:
        """Whether the unit is inside the tensor: (..., rows, units)."""
        return self.rows_inside[..., :, None] & self.units_inside[..., None, :]


class BoxWalk:
    """How a copy walks: over the tensor, and over shared memory. Coordinates are (..., rank), innermost first."""

    def tiled(self, tmap: TensorFields, coordinates: Integers) -> Places:
        """The box at the coordinates: ceil(box / element stride) indices a dimension, innermost fastest."""
        rows: Integers = np.zeros(1, np.int64)
        inside: Flags = np.ones(1, bool)
        for dim in range(1, tmap.rank):
            count = tmap.loaded[dim]
            index = coordinates[..., dim, None] + np.arange(count) * tmap.element_strides[dim]
            rows = _outer(rows, index * tmap.global_strides[dim - 1], np.add)
            inside = _outer(inside, self.inside(index, tmap.global_dim[dim]), np.logical_and)
        return Places(rows, inside, *self._innermost(tmap, coordinates[..., 0]))

    def gathered(self, tmap: TensorFields, coordinates: Integers) -> Places:
        """Four rows of a 2-dimensional tensor: coordinates (..., 5) are the column, then four rows."""
        index = coordinates[..., 1:]
        inside = self.inside(index, tmap.global_dim[1])
        return Places(index * tmap.global_strides[0], inside, *self._innermost(tmap, coordinates[..., 0]))

    def im2col(self, tmap: TensorFields, coordinates: Integers, offsets: Integers) -> Places:
        """The pixels of a column: coordinates (..., rank) are C, W[, H[, D]], N; offsets (..., rank - 2) W[, H[, D]].

        The walk starts at the coordinates and goes through the pixel box along W, then H, D and N, each by its element
        stride; the pixel read is the one of the walk plus the offsets. Of an interleaved layout the coordinates are W[, H[,
        D]], the slice, N.
        """
        steps: Integers = np.arange(tmap.pixels_per_column)
        indices: dict[int, Integers] = {}
        for place in range(tmap.rank - 2):
            dim = tmap.first_spatial + place
            low, high = pixel_range(tmap, place)
            pixel, steps = _walk(steps, coordinates[..., dim, None], low, high, tmap.element_strides[dim])
            indices[dim] = pixel + offsets[..., place, None]
        indices[tmap.rank - 1] = self._image(tmap, coordinates, steps)
        return self._column(tmap, coordinates, indices)

    def im2col_wide(self, tmap: TensorFields, coordinates: Integers, halo: int, shift: Integers) -> Places:
        """The pixels of a column along W and N, and its halos: coordinates (..., rank) are C, W[, H[, D]], N; shift (...).

        The pixel box and the first pixel are shifted by wOffset. A halo goes on where the pixels before it stop; those of
        W128 lie behind all pixels, first the first pixel of each of the four, then the second.
        """
        low, high = (edge + shift[..., None] for edge in pixel_range(tmap, 0))
        start = coordinates[..., 1, None] + shift[..., None]
        pixel, steps = _walk(self.wide_steps(tmap, halo), start, low, high, tmap.element_strides[1])
        indices = {dim: coordinates[..., dim, None] for dim in range(2, tmap.rank - 1)}
        return self._column(
            tmap, coordinates, {1: pixel, **indices, tmap.rank - 1: self._image(tmap, coordinates, steps)}
        )

    def wide_steps(self, tmap: TensorFields, halo: int) -> Integers:
        """How many steps into the walk each row of an im2col-wide load is."""
        pixels = tmap.loaded[1]
        if tmap.wide_mode != "W128":
            return np.arange(pixels + halo)
        first = np.arange(HALO_STEP, pixels + 1, HALO_STEP)
        return np.concatenate([np.arange(pixels), (np.arange(halo)[:, None] + first).reshape(-1)])

    def _image(self, tmap: TensorFields, coordinates: Integers, steps: Integers) -> Integers:
        """The index along N after this many wraps."""
        return coordinates[..., -1, None] + steps * tmap.element_strides[-1]

    def _column(self, tmap: TensorFields, coordinates: Integers, indices: dict[int, Integers]) -> Places:
        """A column whose rows have indices (..., rows) of the dimensions that are walked; the slice of channels stays."""
        if tmap.slice_bytes:
            indices = indices | {tmap.rank - 2: coordinates[..., -2, None]}
        rows = sum((index * stride_of(tmap, dim) for dim, index in indices.items()), np.int64(0))
        inside = np.ones(np.shape(rows), bool)
        for dim, index in indices.items():
            inside = inside & self.inside(index, tmap.global_dim[dim])
        if tmap.slice_bytes:  # each row is one slice, and W is in the row's offset
            units = np.zeros((*coordinates.shape[:-1], 1), np.int64)
            return Places(np.asarray(rows), inside, units, np.ones(units.shape, bool))
        return Places(np.asarray(rows), inside, *self._innermost(tmap, coordinates[..., 0]))

    def stored(self, tmap: TensorFields) -> TensorFields:
        """The map by which a store or reduction tells inside from outside: its rows end at a multiple of 16 bytes.

        What lies behind the last element of a row, but in the same 16 bytes, is written like the tensor's own. Loads are
        exact to the element. Measured on an H200 for elements of 8 to 64 bits, tiled and im2col; inferred for smaller ones.
        """
        if tmap.slice_bytes:  # whose innermost index is 16 or 32 bytes
            return tmap
        row = -(-tmap.global_dim[0] * tmap.type.bits // (8 * STORED_BYTES)) * STORED_BYTES
        return replace(tmap, global_dim=(row * 8 // tmap.type.bits, *tmap.global_dim[1:]))

    def inside(self, index: Integers, size: int) -> Flags:
        """Whether indices of a dimension are inside the tensor."""
        return (index >= 0) & (index < size)

    def shared_bytes(self, tmap: TensorFields, rows: int, address: Integers) -> Integers:
        """The shared address of every byte of every row: (..., rows, bytes of a row), for start addresses (...)."""
        plain = np.arange(rows)[:, None] * self.pitch(tmap) + np.arange(tmap.row_bytes)
        return self.swizzled(SWIZZLE_MODES[tmap.swizzle], plain, address[..., None, None])

    def pitch(self, tmap: TensorFields) -> int:
        """Bytes from one row to the next in shared memory: the swizzle's span; rows are packed without a swizzle.

        Rows of an interleaved layout are packed: with 32-byte slices they fill the span of its swizzle.
        """
        return max(SWIZZLE_MODES[tmap.swizzle].span, tmap.row_bytes)

    def swizzled(self, swizzle: TensorSwizzle, plain: Integers, address: Integers) -> Integers:
        """Where bytes lie that are `plain` bytes after the start: the swizzle acts on the absolute address."""
        return np.asarray(swizzle(address + plain))  # type: ignore[arg-type]

    def _innermost(self, tmap: TensorFields, column: Integers) -> tuple[Integers, Flags]:
        each, stride = tmap.unit.indices, tmap.element_strides[0] if tmap.slice_bytes else 1
        units = column[..., None] // each + np.arange(tmap.row_units) * stride
        return units, self.inside(units, tmap.global_dim[0] // each)


WALK = BoxWalk()
"""What the hardware does."""


def pixel_range(tmap: TensorFields, place: int) -> tuple[int, int]:
    """The first and the last index of the pixel box along W (place 0), H (1) or D (2)."""
    last = tmap.global_dim[tmap.first_spatial + place] - 1 + tmap.pixel_box_upper_corner[place]
    return tmap.pixel_box_lower_corner[place], last


def stride_of(tmap: TensorFields, dim: int) -> int:
    """Bytes from one index of a dimension to the next; of dimension 0 those of a unit."""
    return tmap.global_strides[dim - 1] if dim else tmap.unit.global_bytes


def _walk(
    steps: Integers, start: Integers, low: int | Integers, high: int | Integers, stride: int
) -> tuple[Integers, Integers]:
    """Index after this many steps from `start`, wrapping from beyond `high` to `low`; and how often it wrapped."""
    first = (high - start) // stride + 1  # indices of the first line, from the start on
    line = (high - low) // stride + 1  # of every other line
    rest = steps - first
    before = rest < 0
    return (
        np.where(before, start + steps * stride, low + rest % line * stride),
        np.where(before, 0, rest // line + 1),
    )


def _outer(rows: npt.NDArray[Any], index: npt.NDArray[Any], join: np.ufunc) -> npt.NDArray[Any]:
    """Rows of one more dimension, the earlier ones fastest: (..., n), (..., m) -> (..., m * n)."""
    joined = join(index[..., :, None], rows[..., None, :])
    return joined.reshape(*joined.shape[:-2], joined.shape[-2] * joined.shape[-1])
