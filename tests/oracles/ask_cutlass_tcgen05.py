"""CUTLASS's CuTe DSL: TMEM layouts, shared-memory layouts and descriptors of tcgen05.mma. Run by tests/oracles/asking.py.

Layouts are read while a function is traced; descriptors are constants of the PTX that a kernel is compiled to. No GPU is needed.
The environment (`asking.SURROUNDINGS`) names the target and asks for the PTX to be kept.
"""

from __future__ import annotations

import re
from typing import Any

import cutlass
import cutlass.utils as utils
import cutlass.utils.blackwell_helpers as blackwell
import cutlass.utils.blockscaled_layout as scales
from answering import Arrays, Job, main
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05

TYPES = {
    "f16": cutlass.Float16, "bf16": cutlass.BFloat16, "tf32": cutlass.TFloat32, "e4m3": cutlass.Float8E4M3FN,
    "e5m2": cutlass.Float8E5M2, "e3m2": cutlass.Float6E3M2FN, "e2m3": cutlass.Float6E2M3FN, "e2m1": cutlass.Float4E2M1FN,
    "s8": cutlass.Int8, "u8": cutlass.Uint8, "f32": cutlass.Float32, "s32": cutlass.Int32,
    "ue8m0": cutlass.Float8E8M0FNU, "ue4m3": cutlass.Float8E4M3FN,
}  # fmt: skip
GROUPS = {1: tcgen05.CtaGroup.ONE, 2: tcgen05.CtaGroup.TWO}
MAJORS = {"K": OperandMajorMode.K, "MN": OperandMajorMode.MN}


def operation(job: Job) -> Any:
    """The MMA of a job."""
    a, b, d = (TYPES[name] for name in job["types"])
    source = tcgen05.OperandSource.TMEM if job.get("a_in_tmem") else tcgen05.OperandSource.SMEM
    where = tuple(job["shape"]), GROUPS[job["cta_group"]], source
    majors = (
        [MAJORS[name] for name in job.get("majors", "KK")] if len(job.get("majors", [])) == 2 else [MAJORS["K"]] * 2
    )
    match job["kind"]:
        case "tf32":
            return tcgen05.MmaTF32Op(*where, *majors)
        case "f16":
            return tcgen05.MmaF16BF16Op(a, d, *where, *majors)
        case "f8f6f4":
            return tcgen05.MmaF8F6F4Op(a, b, d, *where, *majors)
        case "i8":
            return tcgen05.MmaI8Op(a, *where, *majors)
        case "mxf8f6f4":
            return tcgen05.MmaMXF8F6F4Op(a, b, *where, *majors)
        case "mxf4":
            return tcgen05.MmaMXF4Op(*where)
        case "mxf4nvf4":
            return tcgen05.MmaMXF4NVF4Op(TYPES[job["scale"]], *where)
    raise ValueError(f"no operation {job}")


def traced(look: Any) -> Arrays:
    """What `look` answers while it is traced."""
    found: Arrays = {}

    @cute.jit
    def trace() -> None:
        found.update(look())

    cute.compile(trace)
    return found


def accumulator(job: Job) -> Arrays:
    """The TMEM layout of one instruction's D."""
    mma = cute.make_tiled_mma(operation(job))
    return {"text": str(mma.make_fragment_C(mma.partition_shape_C(tuple(job["shape"][:2]))).layout)}


def from_tmem(job: Job) -> Arrays:
    """The TMEM layout of one instruction's A."""
    mma = cute.make_tiled_mma(operation(job))
    m, _, k = job["shape"]
    return {"text": str(mma.make_fragment_A(mma.partition_shape_A((m, k))).layout)}


def scale_factors(job: Job) -> Arrays:
    """The TMEM layouts of one instruction's scale factors."""
    mma = cute.make_tiled_mma(operation(job))
    tile, block = tuple(job["shape"]), job["block"]
    found = {}
    for side, shared, tensor in (
        ("a", scales.make_smem_layout_sfa, scales.make_tmem_layout_sfa),
        ("b", scales.make_smem_layout_sfb, scales.make_tmem_layout_sfb),
    ):
        stage = cute.slice_(shared(mma, tile, block, 1), (None, None, None, 0))
        found[side] = str(tensor(mma, tile, block, stage))
    return found


def metadata(job: Job) -> Arrays:
    """The TMEM layout of the metadata of one instruction's A, in bits: M = 128."""
    shape = ((128, job["k"]), 1, 1)
    return {"text": str(blackwell.make_sparse_tmem_layout_e(shape, TYPES[job["type"]]))}


def tile(job: Job) -> Arrays:
    """A shared-memory tile: swizzle and layout."""
    atom = tcgen05.make_smem_layout_atom(getattr(tcgen05.SmemLayoutAtomKind, job["atom"]), TYPES[job["type"]])
    order = (0, 1) if job["atom"].startswith("K") else (1, 0)
    return {"text": str(cute.tile_to_shape(atom, tuple(job["tile"]), order))}


def descriptors(job: Job) -> Arrays:
    """The instruction descriptor, and the constant part of the matrix descriptors of A and B."""
    op, (m, n, k), group = operation(job), job["shape"], job["cta_group"]
    a_type, b_type, d_type = (TYPES[name] for name in job["types"])
    if job["kind"] == "tf32":
        d_type = cutlass.Float32
    scale = TYPES.get(job.get("scale", ""))
    scaled = scale is not None
    negate = job["negate"]

    @cute.kernel
    def kernel() -> None:
        mma = cute.make_tiled_mma(op)
        layout_a = blackwell.make_smem_layout_a(mma, (m, n, 2 * k), a_type, 1)
        layout_b = blackwell.make_smem_layout_b(mma, (m, n, 2 * k), b_type, 1)
        memory = utils.SmemAllocator()
        a = mma.make_fragment_A(memory.allocate_tensor(a_type, layout_a.outer, 1024, swizzle=layout_a.inner))
        b = mma.make_fragment_B(memory.allocate_tensor(b_type, layout_b.outer, 1024, swizzle=layout_b.inner))
        shape = mma.make_fragment_C(mma.partition_shape_C((m, n))).layout
        d = cute.make_tensor(cute.make_ptr(d_type, 0, cute.AddressSpace.tmem, assumed_align=16), shape)
        mma.set(tcgen05.Field.ACCUMULATE, True)
        if cutlass.const_expr(job["kind"] != "i8"):
            mma.set(tcgen05.Field.NEGATE_A, negate[0])
            mma.set(tcgen05.Field.NEGATE_B, negate[1])
        if cutlass.const_expr(scaled):
            factors = cute.make_ptr(scale, 64, cute.AddressSpace.tmem, assumed_align=16)
            mma.set(tcgen05.Field.SFA, factors)
            mma.set(tcgen05.Field.SFB, factors)
        cute.gemm(mma, d, a[None, None, 0, 0], b[None, None, 0, 0], d)

    @cute.jit
    def launch() -> None:
        kernel().launch(grid=(group, 1, 1), block=(128, 1, 1), cluster=(group, 1, 1))

    ptx = cute.compile(launch).__ptx__
    line = re.search(r"(tcgen05\.mma\S*) \[(%r\d+)\], (%rd\d+), (%rd\d+), (%r\d+)", ptx)
    if line is None:
        return {"refused": "no tcgen05.mma in the PTX"}
    word = re.search(rf"mov\.b32 \t{line[5]}, (-?\d+);", ptx)
    parts = [re.search(rf"or\.b64 \t{name}, %rd\d+, (-?\d+);", ptx) for name in (line[3], line[4])]
    if word is None or None in parts:
        return {"refused": f"descriptors are no constants:\n{ptx}"}
    a, b = (int(part[1]) % (1 << 64) for part in parts if part)
    return {"mnemonic": line[1], "instruction": int(word[1]) % (1 << 32), "a": str(a), "b": str(b)}


LOOKS = {"accumulator": accumulator, "a": from_tmem, "scales": scale_factors, "metadata": metadata, "tile": tile}


def answer(job: Job, given: Arrays) -> Arrays:
    """One answer, or why there is none."""
    try:
        if job["ask"] == "descriptors":
            return descriptors(job)
        return traced(lambda: LOOKS[job["ask"]](job))
    except Exception as error:  # the DSL raises several kinds, and refusing is an answer
        return {"refused": str(error).strip() or repr(error)}


if __name__ == "__main__":
    main("nvidia-cutlass-dsl", answer)
