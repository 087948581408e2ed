"""Screening: whether every multiprocessor of a GPU computes what it should.

    python -m hwkernels.screen                                # GPU 0, each tensor instruction on each multiprocessor
    python -m hwkernels.screen --gpus all --json report.json  # exit status: 0 sound, 1 wrong results, 2 not screened
    python -m hwkernels.screen --minutes 30                   # soak: other operands in each round, and heat between rounds
    python -m hwkernels.screen --gpus all --dask tcp://scheduler:8786  # the hosts of a cluster's workers
    python -m hwkernels.screen --plant 17:9                   # test the screening: bit 9 flipped on multiprocessor 17

A silent fault of one multiprocessor shows as wrong numbers in one job of many. One block stays on each multiprocessor, computes vectors whose
results the model gives to the bit, and compares there, so a report names multiprocessor, instruction and bit.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.bench.run import Watch
from hwkernels.device.driver import Launch, device_info, driver_module, pci_bus_id, shared_limit
from hwkernels.device.errors import CudaError, DriverUnavailable
from hwkernels.device.toolchain import AssembleError, ToolchainError
from hwkernels.device.worker import GpuWorker, WorkerError
from hwkernels.probes import Array
from hwkernels.screen.cluster import over_cluster
from hwkernels.screen.kernel import WORDS, Fault, agent_of, assembled, launch_of
from hwkernels.screen.vectors import Vectors, all_vectors, heating, screened
from tcsim.core.files import write_file

Run = Callable[[Launch], list[Array]]
FAILURES = (DriverUnavailable, CudaError, ToolchainError, AssembleError, BrokenProcessPool)
"""Why a host could not be screened."""
TRIES = 6  # launches until every multiprocessor has had a block; one is enough on a GPU without other work
REPEATS = 256  # of all vectors in a launch
CHAIN = 32  # of an instruction on its own result, to heat
HOT_REPEATS = 40 * REPEATS
HEATING = 45.0  # seconds between two rounds of a soak
SHOWN = 20  # wrong results that a report lists


@dataclass
class Report:
    """What a GPU answered."""

    gpu: str
    multiprocessors: int
    seconds: float = 0.0
    host: str = field(default_factory=socket.gethostname)
    results: int = 0  # registers that were compared
    wrong: list[dict[str, Any]] = field(default_factory=list)  # the first of them
    by_multiprocessor: Counter[int] = field(default_factory=Counter)  # threads' results
    by_instruction: Counter[str] = field(default_factory=Counter)
    by_bit: Counter[int] = field(default_factory=Counter)  # of the results that were recorded, some of each block
    instructions: int = 0
    rounds: int = 0  # each with other operands
    unseen: dict[str, int] = field(default_factory=dict)  # by instruction: multiprocessors that had no block
    failed: dict[str, str] = field(default_factory=dict)  # instructions that did not come to an end
    machine: dict[str, Any] = field(default_factory=dict)  # clocks, power and temperature under load
    parts: dict[str, float] = field(default_factory=dict)  # seconds of: vectors, assembling, launches, heating

    @property
    def status(self) -> int:
        """0: sound; 1: wrong results; 2: not wholly screened."""
        return 1 if self.by_multiprocessor else 2 if self.failed or self.unseen or not self.results else 0

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "status": self.status}

    def lines(self) -> list[str]:
        """For people."""
        verdicts = ("all right", f"{sum(self.by_multiprocessor.values()):,} wrong", "not wholly screened")
        found = [
            f"{self.host}, {self.gpu}: {self.instructions} instructions on {self.multiprocessors} multiprocessors, {self.results:,} results in "
            f"{self.seconds:.1f} s: {verdicts[self.status]}"
        ]
        for name, counts in (
            ("multiprocessor", self.by_multiprocessor),
            ("instruction", self.by_instruction),
            ("bit", self.by_bit),
        ):
            found += [f"  {name} {key}: {count:,}" for key, count in counts.most_common(5)] if counts else []
        found += [f"  not screened: {name}: {why}" for name, why in self.failed.items()]
        found += [f"  {name}: {count} multiprocessors were not reached" for name, count in self.unseen.items()]
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return [*found, *([f"  under load: {machine}"] if machine else [])]

    def took(self, part: str, begun: float) -> None:
        """Note the seconds of a part since `begun`."""
        self.parts[part] = round(self.parts.get(part, 0.0) + time.monotonic() - begun, 3)


def screen(
    run: Run, batches: Sequence[Vectors], cubin: bytes, report: Report, shared_bytes: int = 0, repeats: int = REPEATS
) -> None:
    """One round: every instruction, every vector, every multiprocessor. What a GPU does wrong comes into the report.

    shared_bytes: all that a block may have, so that one multiprocessor has one block.
    """
    begun = time.monotonic()
    for given in batches:
        name = given.name
        try:
            _one(run, given, launch_of(given, cubin, report.multiprocessors, repeats, shared_bytes), report)
        except (WorkerError, CudaError) as error:
            report.failed[name] = str(error).splitlines()[0]
    report.took("heating" if batches[0].chain > 1 else "launches", begun)
    report.instructions = max(report.instructions, len(batches))


def _one(run: Run, given: Vectors, launch: Launch, report: Report) -> None:
    name = given.name
    seen = np.zeros(report.multiprocessors, bool)
    agents = launch.block[0] // agent_of(given.instruction.row)
    for _ in range(TRIES):
        found, places = run(launch)
        report.results += len(places) * agents * int(launch.scalars[-1]) * given.expected[0].size
        multiprocessors = places[:, 0].astype(np.intp)
        seen[multiprocessors[multiprocessors < len(seen)]] = True
        for block in np.flatnonzero(places[:, 1]):
            _note(report, given, int(multiprocessors[block]), int(places[block, 1]), found[block])
        if seen.all():
            return
    report.unseen[name] = int((~seen).sum())


def _note(report: Report, given: Vectors, place: int, wrong: int, records: Array) -> None:
    name, agent = given.name, agent_of(given.instruction.row)
    report.by_multiprocessor[place] += wrong
    report.by_instruction[name] += wrong
    records = records[:wrong]
    for bit in range(32):
        hits = int((records[:, WORDS:] >> np.uint32(bit) & np.uint32(1)).sum())
        if hits:
            report.by_bit[bit] += hits
    for record in records[: max(0, SHOWN - len(report.wrong))]:
        sample, thread, step = (int(word) for word in record[:WORDS])
        register = int(np.flatnonzero(record[WORDS:])[0])
        report.wrong.append(
            {"multiprocessor": place, "instruction": name, "vector": sample, "warp": thread // 32, "lane": thread % agent, "step": step,
             "register": register, "bits": f"{int(record[WORDS + register]):#010x}"}
        )  # fmt: skip


def screen_gpu(ordinal: int, minutes: float, seed: int, fault: Fault | None, only: str = "") -> Report:
    """Screen one GPU, in a process of its own that is replaced if it hangs. Raises DriverUnavailable, ToolchainError."""
    info = device_info(ordinal)
    target = f"{info.arch}a" if info.arch in ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121") else info.arch
    chosen = [item for item in screened(info.arch, target) if only in item.mnemonic]
    report = Report(f"GPU {ordinal}, {info.name}", info.multiprocessors)
    if not chosen:
        report.failed[only or info.arch] = "no instruction to screen"
        return report
    begun, watch = time.monotonic(), Watch(pci_bus_id(ordinal))
    end, shared, every = begun + 60 * minutes, shared_limit(ordinal), list[bytes]()
    with GpuWorker(ordinal) as worker, ThreadPoolExecutor(1) as aside:
        coming = aside.submit(all_vectors, chosen, seed)
        while not report.rounds or time.monotonic() < end:
            since = time.monotonic()
            batches = coming.result()
            report.took("vectors", since)
            if not every:
                since = time.monotonic()
                hot = heating(chosen, seed, CHAIN) if minutes else []
                every = [assembled(own, target, fault) if own else b"" for own in (batches, hot)]
                report.took("assembling", since)
            if minutes:
                coming = aside.submit(all_vectors, chosen, seed + report.rounds + 1)
            screen(worker.run, batches, every[0], report, shared)
            report.rounds += 1
            until = min(end, time.monotonic() + HEATING)
            while hot and time.monotonic() < until:
                screen(worker.run, hot, every[1], report, shared, HOT_REPEATS)
    report.machine = watch.stop()
    report.seconds = time.monotonic() - begun
    return report


def screen_host(gpus: Sequence[str], **options: Any) -> list[Report]:
    """Screen GPUs of this host side by side. gpus: ordinals, or all; options: of `screen_gpu`. Raises `FAILURES`."""
    ordinals = _ordinals(gpus)
    one: Callable[[int], Report] = partial(screen_gpu, **options)
    if len(ordinals) == 1:
        return [one(ordinals[0])]
    with ProcessPoolExecutor(max(1, len(ordinals)), get_context("spawn")) as pool:
        return list(pool.map(one, ordinals))


def parse_fault(text: str) -> Fault:
    """A fault to plant.

    >>> parse_fault("17:9")
    Fault(multiprocessor=17, bit=9)
    """
    place, _, bit = text.partition(":")
    if not (place.isdecimal() and bit.isdecimal() and int(bit) < 32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a fault; valid: MULTIPROCESSOR:BIT such as 17:9")
    return Fault(int(place), int(bit))


def main(arguments: Sequence[str] | None = None) -> int:
    """Screen, print, write; the exit status is the worst of the GPUs'."""
    made = argparse.ArgumentParser(
        prog="python -m hwkernels.screen", description="Screen GPUs for tensor cores that compute wrong."
    )
    made.add_argument("--gpus", nargs="+", default=["0"], metavar="N", help="ordinals, or all (default 0)")
    made.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="soak: go on for so long, heat the chip, other operands in each round",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", help="instructions whose mnemonic has this in it")
    made.add_argument(
        "--plant", type=parse_fault, metavar="SM:BIT", help="flip a bit on one multiprocessor, to see it found"
    )
    made.add_argument(
        "--dask", metavar="ADDRESS", help="a cluster's scheduler: each worker screens the GPUs that it sees"
    )
    made.add_argument("--json", type=Path, help="write the reports here")
    options = made.parse_args(arguments)
    here = partial(
        screen_host, options.gpus, minutes=options.minutes, seed=options.seed, fault=options.plant, only=options.only
    )
    try:
        reports = _of_workers(over_cluster(options.dask, here)) if options.dask else here()
    except (OSError, ModuleNotFoundError, *FAILURES) as error:
        print(error, file=sys.stderr)
        return 2
    for report in reports:
        print(*report.lines(), sep="\n")
    if options.json:
        write_file(options.json, json.dumps([report.data() for report in reports], indent=1))
    statuses = [report.status for report in reports]
    return 1 if 1 in statuses else max(statuses, default=2)


def _of_workers(found: Sequence[tuple[str, list[Report] | Exception]]) -> list[Report]:
    """The reports of all workers; a worker that failed has one of its own."""
    reports: list[Report] = []
    for worker, answer in found:
        if isinstance(answer, Exception):
            error = f"{type(answer).__name__}: {answer}".splitlines()[0]
            answer = [Report("no GPU", 0, host=worker, failed={"everything": error})]
        reports += answer
    return reports


def _ordinals(given: Sequence[str]) -> list[int]:
    if list(given) != ["all"]:
        return [int(own) for own in given]
    driver = driver_module()
    driver.cuInit(0)
    return list(range(int(driver.cuDeviceGetCount()[1])))


if __name__ == "__main__":
    sys.exit(main())
