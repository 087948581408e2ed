"""Fragments of tcgen05.ld and tcgen05.st: which register of which lane is which cell of Tensor Memory.

Sources: PTX ISA, section Data Movement Shape (figures 186 to 190); CUTLASS's copy_traits_sm100 and the atoms of its CuTe
DSL say the same, `.pack::16b` included. That `.16x32bx2` is two accesses, lanes 0-15 and lanes 16-31 of the warp, is also
what ptxas makes of it: LDTM.16dp32bit_t0_t15 and LDTM.16dp32bit_t16_t31.

A fragment's matrix is rows of Tensor Memory x columns, counted from the instruction's address. With `.pack::16b` and
`.unpack::16b` an element is the low half of a cell, and a register holds two neighbouring ones. With `.16x32bx2` the first
half of the columns is counted from the address, the second half from the address plus immHalfSplitoff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from tcsim.isa.matrix.fragments import B16
from tcsim.layouts.layout import FragmentLayout, IntTuple, Layout
from tcsim.numbers.formats import Format

B32 = Format("b32", "integer", 32, 32, signed=False, source=B16.source)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_REGISTERS = 128


@dataclass(frozen=True)
class Shape:
    """A data movement shape of ld and st."""

    name: str  # "16x64b"
    rows: int  # lanes of Tensor Memory that a warp reaches
    registers: int  # of a lane for `.x1`
    opcode: str  # what SASS calls it
    modes: Callable[[int, int, int], tuple[IntTuple, IntTuple, IntTuple, IntTuple]]
    # (columns, elements in a register, count) -> thread shape and strides, value shape and strides, columns fastest
    halves: int = 1  # accesses that one instruction makes

    @property
    def counts(self) -> tuple[int, ...]:
        """The repetitions that exist: at most 128 registers."""
        return tuple(count for count in COUNTS if count * self.registers <= MOST_REGISTERS)

    def columns(self, count: int, packed: bool) -> int:
        """Columns of Tensor Memory that the instruction reaches, of both halves together."""
        return self.registers * count * 32 // self.rows * (2 if packed else 1)

    def layout(self, count: int, packed: bool) -> FragmentLayout:
        """The fragment: rows x columns of Tensor Memory from the address on."""
        columns = self.columns(count, packed)
        thread, thread_stride, value, value_stride = self.modes(columns, 2 if packed else 1, count)
        return FragmentLayout(
            Layout(thread, thread_stride),
            Layout(value, value_stride),
            self.rows,
            columns,
            16 if packed else 32,
            column_fastest=True,
        )


def _repeated(shape: tuple[int, ...], stride: tuple[int, ...], count: int, step: int) -> tuple[IntTuple, IntTuple]:
    """Value modes of `.x1`, and one more for the repetitions."""
    if count > 1:
        shape, stride = (*shape, count), (*stride, step)
    return (shape, stride) if len(shape) > 1 else (shape[0], stride[0])


def _16x64b(columns: int, width: int, count: int) -> tuple[IntTuple, IntTuple, IntTuple, IntTuple]:
    """A quad holds rows r and r + 8; lanes 0 and 1 of it the first column, 2 and 3 the second."""
    return (2, 2, 8), (8 * columns, width, columns), *_repeated((width,), (1,), count, 2 * width)


def _16x128b(columns: int, width: int, count: int) -> tuple[IntTuple, IntTuple, IntTuple, IntTuple]:
    """A quad holds rows r and r + 8, one column a lane; the first register is row r, the second row r + 8."""
    return (4, 8), (width, columns), *_repeated((width, 2), (1, 8 * columns), count, 4 * width)


def _16x256b(columns: int, width: int, count: int) -> tuple[IntTuple, IntTuple, IntTuple, IntTuple]:
    """As an accumulator of mma.m16n8: a quad holds rows r and r + 8, two columns a lane."""
    return (4, 8), (2 * width, columns), *_repeated((2 * width, 2), (1, 8 * columns), count, 8 * width)


def _32x32b(columns: int, width: int, count: int) -> tuple[IntTuple, IntTuple, IntTuple, IntTuple]:
    """A lane holds its row."""
    return 32, columns, width * count, 1


def _16x32bx2(columns: int, width: int, count: int) -> tuple[IntTuple, IntTuple, IntTuple, IntTuple]:
    """Lanes 0-15 hold the first half of their rows, lanes 16-31 the second."""
    return (16, 2), (columns, columns // 2), width * count, 1


SHAPES: MappingProxyType[str, Shape] = MappingProxyType(
    {
        shape.name: shape
        for shape in (
            Shape("16x64b", 16, 1, "16dp64bit", _16x64b),
            Shape("16x128b", 16, 2, "16dp128bit", _16x128b),
            Shape("16x256b", 16, 4, "16dp256bit", _16x256b),
            Shape("32x32b", 32, 1, "", _32x32b),
            Shape("16x32bx2", 16, 1, "16dp32bit", _16x32bx2, halves=2),
        )
    }
)
"""The shapes by name."""


def reduced(shape: Shape) -> FragmentLayout:
    """The result of `.red`: one register a lane, of its row (and of `.16x32bx2` of its half, the columns here)."""
    if shape.halves == 2:
        return FragmentLayout(Layout((16, 2), (2, 1)), Layout(1, 0), 16, 2, 32, column_fastest=True)
    return FragmentLayout(Layout(32, 1), Layout(1, 0), 32, 1, 32, column_fastest=True)
