"""Closed formulas of a fragment's layout: row and column from lane, register and slot, and back.

They are read off the modes of the CuTe layout: each mode takes one digit of the lane, the register or the slot to one
digit of the row, the column or the matrix. `/` is integer division, `%` the remainder, as in C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tcsim.layouts.layout import FragmentLayout, IntTuple, Layout
from tcsim.model.operand import Fragment


@dataclass(frozen=True)
class Digit:
    """`factor * (variable / divide % modulo)`."""

    factor: int
    variable: str  # "lane", "register", "slot"; "row", "column", "matrix"
    divide: int
    modulo: int | None  # None: the quotient is below it anyway

    def __str__(self) -> str:
        text = self.variable + (f"/{self.divide}" if self.divide > 1 else "")
        if self.modulo is not None:
            text += f"%{self.modulo}"
        return text if self.factor == 1 else f"{self.factor}*{self._braced(text)}"

    def _braced(self, text: str) -> str:
        return f"({text})" if self.divide > 1 or self.modulo is not None else text

    def value(self, variables: dict[str, Any]) -> Any:
        """The number for ints or arrays of the variables."""
        digit = variables[self.variable] // self.divide
        return self.factor * (digit if self.modulo is None else digit % self.modulo)


@dataclass(frozen=True)
class Formula:
    """A sum of digits.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> for formula in formulas_of(mma.operands["a"]).values():
    ...     print(formula)
    row = lane/4 + 8*(register%2)
    column = 2*(lane%4) + 8*(register/2) + slot
    lane = 4*(row%8) + column/2%4
    register = row/8 + 2*(column/8)
    slot = column%2
    """

    name: str
    digits: tuple[Digit, ...]

    def __str__(self) -> str:
        return f"{self.name} = {' + '.join(map(str, self.digits)) or '0'}"

    def value(self, **variables: Any) -> Any:
        """The number for ints or arrays of the variables."""
        return sum(digit.value(variables) for digit in self.digits)


@dataclass(frozen=True)
class _Mode:
    """The digit `variable / divide % extent` takes steps of `stride` of a coordinate."""

    variable: str
    divide: int
    extent: int
    coordinate: str  # "row", "column", "matrix"; "" if it repeats elements
    stride: int


def formulas_of(operand: Fragment) -> dict[str, Formula]:
    """The closed formulas of an operand by what they give: row, column[, matrix], lane, register, slot.

    A register is one of PTX: of 64-bit elements two words. Of several copies of an element the inverse names the first.
    Without its formula, `matrix` is 0; `slot` is 0 where a register holds one element.
    """
    layout = operand.layout
    modes = list(_modes(layout))
    sizes = {
        "lane": layout.lanes, "register": operand.count, "slot": layout.slots,
        "row": layout.rows, "column": layout.columns, "matrix": layout.matrices,
    }  # fmt: skip
    forward: dict[str, list[_Mode]] = {"row": [], "column": [], "matrix": []}
    back: dict[str, list[_Mode]] = {"lane": [], "register": [], "slot": []}
    for mode in modes:
        if mode.coordinate:
            forward[mode.coordinate].append(mode)
            inverse = _Mode(mode.coordinate, mode.stride, mode.extent, mode.variable, mode.divide)
            back[mode.variable].append(inverse)
    wanted = ["row", "column", *(["matrix"] if layout.matrices > 1 else []), "lane", "register"]
    wanted += ["slot"] if layout.slots > 1 and layout.element_bits < 64 else []
    return {name: Formula(name, tuple(_digits((forward | back)[name], sizes))) for name in wanted}


def _digits(modes: list[_Mode], sizes: dict[str, int]) -> Iterator[Digit]:
    merged: list[_Mode] = []
    order = list(sizes)
    for mode in sorted(modes, key=lambda m: (order.index(m.variable), m.divide)):
        last = merged[-1] if merged else None
        follows = last is not None and last.variable == mode.variable and last.divide * last.extent == mode.divide
        if last is not None and follows and last.stride * last.extent == mode.stride:
            merged[-1] = _Mode(last.variable, last.divide, last.extent * mode.extent, last.coordinate, last.stride)
        else:
            merged.append(mode)
    for mode in merged:
        top = mode.divide * mode.extent >= sizes[mode.variable]
        yield Digit(mode.stride, mode.variable, mode.divide, None if top else mode.extent)


def _modes(layout: FragmentLayout) -> Iterator[_Mode]:
    """All digits of lane, register and slot, each inside one coordinate."""
    whole = layout.rows * layout.columns
    inner = layout.columns if layout.column_fastest else layout.rows
    names = ("column", "row") if layout.column_fastest else ("row", "column")
    bounds = ((1, inner, names[0]), (inner, whole, names[1]), (whole, whole * layout.matrices, "matrix"))
    selecting = [] if layout.matrix is None else list(_flat(layout.matrix))
    for variable, divide, extent, stride in _sources(layout):
        if stride == 0:
            chosen = [(e, s) for d, e, s in selecting if variable == "lane" and d == divide and e == extent and s]
            yield _Mode(variable, divide, extent, "matrix" if chosen else "", chosen[0][1] if chosen else 0)
            continue
        for low, high, coordinate in bounds:
            inside = min(extent, max(0, -(-high // stride))) if low <= stride < high else 0
            if inside:
                yield _Mode(variable, divide, inside, coordinate, stride // low)
                divide, extent, stride = divide * inside, extent // inside, stride * inside
            if extent <= 1:
                break


def _sources(layout: FragmentLayout) -> Iterator[tuple[str, int, int, int]]:
    """(variable, divide, extent, stride of the index) of every mode; those of a value split at register boundaries."""
    for divide, extent, stride in _flat(layout.thread):
        yield "lane", divide, extent, stride
    slots = 1 if layout.element_bits == 64 else layout.slots
    for divide, extent, stride in _flat(layout.value):
        in_slot = min(extent, max(1, slots // divide)) if divide < slots else 1
        if in_slot > 1:
            yield "slot", divide, in_slot, stride
        if extent > in_slot:
            yield "register", max(1, divide * in_slot // slots), extent // in_slot, stride * in_slot


def _flat(layout: Layout) -> Iterator[tuple[int, int, int]]:
    """(divide, extent, stride) of the modes of extent above 1."""
    divide = 1
    for extent, stride in zip(_leaves(layout.shape), _leaves(layout.stride), strict=True):
        if extent > 1:
            yield divide, extent, stride
        divide *= extent


def _leaves(x: IntTuple) -> Iterator[int]:
    if isinstance(x, int):
        yield x
    else:
        for item in x:
            yield from _leaves(item)
