"""How many blocks a multiprocessor holds, and what limits that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tcsim.layouts.banks import WARP_LANES


@dataclass(frozen=True)
class Room:
    """What a multiprocessor has. Source: CUDA C++ Programming Guide, Technical Specifications per Compute Capability."""

    warps: int
    blocks: int
    shared: int  # bytes, of all blocks
    registers: int = 1 << 16
    reserved: int = 1024  # bytes of shared memory that the system takes in each block
    unit: int = 256  # registers that a warp gets at a time


ROOMS: Mapping[str, Room] = MappingProxyType({
    "sm_80": Room(64, 32, 164 << 10), "sm_86": Room(48, 16, 100 << 10), "sm_89": Room(48, 24, 100 << 10), "sm_90": Room(64, 32, 228 << 10),
    "sm_100": Room(64, 32, 228 << 10), "sm_120": Room(48, 24, 100 << 10),
})  # fmt: skip
"""By arch."""


@dataclass(frozen=True)
class Occupancy:
    """Blocks that run beside each other on a multiprocessor."""

    blocks: int
    warps: int
    most: int  # warps that there could be
    limit: str

    def __str__(self) -> str:
        return f"{self.warps} of {self.most} warps, limited by {self.limit}"


def occupancy(arch: str, threads: int, registers: int = 0, shared: int = 0) -> Occupancy | None:
    """Of blocks of some threads, registers of each (0: not known) and bytes of shared memory; None for an arch that is not in the table.

    >>> print(occupancy("sm_90", 256, 255, 0))
    8 of 64 warps, limited by registers
    """
    room = ROOMS.get(arch)
    if room is None:
        return None
    warps = -(-threads // WARP_LANES)
    each = -(-registers * WARP_LANES // room.unit) * room.unit
    limits = {
        "warps": room.warps // warps,
        "blocks": room.blocks,
        "registers": room.registers // each // warps if each else room.blocks,
        "shared memory": room.shared // (shared + room.reserved),
    }
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limits[limit] * warps, room.warps, limit)
