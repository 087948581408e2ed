"""The rows of the asynchronous copies, for their tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import tcsim
from hwkernels.probes.images import IMAGE_BYTES
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.isa.copies import CopyInstruction

FILES = {"cp.async": "cp_async", "cp.async.bulk": "cp_async_bulk", "cp.reduce.async.bulk": "cp_reduce"}
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FILES}
MASKED = "cp.async.bulk.global.shared::cta.bulk_group.cp_mask"
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def last_arch(mnemonic: str) -> str:
    """The latest arch that has a spelling."""
    return TARGETS[ROWS[mnemonic].targets[-1]].arch


def items(arch: str) -> list[CopyInstruction]:
    """Every instruction of the three families on an arch."""
    return [tcsim.instruction(row.mnemonic, arch=arch) for family in FILES for row in catalog.on_arch(arch, family)]


def image(seed: int, size: int = IMAGE_BYTES) -> Any:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)
