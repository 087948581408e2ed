"""The vectors of a release: `python -m conformance.vectors.release FOLDER`: both levels of every family of multiplies, and conversions."""

from __future__ import annotations

import sys
from pathlib import Path

import tcsim
from conformance.vectors.sets import Order, entries_of, make
from conformance.vectors.subjects import subject


def _described(a: str, b: str, kind: str, arch: str = "sm_100") -> int:
    return tcsim.InstructionDescriptor(kind=kind, a_format=a, b_format=b, m=128, n=16, arch=arch).encode()


FAMILIES: dict[str, tuple[tuple[str, str, int | None], ...]] = {
    "mma.sync": (
        ("mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32", "sm_70", None),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", None),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", None),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90", None),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", None),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", None),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", None),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90", None),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90", None),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80", None),
    ),
    "mma.sp": (
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", None),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90", None),
    ),
    "wgmma": (
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "sm_90", None),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "sm_90", None),
    ),
    "mma.sync.block_scale": (
        ("mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120", None),
        ("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", "sm_120", None),
    ),
    "tcgen05.mma": (
        ("tcgen05.mma.cta_group::1.kind::f16", "sm_100", _described("bf16", "bf16", "f16")),
        ("tcgen05.mma.cta_group::1.kind::f8f6f4", "sm_100", _described("e4m3", "e2m1", "f8f6f4")),
    ),
    "cvt": (
        ("cvt.rn.satfinite.e4m3x2.f32", "sm_90", None),
        ("cvt.rna.tf32.f32", "sm_90", None),
    ),
}  # fmt: skip
"""What a release holds, by family."""


def main() -> int:
    """Write them all, a folder for each family, and print what each has."""
    folder = Path(sys.argv[1])
    for family, members in FAMILIES.items():
        for mnemonic, arch, idesc in members:
            for level in (1, 2):
                if subject(mnemonic, arch, idesc).classes(level):
                    make(folder / family, Order(mnemonic, arch, idesc, level=level))
        files = entries_of(folder / family)
        outputs, size = sum(entry["outputs"] for _, entry in files), sum(path.stat().st_size for path, _ in files)
        print(
            f"{family}: {len(members)} instructions, {len(files)} files, {outputs:,} outputs, {size / 1e6:.1f} MB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
