"""`python -m hwkernels.plans record TABLE`: ask cuBLASLt as torch does along sweeps, compare products with the answers, and write the table.

`rank TABLE --answers FILE` learns its ranking again from answers that `record` wrote: the same bytes on the same GPU with the same torch.

It needs a GPU of sm_90 (nvjet's chains were compared there only), torch built for CUDA 13 with its libcublasLt.so.13, Triton, and 30 GiB of device memory.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.plans.ask import LARGE, SMALL, along, chosen, each, through_lt
from hwkernels.plans.cases import RANKED, drawn, score, sweeps
from hwkernels.plans.pack import Answer, built, judged, key
from hwkernels.plans.rank import Choices, trained
from tcsim.core.files import write_file
from tcsim.plans.packed import Decision, replanted, unpack
from tcsim.plans.trees import Machine

PROCESSORS = 132
"""Multiprocessors of the GPU whose answers are ranked."""
DIFFERING = Decision("differing", 0, 1)
"""For chains of a kind of which a compared product differs from its answer: recorded, and not modelled."""


def driver_version() -> str:
    """The driver's version, as nvidia-smi says it; empty where it does not."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found[0] if found else ""


def record(
    seconds: float, drawn_of_each: int, compared: int, processes: int, ranked: int, answers_to: Path | None
) -> tuple[bytes, dict[str, Any]]:
    """The file, and how well it answers products that are not in it."""
    import torch

    from hwkernels.plans.calls import Buffers
    from hwkernels.plans.compare import differing
    from hwkernels.plans.heuristic import Heuristic

    swept, decisions, asked = along(sorted(sweeps(), key=lambda x: score(x, "record")), seconds, processes)
    learnt, held = (
        sorted(drawn(salt, count), key=score)
        for salt, count in (("learn", drawn_of_each), ("held out", drawn_of_each // 10))
    )
    answers = list(map(Answer, [*learnt, *held], each([*learnt, *held], processes)))
    buffers = Buffers()
    chains = [
        Answer(case, decisions[numbers[x - 1]])
        for sweep, numbers in swept
        for x in (1 + int(score(sweep, "x") * sweep.length), 1 + int(score(sweep, "small x") * min(sweep.length, 256)))
        if numbers[x - 1] >= 0
        and decisions[numbers[x - 1]].split
        and buffers.fits(case := sweep.case(x))
        and case.m * case.n * case.k * case.batch < 1e11
    ]
    chains = sorted(set(chains), key=lambda x: score(x.case, "compare"))[:compared]
    wrong = [x for x in chains if x.decision is not None and differing(x.case, x.decision, buffers)[0]]
    for item in wrong:
        print("differs:", item)
    unsure = {key(x.case) for x in wrong}
    hidden = np.array([len(decisions) if x.split else i for i, x in enumerate(decisions)] + [-1])
    swept = [(sweep, hidden[numbers] if key(sweep.first) in unsure else numbers) for sweep, numbers in swept]
    about = torch.cuda.get_device_properties(0)
    profile = {
        "gpu": about.name, "arch": f"sm_{about.major}{about.minor}", "torch": torch.__version__, "cuda": str(torch.version.cuda),
        "cublaslt": Heuristic().version(), "driver": driver_version(), "workspace": LARGE, "asked": asked + len(learnt),
        "shapes": sum(int((numbers >= 0).sum()) for _, numbers in swept), "held_out": len(held), "compared": len(chains),
        "equal": len(chains) - len(wrong), "launches": 0,
    }  # fmt: skip
    workspaces = {op: SMALL if through_lt(op) else LARGE for op in ("mm", "addmm", "bmm", "scaled", "scaled_row")}
    kept = [x for x in answers[: len(learnt)] if key(x.case) not in unsure]
    machine = Machine(about.multi_processor_count, LARGE, 64)
    ranking = None
    if ranked:
        rows = chosen(ranked, processes)
        if answers_to:
            np.savez_compressed(buffer := io.BytesIO(), rows=rows)
            write_file(answers_to, buffer.getvalue())
        ranking = trained(Choices.of(rows, machine), machine)
    data, table = built(swept, [*decisions, DIFFERING], kept, profile, machine.processors, workspaces, ranking)
    return data, {name: dict(counts) for name, counts in judged(table, answers[len(learnt) :]).items()}


def ranked_again(file: bytes, answers: Path) -> bytes:
    """A table with a ranking learnt from answers."""
    machine = Machine(PROCESSORS, LARGE, 64)
    with np.load(answers) as each:
        ranking = trained(Choices.of(each["rows"], machine), machine)
    return replanted(file, {tuple(" ".join((x[0], x[1], x[3])) for x in RANKED): (ranking, [])})


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.plans", description=__doc__)
    parser.add_argument("command", choices=["record", "rank"])
    parser.add_argument("out", type=Path, help="The table to write, NAME.plans; of rank, to change.")
    parser.add_argument("--seconds", type=float, default=300.0, help="Time to ask along sweeps.")
    parser.add_argument(
        "--drawn",
        type=int,
        default=100_000,
        help="Random products of each kind: trees learn from them, a tenth more judges.",
    )
    parser.add_argument("--ranked", type=int, default=1_000_000, help="Products of each kind whose tiles are ranked.")
    parser.add_argument("--answers", type=Path, help="What the ranking learns from: record writes it, rank reads it.")
    parser.add_argument("--compared", type=int, default=2000, help="Products to compare in every output.")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="Processes that ask side by side.")
    options = parser.parse_args()
    if options.command == "rank":
        write_file(options.out, data := ranked_again(options.out.read_bytes(), options.answers))
        print(len(data))
        return 0
    data, counts = record(
        options.seconds, options.drawn, options.compared, options.processes, options.ranked, options.answers
    )
    write_file(options.out, data)
    print(json.dumps({"profile": unpack(data).profile, "bytes": len(data), "held out": counts}, indent=2))
    return 0
