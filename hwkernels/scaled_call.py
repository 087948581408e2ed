"""`hwkernels.scaled_call.scaled_gemm`: one block-scaled product on a Blackwell GPU. Written without one: it has never run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels import stream_launch
from hwkernels.device_arrays import DTYPES, DeviceArray, round_up
from hwkernels.driver import call
from hwkernels.gemm_build import ENTRY
from hwkernels.gemm_call import GemmError, problem_dtype
from hwkernels.gemm_kernels import OUTPUT_BYTES
from hwkernels.gemm_tiles import Shape
from hwkernels.scaled_kernels import OUTPUTS, SCALED_KERNELS, ScaledBuild, scaled_cubin_of
from hwkernels.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from tcsim.codec import as_codes
from tcsim.targets import TARGETS

Array = npt.NDArray[Any]
FACTORS = np.dtype([("a", "<u8"), ("b", "<u8"), ("pitch", "<i8")])  # ScaleFactors of the kernels


def scaled_build(
    kernel: str, a_format: str, b_format: str, out_format: str, shape: Shape, scaled: bool = False
) -> ScaledBuild:
    """The build for a size: narrower tiles where the wide ones would be half empty.

    Raises GemmError for a kernel that there is not, or formats that it does not take.

    >>> scaled_build("sm100_nvfp4", "e2m1", "e2m1", "bf16", Shape(4096, 100, 4096)).block_n
    128
    """
    if kernel not in SCALED_KERNELS:
        raise GemmError(f"no kernel {kernel!r}; valid: {', '.join(SCALED_KERNELS)}")
    row = SCALED_KERNELS[kernel]
    if not {a_format, b_format} <= set(row.formats):
        raise GemmError(f"{kernel} takes {', '.join(row.formats)}, not {a_format} and {b_format}")
    if out_format not in OUTPUTS:
        raise GemmError(f"out_format={out_format!r}; valid: {', '.join(OUTPUTS)}")
    fitting = [n for n in row.block_n if shape.n > n // 2] or [row.block_n[-1]]
    return ScaledBuild(kernel, a_format, b_format, out_format, fitting[0], scaled)


def checked_operands(
    build: ScaledBuild, a: Any, scale_a: Any, b: Any, scale_b: Any
) -> tuple[Array, Array, Array, Array]:
    """Codes of A (M, K), its factors (M, blocks), B's columns (N, K) and theirs (N, blocks).

    Raises GemmError for shapes that do not go together, FormatError for other dtypes.
    """
    codes_a, codes_b = as_codes(a, build.a, "a"), as_codes(b, build.b, "b")
    if (
        codes_a.ndim != 2
        or codes_b.ndim != 2
        or codes_a.shape[1] != codes_b.shape[0]
        or 0 in codes_a.shape + codes_b.shape
    ):
        raise GemmError(f"a is {codes_a.shape} and b {codes_b.shape}; valid: (M, K) and (K, N), at least 1 each")
    blocks = -(-codes_a.shape[1] // build.row.block)
    factors = [np.asarray(x) for x in (scale_a, scale_b)]
    factors = [x.view(np.uint8) if x.dtype.name == "float8_e4m3fn" else x for x in factors]
    found_a, found_b = (
        as_codes(x, build.row.scale_format, n) for x, n in zip(factors, ("scale_a", "scale_b"), strict=True)
    )
    wanted = ((codes_a.shape[0], blocks), (blocks, codes_b.shape[1]))
    if (found_a.shape, found_b.shape) != wanted:
        raise GemmError(f"scale_a is {found_a.shape} and scale_b {found_b.shape}; valid: {wanted[0]} and {wanted[1]}")
    return codes_a, found_a, codes_b.T, found_b.T


def scaled_gemm(
    a: Any,
    scale_a: Any,
    b: Any,
    scale_b: Any,
    c: Any = None,
    *,
    kernel: str,
    a_format: str,
    b_format: str,
    alpha: float = 1.0,
    beta: float = 1.0,
    out_format: str = "bf16",
) -> Array:
    """d = alpha * (a * scale_a) (b * scale_b) + beta * c, NumPy in and out.

    a: codes (M, K); b: codes (K, N); scale_a: codes (M, blocks); scale_b: codes (blocks, N), a block of K `block` elements
    of the kernel's row, the last perhaps cut short; c: (M, N) of the output's dtype. The sum is one chain of the kernel's
    instruction over ascending K from zero (`tcsim.gemm` gives its bits); alpha, beta and the output's format as in
    `hwkernels.gemm`.

    Raises GemmError for an unknown kernel, formats or shapes, or a GPU that does not run it; DriverUnavailable without one.
    """
    codes = np.asarray(a), np.asarray(b)
    shape = Shape(codes[0].shape[0], codes[1].shape[-1], codes[0].shape[-1])
    build = scaled_build(kernel, a_format, b_format, out_format, shape, alpha != 1 or c is not None)
    left, factors_a, right, factors_b = checked_operands(build, a, scale_a, b, scale_b)
    stream_launch.make_current()
    number = TARGETS[build.row.target].number
    if stream_launch.arch_number() != number:
        raise GemmError(f"{kernel} is for {build.row.target}; this GPU is sm_{stream_launch.arch_number()}")
    elements = [_upload(pack_elements(x, build.row.element_bits)) for x in (left, right)]
    packed = [pack_factors(build.row, x) for x in (factors_a, factors_b)]
    rows = (build.block_m, build.block_n)
    factors = [_upload(whole_tiles(build, x, n)) for (x, _), n in zip(packed, rows, strict=True)]
    leading = round_up(shape.n, 16 // OUTPUT_BYTES[out_format])
    dtype = DTYPES[out_format]
    out = DeviceArray((shape.m, shape.n), dtype, (leading * dtype.itemsize, dtype.itemsize))
    problem = np.zeros((), problem_dtype(build))
    problem["d"], problem["ldd"] = out.address, leading
    problem["m"], problem["n"], problem["k"], problem["group"] = shape.m, shape.n, shape.k, 1
    problem["alpha"], problem["beta"] = alpha, beta
    addend = None
    if c is not None:
        if np.shape(c) != (shape.m, shape.n) or np.asarray(c).dtype != dtype:
            raise GemmError(f"c is {np.asarray(c).dtype} {np.shape(c)}; valid: {dtype} {(shape.m, shape.n)}")
        addend = _upload(np.ascontiguousarray(c))
        problem["c"], problem["ldc"] = addend.address, shape.n
    maps = [
        np.frombuffer(stream_launch.encode_tensor_map(spec, x.address), np.uint8)
        for spec, x in zip(scaled_maps(build, shape), elements, strict=True)
    ]
    table = np.array((factors[0].address, factors[1].address, packed[0][1]), FACTORS)
    launch = stream_launch.StreamLaunch(
        stream_launch.load_function(scaled_cubin_of(build), ENTRY),
        [*maps, np.zeros(128, np.uint8), problem, table],
        scaled_grid(build, shape),
        (build.row.threads, 1, 1),
        build.shared_bytes,
        keep=(elements, factors, addend),
    )
    launch()
    call("cuCtxSynchronize")
    return out.get()


def _upload(values: Array) -> DeviceArray:
    array = DeviceArray(values.shape, values.dtype)
    array.set(values)
    return array
