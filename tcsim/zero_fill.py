"""st.bulk: zeros in a range of a block's own shared memory.

Source: PTX ISA 9.4, section st.bulk (sizes, the value); the machine code (UMEMSETS.64: 8 bytes at a time, the size divided by 8),
from which the alignment of the address is taken. Not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.copy_instruction import Bytes
from tcsim.errors import OperandError
from tcsim.formed_instruction import FormedInstruction
from tcsim.operand_form import OperandForm
from tcsim.registry import Row
from tcsim.shared_rows import MisalignedAddressError, OutsideMemoryError

UNIT_BYTES = 8
"""What the size is a multiple of."""
MOST_BYTES = 16_777_216
"""The largest size."""


@dataclass(frozen=True)
class FillFacts:
    """What a row takes."""

    space: str  # ".shared::cta", or "" for generic addresses
    forms: tuple[OperandForm, ...]


def fill_facts(row: Row) -> FillFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, FillFacts):
        raise TypeError(f"{row.mnemonic} fills no memory")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class ZeroFill(FormedInstruction):
    """st.bulk, whose value must be zero."""

    def execute(self, smem: Any, address: int, size: int) -> Bytes:
        """The new shared memory: uint8 (..., bytes) -> uint8 (..., bytes).

        Raises OperandError for a size that is not a multiple of 8 from 0 to 16777216, MisalignedAddressError for an address
        that is not a multiple of 8 (of which the manual says nothing), OutsideMemoryError.

        >>> fill = tcsim.instruction("st.bulk.weak.shared::cta", arch="sm_100")
        >>> fill.execute(np.full(24, 255, np.uint8), address=8, size=8).tolist()[6:18]
        [255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]
        """
        call, image = f"{self!r}.execute", np.asarray(smem)
        if image.dtype != np.uint8 or image.ndim == 0:
            raise OperandError(f"{call}: smem is {image.dtype} {image.shape}; valid: uint8 (..., bytes)")
        if not 0 <= size <= MOST_BYTES or size % UNIT_BYTES:
            raise OperandError(f"{call}: size={size}: valid: multiples of {UNIT_BYTES} from 0 to {MOST_BYTES}")
        if address % UNIT_BYTES:
            raise MisalignedAddressError(f"{call}: address={address:#x}: valid: multiples of {UNIT_BYTES}")
        if size and not 0 <= address <= image.shape[-1] - size:
            raise OutsideMemoryError(
                f"{call}: address={address:#x}: its {size} bytes do not lie in the {image.shape[-1]} bytes of memory"
            )
        out = image.copy()
        out[..., address : address + size] = 0
        return out


def bind(row: Row, *rest: Any) -> ZeroFill:
    """The instruction of a row."""
    return ZeroFill(row, *rest)
