"""Block scales of mma: which bytes of which lanes hold the scale of each row of A and column of B.

A row of A (a column of B) is cut along K into 1, 2 or 4 blocks (`.scale_vec::1X`, `2X`, `4X`), each with one scale of 8
bits. Every lane passes one 32-bit register of scales of A and one of B; the instruction reads only some of their bytes. Lanes
4g to 4g + 3 serve rows g and g + 8 of A and column g of B. The thread id says which of the four:

    row m of A:     lane 4 * (m % 8) + 2 * thread_id_a + m // 8      bytes byte_id_a + block
    column n of B:  lane 4 * n + thread_id_b                         bytes byte_id_b + block

Sources: PTX ISA, section Block Scaling for mma.sync (selectors, and its figures of the lanes); CUTLASS, mma_traits_sm120.hpp
(SFALayout, SFBLayout); ptxas 13.5 (which selectors it takes). It was not measured for this project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast_together, integers
from tcsim.core.errors import OperandError, listing
from tcsim.layouts.layout import IntTuple, Layout
from tcsim.numbers.formats import Format

Codes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
"""Valid byte ids by the number of blocks: several blocks take neighbouring bytes, aligned."""
THREAD_IDS = {"a": (0, 1), "b": (0, 1, 2, 3)}
"""Valid thread ids: a pair of the four lanes for A, a single one for B."""


@dataclass(frozen=True)
class ScaleLayout:
    """Where the scales of one operand are: a function between (row, column) of the scale matrix and (lane, slot).

    The scale matrix of A is M x blocks, that of B is blocks x N, as in `matmul`. Slot s is bits 8s to 8s + 7 of the
    lane's only register.

    >>> layout = ScaleLayout("a", 16, 2)
    >>> str(layout)
    '((8,2),2):((16,4),1) + 8*thread_id + byte_id'
    >>> layout.where(9, 1, byte_id=2, thread_id=1)
    (7, 0, 3)
    >>> layout(7, 0, 3, byte_id=2, thread_id=1)
    (9, 1)
    """

    side: Literal["a", "b"]
    extent: int  # M for A, N for B
    blocks: int  # scales of a row of A or column of B

    @property
    def rows(self) -> int:
        """Rows of the scale matrix."""
        return self.extent if self.side == "a" else self.blocks

    @property
    def columns(self) -> int:
        """Columns of the scale matrix."""
        return self.blocks if self.side == "a" else self.extent

    @property
    def byte_ids(self) -> tuple[int, ...]:
        """Valid values of the byte id."""
        return BYTE_IDS[self.blocks]

    @property
    def thread_ids(self) -> tuple[int, ...]:
        """Valid values of the thread id."""
        return THREAD_IDS[self.side]

    @property
    def bytes(self) -> Layout:
        """(row of A or column of B, block) -> byte of the 128 that 32 lanes hold, for byte id and thread id 0."""
        if self.side == "b":
            return Layout((self.extent, self.blocks), (16, 1))
        shape: IntTuple = ((8, self.extent // 8), self.blocks)
        return Layout(shape, ((16, 4), 1))

    def __str__(self) -> str:
        return f"{self.bytes} + {8 if self.side == 'a' else 4}*thread_id + byte_id"

    def check(self, byte_id: Any, thread_id: Any) -> tuple[Indices, Indices]:
        """Byte ids and thread ids, integers or arrays of them, as arrays.

        Raises OperandError for a value that the instruction does not have.
        """
        given = []
        for name, values, valid in (("byte_id", byte_id, self.byte_ids), ("thread_id", thread_id, self.thread_ids)):
            array = np.asarray(values)
            if array.dtype.kind not in "iu":
                raise OperandError(f"{name}_{self.side} {values!r} is not an integer; valid: {listing(valid)}")
            wrong = ~np.isin(array, valid)
            if wrong.any():
                raise OperandError(
                    f"{name}_{self.side} {int(array[wrong].flat[0])} does not exist with .scale_vec::{self.blocks}X; "
                    f"valid: {listing(valid)}"
                )
            given.append(array.astype(np.int64))
        return given[0], given[1]

    def places(self, byte_id: Any = 0, thread_id: Any = 0) -> Indices:
        """The byte, 4 * lane + slot, of every scale: (..., rows, columns), with the leading axes of the selectors.

        Raises OperandError for selectors that do not exist.

        Pre-conditions:
            byte_id in self.byte_ids
            thread_id in self.thread_ids
        Post-conditions:
            result.shape == (self.rows, self.columns)
            len(np.unique(result)) == self.rows * self.columns
            0 <= result.min() and result.max() < 128
        """
        byte, thread = self.check(byte_id, thread_id)
        table = self.bytes(np.arange(self.extent * self.blocks)).reshape(self.blocks, self.extent)
        table = table.T if self.side == "a" else table
        return table + ((8 if self.side == "a" else 4) * thread + byte)[..., None, None]

    def where(self, row: Any, column: Any, *, byte_id: int = 0, thread_id: int = 0) -> tuple[Any, Any, Any]:
        """(lane, register, slot) of a scale; the register is 0.

        Raises OperandError for a row, column or selector that does not exist.

        Pre-conditions:
            0 <= row < self.rows
            0 <= column < self.columns
            byte_id in self.byte_ids
            thread_id in self.thread_ids
        Post-conditions:
            self(*result, byte_id=byte_id, thread_id=thread_id) == (row, column)
        """
        scalar = np.ndim(row) == np.ndim(column) == 0
        row, column = broadcast_together("row, column", integers(row, "row"), integers(column, "column"))
        for name, found, limit in (("row", row, self.rows), ("column", column, self.columns)):
            if ((found < 0) | (found >= limit)).any():
                raise OperandError(f"{name} {found.tolist()} does not exist: valid are 0 to {limit - 1}")
        lane, slot = np.divmod(self.places(byte_id, thread_id)[row, column], 4)
        return (int(lane), 0, int(slot)) if scalar else (lane, np.zeros_like(lane), slot)

    def __call__(self, lane: Any, register: Any, slot: Any, *, byte_id: int = 0, thread_id: int = 0) -> tuple[Any, Any]:
        """(row, column) of the scale in a byte of a lane's register.

        Raises OperandError for a lane, register or slot that does not exist, and for one that is not read.

        Pre-conditions:
            register == 0
            4 * lane + slot in self.places(byte_id, thread_id)
        Post-conditions:
            self.where(*result, byte_id=byte_id, thread_id=thread_id) == (lane, register, slot)
        """
        scalar = all(np.ndim(x) == 0 for x in (lane, register, slot))
        names = ("lane", "register", "slot")
        given = [integers(x, name) for name, x in zip(names, (lane, register, slot), strict=True)]
        lane, register, slot = broadcast_together("lane, register, slot", *given)
        for name, found, limit in (("lane", lane, 32), ("register", register, 1), ("slot", slot, 4)):
            if ((found < 0) | (found >= limit)).any():
                raise OperandError(f"{name} {found.tolist()} does not exist: valid are 0 to {limit - 1}")
        holder = np.full(128, -1)
        holder[self.places(byte_id, thread_id)] = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        element = holder[4 * lane + slot + 0 * register]
        if (element < 0).any():
            raise OperandError(
                f"lane {lane.tolist()}, slot {slot.tolist()} is not read with byte_id_{self.side} {byte_id}, "
                f"thread_id_{self.side} {thread_id}; `where` says which are"
            )
        row, column = np.divmod(element, self.columns)
        return (int(row), int(column)) if scalar else (row, column)

    def gather(self, words: npt.NDArray[np.uint32], byte_id: Any, thread_id: Any) -> Codes:
        """The scale matrices (..., rows, columns) in registers (..., 32); selectors are integers or (...) arrays.

        Raises OperandError for selectors that do not exist.

        Post-conditions:
            result.shape == (*words.shape[:-1], self.rows, self.columns)
            self.scatter(result, byte_id, thread_id) & ~words == 0
        """
        places = self.places(byte_id, thread_id)
        places = places.reshape(*places.shape[:-2], self.rows * self.columns)
        octets = np.ascontiguousarray(words, "<u4").view(np.uint8)
        batch = np.broadcast_shapes(octets.shape[:-1], places.shape[:-1])
        codes = np.take_along_axis(
            np.broadcast_to(octets, (*batch, 128)), np.broadcast_to(places, (*batch, places.shape[-1])), axis=-1
        )
        return codes.reshape(*batch, self.rows, self.columns)

    def scatter(self, scales: Codes, byte_id: int = 0, thread_id: int = 0) -> npt.NDArray[np.uint32]:
        """Registers (..., 32) that hold scale matrices (..., rows, columns); bytes that are not read are zero.

        Raises OperandError for selectors that do not exist.

        Post-conditions:
            self.gather(result, byte_id, thread_id) == scales
            np.count_nonzero(result.view(np.uint8)) == np.count_nonzero(scales)
        """
        octets = np.zeros((*scales.shape[:-2], 128), np.uint8)
        octets[..., self.places(byte_id, thread_id)] = scales
        return octets.view("<u4").astype(np.uint32, copy=False)


@dataclass(frozen=True)
class ScaleOperand:
    """The scales of A or of B: their number format and where they are."""

    name: str  # "scale_a" or "scale_b"
    format: Format
    layout: ScaleLayout

    @property
    def lanes(self) -> int:
        """Lanes that pass a register: all of the warp."""
        return 32

    @property
    def registers(self) -> int:
        """32-bit registers per lane."""
        return 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the scale matrix."""
        return self.layout.rows, self.layout.columns


@dataclass(frozen=True)
class BlockScaling:
    """What a block-scaled mma has beyond its fragments."""

    kind: str  # "mxf8f6f4", "mxf4" or "mxf4nvf4"
    a: ScaleOperand
    b: ScaleOperand

    @property
    def blocks(self) -> int:
        """Scales of a row of A: the number in `.scale_vec::1X`, also where the spelling leaves it out."""
        return self.a.layout.blocks
