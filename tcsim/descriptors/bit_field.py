"""Some bits of a descriptor, a barrier or a tensor map: where they lie, and which number they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence

MANUAL = Evidence("literature", "PTX ISA")


@dataclass(frozen=True)
class Field:
    """Some bits of a word, and how they hold a number: as (number - less) / unit, in two's complement if it is below 0.

    >>> base = Field("shift", 4, 3, 8, "bytes")
    >>> hex(base.mask), base.put(40), base.take(0xFF)
    ('0x70', 80, 56)
    """

    name: str
    low: int  # position of the lowest bit
    bits: int
    unit: int = 1  # what one step means: bytes of an address or offset, rows or columns of a shape; 1 for plain numbers
    meaning: str = ""
    _: KW_ONLY
    less: int = 0  # subtracted before the number is stored: 1 for a rank of 1 to 8 in three bits
    negated: bool = False  # the negative is stored: the hardware counts up to zero
    signed: bool = False  # the number may be negative
    high: int = 0  # position of further bits, above the first ones in the number but elsewhere in the word
    high_bits: int = 0
    evidence: Evidence = MANUAL

    @property
    def mask(self) -> int:
        """The bits of the word that are this field's.

        Post-conditions:
            result.bit_count() == self.bits + self.high_bits
        """
        return self._place(-1)

    @property
    def place(self) -> str:
        """The bits as a manual writes them: `13:0`, or `2` for a single bit."""
        high = self.low + self.bits - 1
        return f"{high}:{self.low}" if self.bits > 1 else str(self.low)

    @property
    def least(self) -> int:
        """The lowest number that the field can hold."""
        return self.less - (1 << self._width - 1) * self.unit if self.signed else self.less

    @property
    def most(self) -> int:
        """The highest number that the field can hold."""
        return self.less + ((1 << self._width - self.signed) - 1) * self.unit

    def take(self, value: int) -> int:
        """The field's number in a word.

        Post-conditions:
            self.least <= result <= self.most
            self.put(result) == value & self.mask
        """
        code = value >> self.low & (1 << self.bits) - 1 | (value >> self.high & (1 << self.high_bits) - 1) << self.bits
        return int(self._number(code))

    def take_array(self, values: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.int64]:
        """The field's number in each of an array of words of up to 64 bits; a field whose bits all lie together.

        Post-conditions:
            result.tolist() == [self.take(value) for value in values.tolist()]
        """
        code = (values.astype(np.uint64) >> np.uint64(self.low)) & np.uint64((1 << self.bits) - 1)
        found: npt.NDArray[np.int64] = self._number(code.astype(np.int64))
        return found

    def put(self, number: int) -> int:
        """The bits of the word that hold a number.

        Raises OperandError if it is not an integer, not one of the field's steps, too small or too large.

        Pre-conditions:
            self.least <= number <= self.most
            (number - self.less) % self.unit == 0
        Post-conditions:
            self.take(result) == number
            result & ~self.mask == 0
        """
        number = integer(number, self.name)
        if (number - self.less) % self.unit or not self.least <= number <= self.most:
            step = f"multiples of {self.unit} from" if self.unit > 1 else "from"
            high = self.low + self.bits - 1
            raise OperandError(
                f"{self.name}={number}: valid are {step} {self.least} to {self.most} (bits {high}:{self.low})"
            )
        code = (number - self.less) // self.unit
        return self._place(-code if self.negated else code)

    @property
    def _width(self) -> int:
        return self.bits + self.high_bits

    def _place(self, code: int) -> int:
        above = (code >> self.bits & (1 << self.high_bits) - 1) << self.high
        return (code & (1 << self.bits) - 1) << self.low | above

    def _number(self, code: Any) -> Any:
        if self.negated:
            code = -code & (1 << self._width) - 1
        if self.signed:
            code = code - ((code >> self._width - 1) << self._width)
        return code * self.unit + self.less


def stray_bits(bits: int, fields: Iterable[Field]) -> tuple[str, ...]:
    """Set bits that no field has, each with the fields beside it.

    >>> stray_bits(1 << 5, [Field("low", 0, 4, 1, ""), Field("high", 8, 4, 1, "")])
    ('bit 5, between low (3:0) and high (11:8),',)
    """
    ordered = sorted(fields, key=lambda field: field.low)
    found = []
    for bit in range(bits.bit_length()):
        if bits >> bit & 1:
            below = [f"{field.name} ({field.place})" for field in ordered if field.low < bit][-1:]
            above = [f"{field.name} ({field.place})" for field in ordered if field.low > bit][:1]
            where = f"between {below[0]} and {above[0]}" if below and above else f"beside {(below or above)[0]}"
            found.append(f"bit {bit}, {where},")
    return tuple(found)
