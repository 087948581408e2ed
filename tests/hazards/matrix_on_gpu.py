"""`python -m tests.hazards.matrix_on_gpu --out FOLDER [--pack FILE] [--seconds N]`: what a GPU does with the mutants of the matrix.

Each mutant is assembled, and launched some times in a process that is killed when it hangs: the bits are those of the original, or
not, or the launch faults. A sample is launched under compute-sanitizer, with each of its tools. It needs the pack that
`python -m tests.hazards.matrix --pack` writes, ptxas and cuda-python; it uses every GPU of the host, and ends after so many seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import numpy as np

from hwkernels.device import toolchain
from hwkernels.device.driver import CudaError, call, device_info
from hwkernels.device.tensor_map import driver_encode
from tests.corpora import device, place
from tests.corpora.case import Array, Launch, Map
from tests.corpora.pack import Compiled
from tests.hazards.matrix import packed
from tests.hazards.matrix.verdicts import Verdict

RUN = ("sm_80", "sm_90")  # generations of kernels that an H200 runs
TIMES = 20  # launches of a mutant
SILENCE_S = 2.5  # without an answer a process is killed, and the mutant counts as a hang
FIRST_S = 40.0  # before its first answer
A_GPU = 4  # processes
TOOLS = ("racecheck", "synccheck", "memcheck")
TOOL_S = 40.0
A_KIND = 4  # mutants of a kind that are launched under compute-sanitizer
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Job:
    """A module to launch."""

    subject: str
    key: str
    kind: str
    cubin: bytes
    entry: str
    launch: Launch
    compiled: Compiled


def outcome(job: Job, times: int) -> list[dict[str, Array]]:
    """Launch a module some times, each time with the memory as it was: the buffers afterwards."""
    launch, found = job.launch, []
    addresses = {name: int(call("cuMemAlloc", max(1, array.nbytes))) for name, array in launch.buffers.items()}
    before = place.images(launch, addresses)
    params = place.parameters(launch, addresses)
    for number, item in enumerate(launch.params):
        if isinstance(item, Map):
            params[number] = driver_encode(item.map, addresses[item.buffer] + item.offset)
    for _ in range(times):
        for name, data in before.items():
            call("cuMemcpyHtoD", addresses[name], data.ctypes.data, data.nbytes)
        entries = [name for name in (launch.before, job.entry) if name]
        device.launched(job.cubin, entries, launch, job.compiled, params)
        after = {}
        for name, data in before.items():
            after[name] = np.empty_like(data)
            call("cuMemcpyDtoH", after[name].ctypes.data, addresses[name], data.nbytes)
        found.append({name: data for name, data in after.items() if name not in launch.scratch})
    for address in addresses.values():
        call("cuMemFree", address)
    return found


def serve(pipe: Any, gpu: int) -> None:
    """Answer jobs, one after the other: how many of the launches left other bytes than the original's first one."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))
    originals: dict[str, dict[str, Array]] = {}
    pipe.send("ready")
    while True:
        original, job = pipe.recv()
        try:
            if original.subject not in originals:
                originals[original.subject] = outcome(original, 1)[0]
            wanted = originals[original.subject]
            runs = outcome(job, TIMES)
            pipe.send(sum(any((own[name] != wanted[name]).any() for name in wanted) for own in runs))
        except CudaError as error:
            pipe.send(f"{'fault' if error.sticky else 'refused'}: {error}"[:160])
            if error.sticky:
                return


def worker(gpu: int, jobs: Queue[tuple[Job, Job]], end: float, tell: Callable[[Job, Any], None]) -> None:
    """Have jobs answered by a process of its own, which is replaced when it hangs or faults."""
    context = multiprocessing.get_context("spawn")
    process, pipe = None, None
    while time.perf_counter() < end:
        if process is None or not process.is_alive():
            pipe, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, gpu), daemon=True)
            process.start()
            theirs.close()
            if not pipe.poll(FIRST_S) or pipe.recv() != "ready":
                process.kill()
                continue
        try:
            original, job = jobs.get_nowait()
        except Empty:
            break
        assert pipe is not None
        try:
            pipe.send((original, job))
            answer = pipe.recv() if pipe.poll(SILENCE_S) else "hang"
        except (EOFError, OSError):
            answer = "fault: the process ended"
        tell(job, answer)
        if isinstance(answer, str):
            process.kill()
            process.join()
            process = None
    if process is not None:
        process.kill()


def sanitised(command: str, job: Job, path: Path, gpu: int, tool: str, end: float) -> str:
    """What a tool of compute-sanitizer says of a launch: the number of its errors, "hang", or why there is none."""
    left = min(TOOL_S, end - time.perf_counter())
    if left < 10:
        return "not run"
    path.write_bytes(pickle.dumps(job))
    words = [command, "--tool", tool, sys.executable, "-m", "tests.hazards.matrix_on_gpu", "--one", str(path)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "hang"
    found = _SUMMARY.findall(said)
    return found[-1] if found else "no summary: " + " | ".join(said.splitlines()[-3:])[:200]


def assembled(pack: Path, chip: str) -> Iterator[tuple[Job, Job | str, str]]:
    """With the original of its kernel each module, assembled, or what ptxas says against it; and its key."""
    for subject, found in packed.read(pack, RUN):
        target = chip + ("a" if subject.target.endswith("a") else "")

        def made(text: str, key: str, kind: str, own: Any = subject, to: str = target) -> Job | str:
            try:
                cubin = toolchain.assemble(text, to, allow_notes=True).cubin
            except (toolchain.AssembleError, toolchain.ToolchainError) as error:
                return " ".join(str(error).split())[:160]
            return Job(own.name, key, kind, cubin, own.entry, own.launch, own.compiled)

        original = made(subject.compiled.ptx, f"{subject.name} original", "original")
        assert isinstance(original, Job), original
        yield original, original, original.key
        keys = [Verdict(subject.name, own.kind, own.line, own.what, "").key for own in found]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = pool.map(made, [own.text for own in found], keys, [own.kind for own in found])
            for key, job in zip(keys, jobs, strict=True):
                yield original, job, key


def sample(jobs: list[Job]) -> list[Job]:
    """Some mutants of each kind, of as many kernels as there are."""
    taken: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    chosen = []
    for job in jobs:
        if (job.kind == "original" or taken[job.kind] < A_KIND) and (job.subject, job.kind) not in pairs:
            taken[job.kind] += 1
            pairs.add((job.subject, job.kind))
            chosen.append(job)
    return chosen


def main() -> int:
    """Write matrix.json: what each mutant did, and what the tools said."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix_on_gpu", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pack", type=Path, default=packed.BUILT)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--one", type=Path, help="a job that is launched once, under compute-sanitizer")
    given = parser.parse_args()
    if given.one:
        call("cuInit", 0)
        call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))
        outcome(pickle.loads(given.one.read_bytes()), 1)
        return 0
    start = time.perf_counter()
    end, info = start + given.seconds - 8, device_info()
    gpus = max(
        1, len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.splitlines())
    )
    found: dict[str, dict[str, Any]] = {}
    queue: Queue[tuple[Job, Job]] = Queue()
    jobs: list[Job] = []
    for original, job, key in assembled(given.pack, info.arch):
        found[key] = {"gpu": "not run"}
        if isinstance(job, str):
            found[key]["gpu"] = f"ptxas: {job}"
        else:
            jobs.append(job)
            queue.put((original, job))
    print(f"{len(found)} mutants, {len(jobs)} assembled, {time.perf_counter() - start:.0f} s, {gpus} GPUs", flush=True)

    def tell(job: Job, answer: Any) -> None:
        found[job.key]["gpu"] = answer

    until = start + (given.seconds - 8) * 0.6
    with ThreadPoolExecutor(gpus * A_GPU) as pool:
        for own in [pool.submit(worker, place % gpus, queue, until, tell) for place in range(gpus * A_GPU)]:
            own.result()
    print(f"launched, {time.perf_counter() - start:.0f} s, {queue.qsize()} left", flush=True)
    command = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    chosen = [(job, tool) for job in sample([job for job in jobs if found[job.key]["gpu"] != "hang"]) for tool in TOOLS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(gpus * A_GPU) as pool:

        def asked(item: tuple[int, tuple[Job, str]]) -> None:
            place, (job, tool) = item
            path = Path(folder) / f"{place}.pickle"
            found[job.key][tool] = sanitised(command, job, path, place % gpus, tool, end)

        if Path(command).exists():
            list(pool.map(asked, enumerate(chosen)))
    report = {
        "device": info.name, "driver": info.driver_version, "assembler": str(toolchain.toolchain_for(info.arch)), "times": TIMES,
        "mutants": found,
    }  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "hazard_matrix.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    counts = Counter(
        str(own["gpu"]).split(":")[0] if isinstance(own["gpu"], str) else "other bits" if own["gpu"] else "same bits"
        for own in found.values()
    )
    print(f"{time.perf_counter() - start:.0f} s: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
