"""`python -m tests.hazards.matrix_on_gpu --out FOLDER [--pack FILE] [--seconds N] [--missing]`: what a GPU does with the mutants of the matrix.

Each mutant is assembled, and launched some times in a process that is killed when it hangs: the bits are those of the original, or
not, or the launch faults. Those that the matrix calls a deadlock come last. A sample is launched under compute-sanitizer, with each of its
tools. It needs the pack that `python -m tests.hazards.matrix --pack` writes, ptxas and cuda-python; it uses every GPU of the host, and
ends after that many seconds. --missing: only what docs/reference/tables/hazard-matrix.md lacks; `page` adds it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

from hwkernels.device import toolchain
from hwkernels.device.driver import DeviceInfo, device_info
from tests.hazards import sanitized
from tests.hazards.device_jobs import TIMES, Job, Queue, assembled, worker
from tests.hazards.matrix import packed, page

A_GPU = 10  # processes
A_KIND = 16  # mutants of a kind that are launched under compute-sanitizer


def gpus_here() -> int:
    """The GPUs of the host."""
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return max(1, len(said.splitlines()))


def written(out: Path, found: dict[str, dict[str, Any]], info: DeviceInfo) -> None:
    """Write what was found; a run may be ended: what there is by then is worth having."""
    report = {
        "device": info.name, "driver": info.driver_version, "assembler": str(toolchain.toolchain_for(info.arch)), "times": TIMES,
        "mutants": {key: own for key, own in found.items() if own["gpu"] != "not run" or len(own) > 1},
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "hazard_matrix.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


def calm(found: dict[str, dict[str, Any]]) -> list[str]:
    """The kernels and mutants that run to their end."""
    return [key for key, own in found.items() if page.did(own["gpu"]) in ("same bits", "other bits")]


def main() -> int:
    """Write hazard_matrix.json: what each mutant did, and what the tools said."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix_on_gpu", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pack", type=Path, default=packed.BUILT)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--missing", action="store_true", help="only mutants that have not run")
    parser.add_argument("--launch", type=Path, help="jobs that are launched once each, under compute-sanitizer")
    given = parser.parse_args()
    if given.launch:
        sanitized.launch(given.launch)
        return 0
    multiprocessing.set_forkserver_preload(["tests.hazards.device_jobs"])
    start = perf_counter()
    end, info, gpus = start + given.seconds - 8, device_info(), gpus_here()
    verdicts = {own.key: own for own in page.verdicts()}
    known = (page.read(page.DEVICE) or {"mutants": {}})["mutants"]
    have = {key for key, own in known.items() if page.did(own["gpu"]) in page.GPU}
    asked = {key for key, own in known.items() if any(tool in own for tool in sanitized.TOOLS)}
    picked = set(sanitized.sample(calm(known), A_KIND)) - asked
    found: dict[str, dict[str, Any]] = {}
    queue, made, jobs = Queue(), Event(), list[Job]()

    def late(key: str) -> int:
        return int(key in verdicts and "DEADLOCK" in verdicts[key].names)

    def wanted(key: str) -> bool:
        return not given.missing or key not in have or key in picked

    def tell(job: Job, answer: Any, tool: str = "gpu") -> None:
        found[job.key][tool] = answer

    def make() -> None:
        for place, (original, job, key) in enumerate(assembled(given.pack, info.arch, wanted)):
            found[key] = {"gpu": "not run"}
            if isinstance(job, str):
                found[key]["gpu"] = f"ptxas: {job}"
                continue
            jobs.append(job)
            if not (given.missing and key in have):
                queue.put((late(key), place, original, job))
        print(f"{len(found)} mutants, {len(jobs)} assembled, {perf_counter() - start:.0f} s, {gpus} GPUs", flush=True)
        made.set()

    until = start + (given.seconds - 8) * 0.6
    with ThreadPoolExecutor(gpus * A_GPU + 1) as pool:
        running = [pool.submit(make)]
        running += [pool.submit(worker, place % gpus, queue, made, until, tell) for place in range(gpus * A_GPU)]
        for own in running:
            own.result()
    written(given.out, found, info)
    print(f"launched, {perf_counter() - start:.0f} s, {queue.qsize()} left", flush=True)
    command = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    answers = {key: known[key] if own["gpu"] == "not run" and key in have else own for key, own in found.items()}
    chosen = set(sanitized.sample(calm(answers), A_KIND)) | picked
    chosen -= asked if given.missing else set()
    if Path(command).exists():
        sanitized.sanitise(
            command,
            [job for job in jobs if job.key in chosen],
            gpus,
            A_GPU,
            end,
            lambda job, tool, said: tell(job, said, tool),
        )
    written(given.out, found, info)
    counts = Counter(page.did(own["gpu"]) for own in found.values())
    tools = Counter(tool for own in found.values() for tool in own if tool in sanitized.TOOLS)
    print(f"{perf_counter() - start:.0f} s: {dict(counts)}, {dict(tools)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
