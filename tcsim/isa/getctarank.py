"""getctarank: the rank of the block that an address of shared memory within a cluster belongs to.

Sources: PTX ISA, section getctarank; ptxas 13.5.37 (targets, version, SASS): the machine code takes the byte that mapa sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.mapa import AddressRow, rank_of
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import present


@dataclass(frozen=True, eq=False, repr=False)
class RankOfAddress(RegisterInstruction):
    """getctarank."""

    row: AddressRow

    @property
    def rules(self) -> tuple[str, ...]:
        """Where the rank stands."""
        return ("the rank is bits 24 to 31 of the address",)

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The ranks (..., lanes)."""
        return {"rank": self.execute(operands["address"])}

    def execute(self, address: Any) -> npt.NDArray[np.uint32]:
        """The ranks (...), uint32, of addresses (...): integers of the spelling's width.

        Raises OperandError for others.

        >>> rank = tcsim.instruction("getctarank.shared::cluster.u32", arch="sm_90")
        >>> int(rank.execute(0x0300_0040))
        3
        """
        given, limit = np.asarray(address), (1 << self.row.bits) - 1
        if given.dtype.kind not in "iu" or (given < 0).any() or (given > limit).any():
            raise OperandError(f"{self._call}: address={address!r}; valid: integers of {self.row.bits} bits")
        return rank_of(given).astype(np.uint32)


NAME = "getctarank"


def rows() -> tuple[AddressRow, ...]:
    """Addresses of .shared::cluster and generic ones, of 32 and of 64 bits."""
    return tuple(
        AddressRow(
            f"{NAME}{space}.u{bits}", NAME, arithmetic="rank", modifiers=present(space=space), generic=not space, bits=bits,
            forms=(
                Form(
                    (Operand("rank", "destination", type=".u32"), Operand("address", type=f".u{bits}")),
                    since("sm_90"), "7.8", together="thread",
                ),
            ),
        )
        for space, bits in product((".shared::cluster", ""), (32, 64))
    )  # fmt: skip


def lowering(row: AddressRow, arch: Arch) -> Lowering:
    """An ordinary shift, which the assembler chooses."""
    return Lowering("native", (), (), "an ordinary shift by 24 bits")


_CODE = Evidence(
    "literature", f"the machine code of getctarank, ptxas 13.5; {PTX_MANUAL} does not say where a rank stands"
)


def evidence(row: AddressRow, arch: Arch) -> Evidence:
    """A recording, or what the machine code does."""
    return RECORDED.get(arch.name, _CODE)


FAMILY = Family(NAME, rows, lowering, evidence, RankOfAddress)
