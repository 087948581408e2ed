"""Screening: whether every multiprocessor of a GPU computes what it should.

    python -m hwkernels.screen                                # GPU 0, each tensor instruction on each multiprocessor
    python -m hwkernels.screen --gpus all --json report.json  # exit status: 0 sound, 1 wrong results, 2 not screened
    python -m hwkernels.screen --minutes 30                   # soak: other operands in each round
    python -m hwkernels.screen --plant 17:9                   # test the screening: bit 9 flipped on multiprocessor 17

A silent fault of one multiprocessor shows as wrong numbers in one job of many. Blocks run everywhere, and say where they ran; each computes
vectors whose results the model gives to the bit, so a report names multiprocessor, instruction and bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.bench.run import Watch
from hwkernels.device.driver import DriverUnavailable, Launch, device_info, driver_module
from hwkernels.device.toolchain import ToolchainError
from hwkernels.device.worker import ContextLost, ExecutorError, GpuWorker, Hang
from hwkernels.probes import Array
from hwkernels.screen.kernel import Fault, assembled, launch_of, per_block, variant_of
from hwkernels.screen.vectors import Vectors, screened, vectors

Run = Callable[[Launch], list[Array]]
TRIES = 6  # launches until every multiprocessor has had every vector
COPIES = 2  # blocks for each multiprocessor and vector in a launch
SHOWN = 20  # wrong results that a report lists


@dataclass
class Report:
    """What a GPU answered."""

    gpu: str
    multiprocessors: int
    seconds: float = 0.0
    results: int = 0  # registers that were compared
    wrong: list[dict[str, Any]] = field(default_factory=list)  # the first of them
    by_multiprocessor: Counter[int] = field(default_factory=Counter)
    by_instruction: Counter[str] = field(default_factory=Counter)
    by_bit: Counter[int] = field(default_factory=Counter)
    instructions: int = 0
    unseen: dict[str, int] = field(default_factory=dict)  # pairs of multiprocessor and vectors that did not meet
    failed: dict[str, str] = field(default_factory=dict)  # instructions that did not come to an end
    machine: dict[str, Any] = field(default_factory=dict)  # clocks, power and temperature under load

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
            f"{self.gpu}: {self.instructions} instructions on {self.multiprocessors} multiprocessors, {self.results:,} results in "
            f"{self.seconds:.1f} s: {verdicts[self.status]}"
        ]
        for name, counts in (
            ("multiprocessor", self.by_multiprocessor),
            ("instruction", self.by_instruction),
            ("bit", self.by_bit),
        ):
            found += [f"  {name} {key}: {count:,}" for key, count in counts.most_common(5)] if counts else []
        found += [f"  not screened: {name}: {why}" for name, why in self.failed.items()]
        found += [
            f"  {name}: {pairs} pairs of multiprocessor and vectors did not meet" for name, pairs in self.unseen.items()
        ]
        return found


def screen(run: Run, batches: Sequence[Vectors], cubin: bytes, report: Report) -> None:
    """One round: every instruction, every vector, every multiprocessor. What a GPU does wrong comes into the report."""
    begun = time.monotonic()
    for given in batches:
        name = given.instruction.mnemonic
        try:
            _one(run, given, cubin, report)
        except (Hang, ContextLost, ExecutorError) as error:
            report.failed[name] = str(error).splitlines()[0]
    report.seconds += time.monotonic() - begun
    report.instructions = len(batches)


def _one(run: Run, given: Vectors, cubin: bytes, report: Report) -> None:
    name, each = given.instruction.mnemonic, per_block(given)
    right = given.expected.reshape(-1, each, *given.expected.shape[1:])  # (groups, ...)
    count = len(right)
    seen = np.zeros((report.multiprocessors, count), bool)
    for _ in range(TRIES):
        missing = np.flatnonzero(~seen.all(axis=0))
        if not len(missing):
            return
        groups = np.repeat(
            missing, COPIES * report.multiprocessors
        )  # blocks that follow one another lie on different ones
        found, places = run(launch_of(given, cubin, groups))
        got = found.reshape(len(groups), *right.shape[1:])
        report.results += got.size
        known = places < len(seen)
        seen[places[known], groups[known]] = True
        differ = got ^ right[groups]
        for block in np.flatnonzero(differ.reshape(len(groups), -1).any(1)):
            _note(report, name, int(places[block]), int(groups[block]), differ[block])
    if not seen.all():
        report.unseen[name] = int((~seen).sum())


def _note(report: Report, name: str, place: int, group: int, differ: Array) -> None:
    words = differ.reshape(-1)
    at = np.flatnonzero(words)
    report.by_multiprocessor[place] += len(at)
    report.by_instruction[name] += len(at)
    for bit in range(32):
        hits = int((words >> np.uint32(bit) & np.uint32(1)).sum())
        if hits:
            report.by_bit[bit] += hits
    for index in at[: max(0, SHOWN - len(report.wrong))]:
        sample, lane, register = (int(part) for part in np.unravel_index(index, differ.shape))
        report.wrong.append(
            {"multiprocessor": place, "instruction": name, "vector": group * differ.shape[0] + sample, "lane": lane, "register": register,
             "bits": f"{int(words[index]):#010x}"}
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
    begun, rounds, watch, cubin = time.monotonic(), 0, Watch(), b""
    with GpuWorker(ordinal) as worker:
        while rounds == 0 or time.monotonic() - begun < 60 * minutes:
            batches = [vectors(item, seed + rounds) for item in chosen]
            if not cubin:
                cubin = assembled(chosen, target, {own.instruction.mnemonic: variant_of(own) for own in batches}, fault)
            screen(worker.run, batches, cubin, report)
            rounds += 1
    report.machine = watch.stop()
    report.seconds = time.monotonic() - begun
    return report


def parse_fault(text: str) -> Fault:
    """A fault to plant.

    >>> parse_fault("17:9")
    Fault(multiprocessor=17, bit=9)
    """
    place, _, bit = text.partition(":")
    if not (place.isdecimal() and bit.isdecimal() and int(bit) < 32):
        raise argparse.ArgumentTypeError(f"{text!r} is no fault; valid: MULTIPROCESSOR:BIT such as 17:9")
    return Fault(int(place), int(bit))


def main(arguments: Sequence[str] | None = None) -> int:
    """Screen, print, write; the exit status is the worst of the GPUs'."""
    made = argparse.ArgumentParser(
        prog="python -m hwkernels.screen", description="Screen GPUs for tensor cores that compute wrong."
    )
    made.add_argument("--gpus", nargs="+", default=["0"], metavar="N", help="ordinals, or all (default 0)")
    made.add_argument("--minutes", type=float, default=0.0, help="go on for so long, with other operands in each round")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", help="instructions whose mnemonic has this in it")
    made.add_argument(
        "--plant", type=parse_fault, metavar="SM:BIT", help="flip a bit on one multiprocessor, to see it found"
    )
    made.add_argument("--json", type=Path, help="write the reports here")
    options = made.parse_args(arguments)
    try:
        ordinals = _ordinals(options.gpus)
        with ThreadPoolExecutor(max(1, len(ordinals))) as pool:
            reports = list(
                pool.map(
                    lambda own: screen_gpu(own, options.minutes, options.seed, options.plant, options.only), ordinals
                )
            )
    except (DriverUnavailable, ToolchainError) as error:
        print(error, file=sys.stderr)
        return 2
    for report in reports:
        print(*report.lines(), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([report.data() for report in reports], indent=1), encoding="utf-8")
    statuses = [report.status for report in reports]
    return 1 if 1 in statuses else max(statuses, default=2)


def _ordinals(given: Sequence[str]) -> list[int]:
    if list(given) != ["all"]:
        return [int(own) for own in given]
    driver = driver_module()
    driver.cuInit(0)
    return list(range(int(driver.cuDeviceGetCount()[1])))


if __name__ == "__main__":
    sys.exit(main())
