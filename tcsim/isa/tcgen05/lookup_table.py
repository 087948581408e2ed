"""How .decompress::lut::b makes B out of three-bit indices and tables of eight numbers.

Eight columns of B share a table. A column's indices of 128 k fill 48 bytes, low bits first; an instruction takes those of one
half. Source: PTX ISA, section Decompression of B of tcgen05.mma; the order of bits by Triton's test of it on sm_107.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.memory.tmem_layout import LOOKUP_COLUMNS, LOOKUP_ENTRIES

INDEX_BITS = 3
ROW_BYTES = 48
"""Bytes of a row that a matrix descriptor names: the indices of two instructions."""


def looked_up(indices: npt.NDArray[Any], tables: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The codes (..., K, N) that indices (..., K, N) choose from tables (..., N / 8, 8); leading dimensions broadcast.

    >>> tables = np.arange(16, dtype=np.uint8).reshape(2, 8) * 2
    >>> looked_up(np.full((1, 16), 3), tables)[0, [0, 15]].tolist()
    [6, 22]
    """
    batch = np.broadcast_shapes(indices.shape[:-2], tables.shape[:-2])
    indices = np.broadcast_to(indices, (*batch, *indices.shape[-2:])).astype(np.int64)
    of_column = np.repeat(tables, LOOKUP_COLUMNS, axis=-2).swapaxes(-1, -2)  # (..., 8, N)
    return np.take_along_axis(np.broadcast_to(of_column, (*batch, *of_column.shape[-2:])), indices, axis=-2)


def check_indices(indices: npt.NDArray[Any], what: str) -> None:
    """Raise OperandError for indices that are not integers from 0 to 7."""
    if indices.dtype.kind not in "iu":
        raise OperandError(f"{what} is {indices.dtype}; valid: integers, indices of a lookup table")
    wrong = (indices < 0) | (indices >= LOOKUP_ENTRIES)
    if wrong.any():
        raise OperandError(f"{what}: index {indices[wrong].flat[0]}; valid: 0 to {LOOKUP_ENTRIES - 1}")


def packed(indices: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes (..., 3 K / 8) that hold indices (..., K).

    Raises OperandError for an index that three bits cannot hold, and for rows whose indices do not fill whole bytes.
    """
    array = np.asarray(indices)
    check_indices(array, "packed")
    if array.shape[-1] % 8:
        raise OperandError(f"packed: {array.shape[-1]} indices a row; valid: multiples of 8")
    bits = array[..., None].astype(np.uint8) >> np.arange(INDEX_BITS, dtype=np.uint8) & np.uint8(1)
    return np.packbits(bits.reshape(*array.shape[:-1], -1), axis=-1, bitorder="little")
