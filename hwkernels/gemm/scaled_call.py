"""`hwkernels.gemm.scaled_call.scaled_gemm`: one block-scaled product on a Blackwell GPU. Written without one: it has never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.device import stream_launch
from hwkernels.device.array_protocols import ForeignArray, read_array
from hwkernels.device.device_arrays import DeviceArray
from hwkernels.device.plan import Plan
from hwkernels.gemm.build import ENTRY
from hwkernels.gemm.call import GemmError, addend_of, output_of, problem_dtype
from hwkernels.gemm.scaled_kernels import OUTPUTS, SCALED_KERNELS, ScaledBuild, ScaledKernel, scaled_cubin_of
from hwkernels.gemm.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from hwkernels.gemm.tiles import Shape
from tcsim.numbers.codec import as_codes

Array = npt.NDArray[Any]
FACTORS = np.dtype([("a", "<u8"), ("b", "<u8"), ("pitch", "<i8")])  # ScaleFactors of the kernels


def scaled_build(
    kernel: str,
    a_format: str,
    b_format: str,
    out_format: str,
    shape: Shape,
    scaled: bool = False,
    *,
    block_n: int | None = None,
    target: str = "",
) -> ScaledBuild:
    """The build for a size: narrower tiles where the wide ones would be half empty, unless `block_n` says how wide.

    target: one of the kernel's, the first if empty. Raises GemmError for a kernel that there is not, or formats or tiles that it
    does not take.

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
    if block_n not in (None, *row.block_n):
        raise GemmError(f"{kernel} has no tiles {block_n} wide; valid: {row.block_n}")
    fitting = [n for n in row.block_n if shape.n > n // 2] or [row.block_n[-1]]
    width = fitting[0] if block_n is None else block_n
    return ScaledBuild(kernel, a_format, b_format, out_format, width, scaled, target=target or row.target)


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


def find_scaled_kernel(name: str, arch: int) -> ScaledKernel:
    """The kernel of a name, or of a scheme (`mxfp8`, `mxfp4`, `nvfp4`) on a GPU.

    arch: 100 for sm_100. Raises GemmError that lists what is valid there.

    >>> find_scaled_kernel("nvfp4", 121).name
    'sm120_nvfp4'
    """
    valid = [row.name for row in SCALED_KERNELS.values() if arch in row.archs]
    schemes = {row: row.partition("_")[2] for row in valid}
    found = next((row for row in valid if name in (row, schemes[row])), None)
    if found is not None:
        return SCALED_KERNELS[found]
    there = f"valid on sm_{arch}: {', '.join([*valid, *schemes.values()]) or 'none'}"
    if name not in SCALED_KERNELS:
        raise GemmError(f"no kernel {name!r}; {there}")
    raise GemmError(f"{name} is for {', '.join(SCALED_KERNELS[name].targets)}; this GPU is sm_{arch}; {there}")


def plan_scaled_gemm(
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
    out: Any = None,
    block_n: int | None = None,
) -> Plan:
    """Everything but the launch: operands packed and copied, kernel compiled, tensor maps encoded.

    Arguments and errors as for `scaled_gemm`. `out`: a GPU matrix to write instead of a new one. `block_n`: columns of a tile, None to
    choose.
    """
    given = {"a": a, "scale_a": scale_a, "b": b, "scale_b": scale_b}
    found = {name: read_array(value, name) for name, value in given.items()}
    stream_launch.make_current()
    arch = stream_launch.arch_number()
    row = find_scaled_kernel(kernel, arch)
    shape = _shape_of(found["a"], found["b"])
    scaled = alpha != 1 or c is not None
    build = scaled_build(
        row.name, a_format, b_format, out_format, shape, scaled, block_n=block_n, target=row.target_on(arch)
    )
    left, factors_a, right, factors_b = checked_operands(build, *(item.download() for item in found.values()))
    elements = [_upload(pack_elements(x, row.element_bits)) for x in (left, right)]
    packed = [pack_factors(row, x) for x in (factors_a, factors_b)]
    rows = (build.block_m, build.block_n)
    factors = [_upload(whole_tiles(build, x, n)) for (x, _), n in zip(packed, rows, strict=True)]
    addend = addend_of(c, shape, out_format)
    output, target = output_of(out, a, b, shape, out_format)
    if target.format not in (out_format, "tf32" if out_format == "f32" else out_format):
        raise GemmError(f"out is {target.format}, out_format={out_format!r}; valid: the same")
    problem = np.zeros((), problem_dtype(build))
    problem["d"], problem["ldd"] = target.address, target.strides[0]
    problem["c"], problem["ldc"] = (addend.address, addend.strides[0]) if addend else (0, 0)
    problem["m"], problem["n"], problem["k"], problem["group"] = shape.m, shape.n, shape.k, 1
    problem["alpha"], problem["beta"] = alpha, beta
    maps = [
        np.frombuffer(stream_launch.encode_tensor_map(spec, x.address), np.uint8)
        for spec, x in zip(scaled_maps(build, shape), elements, strict=True)
    ]
    table = np.array((factors[0].address, factors[1].address, packed[0][1]), FACTORS)
    launch = stream_launch.StreamLaunch(
        stream_launch.load_function(scaled_cubin_of(build), ENTRY),
        [*maps, np.zeros(128, np.uint8), problem, table],
        scaled_grid(build, shape),
        (row.threads, 1, 1),
        build.shared_bytes,
        keep=(elements, factors, addend, target),
    )
    return Plan(build, shape, [launch], output)


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
    out: Any = None,
) -> Any:
    """d = alpha * (a * scale_a) (b * scale_b) + beta * c on a Blackwell GPU.

    a: codes (M, K); b: codes (K, N); scale_a: codes (M, blocks); scale_b: codes (blocks, N), a block of K `block` elements
    of the kernel's row, the last perhaps cut short; c: (M, N) of the output's dtype. Codes are uint8, one a byte, or the format's type
    of ml_dtypes (or torch); arrays of NumPy, or on the GPU by `__cuda_array_interface__` or DLPack, with any strides. The host packs
    elements and factors: operands on the GPU are copied there and back. kernel: a name of `SCALED_KERNELS`, or
    `mxfp8`, `mxfp4` or `nvfp4` for this GPU's. Returns a NumPy array for NumPy operands, a torch tensor for torch's, else a DeviceArray.
    The sum is one chain of the kernel's instruction over ascending K from zero (`tcsim.gemm` gives its bits); alpha, beta and the
    output's format as in `hwkernels.gemm`.

    Raises GemmError for an unknown kernel, formats or shapes, or a GPU that does not run it; FormatError for another dtype;
    OperandTypeError for operands that cannot be read; DriverUnavailable without a GPU.
    """
    formats: dict[str, Any] = {"a_format": a_format, "b_format": b_format, "out_format": out_format}
    plan = plan_scaled_gemm(a, scale_a, b, scale_b, c, kernel=kernel, alpha=alpha, beta=beta, out=out, **formats)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and out is None:
        return plan.fetch()
    return plan()


@dataclass(frozen=True, eq=False)
class ScaledCall:
    """The arguments of `plan_scaled_gemm` on NumPy arrays, for a process that may be lost."""

    kernel: str
    a: Array
    scale_a: Array
    b: Array
    scale_b: Array
    c: Array | None
    formats: tuple[str, str, str]  # of A, B and the output
    alpha: float = 1.0
    beta: float = 1.0
    block_n: int | None = None
    repeat: int = 1

    def plan(self) -> Plan:
        """Raises what `plan_scaled_gemm` raises."""
        names = dict(zip(("a_format", "b_format", "out_format"), self.formats, strict=True))
        more: dict[str, Any] = {"alpha": self.alpha, "beta": self.beta, "block_n": self.block_n, **names}
        return plan_scaled_gemm(self.a, self.scale_a, self.b, self.scale_b, self.c, kernel=self.kernel, **more)


def _shape_of(a: ForeignArray, b: ForeignArray) -> Shape:
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or 0 in a.shape + b.shape:
        raise GemmError(f"a is {a.shape} and b {b.shape}; valid: (M, K) and (K, N), at least 1 each")
    return Shape(a.shape[0], b.shape[1], a.shape[1])


def _upload(values: Array) -> DeviceArray:
    array = DeviceArray(values.shape, values.dtype)
    array.set(np.ascontiguousarray(values))
    return array
