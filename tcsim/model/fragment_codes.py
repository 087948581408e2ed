"""Fragments as matrices of codes: what the registers of all lanes hold, and the registers that hold it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.engines.places import Places, at_bits
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.operand import Fragment
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format
from tcsim.numbers.packing import field_shift, pack, unpack


def codes_of(operand: Fragment, registers: Any, call: str) -> npt.NDArray[Any]:
    """The codes (..., [matrices,] rows, columns) in registers uint32 (..., lanes, registers): of copies, the first.

    Raises OperandError for another dtype or shape.
    """
    layout, array = operand.layout, np.asarray(registers)
    check_registers(array, operand, call)
    values = unpack(array, operand.format, layout.element_bits).reshape(*array.shape[:-2], layout.flat_element.size)
    return values.take(layout.flat_holder, axis=-1).reshape(*array.shape[:-2], *_inner(operand))


def registers_of(operand: Fragment, codes: Any, call: str) -> npt.NDArray[np.uint32]:
    """The registers uint32 (..., lanes, registers) that hold codes (..., [matrices,] rows, columns), copies included.

    Raises OperandError for another shape, FormatError for another dtype.
    """
    layout, inner = operand.layout, _inner(operand)
    array = as_codes(codes, operand.format, f"{call}: {operand.name}")
    if array.shape[-len(inner) :] != inner:
        valid = ", ".join(map(str, inner))
        raise OperandError(f"{call}: {operand.name} has shape {array.shape}; valid: (..., {valid})")
    batch = array.shape[: -len(inner)]
    values = array.reshape(*batch, layout.flat_holder.size).take(layout.flat_element, axis=-1)
    values = values.reshape(*batch, layout.lanes, layout.value.size)
    return pack(values, operand.format, layout.element_bits).astype(np.uint32, copy=False)


@lru_cache(maxsize=1024)
def places_of(layout: FragmentLayout, format: Format) -> Places | None:
    """Where the elements lie in the registers of all lanes, lane by lane; None where one takes two registers, or there are several matrices.

    >>> b = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90").operands["b"]
    >>> found = places_of(b.layout, b.format)
    >>> found.word[:4, 0].tolist(), found.shift[:4, 0].tolist()  # k 2 and 3 are the next lane's
    ([0, 0, 2, 2], [0, 16, 0, 16])
    """
    if layout.matrices > 1 or layout.element_bits > 32:
        return None
    bit = layout.holder[0] * layout.element_bits + field_shift(format, layout.element_bits)
    return at_bits(bit, layout.lanes * layout.registers)


def _inner(operand: Fragment) -> tuple[int, ...]:
    matrices = operand.layout.matrices
    return (matrices, *operand.shape) if matrices > 1 else operand.shape
