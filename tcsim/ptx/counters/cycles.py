"""How long units of a GPU take at least: cycles of what they do, measured on an H200 (docs/profile.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Chip:
    """One GPU of an arch."""

    name: str
    multiprocessors: int
    hertz: float  # the highest clock
    start: float  # cycles before anything runs
    block: float  # cycles of a multiprocessor for each block that it starts
    l2: float  # bytes that L2 gives and takes a cycle, of all multiprocessors together
    l1: float  # the same of one multiprocessor
    dram: float  # bytes a second
    cache: int  # bytes of L2
    quarters: int = 4  # of a multiprocessor, each with a tensor core


CHIPS: Mapping[str, Chip] = MappingProxyType({
    "sm_90": Chip("H200", 132, 1.98e9, 3800, 147, 132 * 64, 128, 4.8e12, 50 << 20),
})  # fmt: skip
"""By arch. `start` and `block` are measured, `l1` to `cache` the most that the chip can do."""

_TENSOR: Mapping[str, float] = MappingProxyType({
    "HMMA.1684.F32.TF32": 4, "HMMA.1688.F32.TF32": 6, "HMMA.1688": 4, "HMMA.16816": 6, "IMMA.8816": 4, "IMMA.16816": 4, "IMMA.16832": 6, "BMMA.168128": 4,
    "BMMA.168256": 6, "DMMA.8x8x4": 16, "HMMA.SP": 8, "IMMA.SP": 8,
})  # fmt: skip
"""Cycles that a machine instruction keeps the tensor core of a quarter busy, by the beginning of its name; the longest that fits counts. They are the intervals
at which a quarter takes them, too."""


def tensor_cycles(opcode: str, arch: str) -> float | None:
    """Cycles that a warp's machine instruction keeps the tensor core of its quarter busy; None where that was not measured.

    >>> tensor_cycles("HGMMA.64x128x16.F32", "sm_90"), tensor_cycles("HMMA.16816.F32", "sm_90"), tensor_cycles("FFMA", "sm_90")
    (64.0, 6, None)
    """
    if arch != "sm_90":
        return None
    columns = re.match(r"[A-Z]GMMA\.(?:SP\.)?64x(\d+)x", opcode)
    if columns:
        return int(columns[1]) / 2
    return max(((len(name), own) for name, own in _TENSOR.items() if opcode.startswith(name)), default=(0, None))[1]
