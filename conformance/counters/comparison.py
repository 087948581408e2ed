"""Recorded launches of one instruction beside the model, which runs the same kernels: where a counter differs, and how often it is equal."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from conformance.counters.patterns import GLOBAL_BYTES, LANES, PATTERNS, module
from tcsim.ptx import Kernel, Memory, parse
from tcsim.ptx.counters.counters import Counters

RECORDED = Path(__file__).parent.parent / "recordings" / "sm_90" / "counters.json.xz"
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


def read(path: Path = RECORDED) -> tuple[dict[str, str], list[Launch]]:
    """What a recording says of the GPU, and its launches."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    names = data["counters"]
    launches = [
        Launch(pattern, tuple(first), tuple(second or first), dict(zip(names, values, strict=True)))
        for pattern, first, second, values in data["launches"]
    ]
    return data["made"], launches


def write(path: Path, made: Mapping[str, str], launches: Sequence[Launch]) -> None:
    """Keep launches."""
    names = list(launches[0].counters)
    rows = [
        [
            own.pattern,
            own.first,
            own.second if own.second != own.first else None,
            [own.counters[name] for name in names],
        ]
        for own in launches
    ]
    data = {"version": VERSION, "made": dict(made), "counters": names, "launches": rows}
    path.write_bytes(lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME))


@cache
def _kernel(pattern: str) -> Kernel:
    return parse(module([pattern])).kernel()


def predicted(launch: Launch) -> Counters:
    """What the model counts of the same launch."""
    memory = Memory()
    lanes = [memory.allocate(np.array(own, np.uint32).view(np.uint8)) for own in (launch.first, launch.second)]
    memory.map(GLOBAL_BYTES, np.zeros(GLOBAL_BYTES, np.uint8))
    run = _kernel(launch.pattern).launch(
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


def compared(launches: Sequence[Launch]) -> tuple[Counter[tuple[str, str]], list[Difference]]:
    """How often each counter of each pattern was compared, and where it differs; what the model does not know is not compared."""
    count: Counter[tuple[str, str]] = Counter()
    found: list[Difference] = []
    for launch in launches:
        for counter, value, exact in _values(predicted(launch)):
            if counter in launch.counters:
                count[launch.pattern, counter] += 1
                if value != launch.counters[counter]:
                    found.append(Difference(launch, counter, launch.counters[counter], value, exact))
    return count, found


def _values(counters: Counters) -> Iterator[tuple[str, int, bool]]:
    for counter, parts in SUMS.items():
        names = parts or (counter,)
        if not any(name in counters.unknown for name in names):
            states = {counters.rule_status(name) for name in names if name in counters}
            yield counter, sum(counters.get(name, 0) for name in names), states <= {"exact"}


def table(count: Counter[tuple[str, str]], found: Sequence[Difference]) -> list[tuple[str, str, int, int]]:
    """(pattern, counter, equal, compared), of counters that some launch changes."""
    wrong = Counter((own.launch.pattern, own.counter) for own in found)
    return [
        (pattern, counter, total - wrong[pattern, counter], total)
        for (pattern, counter), total in sorted(count.items())
    ]


def as_dict(count: Counter[tuple[str, str]], found: Sequence[Difference]) -> dict[str, Any]:
    """The same as plain data: by kind of instruction."""
    kinds = {
        name: name.split(".")[0] + (f".{PATTERNS[name].sides}" if PATTERNS[name].sides != "both" else "")
        for name in PATTERNS
    }
    total: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    for pattern, counter, same, every in table(count, found):
        total[kinds[pattern], counter] += every
        equal[kinds[pattern], counter] += same
    return {f"{kind} {counter}": [equal[kind, counter], total[kind, counter]] for kind, counter in sorted(total)}
