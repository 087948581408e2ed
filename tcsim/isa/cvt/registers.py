"""Registers of cvt: how elements of a format are packed in one, and how PTX declares it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.numbers.conversion import Codes
from tcsim.numbers.formats import Format


@dataclass(frozen=True)
class Packed(Operand):
    """A register of cvt, or a vector of such registers: elements of one format, the first in the highest field."""

    _: KW_ONLY
    format: Format  # of one element
    elements: int = 1  # in one register
    field_bits: int = 32  # from one element to the next

    @property
    def each(self) -> tuple[Packed, ...]:
        """The registers of a vector by themselves, under their own names; a single register is itself."""
        if not self.parts:
            return (self,)
        return tuple(replace(self, name=name, kind="register", count=1, parts=()) for name in self.parts)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The unsigned NumPy dtype that holds the register."""
        return np.dtype(f"u{int(self.type[2:]) // 8}")

    @cached_property
    def padding(self) -> int:
        """Bits of the register that belong to no element, and must be zero: two of every byte of fp6."""
        used = (1 << self.format.bits) - 1
        every = sum(used << (self.field_bits * place) for place in range(self.elements))
        return ((1 << (8 * self.dtype.itemsize)) - 1) & ~every if self.elements > 1 else 0

    @cached_property
    def _shifts(self) -> tuple[int, ...]:
        """How far each element stands above the lowest bit, highest field first."""
        return tuple(self.field_bits * (self.elements - 1 - place) for place in range(self.elements))

    def unpack(self, registers: Codes) -> Codes:
        """The codes of the elements of registers (...), highest field first: (elements, ...)."""
        mask = registers.dtype.type((1 << (self.format.bits + self.format.ignored_low_bits)) - 1)
        fields = [(registers >> registers.dtype.type(shift)) & mask for shift in self._shifts]
        return np.stack(fields).astype(self.format.dtype)

    def pack(self, codes: Codes) -> Codes:
        """The inverse of `unpack`; a signed integer that does not fill its register is sign-extended."""
        wide = codes.astype(np.uint64)
        if self.elements == 1 and self.format.kind == "integer" and self.format.signed:
            top = np.uint64(1 << (self.format.bits - 1))
            wide = (wide ^ top) - top
        parts = wide << np.array(self._shifts, np.uint64).reshape(-1, *([1] * (codes.ndim - 1)))
        return np.bitwise_or.reduce(parts, axis=0).astype(self.dtype)


def registers_of(form: Form) -> MappingProxyType[str, Packed]:
    """The registers of a form by name, in PTX's order, those of a vector one by one."""
    packed = [operand for operand in form.operands if isinstance(operand, Packed)]
    return MappingProxyType({register.name: register for operand in packed for register in operand.each})
