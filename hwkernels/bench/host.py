"""`python -m hwkernels.bench.host`: microseconds that a call takes of the host, beside torch.mm.

Products of 128 x 64 x 128, far shorter than the calls: the host sets the pace. Medians of rounds of many calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import hwkernels
from hwkernels.gemm.call import plan_gemm

CALLS, ROUNDS = 2000, 7


def microseconds(torch: Any, call: Callable[[], Any]) -> float:
    """Of one call, without what the GPU does."""
    for _ in range(50):
        call()
    found = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - begun) / CALLS * 1e6)
    return statistics.median(found)


def main() -> int:
    """Measure and print."""
    import torch  # a benchmark's extra

    a, b = (torch.randn(128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(128, 128, device="cuda", dtype=torch.bfloat16)
    plan, stream = plan_gemm(a, b.t(), out=out), torch.cuda.current_stream().cuda_stream
    calls: dict[str, Callable[[], Any]] = {
        "torch.mm": lambda: torch.mm(a, b.t()),
        "torch.mm, out=": lambda: torch.mm(a, b.t(), out=out),
        "hwkernels.gemm": lambda: hwkernels.gemm(a, b.t()),
        "hwkernels.gemm, out=": lambda: hwkernels.gemm(a, b.t(), out=out),
        "a plan": plan,
        "a plan, with its stream": lambda: plan(stream),
    }
    for name, call in calls.items():
        print(f"{name:24} {microseconds(torch, call):6.1f} us", flush=True)
    if not torch.equal(hwkernels.gemm(a, b.t()), plan()):
        raise RuntimeError("hwkernels.gemm and its plan differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
