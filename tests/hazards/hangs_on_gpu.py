"""`python -m tests.hazards.hangs_on_gpu --out FILE [--pack FILE] [--seconds N]`: whether mutants that hung once hang, or their neighbours' hang is seen.

matrix_on_gpu calls a mutant that is silent for two seconds a hang. Here the mutants are launched many times: alone, beside processes that launch
the kernel that is right, and beside processes that hang and are killed, as in the matrix; and so is the kernel itself. A launch that is silent
is waited for longer: a wait that ends is none of the mutant's. It needs what matrix_on_gpu needs, and two GPUs or one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

from hwkernels.device.driver import device_info
from tests.hazards.device_jobs import SILENCE_S, TIMES, Job, Server, assembled
from tests.hazards.matrix import packed
from tests.hazards.matrix_on_gpu import gpus_here

SUSPECTS = ("135 arrival count: +1", "151 arrival count: +1", "159 arrival count: +1")
"""Mutants of wgmma_sparse that hung once and kept their bits in other runs: more arrivals for a slot that no one waits for again."""
HANGS = ("106 arrival count: +1", "111 arrival count: +1", "115 arrival count: +1", "119 arrival count: +1")
"""Mutants of it that always hang."""
KERNEL = "wgmma_sparse"
PATIENCE_S = 15.0  # a launch that is silent for longer never ends
NEIGHBOURS = 9


@dataclass
class Seen:
    """What some launches did."""

    launches: int = 0
    other_bits: int = 0
    hangs: int = 0
    late: list[float] = field(default_factory=list)  # seconds of each that ended after SILENCE_S
    processes: int = 0
    faults: list[str] = field(default_factory=list)


def watch(gpu: int, original: Job, jobs: Sequence[Job], launches: int, end: float) -> Seen:
    """Launch jobs in turn, TIMES each, each round of them in a new process."""
    processes, seen = multiprocessing.get_context("forkserver"), Seen()
    while seen.launches < launches and perf_counter() < end:
        server = Server(processes, gpu)
        seen.processes += 1
        if server.ready:
            for job in jobs:
                if not _watch_one(server, original, job, seen):
                    break
        server.end()
    return seen


def _watch_one(server: Server, original: Job, job: Job, seen: Seen) -> bool:
    """Whether the process can be asked again."""
    server.pipe.send((original, job))
    for _ in range(TIMES):
        start = perf_counter()
        if not server.pipe.poll(PATIENCE_S):
            seen.hangs += 1
            return False
        try:
            said = server.pipe.recv()
        except EOFError:
            said = "the process ended"
        if isinstance(said, str):
            seen.faults.append(said)
            return False
        seen.launches += 1
        seen.other_bits += bool(said)
        if (took := perf_counter() - start) > SILENCE_S:
            seen.late.append(round(took, 1))
    return True


def neighbour(gpu: int, original: Job, jobs: Sequence[Job], stop: Event) -> int:
    """Launch jobs until it is told to stop; a process that hangs or faults is killed. How many were."""
    processes = multiprocessing.get_context("forkserver")
    server: Server | None = None
    killed = 0
    for job in cycle(jobs):
        if stop.is_set():
            break
        if server is None:
            server = Server(processes, gpu)
            if not server.ready:
                server.end()
                server = None
                continue
        if isinstance(server.answer(original, job), str):
            server.end()
            server = None
            killed += 1
    if server is not None:
        server.end()
    return killed


def condition(gpu: int, original: Job, jobs: Sequence[Job], beside: Sequence[Job], count: int, launches: int, seconds: float) -> dict[str, Any]:  # fmt: skip
    """Watch jobs beside some processes that launch others."""
    stop = Event()
    with ThreadPoolExecutor(count + 1) as pool:
        busy = [pool.submit(neighbour, gpu, original, beside[place % len(beside) :], stop) for place in range(count)]
        try:
            seen = watch(gpu, original, jobs, launches, perf_counter() + seconds)
        finally:
            stop.set()
        return vars(seen) | {"killed beside": sum(own.result() for own in busy)}


def main() -> int:
    """Write what the launches did in each condition."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.hangs_on_gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pack", type=Path, default=packed.BUILT)
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0, help="the most for a condition")
    given = parser.parse_args()
    multiprocessing.set_forkserver_preload(["tests.hazards.device_jobs"])
    named = {f"{KERNEL} {own}": own for own in (*SUSPECTS, *HANGS)}

    def short(key: str) -> str:
        return next((own for full, own in named.items() if key.startswith(full)), "")

    made = {}
    for original, job, key in assembled(given.pack, device_info().arch, lambda key: bool(short(key))):
        if original.subject == KERNEL:
            assert isinstance(job, Job), job
            made[short(key) or "original"] = job
    right, suspects, hangs = made["original"], [made[own] for own in SUSPECTS], [made[own] for own in HANGS]
    conditions = (
        ("mutants, alone", suspects, right, 0), ("mutants, beside a process that launches the kernel", suspects, right, 1),
        ("mutants, beside processes that hang", suspects, hangs, NEIGHBOURS), ("the kernel, beside processes that hang", [right], hangs, NEIGHBOURS),
    )  # fmt: skip
    gpus, found = gpus_here(), {}
    for first in range(0, len(conditions), gpus):
        with ThreadPoolExecutor(gpus) as pool:
            asked = {
                what: pool.submit(condition, gpu, right, jobs, [beside] if isinstance(beside, Job) else beside, count, given.launches, given.seconds)
                for gpu, (what, jobs, beside, count) in enumerate(conditions[first : first + gpus])
            }  # fmt: skip
        for what, own in asked.items():
            found[what] = own.result()
            print(what, found[what], flush=True)
        given.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
