"""GEMM kernels of hwkernels run whole on the machine: their PTX, parameters and memory, and what `tcsim.gemm` says of the same product."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from hwkernels.gemm.build import ENTRY, Build, ptx_of
from hwkernels.gemm.call import Tuning, problem_dtype, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.tiles import Shape, TensorMapSpec, choose, launch_grid, tensor_maps
from tcsim.core.targets import TARGETS
from tcsim.ptx import Memory, Run, parse

Array = npt.NDArray[Any]


def build_of(
    kernel: str, a: str, size: tuple[int, int, int], *, out: str = "", target: str = "", **choices: Any
) -> Build:
    """A build of a kernel for a size; `choices` are those of Tuning."""
    out = out or next(own for own in OPERAND_FORMATS[a].outputs if own in ("f32", "s32"))
    build = choose(KERNELS[kernel], Shape(*size), (a, a, out), target=target or None, multiprocessors=4)
    return tuned(build, Tuning(**choices))


def _map_of(spec: TensorMapSpec, address: int) -> bytes:
    made = tcsim.TensorMap(
        data_type=spec.data_type, global_dim=spec.dims, global_strides=(spec.pitch,), box_dim=spec.box,
        element_strides=(1, 1), interleave="NONE", swizzle=spec.swizzle, oob_fill="NONE", l2_promotion=spec.promotion,
    )  # fmt: skip
    return made.encode(address)


@dataclass
class Product:
    """One product by a kernel on the machine."""

    build: Build
    run: Run
    d: Array  # codes
    expected: Array

    @property
    def wrong(self) -> int:
        """Outputs that differ."""
        return int((self.d != self.expected).sum())


def codes(shape: tuple[int, int], format: str, seed: int) -> Array:
    """Random finite codes of a format."""
    random = np.random.default_rng(seed)
    item = tcsim.formats.FORMATS[format] if hasattr(tcsim, "formats") else None
    if format == "s8":
        return random.integers(0, 256, shape).astype(np.uint8)
    del item
    return tcsim.encode(random.normal(size=shape), format)


def multiplied(
    build: Build, size: tuple[int, int, int], schedule: str | int = "late", seed: int = 0, resident: int = 4
) -> Product:
    """Run a build's kernel on random operands.

    Post-conditions:
        result.run.completed, and result.wrong == 0 if the machine does what the hardware does
    """
    m, n, k = size
    a, b = codes((m, k), build.a, seed), codes((k, n), build.b, seed + 1)
    memory = Memory()
    lda, ldb = _whole_rows(k, a.itemsize), _whole_rows(k, b.itemsize)
    rows_a, rows_b = np.zeros((m, lda), a.dtype), np.zeros((n, ldb), b.dtype)
    rows_a[:, :k], rows_b[:, :k] = a, b.T
    out = {"f32": np.uint32, "s32": np.uint32, "f16": np.uint16, "bf16": np.uint16}[build.out]
    ldd = _whole_rows(n, np.dtype(out).itemsize)
    pointers = [memory.allocate(rows.reshape(-1).view(np.uint8)) for rows in (rows_a, rows_b)]
    pointers.append(memory.allocate(m * ldd * np.dtype(out).itemsize))
    problem = np.zeros((), problem_dtype(build))
    problem["a"], problem["b"], problem["d"] = pointers
    problem["lda"], problem["ldb"], problem["ldd"] = lda, ldb, ldd
    problem["m"], problem["n"], problem["k"], problem["group"], problem["alpha"] = m, n, k, 1, 1
    shape = Shape(m, n, k)
    maps: list[bytes] = []
    if build.row.tma:
        specs = tensor_maps(build, shape, (lda, ldb, ldd))
        maps = [_map_of(spec, pointer) for spec, pointer in zip(specs, pointers, strict=True)]
    kernel = parse(ptx_of(build)).kernel(ENTRY)
    grid = launch_grid(build, shape, max(1, resident // math.prod(build.cluster)))
    cluster = (math.prod(build.cluster), 1, 1)
    run = kernel.launch(
        memory, [*maps, problem.tobytes()], grid, (build.row.threads, 1, 1), cluster, build.shared_bytes,
        arch=TARGETS[build.target].arch, schedule=schedule, check=False,
    )  # fmt: skip
    stored = memory.read(pointers[2], m * ldd * np.dtype(out).itemsize).view(out).reshape(m, ldd)[:, :n]
    return Product(build, run, stored, np.asarray(build.predict(a, b)).view(out))


def _whole_rows(count: int, size: int) -> int:
    """Elements of a row of whole 16 bytes."""
    return -(-count * size // 16) * 16 // size
