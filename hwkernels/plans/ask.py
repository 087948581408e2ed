"""cuBLASLt asked by processes side by side: along sweeps, and for single products."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.plans.cases import RANKED, Case, Sweep, long
from hwkernels.plans.sweep import answered
from tcsim.plans.kernels import likened
from tcsim.plans.packed import Decision
from tcsim.plans.record import FP8

NVJET = 66
"""cuBLASLt's number of the algorithm whose kernels are chains of wgmma; others have an order of their own."""
STAGES, CUSTOM = (21, 23, 24, 63), (11, 13, 55, 63)
"""The algorithms whose order depends on the number of stages, and on the custom option."""
WHOLE = 4096
"""Bytes of a workspace up to which a split of -1 cuts nothing: it counts tiles. A larger one holds partial sums."""
SMALL, LARGE = 1 << 20, 32 << 20
"""Workspaces: torch gives the small one to addmm with a bias and to _scaled_mm, the large one to what goes through cublasGemmEx, on sm_90."""
TOGETHER = 200
"""Single products that a process is given at once."""


def through_lt(op: str) -> bool:
    """Whether torch asks cuBLASLt itself."""
    return op == "addmm" or op.startswith("scaled")


def decision(about: dict[str, int], format: str) -> Decision:
    """What an algorithm does with K; of answers with one order, one."""
    number, cuts = about["id"], about["split"]
    if cuts == -1 and about["workspace"] <= WHOLE:
        cuts = 1
    if number == NVJET and format in ("f16", "bf16", *FP8):
        return Decision("nvjet", cuts, 128 if format in FP8 else 64)
    stages, custom = about["stages"] if number in STAGES else 0, about["custom"] if number in CUSTOM else 0
    stages, custom, cuts, reduction = likened(stages, custom, cuts, about["reduction"], number)
    return Decision(f"cublasLt {number}.{stages}.{custom}", 0, 1, cuts, reduction)


@cache
def _library() -> tuple[Any, Any, Any]:
    """Of this process: the heuristic with both workspaces, and a device pointer."""
    import torch

    from hwkernels.plans.heuristic import Heuristic

    return Heuristic(SMALL, 256), Heuristic(LARGE, 16), torch.ones(1024, device="cuda")


def _about(case: Case) -> dict[str, Any] | None:
    """The algorithm for a product, and the waves of blocks; None if the library takes no such one."""
    lt, gemm, memory = _library()
    asked = lt if through_lt(case.op) else gemm
    try:
        _, layouts, result = asked.ask(case, memory.data_ptr())
    except RuntimeError:
        return None
    about = asked.about(result) | {"waves": result.waves}
    asked.free(layouts)
    return about


def ask(case: Case) -> Decision | None:
    """The answer for a product; None if the library takes no such one."""
    about = _about(case)
    return None if about is None else decision(about, case.format)


def _chosen(job: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Of products drawn with a seed, of a kind of RANKED: its number, m, n, k, tile, cluster, split, and millionths of waves."""
    number, seed = job
    rows = []
    for case in long(RANKED[number], TOGETHER, seed):
        if (about := _about(case)) is not None and about["id"] == NVJET:
            rows.append(
                [
                    number,
                    case.m,
                    case.n,
                    case.k,
                    *(about[x] for x in ("tile", "cluster", "split")),
                    round(about["waves"] * 1e6),
                ]
            )
    return np.array(rows, np.int64).reshape(-1, 8)


def chosen(count: int, processes: int) -> npt.NDArray[np.int64]:
    """What is chosen for `count` products of each kind of RANKED, as `_chosen` says it."""
    jobs = [(number, seed) for seed in range(-(-count // TOGETHER)) for number in range(len(RANKED))]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return np.concatenate(pool.map(_chosen, jobs, chunksize=16))


def _along(sweep: Sweep) -> tuple[npt.NDArray[np.int64], list[Decision | None], int]:
    """The answers of a sweep as numbers, what they mean, and how many were asked."""
    numbers: dict[Decision | None, int] = {}
    asked = 0

    def at(x: int) -> int:
        nonlocal asked
        asked += 1
        return numbers.setdefault(ask(sweep.case(x)), len(numbers))

    return answered(at, sweep.length), list(numbers), asked


def _each(cases: Sequence[Case]) -> list[Decision | None]:
    return [ask(case) for case in cases]


def along(
    sweeps: Iterable[Sweep], seconds: float, processes: int
) -> tuple[list[tuple[Sweep, npt.NDArray[np.int64]]], list[Decision], int]:
    """Sweeps with the numbers of their decisions, -1 for none, until the time is over; the decisions; and how many products were asked for."""
    stop, total = time.monotonic() + seconds, 0
    numbers: dict[Decision, int] = {}
    found = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        listed = list(sweeps)
        for sweep, (runs, meant, asked) in zip(listed, pool.imap(_along, listed), strict=False):
            to = np.array([-1 if x is None else numbers.setdefault(x, len(numbers)) for x in meant], np.int64)
            found.append((sweep, to[runs]))
            total += asked
            if time.monotonic() > stop:
                break
    return found, list(numbers), total


def each(cases: Sequence[Case], processes: int) -> list[Decision | None]:
    """The answers for products."""
    parts = [cases[i : i + TOGETHER] for i in range(0, len(cases), TOGETHER)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return [x for part in pool.imap(_each, parts) for x in part]
