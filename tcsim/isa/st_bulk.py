"""st.bulk: zeros in a range of a block's own shared memory.

Source: PTX ISA 9.4, section st.bulk (sizes, the value); the machine code (UMEMSETS.64: 8 bytes at a time, the size divided by 8),
from which the alignment of the address is taken. Not measured.

st.bulk: the rows the assembler accepts.

Sources: PTX ISA 9.4, section st.bulk; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.isa.plain_rows import plain_row
from tcsim.model.family import Family
from tcsim.model.formed import FormedInstruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

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


NAME = "st.bulk"

_TARGETS = since("sm_100")


def rows() -> tuple[Row, ...]:
    """With and without .weak, which is the default, and a state space."""
    forms = tuple(OperandForm(name, (), (size, "zero"), _TARGETS, first) for name, size, first in (
        ("", "size", "8.6"), ("size32", "size", "9.0"),
    ))  # fmt: skip
    return tuple(
        plain_row(NAME, f"st.bulk{order}{space}", _TARGETS, "8.6", "fill", FillFacts(space, forms), {"space": space})
        for order, space in product((".weak", ""), (".shared::cta", ""))
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, which is given the size divided by 8."""
    return Lowering("native", (), (("UMEMSETS.64", 1),))


_MANUAL = Evidence("literature", "PTX ISA 9.4, section st.bulk")


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word."""
    return _MANUAL


FAMILY = Family(NAME, rows, lowering, evidence, bind)
