"""`python -m hwkernels.bench.layer`: how long the GPU's engine takes for the layers of a network as another chip would compute them.

For each shape M,N,K: `on_device` of operands that lie on the GPU, between events; `tcsim.gemm(..., engine="gpu")` of NumPy arrays, by the clock, whose
results must be equal; and NumPy's engine for some of the outputs. The instruction is tcgen05.mma of f16 on sm_100.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from hwkernels.bench.engine import seconds
from hwkernels.device.device_arrays import DeviceArray
from hwkernels.device.driver import device_info
from hwkernels.device.stream_launch import make_current
from hwkernels.engine import run
from tcsim.core.files import write_file

INSTRUCTION, ARCH = "tcgen05.mma.cta_group::1.kind::f16", "sm_100"
SHAPES = ("4096,4096,4096", "4096,14336,4096", "4096,4096,14336")
"""A square, and the layers of a feed-forward block of 4096 by 14336 for 4096 tokens."""
TIMES = 5
CHECKED = (slice(None, None, 401), slice(None, None, 257))
"""Rows and columns that NumPy computes too."""


def measure(m: int, n: int, k: int, seed: int) -> dict[str, Any]:
    """Seconds of both ways, and how many outputs are not equal."""
    stream = np.random.default_rng(seed)
    a, b = (stream.standard_normal(size, np.float32).astype(np.float16) for size in ((m, k), (k, n)))
    idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=256)
    instruction: Any = tcsim.instruction(INSTRUCTION, arch=ARCH)
    work = instruction.work(instruction.descriptor(idesc))
    arrays: dict[str, Any] = {}
    for name, values in (("a", a), ("b", b), ("c", np.zeros((m, n), np.float32))):
        arrays[name] = DeviceArray(values.shape, values.dtype)
        arrays[name].set(values)
    out: list[DeviceArray] = []

    def launch() -> None:
        out[:] = [run.on_device(work, **arrays)]

    took = seconds(launch, TIMES)
    times = []
    for _ in range(TIMES + 1):  # the first opens and compiles
        began = time.perf_counter()
        d = tcsim.gemm(a, b, instruction=instruction, idesc=idesc, engine="gpu")
        times.append(time.perf_counter() - began)
    rows, columns = CHECKED
    few = tcsim.gemm(a[rows], b[:, columns], instruction=instruction, idesc=idesc, engine="numpy")
    return {
        "shape": [m, n, k],
        "on_device": took,
        "products/s": m * n * k / took,
        "gemm": statistics.median(times[1:]),
        "gemm, the first": times[0],
        "unequal": int((out[0].get()[0] != d).sum()),
        "by NumPy": few.size,
        "unequal to NumPy": int((d[rows, columns] != few).sum()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a bit differs."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.bench.layer", description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="M,N,K")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    gpu = device_info().name
    make_current()
    found = []
    for shape in asked.shapes:
        m, n, k = map(int, shape.split(","))
        found.append(measure(m, n, k, asked.seed))
        print(gpu, found[-1], flush=True)
    if asked.json:
        write_file(asked.json, json.dumps({"gpu": gpu, "layers": found}, indent=1) + "\n")
    return int(any(one["unequal"] or one["unequal to NumPy"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
