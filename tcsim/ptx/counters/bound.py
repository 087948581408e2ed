"""A lower bound on the time of a launch: the unit that needs longest for what was counted, at the speed that a GPU was measured at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.ptx.counters import rules
from tcsim.ptx.counters.cycles import CHIPS, Chip


@dataclass(frozen=True)
class Bound:
    """At least so long, because of a unit."""

    unit: str
    cycles: float
    microseconds: float
    shares: Mapping[str, float]  # by unit: its part of these cycles
    gpu: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return vars(self) | {"shares": dict(self.shares)}


_L2 = ((rules.L2_SECTORS, 32),)


def units(chip: Chip) -> dict[str, tuple[tuple[str, float], ...]]:
    """By unit of a multiprocessor: counters, and the cycles for one of each."""
    return {
        "shared memory": ((rules.SHARED_WAVES, 1), (rules.DATA, 1)),
        "wgmma operands": ((rules.WGMMA_WAVES, 1),),
        "L1": tuple((name, 1.0) for name in rules.TAG_PASSES),
        "tensor": ((rules.TENSOR_CYCLES, 1 / chip.quarters),),
        "L2": tuple((name, each / chip.l2 * chip.multiprocessors) for name, each in _L2),
    }


def cost(counters: Mapping[str, float], arch: str) -> float:
    """The cycles that one multiprocessor would need for counters: those of the unit that needs most."""
    chip = CHIPS.get(arch, CHIPS["sm_90"])
    own = (sum(counters.get(name, 0) * each for name, each in parts) for parts in units(chip).values())
    return max(max(own), counters.get(rules.INSTRUCTIONS, 0) / 1000 / chip.quarters)


def busiest(blocks: npt.NDArray[Any], chip: Chip) -> float:
    """What at least one multiprocessor has to do, of what each block does: blocks are not divided."""
    if not len(blocks):
        return 0.0
    most = -(-len(blocks) // chip.multiprocessors)
    return float(max(blocks.sum() / chip.multiprocessors, blocks.max(), np.partition(blocks, most - 1)[:most].sum()))


def bound_of(
    totals: Mapping[str, int], by_block: Mapping[str, npt.NDArray[np.int64]], blocks: int, arch: str
) -> Bound | None:
    """The bound of a launch; None for an arch without measured cycles."""
    chip = CHIPS.get(arch)
    if chip is None:
        return None
    needs = {"starting blocks": -(-blocks // chip.multiprocessors) * chip.block}
    for unit, parts in units(chip).items():
        each = sum((by_block[name] * cycles for name, cycles in parts if name in by_block), np.zeros(blocks))
        needs[unit] = each.sum() / chip.multiprocessors if unit == "L2" else busiest(each, chip)
    if totals.get(rules.DATA, 0) > totals.get(rules.SHARED_WAVES, 0):  # one pipe serves both
        needs["L1 data"] = needs.pop("shared memory")
    cycles = chip.start + max(needs.values())
    found = {unit: float(own / cycles) for unit, own in sorted(needs.items(), key=lambda item: -item[1]) if own}
    worst = max(needs, key=lambda unit: needs[unit])
    unit = worst if needs[worst] > chip.start else "launch"
    return Bound(unit, float(cycles), float(cycles / chip.hertz * 1e6), found, chip.name)
