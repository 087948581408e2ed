"""Block-scaled products as cases: elements, factors and maps in memory as `hwkernels` lays them out; what is expected is `tcsim.gemm`, bit for bit."""

from __future__ import annotations

import numpy as np

from conformance.kernels import scaled
from conformance.kernels.scaled import ScaledCase
from hwkernels.gemm.kernels import OUTPUT_BYTES
from hwkernels.gemm.scaled_call import FACTORS
from hwkernels.gemm.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from hwkernels.gemm.tiles import Shape
from tcsim.core.targets import TARGETS
from tests.kernels.corpora.case import Case, Close, Inputs, Launch, Map, Pointer, Source, Struct
from tests.kernels.corpora.gemm.cases import operand_map, problem_of, struct_of


def block_scaled(product: ScaledCase, target: str) -> Case:
    """One product of random elements and factors, d in whole rows of 16 bytes.

    Pre-conditions:
        product.size[1] * OUTPUT_BYTES[product.out] % 16 == 0
    """
    arch, shape = TARGETS[target].arch, Shape(*product.size)
    build = product.build(arch)
    names = ("a", "b", "out", "block_n", "scaled")
    source = Source("gemm", product.kernel, "", tuple((name, getattr(build, name)) for name in names))

    def make(inputs: Inputs) -> Launch:
        codes = scaled.operands(product, 0)
        packed = [pack_factors(build.row, x) for x in (codes["scale_a"], codes["scale_b"].T)]
        words = np.zeros((), FACTORS)
        words["pitch"] = packed[0][1]
        expected = scaled.predicted(product, arch, codes).view(f"u{OUTPUT_BYTES[product.out]}")
        buffers = {
            "a": pack_elements(codes["a"], build.row.element_bits),
            "b": pack_elements(codes["b"].T, build.row.element_bits),
            "scale_a": whole_tiles(build, packed[0][0], build.block_m),
            "scale_b": whole_tiles(build, packed[1][0], build.block_n),
            "d": np.zeros_like(expected),
        }
        factors = ((FACTORS.fields[name][1], Pointer(f"scale_{name}")) for name in "ab")  # type: ignore[index]
        problem = struct_of(problem_of(build, shape, (0, 0, shape.n), group=1))
        maps = (Map(name, operand_map(spec)) for name, spec in zip("ab", scaled_maps(build, shape), strict=True))
        return Launch(
            buffers, (*maps, bytes(128), Struct(problem.data, problem.pointers[2:]), Struct(words.tobytes(), tuple(factors))),
            {"d": Close(expected, expected.dtype)}, scaled_grid(build, shape), (build.row.threads, 1, 1),
            shared_bytes=build.shared_bytes,
        )  # fmt: skip

    return Case(f"gemm_{product.id}_{target}", source, "gemm", (target,), make)
