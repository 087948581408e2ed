"""`assert_bits`: two arrays are equal in every bit; if not, where they differ first, in which lane and register, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, TcsimError
from tcsim.inspection.outputs import output_problem
from tcsim.launchers.comparison import Comparison, compare_codes
from tcsim.launchers.elements import Array, Elements, elements, elements_of
from tcsim.layouts.layout import FragmentLayout
from tcsim.numbers.codec import as_codes
from tcsim.numbers.packing import unpack
from tcsim.trace import trace


def assert_bits(
    actual: Any, expected: Any, *, format: str | None = None, ulp: int | None = None, layout: FragmentLayout | None = None,
    instruction: Any = None, operand: str = "d", inputs: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Assert that two arrays have the same bits; with `ulp`, that no element is more than that many codes of its format away.

    actual, expected: arrays of one shape: NumPy, ml_dtypes, torch or CuPy. format: what unsigned integers are codes of; without it the dtype says.
    layout: how a fragment lies in registers; the arrays are registers uint32 (..., lanes, registers), or matrices (..., rows, columns).
    instruction, operand: whose fragment it is, which says format and layout. inputs: the arguments of the instruction's
    `execute` or `matmul` by name; with them the failure of a result has its trace.

    Raises AssertionError, with the first element that differs, its index, both codes and values, its lane, register and slot, and the
    trace; OperandError or FormatError for arrays that cannot be compared.

    >>> assert_bits(np.float16([1, 2]), np.float16([1, 2]))
    >>> assert_bits(np.uint8([0x38, 0x40]), np.uint8([0x38, 0x41]), format="e4m3")
    Traceback (most recent call last):
    ...
    AssertionError: 1 of 2 elements of e4m3 differ
      first      [1]
      actual     0x40 = 2
      expected   0x41 = 2.25
      apart      1 ulp
    """
    __tracebackhide__ = True
    text = _failure(actual, expected, format, ulp, layout, instruction, operand, inputs)
    if text:
        raise AssertionError(text)


def _failure(
    actual: Any, expected: Any, format: str | None, ulp: int | None, layout: FragmentLayout | None, instruction: Any, operand: str,
    inputs: Mapping[str, Any] | None,
) -> str:  # fmt: skip
    if instruction is not None:
        if operand not in instruction.operands:
            raise OperandError(
                f"assert_bits: {instruction!r} has no operand {operand!r}; valid: {', '.join(instruction.operands)}"
            )
        fragment = instruction.operands[operand]
        format, layout = format or fragment.format.name, layout or fragment.layout
    if layout is not None and format is None:
        raise OperandError("assert_bits: layout without format; valid: both, or an instruction")
    got, want = host_array(actual), host_array(expected)
    if got.shape != want.shape:
        return f"the shapes differ: {got.shape}, expected {want.shape}"
    kind = (
        elements(format, "assert_bits: format")
        if format is not None
        else elements_of(want.dtype, "assert_bits: expected")
    )
    in_registers = (
        layout is not None
        and got.dtype == want.dtype == np.uint32
        and got.shape[-2:] == (layout.lanes, layout.registers)
    )
    first, second = (
        _codes(own, kind, layout if in_registers else None, what) for own, what in ((got, "actual"), (want, "expected"))
    )
    found = compare_codes("", kind, first.shape, first.reshape(-1), second.reshape(-1), ulp)
    if found.equal:
        return ""
    lines = _described(found)
    assert found.first is not None
    if layout is not None:
        place = _place(layout, found.first.index, first.shape, in_registers)
        lines.insert(1, f"  element    {place.text}")
        if instruction is not None and inputs is not None:
            lines += _traced(instruction, inputs, place) if operand == "d" else []
    return "\n".join(lines)


def host_array(value: Any) -> npt.NDArray[Any]:
    """An array on the host, of NumPy; of a type that NumPy does not have the bits as unsigned integers."""
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # CuPy
        return np.asarray(value.get())
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        try:
            return np.asarray(plain.numpy())
        except TypeError:  # bfloat16, float8
            bits = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
            return np.asarray(plain.view(bits).numpy().view(f"u{plain.element_size()}"))
    return np.asarray(value)


def _codes(array: Array, kind: Elements, layout: FragmentLayout | None, what: str) -> Array:
    """The codes of an array; of registers (..., lanes, values)."""
    if layout is not None:
        assert kind.format is not None
        return unpack(array, kind.format, layout.element_bits).reshape(*array.shape[:-1], -1)
    array = array.view(np.uint8) if array.dtype == np.bool_ else array
    if kind.format is not None:
        return as_codes(array, kind.format, f"assert_bits: {what}")
    if array.dtype.itemsize * 8 != kind.bits or array.dtype.kind not in "iu":
        raise OperandError(f"assert_bits: {what} is {array.dtype}; valid: integers of {kind.bits} bits")
    return np.ascontiguousarray(array).view(kind.dtype).reshape(array.shape)


def _described(found: Comparison) -> list[str]:
    own, kind = found.first, found.elements
    assert own is not None
    allowed = "" if found.ulp is None else f" by more than {found.ulp} ulp"
    apart = "one is NaN, or not a code" if own.ulps is None else f"{own.ulps} ulp"
    if found.largest is not None and found.differing > 1 and found.largest != own.ulps:
        apart += f"; the largest difference is {found.largest} ulp"
    return [
        f"{found.differing} of {found.compared} elements of {kind.name} differ{allowed}",
        f"  first      [{', '.join(map(str, own.index))}]",
        f"  actual     {kind.code_text(own.got)} = {kind.value_text(own.got)}",
        f"  expected   {kind.code_text(own.want)} = {kind.value_text(own.want)}",
        f"  apart      {apart}",
    ]


@dataclass(frozen=True)
class _Place:
    """Where an element is: in the matrix and in the registers."""

    row: int
    column: int
    lane: int
    register: int
    slot: int
    matrix: int  # of several independent ones
    item: int  # of the batch

    @property
    def text(self) -> str:
        return f"row {self.row}, column {self.column}: lane {self.lane}, register {self.register}, slot {self.slot}"


def _place(layout: FragmentLayout, index: tuple[int, ...], shape: tuple[int, ...], in_registers: bool) -> _Place:
    if in_registers:
        *item, lane, value = index
        bit = value * layout.element_bits
        register, slot = bit // 32, bit % 32 // layout.element_bits
        row, column = layout(lane, register, slot)
        matrix = 0 if layout.matrix is None else int(layout.matrix(lane))
    else:
        *item, row, column = index
        matrix = int(item.pop()) if layout.matrices > 1 else 0
        lane, register, slot = layout.where(row, column, matrix)
    batch = int(np.ravel_multi_index(tuple(item), shape[: len(item)])) if item else 0
    return _Place(int(row), int(column), int(lane), int(register), int(slot), matrix, batch)


def _traced(instruction: Any, inputs: Mapping[str, Any], place: _Place) -> list[str]:
    """The trace of the element, or why there is none."""
    arrays = {name: host_array(own) for name, own in inputs.items()}
    try:
        problem = output_problem(instruction, arrays, (place.row, place.column), place.item, place.matrix)
        return [f"  {line}" for line in ("trace", *trace(instruction, *problem))]
    except (TcsimError, ValueError) as error:
        return [f"  no trace: {error}"]
