"""What the tools of compute-sanitizer say of mutants: several launches in a process, told apart by the names of their entries."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from hwkernels.device.errors import CudaError
from tests.hazards.device_jobs import Job, context, outcomes

TOOLS = ("racecheck", "synccheck", "memcheck")
TOOL_S = 40.0  # for a process
TOGETHER = 6  # mutants in a process
_KEY = re.compile(r"(?P<kernel>\S+) \d+ (?P<kind>[^:]+): ")
"""Of a mutant; that of a kernel itself is another."""
_HEAD = re.compile(r"^=========\s(?=\S)", re.M)


def sample(keys: Iterable[str], a_kind: int) -> list[str]:
    """The kernels themselves, and so many mutants of each kind, taken from one kernel after the other: keys.

    >>> sample(["k original", "k 7 wait: a", "k 9 wait: b", "k 12 wait: c", "m 3 wait: d"], 3)
    ['k original', 'k 7 wait: a', 'm 3 wait: d', 'k 9 wait: b']
    """
    found: list[str] = []
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key in keys:
        if match := _KEY.match(key):
            kinds[match["kind"]][match["kernel"]].append(key)
        else:
            found.append(key)
    for _, kernels in sorted(kinds.items()):
        turns = max(map(len, kernels.values()))
        spread = [[own[turn * len(own) // turns] for turn in range(turns)] for own in kernels.values()]
        found += list(dict.fromkeys(own[turn] for turn in range(turns) for own in spread))[:a_kind]
    return found


def records(said: str) -> Iterator[tuple[str, str]]:
    """Each record of a tool's output: "error" or "warning", and its text."""
    for record in _HEAD.split(said)[1:]:
        yield "warning" if record.startswith("Warning") else "error", record


def told(said: str, entry: str) -> dict[str, list[str]]:
    """The errors and warnings that name an entry.

    >>> text = "========= Error: Race reported\\n=========     at m1_2_k+0x70\\n========= \\n========= ERROR SUMMARY: 1 error\\n"
    >>> [len(told(text, entry)["error"]) for entry in ("m1_2_k", "m1_3_k")]
    [1, 0]
    """
    found: dict[str, list[str]] = {"error": [], "warning": []}
    for severity, record in records(said):
        if re.search(rf"\b{re.escape(entry)}\b", record):
            found[severity].append(record)
    return found


def launch(path: Path) -> None:
    """Under a tool: launch jobs, and note which of them ended, until an error that the context does not survive."""
    context()
    with path.with_suffix(".done").open("a") as done:
        for job in pickle.loads(path.read_bytes()):
            try:
                list(outcomes(job, 1))
            except CudaError as error:
                done.write(f"{job.entry} {error}\n")
                if error.sticky:
                    return
            else:
                done.write(f"{job.entry} ended\n")
            done.flush()


def together(command: str, jobs: list[Job], path: Path, gpu: int, tool: str, end: float, tell: Callable[[Job, str, str], None]) -> None:  # fmt: skip
    """Launch jobs under a tool, and tell the number of errors of each, or "hang", or the fault without a report."""
    while jobs:
        left = min(TOOL_S, end - perf_counter())
        if left < 10:
            return
        path.write_bytes(pickle.dumps(jobs))
        notes = path.with_suffix(".done")
        notes.unlink(missing_ok=True)
        words = [command, "--tool", tool, "--print-limit", "400", sys.executable, "-m", "tests.hazards.matrix_on_gpu", "--launch", str(path)]  # fmt: skip
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=left)
            hangs = False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            said, _ = process.communicate()
            hangs = True
        ended = dict(line.split(" ", 1) for line in notes.read_text().splitlines()) if notes.exists() else {}
        rest = []
        for job in jobs:
            found = told(said, job.entry)
            errors, warnings = found["error"], found["warning"]
            if job.entry in ended or errors:
                fault = "" if ended.get(job.entry, "ended") == "ended" or errors else ended[job.entry]
                tell(job, tool, fault[:160] or str(len(errors)))
                if errors:
                    tell(job, f"{tool} said", " ".join(errors[0].replace("=========", "").split())[:400])
                if warnings:
                    tell(job, f"{tool} warnings", str(len(warnings)))
            else:
                rest.append(job)
        if len(rest) == len(jobs) or hangs:
            tell(rest[0], tool, "hang" if hangs else "no answer: " + " | ".join(said.splitlines()[-3:])[:200])
            rest = rest[1:]
        jobs = rest


def sanitise(command: str, jobs: list[Job], gpus: int, a_gpu: int, end: float, tell: Callable[[Job, str, str], None]) -> None:  # fmt: skip
    """Launch jobs under each tool, in processes of all GPUs, until a time."""
    parts = [(jobs[at : at + TOGETHER], tool) for at in range(0, len(jobs), TOGETHER) for tool in TOOLS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(gpus * a_gpu) as pool:
        running = [
            pool.submit(together, command, part, Path(folder) / f"{place}.pickle", place % gpus, tool, end, tell)
            for place, (part, tool) in enumerate(parts)
        ]
        for own in running:
            own.result()
