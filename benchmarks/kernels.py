"""How fast whole kernels run on the CPU: seconds of processor time, reading and compiling the PTX included, against targets.

python benchmarks/kernels.py            print the table
python benchmarks/kernels.py --check    exit status 1 if a target is missed, or a result is not the expected one
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.kernels.gemm import GemmCase
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.gemm.build import SOURCES
from hwkernels.gemm.call import Tuning
from tcsim.ptx import Memory, parse
from tests.corpora.gemm import products

ROOT = Path(__file__).resolve().parent.parent
ATTENTION = ROOT / "tests" / "data" / "launches" / "triton_attention_full_sm80.npz"


@dataclass(frozen=True)
class Timed:
    """What a kernel took."""

    seconds: float
    good: bool  # whether every byte was as expected
    instructions: int


def product(kernel: str, size: tuple[int, int, int], arch: str, block_n: int | None = None) -> Timed:
    """One product of f16 matrices by a kernel of hwkernels, compared with `tcsim.gemm`."""
    case = GemmCase(kernel, "f16", "f16", "f32", size, "random", tuning=Tuning(block_n=block_n))
    build = case.build(arch)
    text = (SOURCES / build.row.file).read_text(encoding="utf-8")
    ptx = compile_cubin(text, build.target, name=build.row.file, headers=build.headers, defines=build.defines).ptx
    products.kernel_of(build)
    start = time.process_time()
    parse(ptx)
    reading = time.process_time() - start
    found = products.multiplied(case, arch)
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
    after = [(int(data[key]), data[key.replace("address", "after")].view(np.uint8).reshape(-1)) for key in buffers]
    good = run.completed and all(np.array_equal(memory.read(address, len(own)), own) for address, own in after)
    return Timed(seconds, good, run.instructions)


CUBE = (1024, 1024, 1024)
KERNELS: tuple[tuple[str, float, Callable[[], Timed]], ...] = (
    ("one 128 x 128 x 64 tile, TMA + wgmma", 0.5, lambda: product("sm90_wgmma_tma", (128, 128, 64), "sm_90")),
    ("256 x 256 x 256, TMA + wgmma, 4 stages", 2.0, lambda: product("sm90_wgmma_tma", (256, 256, 256), "sm_90")),
    ("1024 x 1024 x 1024, TMA + wgmma", 10.0, lambda: product("sm90_wgmma_persistent", CUBE, "sm_90", 256)),
    ("1024 x 1024 x 1024, mma.sync", 10.0, lambda: product("sm80_mma_multistage", CUBE, "sm_90")),
    ("1024 x 1024 x 1024, tcgen05", 10.0, lambda: product("sm100_tcgen05_persistent", CUBE, "sm_100")),
    ("attention 2 x 128 x 64, recorded on an H200", 3.0, attention),
)


def main(arguments: list[str]) -> int:
    """Print the table; the exit status is 1 if --check is given and something is missed."""
    product("sm90_wgmma_tma", (128, 128, 64), "sm_90")  # so that the catalog is there
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, one core, CPU seconds")
    print("| kernel | instructions of blocks | s | target | result |\n| --- | ---: | ---: | ---: | --- |")
    missed = False
    for name, target, measure in KERNELS:
        found = measure()
        missed = missed or not found.good or found.seconds > target
        said = "as expected" if found.good else "WRONG"
        print(f"| {name} | {found.instructions:,} | {found.seconds:.2f} | {target:g} | {said} |", flush=True)
    return int("--check" in arguments and missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
