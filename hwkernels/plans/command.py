"""`python -m hwkernels.plans record`: ask cuBLASLt as torch does for every case, compare products with the answers, and write the table.

It needs a GPU of sm_90 (nvjet's chains were compared there only), torch built for CUDA 13 with its libcublasLt.so.13, Triton, and 30 GiB of device memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from hwkernels.plans.cases import Case, model_cases, score
from hwkernels.plans.pack import Answer, held_out, key, table
from tcsim.plans.packed import Decision

NVJET = 66
"""cuBLASLt's number of the algorithm whose kernels are chains of wgmma; others have an order of their own."""
UNKNOWN = Decision("differing", 0, 1)
"""For a kind of which a compared product differs from its answer: recorded, and not modelled."""
SMALL, LARGE = 1 << 20, 32 << 20
"""Workspaces: torch gives the small one to addmm with a bias and to _scaled_mm, the large one to what goes through cublasGemmEx, on sm_90."""


def decision(algorithm: int, split: int, format: str) -> Decision:
    """What an algorithm does with K."""
    if algorithm == NVJET and format in ("f16", "bf16", "e4m3"):
        return Decision("nvjet", split, 128 if format == "e4m3" else 64)
    return Decision(f"cublasLt {algorithm}", 0, 1)


def driver_version() -> str:
    """The driver's version, as nvidia-smi says it; empty where it does not."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found[0] if found else ""


def through_lt(case: Case) -> bool:
    """Whether torch asks cuBLASLt itself."""
    return case.op == "addmm" or case.op.startswith("scaled")


def askable(case: Case) -> bool:
    """Whether the order of summation matters, and torch takes the shape."""
    aligned = not case.op.startswith("scaled") or (case.n % 16 == 0 and case.k % 16 == 0)
    return case.op != "int_mm" and aligned


def record(seconds: float, compared: int) -> tuple[list[Answer], dict[str, Any]]:
    """The answers, and what is known of the machine."""
    import torch

    from hwkernels.plans.calls import Buffers
    from hwkernels.plans.compare import differing
    from hwkernels.plans.heuristic import Heuristic

    stop = time.monotonic() + seconds
    buffers = Buffers()
    lt, gemm = Heuristic(SMALL, 256), Heuristic(LARGE, 16)
    answers = []
    cases = sorted((x for x in model_cases() if askable(x) and buffers.fits(x)), key=lambda x: score(x, "record"))
    for case in cases:
        if time.monotonic() > stop:
            break
        asked = lt if through_lt(case) else gemm
        try:
            _, layouts, result = asked.ask(case, buffers.one.data_ptr())
        except RuntimeError:
            continue  # cuBLASLt does not take it
        about = asked.about(result)
        asked.free(layouts)
        answers.append(Answer(case, decision(about["id"], about["split"], case.format)))
    modelled = [x for x in answers if x.decision.split and 2 * x.case.m * x.case.n * x.case.k * x.case.batch < 2e11]
    modelled.sort(key=lambda x: score(x.case, "compare"))
    wrong = [x for x in modelled[:compared] if differing(x.case, x.decision, buffers)[0]]
    for item in wrong:
        print("differs:", item)
    unsure = {key(x.case) for x in wrong}
    known = [x._replace(decision=UNKNOWN) if key(x.case) in unsure else x for x in answers]
    profile = {
        "gpu": torch.cuda.get_device_name(), "arch": "sm_{}{}".format(*torch.cuda.get_device_capability()), "torch": torch.__version__,
        "cuda": str(torch.version.cuda), "cublaslt": lt.version(), "driver": driver_version(), "workspace": LARGE,
        "shapes": sum(not held_out(x.case) for x in known), "held_out": sum(held_out(x.case) for x in known), "compared": len(modelled[:compared]),
        "equal": len(modelled[:compared]) - len(wrong), "launches": 0,
    }  # fmt: skip
    return known, profile


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.plans", description=__doc__)
    parser.add_argument("command", choices=["record"])
    parser.add_argument("out", type=Path, help="The table to write: NAME.plans.")
    parser.add_argument("--seconds", type=float, default=60.0, help="Time to ask for.")
    parser.add_argument("--compared", type=int, default=2000, help="Products to compare in every output.")
    options = parser.parse_args()
    answers, profile = record(options.seconds, options.compared)
    data, judged = table(answers, profile)
    options.out.write_bytes(data)
    print(json.dumps({"profile": profile, "bytes": len(data), "rules": judged}, indent=2))
    return 0
