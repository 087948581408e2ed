"""How fast kernels without tensor cores run, with compiled regions and without: seconds by the clock, in one process, the best of three.

python benchmarks/scalar.py    print the table; the exit status is 1 if a result is not that of the other way
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hwkernels.device.cuda_source import ptx_of
from tcsim.ptx import Limits, Memory, Module, parse
from tcsim.ptx.compile.regions import VARIABLE

SOURCE = Path(__file__).with_suffix(".cu")


class Timed(NamedTuple):
    """A kernel at one size. arrays: f32 inputs, by their elements."""

    kernel: str
    what: str
    n: int
    arrays: tuple[int, ...]
    results: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


KERNELS = (
    Timed("tiled", "512 x 512 x 512, tiles in shared memory", 512, (512 * 512,) * 2, 512 * 512, (16, 16, 1), (32, 32, 1)),
    Timed("naive", "512 x 512 x 512, from global memory", 512, (512 * 512,) * 2, 512 * 512, (4, 512, 1), (128, 1, 1)),
    Timed("stencil", "3 x 3 points of 1024 x 1024", 1024, (1024 * 1024,), 1024 * 1024, (32, 128, 1), (32, 8, 1)),
    Timed("sums", "1024 rows of 4096", 4096, (1024 * 4096,), 1024, (1024, 1, 1), (256, 1, 1)),
)  # fmt: skip


def launched(module: Module, own: Timed) -> tuple[float, npt.NDArray[np.uint8]]:
    """Seconds, and what the kernel leaves."""
    memory, rng = Memory(), np.random.default_rng(0)
    given = [memory.allocate(rng.standard_normal(size, np.float32).view(np.uint8)) for size in own.arrays]
    to, start = memory.allocate(own.results * 4), time.perf_counter()
    run = module.kernel(own.kernel).launch(memory, [*given, to, own.n], own.grid, own.block, check=False, limits=Limits(processes=1))  # fmt: skip
    seconds = time.perf_counter() - start
    if not run.completed:
        raise RuntimeError(f"{own.kernel}: {run.hazards}")
    return seconds, memory.read(to, own.results * 4)


def main() -> int:
    """Print the table."""
    module, wrong = parse(ptx_of(str(SOURCE), "sm_90")), 0
    print("| kernel | | s, first launch | s, best of three more | without regions | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for own in KERNELS:
        os.environ[VARIABLE] = "off"
        plain = [launched(module, own) for _ in range(3)]
        os.environ[VARIABLE] = "auto"
        module = parse(module.text)  # compiled anew
        found = [launched(module, own) for _ in range(4)]
        wrong += any(not np.array_equal(plain[0][1], octets) for _, octets in found)
        before, after = min(own[0] for own in plain), min(own[0] for own in found[1:])
        print(f"| {own.kernel} | {own.what} | {found[0][0]:.2f} | {after:.2f} | {before:.2f} | {before / after:.1f} |")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
