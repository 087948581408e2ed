"""`python -m tests.kernels.counters [--machine]`: the counters of the recorded launches beside what an H200 counted under Nsight Compute.

Writes docs/measurements/counters.json; with --machine the part with machine code, too. tests/data/counters/launches.json.xz has what was counted: of
the machine code that ptxas 13.0.88 makes of the recorded PTX, which --machine needs (pip install nvidia-cuda-nvcc==13.0.88); executed.json.xz has how many warps executed each of its instructions (counts and how many
instructions in a row have them), from a second run of all launches: where a kernel waits, its loop turned another number of times.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from tcsim.launchers.job import execute
from tcsim.launchers.profile import Profile
from tcsim.launchers.recording import from_fields
from tcsim.ptx.counters.counters import Counters
from tcsim.ptx.counters.machine import Machine
from tcsim.ptx.counters.rules import OPERATIONS
from tests.kernels.corpora import recording
from tests.kernels.corpora.pack import ROOT

RECORDED = ROOT / "tests" / "data" / "counters" / "launches.json.xz"
EXECUTED_BY = ROOT / "tests" / "data" / "counters" / "executed.json.xz"
RESULTS = ROOT / "docs" / "measurements" / "counters.json"
EXECUTED = "smsp__inst_executed.sum"
NOT_COMPARED = ("gpu__time_duration.sum", EXECUTED)
ASSEMBLER = "13.0.88"
CONTEND = OPERATIONS.keys() - {"atom.shared.loop"}
"""Doubts that only say that other accesses contend."""
WORD = 16
"""Bytes of a machine instruction."""


@cache
def measured() -> dict[str, dict[str, int]]:
    """What was counted, by launch."""
    data = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return {name: dict(zip(data["counters"], values, strict=True)) for name, values in data["launches"].items()}


@cache
def by_instruction() -> dict[str, list[int]]:
    """By launch how many warps executed each machine instruction, in their order, without the padding at the end."""
    data = json.loads(lzma.decompress(EXECUTED_BY.read_bytes()))
    return {name: [count for count, many in runs for _ in range(many)] for name, runs in data["launches"].items()}


@dataclass(frozen=True)
class Compared:
    """A launch beside the GPU: what differs by counter (the GPU's, the model's), the counters that it doubts, with the reasons, and those that it does not know.

    executed: the part by which more instructions run. undecided: whether the order of threads decides how often some are. instructions: of those of the machine code whose executions are said to be known, how many are the GPU's, and how many there are; how many are unknown.
    """

    different: dict[str, tuple[int, int]]
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    executed: float = 0.0
    undecided: bool = False
    instructions: tuple[int, int, int] = (0, 0, 0)


def launches() -> Iterator[tuple[str, recording.Fields]]:
    """The recorded launches, by name."""
    for path in sorted(recording.GIVEN.glob("*.npz")):
        with np.load(path) as own:
            yield path.stem, {key: own[key] if own[key].ndim else own[key].item() for key in own.files}
    for kept in (recording.KEPT, recording.WIDE, recording.LAUNCHERS):
        yield from recording.read(kept).items()


def profiled(fields: recording.Fields, name: str) -> Profile:
    """A launch, counted."""
    job = replace(from_fields(fields, name).job("sm_90"), check=False, counters=True)
    return Profile(name, execute(job).run, job.grid, job.block)


def assembled(own: Profile) -> Profile:
    """The same with machine code. Raises LookupError where the assembler of the recording is missing."""
    from hwkernels.device.lined import lined
    from hwkernels.device.toolchain import find_toolchains

    found = next((tool for tool in find_toolchains() if tool.version == ASSEMBLER), None)
    if found is None:
        raise LookupError(f"no ptxas {ASSEMBLER}; pip install nvidia-cuda-nvcc=={ASSEMBLER}")
    made = lined(own.run.text, own.run.kernel, own.run.arch, found)
    return own.executed(made.listing, made.registers)


def differences(own: Counters, wanted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """By counter that differs: what the GPU counted, and what the model does."""
    values = {key: own.get(key, 0) for key in wanted if key not in NOT_COMPARED and key not in own.unknown}
    return {key: (wanted[key], value) for key, value in values.items() if value != wanted[key]}


def compared(own: Profile, name: str, wanted: Mapping[str, int]) -> Compared:
    """A launch beside what was counted of it on the GPU."""
    executed = own.machine.executed / wanted[EXECUTED] - 1 if own.machine is not None else 0.0
    known = (0, 0, 0) if own.machine is None else instructions(own.machine, by_instruction()[name])
    counters, kept = own.counters, wanted.keys()
    return Compared(
        differences(counters, wanted),
        {name: own for name, own in counters.doubts.items() if name in kept},
        frozenset(kept & counters.unknown.keys()),
        executed,
        bool(counters.undecided),
        known,
    )


def instructions(own: Machine, gpu: Sequence[int]) -> tuple[int, int, int]:
    """Machine instructions that are executed as often as on the GPU, those that are said to be known, and those that are unknown."""
    rows = [(code, count) for code, count in own.instructions if code.address // WORD < len(gpu)]
    known = [(code, count) for code, count in rows if code.address not in own.unknown]
    return sum(count == gpu[code.address // WORD] for code, count in known), len(known), len(rows) - len(known)


@cache
def recorded() -> dict[str, recording.Fields]:
    """All of them, read once."""
    return dict(launches())


def _compared(name: str, machine: bool) -> list[Compared]:
    own = profiled(recorded()[name], name)
    return [compared(of, name, measured()[name]) for of in ([own, assembled(own)] if machine else [own])]


def summary(found: Mapping[str, Compared]) -> dict[str, Any]:
    """By counter, of the launches in which it is not 0: how many are equal, how many there are, how many are above the GPU's.

    Then of those without doubts: how many are equal, and how many there are; last the least part of the GPU's, in per cent, where others contend.
    """
    every = measured()
    rows = {}
    for counter in next(iter(every.values())):
        if counter in NOT_COMPARED:
            continue
        names = [
            name
            for name, own in found.items()
            if counter not in own.unknown and (every[name][counter] or counter in own.different)
        ]
        wrong = {name: found[name].different[counter] for name in names if counter in found[name].different}
        sure = [name for name in names if counter not in found[name].doubts]
        beside = [wrong[name] for name in wrong.keys() - sure if CONTEND.issuperset(found[name].doubts[counter])]
        least = min((100 * model // gpu for gpu, model in beside if gpu), default=100)
        above = sum(model > gpu for gpu, model in wrong.values())
        equal = len(sure) - sum(name in wrong for name in sure)
        rows[counter] = [len(names) - len(wrong), len(names), above, equal, len(sure), least]
    unknown = {name: sorted(own.unknown) for name, own in found.items() if own.unknown}
    different = {name: own.different for name, own in found.items() if own.different}
    doubts = {
        name: {key: found[name].doubts[key] for key in own if key in found[name].doubts}
        for name, own in different.items()
    }
    return {"launches": len(found), "counters": rows, "unknown": unknown, "different": different, "doubts": doubts}


def results(machine: bool = False) -> dict[str, Any]:
    """Compare all, with what differs by launch; machine: with machine code, too, and how many machine instructions are executed."""
    names = list(recorded())
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        plain, *others = zip(*pool.map(partial(_compared, machine=machine), names, chunksize=4), strict=True)
    made = summary(dict(zip(names, plain, strict=True)))
    for own in others:
        found = dict(zip(names, own, strict=True))
        made["machine"] = summary(found) | of_machine(found)
    return made


def of_machine(found: Mapping[str, Compared]) -> dict[str, Any]:
    """How many machine instructions are executed: in how many launches all of them as on the GPU, and which of them, with how many are not by launch.

    Launches of which the order of threads decides how often instructions are executed are named, and left out.
    """
    undecided = sorted(name for name, own in found.items() if own.undecided)
    found = {name: own for name, own in found.items() if not own.undecided}
    errors = [abs(own.executed) for own in found.values()]
    totals = {
        "equal": errors.count(0), "within 1 %": sum(own <= 0.01 for own in errors), "mean error": round(float(np.mean(errors)), 4)
    }  # fmt: skip
    sums = np.sum([own.instructions for own in found.values()], 0).tolist()
    single: dict[str, Any] = dict(zip(("equal", "known", "unknown"), sums, strict=True))
    wrong = {name: own.instructions[1] - own.instructions[0] for name, own in found.items()}
    single["wrong"] = {name: count for name, count in wrong.items() if count}
    return {"instructions": {"launches": len(found)} | totals, "by instruction": single, "undecided": undecided}


def written(made: Mapping[str, Any]) -> str:
    """Results as JSON, a line for each launch and counter."""
    text = re.sub(
        r'\[\s*("[^\[\]]*")\s*\]', lambda own: "[" + re.sub(r"\s*\n\s*", " ", own[1]) + "]", json.dumps(made, indent=1)
    )
    return re.sub(r"(?<=[\[{])\s+|(?<=,)\s+(?=\d)|(?<=\d)\s+(?=\])", "", text)


if __name__ == "__main__":
    made = json.loads(RESULTS.read_text(encoding="utf-8")) | results(machine=sys.argv[1:] == ["--machine"])
    RESULTS.write_text(written(made) + "\n", encoding="utf-8")
