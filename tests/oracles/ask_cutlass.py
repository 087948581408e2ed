"""CUTLASS's CuTe DSL: the TV layouts of MMA atoms, and of copies of Tensor Memory. Run by tests/oracles/asking.py.

An atom is an MLIR type; its layouts are attributes of the type, so nothing is compiled and no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cutlass._mlir.dialects.cute as shapes
import cutlass._mlir.dialects.cute_nvgpu as atoms
import cutlass._mlir.ir as ir
from answering import Arrays, Job, main

DIALECTS = (shapes, atoms)  # importing them registers what the texts below name
TYPES: dict[str, Callable[[], Any]] = {
    "f16": ir.F16Type.get,
    "bf16": ir.BF16Type.get,
    "tf32": ir.FloatTF32Type.get,
    "f32": ir.F32Type.get,
    "f64": ir.F64Type.get,
    "e4m3": ir.Float8E4M3FNType.get,
    "e5m2": ir.Float8E5M2Type.get,
    "e3m2": ir.Float6E3M2FNType.get,
    "e2m3": ir.Float6E2M3FNType.get,
    "e2m1": ir.Float4E2M1FNType.get,
    "ue8m0": ir.Float8E8M0FNUType.get,
    "ue4m3": ir.Float8E4M3FNType.get,
    "s8": lambda: ir.IntegerType.get_signed(8),
    "u8": lambda: ir.IntegerType.get_unsigned(8),
    "s4": lambda: ir.IntegerType.get_signed(4),
    "u4": lambda: ir.IntegerType.get_unsigned(4),
    "b1": lambda: ir.IntegerType.get_unsigned(1),
    "s32": lambda: ir.IntegerType.get_signed(32),
}


def atoms_of(job: Job) -> Iterator[Callable[[], Any]]:
    """The atom types that may have a job's shape and types: a refused one raises."""
    a, b, c = (TYPES[name]() for name in job["types"])
    m, n, k = job["shape"]
    shape = ir.Type.parse(f'!cute.shape<"({m},{n},{k})">').attribute
    elements = f"elem_type = ({a}, {b}, {c})"
    match job["kind"]:
        case "dense":
            yield lambda: atoms.MmaAtomSM80Type.get(shape, a, b, c)
            yield lambda: atoms.MmaAtomSM89Type.get(shape, a, b, c)
        case "block scaled":
            vector, scale = job.get("vector", 32), TYPES[job.get("scale", "ue8m0")]()
            of_scales = job.get("of scales", False)  # the layouts of A and B are then those of their scales
            yield lambda: atoms.MmaAtomSM120BlockScaledType.get(shape, vector, of_scales, a, b, c, scale)
        case "sparse":
            yield lambda: ir.Type.parse(f"!cute_nvgpu.sm80.sparse_mma<{m}x{n}x{k}, {elements}, md_format = tid>")
        case "warpgroup":
            yield lambda: ir.Type.parse(
                f"!cute_nvgpu.sm90.mma<{m}x{n}x{k}, ab_major = (k, k), {elements}, frag_kind = rs>"
            )


def layouts(type: Any) -> Arrays:
    """The layouts of A, B and C as CuTe writes them."""
    atom = atoms.MmaAtomTypeInterface(type)
    texts = {"a": atom.layout_a_tv, "b": atom.layout_b_tv, "c": atom.layout_c_tv}
    return {name: str(text).split('"')[1] for name, text in texts.items()}


def moved(job: Job) -> Arrays:
    """The registers' layout of a copy between Tensor Memory and registers; its index runs along a row of elements first."""
    kind = {"load": atoms.CopyAtomSM100TmemLoadType, "store": atoms.CopyAtomSM100TmemStoreType}[job["kind"]]
    packed = ir.UnitAttr.get() if job["packed"] else None
    element = TYPES["f16" if packed else "f32"]()
    atom = atoms.CopyAtomTypeInterface(kind.get(element, *job["shape"], job["count"], packed))
    text = atom.layout_dst_tv if job["kind"] == "load" else atom.layout_src_tv
    return {"registers": str(text).split('"')[1]}


def answer(job: Job, given: Arrays) -> Arrays:
    """The layouts of one atom, or why there is none."""
    if job["kind"] in ("load", "store"):
        return moved(job)
    refusals = []
    for make in atoms_of(job):
        try:
            return layouts(make())
        except (ValueError, TypeError, ir.MLIRError) as error:
            refusals.append(str(error).strip().splitlines()[-1])
    return {"refused": "; ".join(refusals)}


if __name__ == "__main__":
    with ir.Context(), ir.Location.unknown():
        main("nvidia-cutlass-dsl", answer)
