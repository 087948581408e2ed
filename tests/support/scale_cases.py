"""Block-scaled instructions that several test modules use, and spellings next to them that do not exist."""

from __future__ import annotations

from conformance.isa import slices
from tcsim import catalog

FAMILIES = tuple(name for name in slices()["mma"] if name.endswith(".block_scale"))
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FAMILIES}

HEAD, SPARSE_HEAD = "mma.sync.aligned.kind::", "mma.sp::ordered_metadata.sync.aligned.kind::"
MX8 = f"{HEAD}mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
MX4 = f"{HEAD}mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
NV4 = f"{HEAD}mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
SPARSE_MX8 = f"{SPARSE_HEAD}mxf8f6f4.block_scale.m16n8k64.row.col.f32.e5m2.e2m1.f32.ue8m0"
SPARSE_MX4 = f"{SPARSE_HEAD}mxf4.block_scale.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue8m0"
SPARSE_NV4 = f"{SPARSE_HEAD}mxf4nvf4.block_scale.scale_vec::4X.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue4m3"

NEAR_MISSES = (  # a spelling, what is replaced in it, by what
    (MX8, "1X", "2X"),
    (MX8, "ue8m0", "ue4m3"),
    (MX8, "f32.e4m3", "f16.e4m3"),
    (MX8, "k32", "k64"),
    (MX8, ".block_scale", ""),
    (MX4, "2X", "4X"),
    (MX4, "2X", "1X"),
    (MX4, "ue8m0", "ue4m3"),
    (MX4, "e2m1.e2m1", "e2m1.e3m2"),
    (MX4, "k64", "k32"),
    (NV4, ".scale_vec::4X", ""),
    (NV4, "4X", "2X"),
    (NV4, "ue4m3", "e4m3"),
    (SPARSE_MX4, "::ordered_metadata", ""),
    (SPARSE_MX4, "k128", "k64"),
)
