"""The rows and instructions of tcgen05.mma, for the tests that go through them."""

from __future__ import annotations

from functools import cache

import tcsim
from tcsim import catalog
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply

FAMILIES = {"tcgen05.mma": 992, "tcgen05.mma.sp": 938, "tcgen05.mma.ws": 340, "tcgen05.mma.ws.sp": 340}
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FAMILIES}


def instruction(mnemonic: str, arch: str = "sm_100") -> TensorMemoryMultiply:
    """An instruction of these families."""
    found = tcsim.instruction(mnemonic, arch=arch)
    assert isinstance(found, TensorMemoryMultiply)
    return found


@cache
def plain(arch: str) -> tuple[TensorMemoryMultiply, ...]:
    """The instructions of an arch without collector hints, which change nothing, one for each set of operands."""
    rows = [row for row in catalog.on_arch(arch) if row.family in FAMILIES and not row.collectors]
    found = {}
    for row in rows:
        item = instruction(row.mnemonic, arch)
        own = item.row
        key = (row.family, own.kind.name, own.cta_group, own.block, own.ashift, own.lookup)
        found.setdefault(key, item)
    return tuple(found.values())
