"""`python -m tests.kernels.counters`: the counters of the recorded launches beside what an H200 counted under Nsight Compute; writes docs/measurements/counters.json.

tests/data/counters/launches.json.xz has them: the machine code is ptxas 13.0.88's of the recorded PTX.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.launchers.job import execute
from tcsim.launchers.recording import from_fields
from tcsim.ptx.counters.counters import Counters
from tests.kernels.corpora import recording
from tests.kernels.corpora.pack import ROOT

RECORDED = ROOT / "tests" / "data" / "counters" / "launches.json.xz"
RESULTS = ROOT / "docs" / "measurements" / "counters.json"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"
NOT_COMPARED = ("gpu__time_duration.sum", "smsp__inst_executed.sum")
ASYNCHRONOUS = ("cp.async", "wgmma", "mbarrier")


def measured() -> dict[str, dict[str, int]]:
    """What was counted, by launch."""
    data = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return {name: dict(zip(data["counters"], values, strict=True)) for name, values in data["launches"].items()}


def launches() -> Iterator[tuple[str, recording.Fields]]:
    """The recorded launches, by name."""
    for path in sorted(recording.GIVEN.glob("*.npz")):
        with np.load(path) as own:
            yield path.stem, {key: own[key] if own[key].ndim else own[key].item() for key in own.files}
    yield from recording.read().items()
    yield from recording.read(recording.LAUNCHERS).items()


def counted(fields: recording.Fields, name: str) -> Counters:
    """The model's counters of a launch."""
    job = replace(from_fields(fields, name).job("sm_90"), check=False, counters=True)
    found = execute(job).run.counters
    assert found is not None, name
    return found


def differences(name: str, fields: recording.Fields, wanted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """By counter that differs: what the GPU counted, and what the model does."""
    own = counted(fields, name)
    values = {key: own.get(key, 0) for key in wanted if key not in NOT_COMPARED}
    return {key: (wanted[key], value) for key, value in values.items() if value != wanted[key]}


def summary(found: Mapping[str, Mapping[str, tuple[int, int]]], asynchronous: Mapping[str, bool]) -> dict[str, Any]:
    """By counter, of the launches in which it is not 0: those that are equal, all, those above the GPU's; of shared memory without asynchronous work, too."""
    every = measured()
    rows = {}
    for counter in next(iter(every.values())):
        if counter in NOT_COMPARED:
            continue
        own = [name for name in found if every[name][counter] or counter in found[name]]
        parts = {"": own} | (
            {" (no asynchronous work)": [name for name in own if not asynchronous[name]]}
            if counter.startswith(SHARED)
            else {}
        )
        for said, names in parts.items():
            wrong = [found[name][counter] for name in names if counter in found[name]]
            rows[counter + said] = [len(names) - len(wrong), len(names), sum(model > gpu for gpu, model in wrong)]
    return {"launches": len(found), "counters": rows}


def results() -> dict[str, Any]:
    """Compare all."""
    wanted = measured()
    found, asynchronous = dict[str, dict[str, tuple[int, int]]](), dict[str, bool]()
    for name, fields in launches():
        text = fields["ptx"]
        text = text if isinstance(text, str) else bytes(text).decode()
        asynchronous[name] = any(word in text for word in ASYNCHRONOUS)
        found[name] = differences(name, fields, wanted[name])
    return summary(found, asynchronous)


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(results(), indent=1) + "\n", encoding="utf-8")
