"""Instructions whose bits hardware has confirmed, in the vocabulary of the machines; source: docs/numerics.md."""

from __future__ import annotations

from typing import Any

from .machine import Machine, Signature


def machine(signature: Signature, size: int, fraction_bits: int | None, floor: int | None, **other: Any) -> Machine:
    """A machine with a chip's usual keys: steps of `size` products, f32 cut to 24 bits, f16 rounded to nearest even."""
    k = signature.k
    usual: dict[str, Any] = {
        "step": tuple(tuple(range(i, i + size)) for i in range(0, k, size)),
        "addend": "first",
        "fraction_bits": fraction_bits,
        "truncation": "zero",
        "products": "raw",
        "floor": floor,
        "significand": 24 if signature.d == "f32" else 11,
        "rounding": "rz" if signature.d == "f32" else "rne",
        "overflow": "infinity",
        "subnormal_in": "kept",
        "subnormal_c": "kept",
        "subnormal_out": "kept",
        "zero": "+0",
        "nan": 0x7FFFFFFF if signature.d == "f32" else 0x7FFF,
        "scaled": None,
        "as": None,
    }
    return Machine(signature, usual | other)


def fp8_as_f16(d: str, a: str = "e4m3", b: str = "e4m3") -> Machine:
    """FP8 on sm_90's mma.sync: two steps of f16 from zero, then an ordinary addition of c."""
    steps = tuple(tuple(k for k in range(32) if (k % 4 < 2) == first) for first in (True, False))
    floor = -133 if d == "f32" else -21
    return machine(Signature(32, a, b, d, d), 32, 25, floor, step=steps, addend="last", **{"as": "f16"})


MXF4 = machine(Signature(64, "e2m1", "e2m1", "f32", "f32", ("ue8m0", 32)), 64, 35, -139, scaled=("group", 16))

# By arch and mnemonic: the machine of one output
KNOWN: dict[tuple[str, str], Machine] = {
    ("sm_70", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"): machine(Signature(4, "f16", "f16", "f32", "f32"), 4, 23, None),
    ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"): machine(Signature(16, "f16", "f16", "f32", "f32"), 8, 24, -132),
    ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"): machine(Signature(16, "f16", "f16", "f16", "f16"), 8, 24, -20),
    ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"): machine(Signature(16, "bf16", "bf16", "f32", "f32"), 8, 24, -132),
    ("sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"): machine(Signature(8, "tf32", "tf32", "f32", "f32"), 4, 24, -132),
    ("sm_89", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"): machine(
        Signature(32, "e4m3", "e5m2", "f32", "f32"), 16, 13, None, significand=14
    ),
    ("sm_90", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"): machine(Signature(16, "f16", "f16", "f32", "f32"), 16, 25, -133),
    ("sm_90", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"): machine(Signature(16, "f16", "f16", "f16", "f16"), 16, 25, -21),
    ("sm_90", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"): machine(Signature(16, "bf16", "bf16", "f32", "f32"), 16, 25, -133),
    ("sm_90", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"): fp8_as_f16("f32"),
    ("sm_90", "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16"): fp8_as_f16("f16", "e4m3", "e5m2"),
    ("sm_120", "mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"): MXF4,
}  # fmt: skip
