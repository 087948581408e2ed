"""CuTe layouts `shape:stride`, and where each element of a fragment lives in a warp's registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from tcsim.core import display
from tcsim.core.arguments import broadcast_together, integer, integers
from tcsim.core.errors import OperandError

IntTuple = Union[int, tuple["IntTuple", ...]]


def _leaves(x: IntTuple) -> Iterator[int]:
    if isinstance(x, int):
        yield x
    else:
        for item in x:
            yield from _leaves(item)


def _text(x: IntTuple) -> str:
    if isinstance(x, int):
        return str(x) if x.bit_length() <= 64 else f"(of {x.bit_length()} bits)"
    return "(" + ",".join(_text(item) for item in x) + ")"


@dataclass(frozen=True)
class Layout:
    """A CuTe layout: a function from a coordinate, counted with the first mode fastest, to an index.

    >>> layout = Layout((4, (2, 3)), (6, (1, 2)))
    >>> str(layout), layout.size, int(layout(5)), int(layout(1, (1, 0)))
    ('(4,(2,3)):(6,(1,2))', 24, 7, 7)
    >>> str(Layout((4, (2, 3))))  # without strides: compact, first mode fastest
    '(4,(2,3)):(1,(4,8))'

    Raises OperandError for shape and stride that do not nest alike, or hold anything but integers.
    """

    shape: IntTuple
    stride: IntTuple = ()

    def __post_init__(self) -> None:
        try:
            try:
                alike = _profile(self.shape) == _profile(self.stride)
            except TypeError:  # NumPy's integers and lists are taken too
                object.__setattr__(self, "shape", _plain(self.shape, "shape"))
                object.__setattr__(self, "stride", _plain(self.stride, "stride"))
                alike = _profile(self.shape) == _profile(self.stride)
        except RecursionError:
            raise OperandError("Layout: shape or stride nests too deeply") from None
        if not alike and self.stride == ():
            object.__setattr__(self, "stride", _compact(self.shape, 1)[0])
        elif not alike:
            raise OperandError(f"layout {self}: shape and stride must nest alike")
        modes = zip(_leaves(self.shape), _leaves(self.stride), strict=True)
        reach = sum(max(abs(extent), 1) * abs(stride) for extent, stride in modes)
        if reach >> 62 or prod(map(abs, _leaves(self.shape))) >> 62:
            raise OperandError("Layout: a size or an index beyond 62 bits; valid: smaller extents and strides")

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    def _repr_svg_(self) -> str | None:
        return display.rendered(self)

    @cached_property
    def size(self) -> int:
        """The number of coordinates."""
        return prod(_leaves(self.shape))

    def __call__(self, *coordinate: Any) -> npt.NDArray[np.int64]:
        """The index at a linear coordinate, or at one with an entry for each mode; integers or arrays of them.

        Raises OperandError for a coordinate that is not in the shape.

        Pre-conditions:
            len(coordinate) != 1 or isinstance(coordinate[0], tuple) or 0 <= coordinate[0] < self.size
        Post-conditions:
            len(coordinate) == 1 or int(result) == sum(Layout(*mode)(x) for *mode, x in zip(self.shape, self.stride, coordinate))
        """
        if len(coordinate) == 1 and not isinstance(coordinate[0], tuple):
            return self._at_linear(integers(coordinate[0], "coordinate"))
        modes = coordinate[0] if len(coordinate) == 1 else coordinate
        if isinstance(self.shape, int) or len(modes) != len(self.shape):
            raise OperandError(
                f"layout {self}: coordinate {modes} has another rank; valid: a number, or one for each mode"
            )
        assert not isinstance(self.stride, int)
        parts = [
            Layout(shape, stride)(part) for part, shape, stride in zip(modes, self.shape, self.stride, strict=True)
        ]
        return np.asarray(sum(broadcast_together("coordinate", *parts)), np.int64)

    def _at_linear(self, rest: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        outside = (rest < 0) | (rest >= self.size)
        if outside.any():
            bad = int(rest[outside].flat[0])
            raise OperandError(f"layout {self}: no coordinate {bad}; valid are 0 to {self.size - 1}")
        index = np.zeros_like(rest)
        for extent, stride in zip(_leaves(self.shape), _leaves(self.stride), strict=True):
            index = index + rest % extent * stride
            rest = rest // extent
        return index


def _profile(x: IntTuple) -> Any:
    if isinstance(x, int):
        return None
    if not isinstance(x, tuple):
        raise TypeError
    return tuple(_profile(item) for item in x)


def _plain(x: Any, what: str) -> IntTuple:
    """Python's ints and tuples for any integers and sequences."""
    if isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.ndim):
        return tuple(_plain(item, what) for item in x)
    return integer(x, f"Layout: {what}")


def _compact(shape: IntTuple, step: int) -> tuple[IntTuple, int]:
    """Strides that leave no gaps, the first mode fastest, as CuTe's default; and the product of the extents."""
    if isinstance(shape, int):
        return step, step * shape
    strides = []
    for mode in shape:
        stride, step = _compact(mode, step)
        strides.append(stride)
    return tuple(strides), step


@dataclass(frozen=True)
class FragmentLayout:
    """A TV layout: (lane, value) to the element of a matrix, and the packing of values into 32-bit registers.

    `thread` and `value` map to `m + M * k` for A, `n + N * k` for B and `m + M * n` for C and D: CuTe's convention,
    so that `str(layout)` can be compared with CuTe's MMA traits. Called with (lane, register, slot) it answers
    (row, column) of A (M x K), B (K x N), C or D (M x N).

    >>> layout = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90").operands["a"].layout
    >>> str(layout), layout(3, 1, 0), layout.where(8, 6)
    ('((4,8),(2,2,2)):((32,1),(16,8,128))', (8, 6), (3, 1, 0))
    """

    thread: Layout  # lane -> index
    value: Layout  # value -> index, in register order
    rows: int  # rows of the matrix as the API shows it
    columns: int  # columns of the matrix as the API shows it
    element_bits: int  # bits an element takes in a register, padding included
    column_fastest: bool = False  # the index runs along columns first: B, which CuTe sees as N x K
    matrix: Layout | None = None  # lane -> which of several independent matrices; None: there is one
    copies: int = 1  # places that hold each element; above 1, a mode of stride 0 repeats it and `where` names the first

    def __str__(self) -> str:
        return f"({_text(self.thread.shape)},{_text(self.value.shape)}):({_text(self.thread.stride)},{_text(self.value.stride)})"

    def _repr_svg_(self) -> str | None:
        return display.rendered(self)

    @property
    def lanes(self) -> int:
        """The number of lanes that hold the fragment."""
        return self.thread.size

    @property
    def slots(self) -> int:
        """Elements in one 32-bit register; 1 for a 64-bit element, which takes two registers."""
        return max(1, 32 // self.element_bits)

    @property
    def registers(self) -> int:
        """32-bit registers per lane."""
        return self.value.size * self.element_bits // 32

    @property
    def matrices(self) -> int:
        """How many independent matrices the fragment holds: 4 for m8n8k4, else 1."""
        return 1 if self.matrix is None else int(self.matrix(np.arange(self.lanes)).max()) + 1

    def __call__(self, lane: Any, register: Any, slot: Any) -> tuple[Any, Any]:
        """(row, column) of the element in `slot` (0 = lowest bits) of `register` of `lane`; ints or arrays.

        Both registers of a 64-bit element answer, with slot 0.

        Raises OperandError for a lane, register or slot that does not exist, and for arrays that do not broadcast.

        Pre-conditions:
            0 <= lane < self.lanes
            0 <= register < self.registers
            0 <= slot < self.slots
        Post-conditions:
            0 <= result[0] < self.rows and 0 <= result[1] < self.columns
            self.copies > 1 or self.matrices > 1 or self.element_bits > 32 or self.where(*result) == (lane, register, slot)
        """
        names = ("lane", "register", "slot")
        given = [integers(x, name) for name, x in zip(names, (lane, register, slot), strict=True)]
        scalar = all(x.ndim == 0 for x in given)
        lane, register, slot = broadcast_together("lane, register, slot", *given)
        _require_below(names, (lane, register, slot), (self.lanes, self.registers, self.slots))
        value = register * 32 // self.element_bits + slot
        row, column = self._element(lane, value)
        return (int(row), int(column)) if scalar else (row, column)

    def where(self, row: Any, column: Any, matrix: Any = 0) -> tuple[Any, Any, Any]:
        """(lane, register, slot) that holds an element; for a 64-bit element, the register of its low word.

        Raises OperandError for a row, column or matrix that does not exist, and for arrays that do not broadcast.

        Pre-conditions:
            0 <= row < self.rows
            0 <= column < self.columns
            0 <= matrix < self.matrices
        Post-conditions:
            self(*result) == (row, column)
        """
        names = ("row", "column", "matrix")
        given = [integers(x, name) for name, x in zip(names, (row, column, matrix), strict=True)]
        scalar = all(x.ndim == 0 for x in given)
        row, column, matrix = broadcast_together("row, column, matrix", *given)
        _require_below(names, (row, column, matrix), (self.rows, self.columns, self.matrices))
        lane, value = np.divmod(self.holder[matrix, row, column], self.value.size)
        bit = value * self.element_bits
        register, slot = bit // 32, bit % 32 // self.element_bits
        return (int(lane), int(register), int(slot)) if scalar else (lane, register, slot)

    def _element(self, lane: Any, value: Any) -> tuple[Any, Any]:
        index = self.thread(lane) + self.value(value)
        if self.column_fastest:
            return index // self.columns, index % self.columns
        return index % self.rows, index // self.rows

    @cached_property
    def holder(self) -> npt.NDArray[np.int64]:
        """`lane * values + value` that holds each element, the first place of several: (matrices, rows, columns).

        Post-conditions:
            result.shape == (self.matrices, self.rows, self.columns)
            self.flat_element[result.reshape(-1)] == np.arange(result.size)
        """
        size = self.matrices * self.rows * self.columns
        if (np.bincount(self.flat_element, minlength=size) != self.copies).any():
            often = "exactly once" if self.copies == 1 else f"exactly {self.copies} times"
            raise OperandError(f"layout {self} does not hold every element {often}")
        table = np.empty(size, np.int64)
        table[self.flat_element[::-1]] = np.arange(self.flat_element.size)[::-1]  # the last assignment stays
        return table.reshape(self.matrices, self.rows, self.columns)

    @cached_property
    def copies_in_lanes(self) -> bool:
        """Copies of an element lie in different lanes; if there are copies and this is false, one lane holds them all."""
        own = self.flat_element[: self.value.size]
        return self.copies > 1 and len(np.unique(own)) == len(own)

    @cached_property
    def flat_holder(self) -> npt.NDArray[np.intp]:
        """`holder` flattened: gathers a matrix from the values of a warp in lane order.

        Post-conditions:
            self.flat_element[result] == np.arange(result.size)
        """
        return self.holder.ravel().astype(np.intp)

    @cached_property
    def flat_element(self) -> npt.NDArray[np.intp]:
        """The inverse of `flat_holder`: gathers the values of a warp, in lane order, from its matrices."""
        lane, value = np.divmod(np.arange(self.lanes * self.value.size), self.value.size)
        row, column = self._element(lane, value)
        which = np.zeros_like(lane) if self.matrix is None else self.matrix(lane)
        return ((which * self.rows + row) * self.columns + column).astype(np.intp)


def _require_below(names: tuple[str, ...], given: tuple[Any, ...], limits: tuple[int, ...]) -> None:
    for name, numbers, limit in zip(names, given, limits, strict=True):
        outside = (numbers < 0) | (numbers >= limit)
        if outside.any():
            raise OperandError(f"{name} {int(numbers[outside].flat[0])} does not exist: valid are 0 to {limit - 1}")
