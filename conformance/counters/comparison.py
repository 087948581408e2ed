"""Recorded launches of one instruction beside the model, which runs the same kernels: where a counter differs, and how often it is equal."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from conformance.counters.patterns import GLOBAL_BYTES, LANES, SEED, cases, module
from tcsim.core.files import write_file
from tcsim.ptx import Kernel, Memory, parse
from tcsim.ptx.counters.counters import Counters
from tcsim.ptx.counters.rules import OPERATIONS

_FOLDER = Path(__file__).parent.parent / "recordings" / "sm_90"
RECORDED = tuple(_FOLDER / name for name in ("counters.json.xz", "counters_41.json.xz"))
"""Launches that an H200 counted, of one seed each."""
VERSION = 1
_PER = "pipe_lsu_mem_global_op_"
SUMS: Mapping[str, tuple[str, ...]] = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": (),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": (),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": (),
    "l1tex__t_requests_pipe_lsu.sum": tuple(
        f"l1tex__t_requests_{_PER}{kind}.sum" for kind in ("ld", "st", "red", "atom")
    ),
    "l1tex__t_sectors_pipe_lsu.sum": tuple(
        f"l1tex__t_sectors_{_PER}{kind}.sum" for kind in ("ld", "st", "red", "atom")
    ),
    "l1tex__data_pipe_lsu_wavefronts_mem_lgds_cmd_read.sum": (),
    "lts__t_requests_srcunit_tex.sum": (),
    "lts__t_sectors_srcunit_tex.sum": (),
}
"""Counters that are compared; where the model has only parts of one, these."""


@dataclass(frozen=True)
class Launch:
    """A launch of one instruction, and what Nsight Compute counted."""

    pattern: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    counters: Mapping[str, int]


def read(path: Path) -> tuple[dict[str, str], list[Launch]]:
    """What a recording says of the GPU, and its launches: the first cases of a seed. Raises ValueError if the generator does not make those cases any more."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    every = cases(data["seed"])[: len(data["values"])]
    if digest(every) != data["digest"]:
        raise ValueError(
            f"{path}: its cases are not those that conformance.counters.patterns makes of seed {data['seed']}"
        )
    launches = [
        Launch(pattern, tuple(first), tuple(second), dict(zip(data["counters"], values, strict=True)))
        for (pattern, first, second), values in zip(every, data["values"], strict=True)
    ]
    return data["made"], launches


def recorded() -> list[Launch]:
    """All launches that are in the tree."""
    return [launch for path in RECORDED for launch in read(path)[1]]


def write(path: Path, made: Mapping[str, str], launches: Sequence[Launch], seed: int = SEED) -> None:
    """Keep launches, the first cases of a seed."""
    names = list(launches[0].counters)
    data = {
        "version": VERSION, "made": dict(made), "seed": seed, "digest": digest([(own.pattern, own.first, own.second) for own in launches]),
        "counters": names, "values": [[own.counters[name] for name in names] for own in launches],
    }  # fmt: skip
    write_file(path, lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME))


def digest(every: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> str:
    """Of cases."""
    return sha256(json.dumps([[name, list(first), list(second)] for name, first, second in every]).encode()).hexdigest()


@cache
def _kernel(pattern: str) -> Kernel:
    return parse(module([pattern])).kernel()


def predicted(launch: Launch) -> Counters:
    """What the model counts of the same launch."""
    return _predicted(launch.pattern, launch.first, launch.second)


@cache
def _predicted(pattern: str, first: tuple[int, ...], second: tuple[int, ...]) -> Counters:
    memory = Memory()
    lanes = [memory.allocate(np.array(own, np.uint32).view(np.uint8)) for own in (first, second)]
    memory.map(GLOBAL_BYTES, np.zeros(GLOBAL_BYTES, np.uint8))
    run = _kernel(pattern).launch(
        memory, [*lanes, GLOBAL_BYTES, memory.allocate(256)], block=(LANES, 1, 1), check=False, counters=True
    )
    assert run.completed and run.counters is not None, run.hazards
    return run.counters


@dataclass(frozen=True)
class Difference:
    """A counter that is not the GPU's."""

    launch: Launch
    counter: str
    hardware: int
    model: int
    exact: bool  # whether the model says that it is

    def __str__(self) -> str:
        return f"{self.launch.pattern} {list(self.launch.first)}: {self.counter}: {self.hardware} on the GPU, {self.model} here"


def compared(launches: Sequence[Launch]) -> list[Difference]:
    """Where a counter is not the GPU's; what the model does not know is not compared."""
    found: list[Difference] = []
    for launch in launches:
        for counter, value, exact in _values(predicted(launch)):
            if value != launch.counters[counter]:
                found.append(Difference(launch, counter, launch.counters[counter], value, exact))
    return found


def _values(counters: Counters) -> Iterator[tuple[str, int, bool]]:
    for counter, parts in SUMS.items():
        names = parts or (counter,)
        if not any(name in counters.unknown for name in names):
            states = {counters.rule_status(name) for name in names if name in counters}
            yield counter, sum(counters.get(name, 0) for name in names), states <= {"exact"}


def evidence(launches: Sequence[Launch]) -> dict[tuple[str, str], list[int]]:
    """By operation and counter of `tcsim.ptx.counters.rules`: in how many launches the counter was right, and of how many."""
    found: dict[tuple[str, str], list[int]] = {}
    for launch in launches:
        counters = predicted(launch)
        right = {counter: value == launch.counters[counter] for counter, value, _ in _values(counters)}
        lines = sorted(counters.tally.operations)
        last = counters.tally.operations[lines[-1]] if len(lines) > 1 else set()
        for operation in last - {"ld.global"} or last:  # a copy's line loads its second address, too
            for rule in OPERATIONS[operation].rules:
                recorded = next((name for name, parts in SUMS.items() if rule.counter in (name, *parts)), None)
                if recorded in right:
                    own = found.setdefault((operation, rule.counter), [0, 0])
                    own[0] += right[recorded]
                    own[1] += 1
    return found


def as_dict(found: dict[tuple[str, str], list[int]]) -> dict[str, Any]:
    """The same with one key for each row."""
    return {f"{operation} {counter}": own for (operation, counter), own in sorted(found.items())}
