"""Mutants of the matrix on a GPU: assembled, launched in processes that are replaced when they hang, and compared with the kernel that is right."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from queue import Empty, PriorityQueue
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np

from hwkernels.device import toolchain
from hwkernels.device.driver import call
from hwkernels.device.errors import CudaError
from hwkernels.device.tensor_map import driver_encode
from tests.hazards.matrix import packed
from tests.hazards.matrix.verdicts import Verdict
from tests.kernels.corpora import device, place
from tests.kernels.corpora.case import Array, Launch, Map
from tests.kernels.corpora.pack import Compiled

RUN = ("sm_80", "sm_89", "sm_90")  # generations of kernels that an H200 runs
TIMES = 20  # launches of a mutant
SILENCE_S = 2.0  # without the end of a launch a process is killed, and the mutant counts as a hang
FIRST_S = 40.0  # before a process is ready


@dataclass(frozen=True, eq=False)
class Job:
    """A module to launch."""

    subject: str
    key: str
    kind: str
    cubin: bytes
    entry: str  # no other job's
    launch: Launch
    compiled: Compiled


Queue = PriorityQueue[tuple[int, int, Job, Job]]
"""Jobs with the original of their kernel, the lowest class first."""


def outcomes(job: Job, times: int) -> Iterator[dict[str, Array]]:
    """Launch a module some times, each time with the memory as it was: the buffers afterwards."""
    launch = job.launch
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
        yield {name: data for name, data in after.items() if name not in launch.scratch}
    for address in addresses.values():
        call("cuMemFree", address)


def context() -> None:
    """A context on the GPU that the process sees."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))


def serve(pipe: Any, gpu: int) -> None:
    """Answer jobs, one after the other: for each launch whether it left other bytes than the original's, or what went wrong."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    context()
    originals: dict[str, dict[str, Array]] = {}
    pipe.send("ready")
    while True:
        original, job = pipe.recv()
        try:
            if original.subject not in originals:
                (originals[original.subject],) = outcomes(original, 1)
            wanted = originals[original.subject]
            for own in outcomes(job, TIMES):
                pipe.send(any((own[name] != wanted[name]).any() for name in wanted))
        except CudaError as error:
            pipe.send(f"{'fault' if error.sticky else 'refused'}: {error}"[:160])
            if error.sticky:
                return


class Server:
    """A process that answers jobs."""

    def __init__(self, processes: BaseContext, gpu: int) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = processes.Process(target=serve, args=(theirs, gpu), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join(5)

    @property
    def ready(self) -> bool:
        """Whether it has a context. Waits for it."""
        return self.pipe.poll(FIRST_S) and self.pipe.recv() == "ready"

    def answer(self, original: Job, job: Job) -> int | str:
        """The launches that left other bytes, or what went wrong, or "hang"."""
        try:
            self.pipe.send((original, job))
            different = 0
            for _ in range(TIMES):
                said = self.pipe.recv() if self.pipe.poll(SILENCE_S) else "hang"
                if isinstance(said, str):
                    return said
                different += said
        except (EOFError, OSError):
            return "fault: the process ended"
        return different


def worker(gpu: int, jobs: Queue, made: Event, end: float, tell: Callable[[Job, int | str], None]) -> None:
    """Have jobs answered until there are none and all are made. A process that hangs or faults is replaced.

    A new process is a copy of one that has imported everything.
    """
    processes = multiprocessing.get_context("forkserver")
    server: Server | None = None
    while perf_counter() < end:
        if server is None:
            server = Server(processes, gpu)
            if not server.ready:
                server.end()
                server = None
                continue
        try:
            *_, original, job = jobs.get(timeout=0.2)
        except Empty:
            if made.is_set():
                break
            continue
        answer = server.answer(original, job)
        tell(job, answer)
        if isinstance(answer, str):
            server.end()
            server = None
    if server is not None:
        server.end()


def assembled(pack: Path, chip: str, wanted: Callable[[str], bool]) -> Iterator[tuple[Job, Job | str, str]]:
    """With the original of its kernel each module that is wanted, by its key, assembled, or what ptxas says against it; and the key."""
    for number, (subject, mutants) in enumerate(packed.read(pack, RUN)):
        target = chip + ("a" if subject.target.endswith("a") else "")

        def made(place: int, text: str, key: str, kind: str, own: Any = subject, to: str = target, of: int = number) -> Job | str:  # fmt: skip
            entry = f"m{of}_{place}_{own.entry}"
            text = re.sub(rf"(\.entry\s+){re.escape(own.entry)}\b", rf"\g<1>{entry}", text)
            try:
                cubin = toolchain.assemble(text, to, allow_notes=True).cubin
            except (toolchain.AssembleError, toolchain.ToolchainError) as error:
                return " ".join(str(error).split())[:160]
            return Job(own.name, key, kind, cubin, entry, own.launch, own.compiled)

        original = made(0, subject.compiled.ptx, f"{subject.name} original", "original")
        if isinstance(original, str):
            raise ValueError(f"{subject.name}: {original}")
        yield original, original, original.key
        keys = [Verdict(subject.name, own.kind, own.line, own.what, "").key for own in mutants]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            chosen = [
                (place, own, key) for place, (own, key) in enumerate(zip(mutants, keys, strict=True), 1) if wanted(key)
            ]
            jobs = [pool.submit(made, place, own.text, key, own.kind) for place, own, key in chosen]
            for (_, _, key), job in zip(chosen, jobs, strict=True):
                yield original, job.result(), key
