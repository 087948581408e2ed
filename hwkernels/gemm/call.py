"""`hwkernels.gemm`: one matrix product on the GPU by a kernel of this package, from arrays of any library.

    d = hwkernels.gemm(a, b)                        # the best kernel for this GPU
    d = hwkernels.gemm(a, b, c, kernel="sm90_wgmma_tma", alpha=2.0, beta=0.5)
    d = hwkernels.gemm(hwkernels.compress(a), b)    # a 2:4 sparse a, by the best sparse kernel

Nothing here is needed to read the kernels: they are hwkernels/kernels/*.cu, and their facts hwkernels/gemm/kernels.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwkernels.device import stream_launch
from hwkernels.device.device_arrays import DeviceMatrix, is_torch, new_output, read_matrix, round_up, upload
from hwkernels.device.plan import Plan
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import ENTRY, Build, cubin_of
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES, GemmKernel
from hwkernels.gemm.operands import prepared
from hwkernels.gemm.picks import picked
from hwkernels.gemm.repeated import Facts, facts_of, find, remember
from hwkernels.gemm.sparse_operands import SparseMatrix, SparsityError, compress
from hwkernels.gemm.tiles import Shape
from hwkernels.gemm.tuning import GemmError, Tuning, tuned

if TYPE_CHECKING:
    from hwkernels.gemm.scaled_kernels import ScaledBuild

__all__ = [
    "GemmError",
    "Plan",
    "SparseMatrix",
    "SparsityError",
    "Tuning",
    "compress",
    "find_kernel",
    "gemm",
    "plan_gemm",
    "problem_dtype",
    "target_for",
    "tuned",
]

_FP8 = ("e4m3", "e5m2")


def problem_dtype(build: Build | ScaledBuild) -> np.dtype[Any]:
    """The struct Problem of epilogue.cuh.

    >>> problem_dtype(Build("sm90_wgmma_tma", "f16", "f16", "f16", "sm_90a", block_n=128)).itemsize
    88
    """
    scale = "<i4" if build.out == "s32" else "<f4"
    pointers, leading = [(name, "<u8") for name in "abcd"], [(f"ld{name}", "<i8") for name in "abcd"]
    sizes = [(name, "<i4") for name in ("m", "n", "k", "group")]
    return np.dtype([*pointers, *leading, *sizes, ("alpha", scale), ("beta", scale)])


def find_kernel(name: str | None, a: str, b: str, arch: int, sparse: bool = False) -> GemmKernel:
    """The kernel of that name, or the best for the GPU, that takes operands of these formats.

    arch: 90 for sm_90. sparse: A is compressed; a sparse kernel can be named for a dense one too. Raises GemmError that lists the kernels which are valid on this GPU.
    """
    valid = {
        item.name: formats
        for item in KERNELS.values()
        if (formats := gemm_tiles.formats_on(item, arch)) and item.sparse >= sparse
    }
    listing = "; ".join(f"{item} ({', '.join(formats)})" for item, formats in valid.items()) or "none"
    if name is not None and name not in KERNELS:
        raise GemmError(f"no kernel {name!r}; valid on sm_{arch}: {listing}")
    if a != b and not (a in _FP8 and b in _FP8):
        raise GemmError(f"a is {a} and b {b}; valid: the same format, or e4m3 with e5m2")
    kernel = KERNELS[name] if name is not None else gemm_tiles.best_kernel(arch, a, b, sparse)
    if kernel is None:
        raise GemmError(f"no kernel multiplies {'sparse ' * sparse}{a} by {b} on sm_{arch}; valid there: {listing}")
    if sparse and not kernel.sparse:
        raise GemmError(f"{kernel.name} takes no compressed a; valid on sm_{arch}: {listing}")
    if kernel.name not in valid:
        targets = kernel.target if kernel.later else ", ".join(kernel.targets)
        raise GemmError(f"{kernel.name} is for {targets}, this GPU is sm_{arch}; valid there: {listing}")
    if not {a, b} <= set(valid[kernel.name]):
        raise GemmError(
            f"{kernel.name} takes {', '.join(valid[kernel.name])}, not {a} and {b}; valid on sm_{arch}: {listing}"
        )
    return kernel


def plan_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    kernel: str | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out_format: str | None = None,
    out: Any = None,
    tuning: Tuning | None = None,
) -> Plan:
    """Everything but the launch: operands found (or copied, or repacked), kernel compiled, tensor maps encoded.

    Arguments and errors as for `gemm`. `out`: a GPU matrix to write instead of a new one. tuning: choices by hand; None for
    the measured pick of this size (`gemm_picks`), or where there is none for `gemm_tiles.choose`.
    """
    stream_launch.make_current()
    arch = stream_launch.arch_number()
    compressed = isinstance(a, SparseMatrix)
    given = a if compressed else read_matrix(a, "a")
    right = read_matrix(b, "b").transposed()  # K last
    row = find_kernel(kernel, given.format, right.format, arch, compressed)
    if given.shape[1] != right.shape[1]:
        raise GemmError(f"a is {given.shape} and b {right.shape[::-1]}; valid: (M, K) and (K, N)")
    shape = Shape(given.shape[0], right.shape[0], given.shape[1])
    outputs = OPERAND_FORMATS[given.format].outputs
    result = _output_format(out, out_format, outputs)
    launches: list[stream_launch.StreamLaunch] = []
    left, metadata = (a if compressed else compress(a)).on_device if row.sparse else (given, None)
    operands = [prepared(item, row, launches) for item in (left, right)]
    scaled = alpha != 1 or c is not None
    if result == "s32" and (alpha != int(alpha) or beta != int(beta)):
        raise GemmError(f"alpha={alpha}, beta={beta} with an s32 output; valid: whole numbers")
    addend = addend_of(c, shape, result)
    output, target = output_of(out, a, b, shape, result)
    ldd = target.strides[0]
    size = OUTPUT_BYTES[result]
    aligned = ldd * size % 16 == 0 and target.address % 16 == 0
    build = gemm_tiles.choose(
        row,
        shape,
        (given.format, right.format, result),
        (operands[0].mn_major, operands[1].mn_major),
        target=target_for(row, arch),
        multiprocessors=stream_launch.multiprocessors(),
        aligned_output=aligned,
        scaled=scaled,
    )
    if tuning is None:  # what was measured for this very product
        tuning = picked(build, shape, arch, stream_launch.multiprocessors()) if aligned else Tuning()
    build = tuned(build, tuning)
    leading = (operands[0].leading, operands[1].leading, ldd)
    problem = np.zeros((), problem_dtype(build))
    problem["a"], problem["b"], problem["d"] = operands[0].address, operands[1].address, target.address
    problem["lda"], problem["ldb"], problem["ldd"] = leading
    problem["c"], problem["ldc"] = (addend.address, addend.strides[0]) if addend else (0, 0)
    problem["m"], problem["n"], problem["k"] = shape.m, shape.n, shape.k
    problem["group"] = tuning.group or gemm_tiles.group_height(build, stream_launch.multiprocessors())
    problem["alpha"], problem["beta"] = alpha, beta
    parameters: list[npt.NDArray[Any]] = [problem]
    if row.tma:
        addresses = (operands[0].address, operands[1].address, target.address if build.tma_store else 0)
        specs = gemm_tiles.tensor_maps(build, shape, leading)
        if tuning.promotion:
            specs = tuple(replace(spec, promotion=tuning.promotion) for spec in specs)
        maps = [
            stream_launch.encode_tensor_map(spec, address) if address else bytes(128)
            for spec, address in zip(specs, addresses, strict=True)
        ]
        parameters = [*(np.frombuffer(item, np.uint8) for item in maps), problem]
    if metadata is not None:
        parameters.append(np.array(metadata.address, "<u8"))
    resident = max(1, stream_launch.multiprocessors() // math.prod(build.cluster))
    launch = stream_launch.StreamLaunch(
        stream_launch.load_function(cubin_of(build), ENTRY),
        parameters,
        gemm_tiles.launch_grid(build, shape, min(resident, tuning.clusters or resident)),
        (row.threads, 1, 1),
        build.shared_bytes,
        math.prod(build.cluster),
        keep=(operands, metadata, addend, target),
        overlaps=row.overlaps,
    )
    if launch.cluster > 1:  # fewer may fit than multiprocessors / size: a cluster stays within one GPC
        resident = max(1, launch.max_clusters())
        launch.set_grid(gemm_tiles.launch_grid(build, shape, min(resident, tuning.clusters or resident)))
    return Plan(build, shape, [*launches, launch], output)


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    kernel: str | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out_format: str | None = None,
    out: Any = None,
) -> Any:
    """d = alpha * (a b) + beta * c on the GPU.

    a: (M, K), or what `compress` makes of one; b: (K, N); c: (M, N) of the output's format, or None. NumPy arrays (with ml_dtypes for bf16 and fp8), or matrices on
    the GPU that speak `__cuda_array_interface__` or DLPack, with any strides; f32 is multiplied as tf32. Returns a NumPy
    array for NumPy operands, a torch tensor for torch's, else a DeviceArray; its rows may be padded. The product is one
    chain of the kernel's instruction over ascending K from zero (`tcsim.gemm` gives its bits), then multiplied by alpha
    (f32, to nearest), then fused with beta * c, then rounded to the output's format, to nearest even.

    kernel: a name of `gemm_kernels.KERNELS`, None for the best on this GPU, dense unless a is compressed. A sparse kernel that
    is named compresses a dense a in every call. out_format: "f16", "bf16", "f32" or "s32", as
    the operands allow; None for the format of the operands (bf16 for fp8, f32 for tf32, s32 for s8).

    Raises GemmError for an unknown kernel, one that this GPU does not run, formats and shapes that do not go together;
    SparsityError for a sparse kernel and an a with too many nonzeros in a group; OperandTypeError for operands that cannot be read; DriverUnavailable without a GPU.
    """
    facts = None if isinstance(a, SparseMatrix) else _facts((a, b, c, out))
    if facts is not None:
        key = (*(known for known, _ in facts), kernel, alpha, beta, out_format)
        repeated = find(key)
        if repeated is not None:
            of_a, of_b, of_c, of_d = (address for _, address in facts)
            if out is None:
                out, of_d = repeated.output(a if is_torch(a) else b)
            repeated((of_a, of_b, of_c, of_d), stream_launch.current_stream())
            return out
    plan = plan_gemm(a, b, c, kernel, alpha=alpha, beta=beta, out_format=out_format, out=out)
    if isinstance(a, np.ndarray | SparseMatrix) and isinstance(b, np.ndarray) and out is None:
        return plan.fetch()
    result = plan()
    if facts is not None:
        remember(key, plan)
    return result


def _facts(operands: tuple[Any, ...]) -> list[Facts] | None:
    """Those of each operand, nothing of one that is not given; None if one is of the host."""
    found: list[Facts] = []
    for name, value in zip(("a", "b", "c", "out"), operands, strict=True):
        facts = (None, 0) if value is None else facts_of(value, name)
        if facts is None:
            return None
        found.append(facts)
    return found


def target_for(kernel: GemmKernel, arch: int) -> str:
    """What to compile a kernel for: its target of this generation, or the generation's plain one where a later chip runs it.

    >>> target_for(KERNELS["sm90_wgmma_basic"], 90), target_for(KERNELS["sm80_mma_multistage"], 89)
    ('sm_90a', 'sm_89')
    """
    return dict(zip(kernel.archs, kernel.targets, strict=True)).get(arch, f"sm_{arch}")


def _output_format(out: Any, wanted: str | None, outputs: tuple[str, ...]) -> str:
    if out is not None:
        found = read_matrix(out, "out").format
        found = "f32" if found == "tf32" else found
        if wanted not in (None, found):
            raise GemmError(f"out is {found}, out_format={wanted!r}; valid: one of them")
        wanted = found
    if wanted is not None and wanted not in outputs:
        raise GemmError(f"out_format={wanted!r}; valid for these operands: {', '.join(outputs)}")
    return wanted or outputs[0]


def addend_of(c: Any, shape: Shape, result: str) -> DeviceMatrix | None:
    """`c` on the GPU. Raises GemmError for another shape or format, OperandTypeError for what cannot be read."""
    if c is None:
        return None
    matrix = read_matrix(c, "c")
    if matrix.host is not None:
        matrix = replace(matrix, host=np.ascontiguousarray(matrix.host), strides=(matrix.shape[1], 1))
    format_ = "f32" if matrix.format == "tf32" else matrix.format
    if matrix.shape != (shape.m, shape.n) or format_ != result or (matrix.strides[1] != 1 and shape.n > 1):
        raise GemmError(
            f"c is {matrix.shape} {format_} with strides {matrix.strides}; valid: ({shape.m}, {shape.n}) {result}, rows of neighbours"
        )
    return upload(matrix)


def output_of(out: Any, a: Any, b: Any, shape: Shape, result: str) -> tuple[Any, DeviceMatrix]:
    """The array that is returned, and where the kernel writes it.

    Raises GemmError for an `out` that the kernel cannot write.
    """
    if out is None:
        like = next((item for item in (a, b) if is_torch(item)), None)
        out = new_output(like, (shape.m, shape.n), round_up(shape.n, 16 // OUTPUT_BYTES[result]), result)
    matrix = read_matrix(out, "out")
    if matrix.host is not None or matrix.shape != (shape.m, shape.n) or (matrix.strides[1] != 1 and shape.n > 1):
        raise GemmError(
            f"out is {matrix.shape} with strides {matrix.strides}; valid: ({shape.m}, {shape.n}) on the GPU, rows of neighbours"
        )
    if matrix.read_only:
        raise GemmError("out is read-only; valid: a matrix that may be written")
    if shape.m == 1:
        matrix = replace(matrix, strides=(round_up(shape.n, 16 // OUTPUT_BYTES[result]), 1))
    return out, matrix
