"""How fast whole kernels run on the CPU, reading and compiling the PTX included, against targets.

python benchmarks/kernels.py                   print the table: seconds of processor time, the best of three
python benchmarks/kernels.py --check           exit status 1 if a target is missed, or a byte is not the expected one
python benchmarks/kernels.py --engine numba    with another engine than NumPy multiplying
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from conformance.kernels.gemm import GemmCase
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.gemm.build import SOURCES
from hwkernels.gemm.call import Tuning
from tcsim.engines.choice import using
from tcsim.ptx import Limits, Memory, parse
from tests.kernels.corpora.gemm import products

ROOT = Path(__file__).resolve().parent.parent
ATTENTION = ROOT / "tests" / "data" / "launches" / "triton_attention_full_sm80.npz"


@dataclass(frozen=True)
class Timed:
    """What a kernel took."""

    seconds: float
    good: bool  # whether every byte was as expected
    instructions: int


def product(
    kernel: str, size: tuple[int, int, int], arch: str, block_n: int | None = None, clusters: int | None = None,
    clock: bool = False,
) -> Timed:  # fmt: skip
    """One product of f16 matrices by a kernel of hwkernels, compared with `tcsim.gemm`. clusters: of a persistent one."""
    timer = time.perf_counter if clock else time.process_time
    case = GemmCase(
        kernel, "f16", "f16", "f32", size, "random", tuning=Tuning(block_n=block_n, clusters=clusters or None)
    )
    build = case.build(arch)
    text = (SOURCES / build.row.file).read_text(encoding="utf-8")
    ptx = compile_cubin(text, build.target, name=build.row.file, headers=build.headers, defines=build.defines).ptx
    products.kernel_of(build)
    start = timer()
    parse(ptx)
    reading = timer() - start
    found = products.multiplied(case, arch, limits=Limits(), timer=timer)
    return Timed(reading + found.seconds, found.good, found.run.instructions)


def attention() -> Timed:
    """A forward pass of attention, 2 x 128 x 64, that Triton compiled and an H200 recorded."""
    with np.load(ATTENTION) as file:
        data = dict(file)
    memory, buffers = Memory(), [key for key in data if key.startswith("buf") and key.endswith("_address")]
    for key in buffers:
        memory.map(int(data[key]), data[key.replace("address", "before")].view(np.uint8).reshape(-1))
    params = [data[f"param{i}"].tobytes() for i in range(sum(key.startswith("param") for key in data))]
    start = time.process_time()
    kernel = parse(str(data["ptx"])).kernel(str(data["entry"]))
    run = kernel.launch(
        memory, params, data["grid"], data["block"], dynamic_smem=int(data["smem"]), arch="sm_90", check=False
    )
    seconds = time.process_time() - start
    after = [
        (int(data[key]), data[name].view(np.uint8).reshape(-1))
        for key in buffers
        if (name := key.replace("address", "after")) in data
    ]
    good = run.completed and all(np.array_equal(memory.read(address, len(own)), own) for address, own in after)
    return Timed(seconds, good, run.instructions)


REPEAT = 3
CUBE, LARGE = (1024, 1024, 1024), (4096, 4096, 4096)
Of = tuple[str, tuple[int, int, int], str, int | None, int | None]
CUBES: tuple[tuple[str, Of], ...] = (
    ("1024 x 1024 x 1024, TMA + wgmma", ("sm90_wgmma_tma", CUBE, "sm_90", None, None)),
    ("1024 x 1024 x 1024, persistent, TMA + wgmma", ("sm90_wgmma_persistent", CUBE, "sm_90", 256, 16)),
    ("1024 x 1024 x 1024, mma.sync", ("sm80_mma_multistage", CUBE, "sm_90", None, None)),
    ("1024 x 1024 x 1024, tcgen05", ("sm100_tcgen05_basic", CUBE, "sm_100", None, None)),
    ("1024 x 1024 x 1024, persistent, tcgen05", ("sm100_tcgen05_persistent", CUBE, "sm_100", None, 32)),
)
"""Kernel, size, arch; columns of a tile; clusters of a persistent kernel: as many as run in one batch."""
LARGE_CUBE: tuple[str, Of] = (
    "4096 x 4096 x 4096, persistent, TMA + wgmma",
    ("sm90_wgmma_persistent", LARGE, "sm_90", 256, 66),
)
KERNELS: tuple[tuple[str, float, Callable[[], Timed]], ...] = (
    ("one 128 x 128 x 64 tile, TMA + wgmma", 0.5, lambda: product("sm90_wgmma_tma", (128, 128, 64), "sm_90")),
    ("256 x 256 x 256, TMA + wgmma, 4 stages", 2.0, lambda: product("sm90_wgmma_tma", (256, 256, 256), "sm_90")),
    *((name, 10.0, partial(product, *of)) for name, of in CUBES),
    ("attention 2 x 128 x 64, recorded on an H200", 3.0, attention),
)


def main() -> int:
    """Print the table; the exit status is 1 if --check is given and something is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
    parser.add_argument("--engine", default="numpy", help="who multiplies matrices")
    given = parser.parse_args()
    missed = False
    with using(given.engine):
        product("sm90_wgmma_tma", (128, 128, 64), "sm_90")  # so that the catalog is there
        print(
            f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {given.engine}, CPU seconds"
        )
        print(
            "| kernel | instructions of blocks | first | s | target | result |\n| --- | ---: | ---: | ---: | ---: | --- |"
        )
        for name, target, measure in KERNELS:
            first = measure()
            found = min((measure() for _ in range(REPEAT)), key=lambda one: one.seconds)
            missed = missed or not found.good or found.seconds > target
            said = "as expected" if found.good else "WRONG"
            print(
                f"| {name} | {found.instructions:,} | {first.seconds:.2f} | {found.seconds:.2f} | {target:g} | {said} |",
                flush=True,
            )
    return int(given.check and missed)


if __name__ == "__main__":
    sys.exit(main())
