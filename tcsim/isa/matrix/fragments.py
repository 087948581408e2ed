"""Fragment layouts of ldmatrix, stmatrix and movmatrix: which lane holds which element of which matrix.

Sources: PTX ISA, sections ldmatrix, stmatrix and movmatrix (Figures 104 to 110); for the 8-bit shapes CUTLASS's
copy_traits_sm100 (SM100_U8x8_LDSM_T with the permutation that its copy() applies, SM100_U8x4_STSM_T), which say the same.

The matrix is what the registers hold. A row address in shared memory points to one of its rows; with `.trans`, to one
of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.layouts.layout import FragmentLayout, IntTuple, Layout
from tcsim.numbers.formats import FORMATS, Format

B16 = Format("b16", "integer", 16, 16, signed=False, source="PTX ISA, section Fundamental Types: bits, not a number")
B8 = Format("b8", "integer", 8, 8, signed=False, source=B16.source)
S8 = FORMATS["s8"]


@dataclass(frozen=True)
class StackedLayout(FragmentLayout):
    """A TV layout of `count` matrices of one shape, one after another in the registers of every lane.

    Index `m + M * n + M * N * matrix`. Called with (lane, register, slot) it answers (row, column) inside the matrix;
    `matrix_of(register)` says which matrix. `where(row, column, matrix)` is the inverse.

    >>> layout = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.b16", arch="sm_90").operands["d"].layout
    >>> str(layout), layout.matrices, layout.where(3, 5, 2)
    ('((4,8),(2,4)):((16,1),(8,64))', 4, (14, 2, 1))
    >>> layout(14, 2, 1), layout.matrix_of(2)
    ((3, 5), 2)
    """

    count: int = 1  # matrices

    @property
    def matrices(self) -> int:
        """How many matrices the fragment holds."""
        return self.count

    def matrix_of(self, register: Any) -> Any:
        """The matrix that a register holds a part of; an int or an array.

        Raises OperandError for a register that does not exist.
        """
        given = np.asarray(register, np.int64)
        if ((given < 0) | (given >= self.registers)).any():
            raise OperandError(f"register {given.tolist()} does not exist: valid are 0 to {self.registers - 1}")
        matrix = given // (self.registers // self.count)
        return int(matrix) if given.ndim == 0 else matrix

    def _element(self, lane: Any, value: Any) -> tuple[Any, Any]:
        index = (self.thread(lane) + self.value(value)) % (self.rows * self.columns)
        return index % self.rows, index // self.rows

    @cached_property
    def flat_element(self) -> npt.NDArray[np.intp]:
        """The place, in the matrices one after another, of each value of a warp in lane order."""
        lane, value = np.divmod(np.arange(self.lanes * self.value.size), self.value.size)
        row, column = self._element(lane, value)
        matrix = (self.thread(lane) + self.value(value)) // (self.rows * self.columns)
        return ((matrix * self.rows + row) * self.columns + column).astype(np.intp)


def _stacked(modes: tuple[tuple[int, int], ...], rows: int, columns: int, bits: int, count: int) -> StackedLayout:
    """A layout from its lane modes (quad lane, quad) and value modes, all as (extent, stride), times `count` matrices."""
    (_, within), (_, quad), *values = modes
    if count > 1:
        values.append((count, rows * columns))
    shape: IntTuple = tuple(extent for extent, _ in values) if len(values) > 1 else values[0][0]
    stride: IntTuple = tuple(step for _, step in values) if len(values) > 1 else values[0][1]
    return StackedLayout(Layout((4, 8), (within, quad)), Layout(shape, stride), rows, columns, bits, count=count)


def m8n8(count: int) -> StackedLayout:
    """8 x 8 of 16 bits: a quad holds a row, a lane two neighbours of it."""
    return _stacked(((4, 16), (8, 1), (2, 8)), 8, 8, 16, count)


def m8n16(count: int) -> StackedLayout:
    """8 x 16 of 8 bits: a quad holds a row, a lane four neighbours of it."""
    return _stacked(((4, 32), (8, 1), (4, 8)), 8, 16, 8, count)


def m16n16(count: int) -> StackedLayout:
    """16 x 16 of 8 bits: a quad holds rows r and r + 8, a lane four neighbours of each, a register one row's."""
    return _stacked(((4, 64), (8, 1), (4, 16), (2, 8)), 16, 16, 8, count)


def m16n8(count: int) -> StackedLayout:
    """16 x 8 of 8 bits: a quad holds rows r and r + 8, a lane two neighbours of each, all four in one register."""
    return _stacked(((4, 32), (8, 1), (2, 16), (2, 8)), 16, 8, 8, count)
