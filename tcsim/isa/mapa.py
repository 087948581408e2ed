"""mapa: addresses of shared memory within a cluster, the byte that says whose block it is, and the instruction that sets it.

Sources: PTX ISA, section mapa (what it is for); ptxas 13.5.37 (targets, version, SASS). That the rank is the highest byte of
the 32 bits of a shared address, and of the lower 32 bits of a generic one, is what the machine code of mapa does on every arch
from sm_90 on (one PRMT). A block's own addresses hold its own rank: ptxas adds SR_CgaCtaId, shifted by 24, to the place of a
shared variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.mbarrier.semantics import CLUSTER_BLOCKS
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row, present

RANK_SHIFT, RANK_BITS = 24, 8
"""Where an address of shared memory holds the rank of a block: bits 24 to 31."""
WINDOW = 1 << RANK_SHIFT
"""Bytes of a block's window of shared memory: what is below the rank is the offset."""

Addresses = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class AddressRow(Row):
    """A spelling of mapa."""

    generic: bool  # generic addresses; else those of .shared::cluster
    bits: int  # of an address: 32 or 64


def rank_of(address: Any) -> npt.NDArray[np.int64]:
    """The rank of the block that addresses of .shared::cluster belong to, if mapa made them.

    >>> int(rank_of(0x0300_0040))
    3
    """
    return (np.asarray(address).astype(np.uint64) >> np.uint64(RANK_SHIFT) & np.uint64((1 << RANK_BITS) - 1)).astype(
        np.int64
    )


@dataclass(frozen=True, eq=False, repr=False)
class MapAddress(RegisterInstruction):
    """mapa: the address of the same place in another block's shared memory."""

    row: AddressRow

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The addresses (..., lanes)."""
        return {"mapped": self.execute(operands["address"], operands["rank"])}

    @property
    def rules(self) -> tuple[str, ...]:
        """Where the rank stands."""
        low = "of the lower 32 bits " if self.row.bits == 64 else ""
        return (f"bits 24 to 31 {low}become the rank",)

    def execute(self, address: Any, rank: Any) -> Addresses:
        """The addresses (...), uint32 or uint64, in the blocks of these ranks.

        address: ints, or unsigned integers (...), of the spelling's width. rank: the blocks' %cluster_ctarank, (...).

        Raises OperandError for an address that is wider, a rank that no cluster has, shapes that do not broadcast.

        >>> mapa = tcsim.instruction("mapa.shared::cluster.u32", arch="sm_90")
        >>> hex(mapa.execute(address=0x40, rank=3))
        '0x3000040'
        """
        call, bits = self._call, self.row.bits
        given = _integers(address, f"{call}: address", 1 << bits, f"{bits} bits")
        ranks = _integers(rank, f"{call}: rank", CLUSTER_BLOCKS, f"0 to {CLUSTER_BLOCKS - 1}")
        broadcast([given.shape, ranks.shape], call)
        kept = np.uint64((1 << 64) - 1 - (((1 << RANK_BITS) - 1) << RANK_SHIFT))
        found = given & kept | ranks << np.uint64(RANK_SHIFT)
        return found.astype(np.uint32) if bits == 32 else found


def _integers(given: Any, what: str, limit: int, valid: str) -> npt.NDArray[np.uint64]:
    array = np.asarray(given)
    if array.dtype.kind not in "iuO":
        raise OperandError(f"{what} is {array.dtype}; valid: integers, {valid}")
    if array.dtype.kind == "O" or (array < 0).any() or (array > limit - 1).any():  # O: wider than 64 bits
        raise OperandError(f"{what} is out of range; valid: integers, {valid}")
    return array.astype(np.uint64)


NAME = "mapa"

_TARGETS = since("sm_90")
_RANK = Operand("rank", type=".u32")


def _row(space: str, bits: int) -> AddressRow:
    mapped, address = Operand("mapped", "destination", type=f".u{bits}"), Operand("address", type=f".u{bits}")
    form = Form((mapped, address, _RANK), _TARGETS, "7.8", together="thread")
    return AddressRow(
        f"{NAME}{space}.u{bits}",
        NAME,
        arithmetic="map",
        forms=(form,),
        modifiers=present(space=space),
        generic=not space,
        bits=bits,
    )


def rows() -> tuple[AddressRow, ...]:
    """Addresses of .shared::cluster and generic ones, of 32 and of 64 bits."""
    return tuple(_row(space, bits) for space, bits in product((".shared::cluster", ""), (32, 64)))


def lowering(row: AddressRow, arch: Arch) -> Lowering:
    """An ordinary instruction that puts one byte in place."""
    return Lowering("native", (), (("PRMT", 1),))


_CODE = Evidence(
    "literature",
    f"the machine code of mapa, ptxas 13.5; {PTX_MANUAL}, section mapa, does not say what an address consists of",
)


def evidence(row: AddressRow, arch: Arch) -> Evidence:
    """A recording, or what the machine code does."""
    return RECORDED.get(arch.name, _CODE)


FAMILY = Family(NAME, rows, lowering, evidence, MapAddress)
