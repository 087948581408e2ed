"""mapa: the rows the assembler accepts, and the byte it changes.

Sources: PTX ISA 9.4, section mapa; ptxas 13.5.37 (targets, version, SASS).
"""

from __future__ import annotations

from itertools import product

from tcsim.cluster_address import AddressFacts, bind
from tcsim.evidence import RECORDED, Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

NAME = "mapa"

_TARGETS = since("sm_90")


def rows() -> tuple[Row, ...]:
    """Addresses of .shared::cluster and generic ones, of 32 and of 64 bits."""
    forms = (OperandForm("", ("mapped",), ("address", "rank"), _TARGETS, "7.8"),)
    return tuple(
        plain_row(
            NAME, f"mapa{space}.u{bits}", _TARGETS, "7.8", "map", AddressFacts(space, bits, forms), {"space": space}
        )
        for space, bits in product((".shared::cluster", ""), (32, 64))
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """An ordinary instruction that puts one byte in place."""
    return Lowering("native", (), (("PRMT", 1),))


_CODE = Evidence(
    "literature",
    "the machine code of mapa, ptxas 13.5; PTX ISA 9.4, section mapa, does not say what an address consists of",
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or what the machine code does."""
    return RECORDED.get(arch.name, _CODE)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
