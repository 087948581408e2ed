"""`python -m tests.kernels.ladder`: what bounds each step of the GEMM ladder, as `tcsim profile` says; writes docs/measurements/ladder.json.

tests/data/counters/ladder.json has what an H200 measured under Nsight Compute of the same products, cold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwkernels.gemm import tiles
from hwkernels.gemm.build import ENTRY
from hwkernels.gemm.call import problem_dtype
from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.tiles import Shape
from tcsim.launchers.profile import Profile
from tcsim.ptx import Memory
from tests.kernels.corpora.gemm.cases import operand_map
from tests.kernels.corpora.gemm.products import kernel_of
from tests.kernels.corpora.pack import ROOT

RECORDED = ROOT / "tests" / "data" / "counters" / "ladder.json"
RESULTS = ROOT / "docs" / "measurements" / "ladder.json"
SHAPE = Shape(2048, 2048, 1024)
FORMAT = "f16"
MULTIPROCESSORS = 132


def measured() -> dict[str, Any]:
    """What an H200 measured, by step."""
    steps: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))["steps"]
    return steps


def profiled(step: str, shape: Shape = SHAPE) -> Profile:
    """A step of the ladder, counted. Raises ToolchainError without an NVRTC for its target."""
    row = KERNELS[step]
    target = row.target if row.target == "sm_90a" else "sm_90"
    build = tiles.choose(row, shape, (FORMAT, FORMAT, FORMAT), (False, False), target=target)
    memory, problem = Memory(), np.zeros((), problem_dtype(build))
    problem["a"], problem["b"] = (
        memory.allocate(
            np.random.default_rng(seed).standard_normal((rows, shape.k)).astype(np.float16).reshape(-1).view(np.uint8)
        )
        for seed, rows in enumerate((shape.m, shape.n))
    )
    problem["d"] = memory.allocate(2 * shape.m * shape.n)
    problem["lda"] = problem["ldb"] = shape.k
    problem["ldd"], problem["m"], problem["n"], problem["k"] = shape.n, shape.m, shape.n, shape.k
    problem["group"], problem["alpha"] = tiles.group_height(build, MULTIPROCESSORS), 1
    params: list[bytes] = []
    if row.tma:
        specs = tiles.tensor_maps(build, shape, (shape.k, shape.k, shape.n))
        params = [operand_map(spec).encode(int(problem[name])) for spec, name in zip(specs, "abd", strict=True)]
        params[2] = params[2] if build.tma_store else bytes(128)
    cluster = math.prod(build.cluster)
    grid, block = tiles.launch_grid(build, shape, MULTIPROCESSORS // cluster), (row.threads, 1, 1)
    run = kernel_of(build).launch(
        memory, [*params, problem.tobytes()], grid, block, (cluster, 1, 1), build.shared_bytes,
        arch="sm_90", check=False, counters=True,
    )  # fmt: skip
    assert run.completed and run.kernel == ENTRY, run.hazards
    return Profile(step, run, grid, block)


def said(own: Profile) -> dict[str, Any]:
    """What the report says of a step in its first lines."""
    bound = own.counters.bound
    assert bound is not None
    shares = {unit: round(100 * share) for unit, share in bound.shares.items() if share >= 0.05}
    return {"microseconds": round(bound.microseconds, 1), "unit": bound.unit, "shares": shares}


def main(steps: Sequence[str]) -> None:
    """Profile the steps, and write what was said."""
    found = {step: said(profiled(step)) for step in steps}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(list(measured()))
