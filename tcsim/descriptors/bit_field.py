"""Some bits of a descriptor: where they are, what one step of them means. Whose question: encoding and decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer
from tcsim.core.errors import OperandError


@dataclass(frozen=True)
class Field:
    """Some bits of a descriptor."""

    name: str
    low: int  # position of the lowest bit
    bits: int
    unit: int  # what one step means: bytes of an address or offset, rows or columns of a shape; 1 for plain numbers
    meaning: str

    @property
    def mask(self) -> int:
        """The bits of the descriptor that are this field's."""
        return ((1 << self.bits) - 1) << self.low

    @property
    def place(self) -> str:
        """The bits as a manual writes them: `13:0`, or `2` for a single bit."""
        high = self.low + self.bits - 1
        return f"{high}:{self.low}" if self.bits > 1 else str(self.low)

    def take(self, value: int) -> int:
        """The field of a descriptor, in its unit's terms."""
        return (value & self.mask) // (1 << self.low) * self.unit

    def take_array(self, values: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.int64]:
        """The field of each of an array of 64-bit descriptors."""
        wide = values.astype(np.uint64) >> np.uint64(self.low)
        return (wide & np.uint64((1 << self.bits) - 1)).astype(np.int64) * self.unit

    def put(self, number: int) -> int:
        """The descriptor bits of a number.

        Raises OperandError if it is no integer, not a multiple of the unit, or too large.
        """
        limit = ((1 << self.bits) - 1) * self.unit
        number = integer(number, self.name)
        if number % self.unit or not 0 <= number <= limit:
            step = f"multiples of {self.unit} from" if self.unit > 1 else "from"
            raise OperandError(f"{self.name}={number}: valid are {step} 0 to {limit} (bits {self._range})")
        return number // self.unit << self.low

    @property
    def _range(self) -> str:
        return f"{self.low + self.bits - 1}:{self.low}"
