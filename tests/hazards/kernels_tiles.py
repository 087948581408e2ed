"""Tiles that are read through a matrix descriptor with a wrong field."""

from __future__ import annotations

from tests.hazards.bugs.warpgroups import wide, wide_descriptor
from tests.hazards.kernels import Kernel

TILES = Kernel(
    "tiles",
    wide(
        f"//~ DESC_LBO_SBO: mov.u64 %rd4, {wide_descriptor(128)};   //~ DESC_SWIZZLE_MODE: mov.u64 %rd4, {wide_descriptor(256, '32B')};   //~ DESC_UNITS: mov.u64 %rd4, {wide_descriptor(16)};   //~ DESC_UNITS.2: mov.u64 %rd4, {wide_descriptor(4096)};"
    ),
    threads=128,
)
KERNELS = (TILES,)
