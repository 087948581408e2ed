"""Small products by every GEMM kernel of hwkernels that an H200 runs; what is expected is `tcsim.gemm`, bit for bit.

`whole` has all products of all kernels, which need no recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import tcsim
from hwkernels.gemm import tiles
from hwkernels.gemm.build import Build
from hwkernels.gemm.call import problem_dtype
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, GemmKernel
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS, ScaledBuild
from hwkernels.gemm.sparse_operands import compress, metadata_image, sparsity_in
from hwkernels.gemm.tiles import Shape, TensorMapSpec
from tcsim.core.targets import TARGETS
from tests.kernels.corpora.case import (
    DTYPES,
    Array,
    Case,
    Close,
    Inputs,
    Launch,
    Map,
    Parameter,
    Pointer,
    Source,
    Struct,
    register,
)  # fmt: skip

CLUSTERS = 2  # of a persistent launch: blocks take several tiles


def build_of(source: Source, target: str) -> Build | ScaledBuild:
    """The build that a source names, for a target."""
    options = dict(source.options)
    if source.file in SCALED_KERNELS:
        return ScaledBuild(source.file, **options, target=target)
    formats = (options["a"], options["b"], options["out"])
    return tiles.choose(KERNELS[source.file], Shape(*options["shape"]), formats, options["majors"], target=target)


def operand_map(spec: TensorMapSpec) -> tcsim.TensorMap:
    """The map that a specification means."""
    return tcsim.TensorMap(
        spec.data_type, global_dim=spec.dims, global_strides=(spec.pitch,), box_dim=spec.box, swizzle=spec.swizzle,
        l2_promotion=spec.promotion,
    )  # fmt: skip


def elements(inputs: Inputs, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of a format, about normal."""
    if name == "s8":
        return inputs.integers(-128, 127, shape, np.int8)
    return inputs.normal(shape, np.float32 if name == "tf32" else DTYPES[name])


def padded(array: Array, leading: int) -> Array:
    """Rows of `leading` elements; what is added is zero."""
    out = np.zeros((len(array), leading), array.dtype)
    out[:, : array.shape[1]] = array
    return out


def rounded(codes: Array, accumulator: str, out: str) -> Array:
    """The bits of d for accumulators: to nearest even."""
    if accumulator == "s32":
        return codes
    return np.asarray(tcsim.decode(codes, "f32")).astype(np.float32).astype(DTYPES[out])


def problem_of(build: Any, shape: Shape, leading: tuple[int, int, int], group: int = 2) -> Array:
    """The struct Problem, its addresses zero."""
    problem = np.zeros((), problem_dtype(build))
    problem["lda"], problem["ldb"], problem["ldd"] = leading
    problem["m"], problem["n"], problem["k"], problem["group"] = shape.m, shape.n, shape.k, group
    problem["alpha"], problem["beta"] = 1, 1
    return problem


def dense(
    kernel: GemmKernel,
    target: str,
    formats: tuple[str, str, str],
    shape: Shape,
    majors: tuple[bool, bool] = (False, False),
) -> Case:
    """One product."""
    a_format, b_format, out = formats
    options = (
        ("a", a_format),
        ("b", b_format),
        ("out", out),
        ("shape", (shape.m, shape.n, shape.k)),
        ("majors", majors),
    )
    source = Source("gemm", kernel.name, "dense", options)

    def make(inputs: Inputs) -> Launch:
        build = tiles.choose(kernel, shape, formats, majors, target=target)
        a, b = elements(inputs, a_format, (shape.m, shape.k)), elements(inputs, b_format, (shape.n, shape.k))
        step = 16 // OPERAND_FORMATS[a_format].bytes if kernel.needs_aligned else 1
        metadata = {}
        if kernel.sparse:
            kept = inputs.stream.words(
                (shape.m, -(-shape.k // OPERAND_FORMATS[a_format].group), OPERAND_FORMATS[a_format].group)
            )
            order = np.argsort(kept, axis=-1).reshape(shape.m, -1)[:, : shape.k]
            a = np.where(order < OPERAND_FORMATS[a_format].group // 2, a, np.zeros((), a.dtype))
            matrix = compress(a)
            metadata = {"metadata": metadata_image(matrix.groups(), a_format, sparsity_in(build.instruction))}
            stored = matrix.kept
        else:
            stored = a.T if majors[0] else a
        other = b.T if majors[1] else b
        leading = tuple(-(-own.shape[1] // step) * step for own in (stored, other))
        ldd = -(-shape.n * np.dtype(DTYPES[out]).itemsize // 16) * 16 // np.dtype(DTYPES[out]).itemsize
        d = np.zeros((shape.m, ldd), DTYPES[out])
        expected = d.copy()
        expected[:, : shape.n] = rounded(build.predict(a, b.T), OPERAND_FORMATS[a_format].accumulator, out)
        if ldd != shape.n:
            d[:, shape.n :] = expected[:, shape.n :] = 7  # what lies behind a row is nobody's
        problem = problem_of(build, shape, (*leading, ldd))
        buffers = {"a": padded(stored, leading[0]), "b": padded(other, leading[1]), "d": d} | metadata
        params: list[Parameter] = []
        if kernel.tma:
            specs = tiles.tensor_maps(build, shape, (*leading, ldd))
            params = [Map(name, operand_map(spec)) for name, spec in zip("abd", specs, strict=True)]
            if not build.tma_store:
                params[2] = bytes(128)
        params.append(struct_of(problem))
        if metadata:
            params.append(Pointer("metadata"))
        return Launch(
            buffers, tuple(params), {"d": Close(expected.view(f"u{d.itemsize}"), f"u{d.itemsize}")},
            tiles.launch_grid(build, shape, CLUSTERS), (kernel.threads, 1, 1),
            (math.prod(build.cluster), 1, 1), build.shared_bytes,
        )  # fmt: skip

    suffix = "".join("_mn" if major else "" for major in majors)
    name = f"{kernel.name}_{a_format}{'' if a_format == b_format else '_' + b_format}_{out}{suffix}_{shape.m}x{shape.n}x{shape.k}"
    same = name.replace(kernel.name, "sparse" if kernel.sparse else "dense")
    return Case(f"{source.compiler}_{name}_{target}", source, "gemm", (target,), make, same)


def struct_of(problem: Array) -> Any:
    """The parameter Problem: its first fields are the addresses of a, b, c and d."""
    return Struct(problem.tobytes(), tuple((8 * i, Pointer(name)) for i, name in ((0, "a"), (1, "b"), (3, "d"))))


RAGGED, WIDE, WHOLE, SMALL = Shape(72, 40, 96), Shape(136, 72, 160), Shape(128, 128, 64), Shape(64, 64, 64)


def _every() -> Iterator[Case]:
    for kernel in KERNELS.values():
        for target in (own for own in kernel.targets if TARGETS[own].number == 90):
            for name in tiles.formats_on(kernel, 90):
                out = OPERAND_FORMATS[name].outputs[0]
                yield dense(kernel, target, (name, name, out), WIDE if kernel.tma else RAGGED)
            if kernel.mn_major:
                yield dense(kernel, target, ("bf16", "bf16", "f32"), WHOLE, (not kernel.sparse, True))
            if "e5m2" in kernel.formats:
                yield dense(kernel, target, ("e4m3", "e5m2", "f32"), SMALL)


for own in _every():
    register(own)
