"""`python -m conformance.scalars OUT`: run every scalar spelling on the GPU of this machine and compare it with the model.

Writes OUT/scalars.csv: a line for each spelling with inputs, mismatches, the digests of the hardware's answers (of the first 4,096
inputs, of all) and the first mismatch; and OUT/scalars.json: GPU, driver, assembler, date. `python -m conformance.scalars --keep OUT`
puts both into the recordings. Processes share the GPU; each assembles, runs and compares some spellings.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import lzma
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from conformance.scalars import cases
from conformance.scalars.inputs import COUNT, SHORT, inputs
from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.toolchain import AssembleError, assemble, find_toolchains
from hwkernels.probes.scalar import BLOCK, Probe, module
from tcsim.isa.scalar.table import CONTAINERS

RECORDED = Path(__file__).parent.parent / "recordings" / "sm_90" / "scalars"
COLUMNS = ("spelling", "inputs", "mismatches", "short", "all", "first")
_TOGETHER = 48  # spellings of a module
_context: Context | None = None


def ptx_version() -> str:
    """The PTX ISA of the newest assembler: CUDA 13.n has 9.n."""
    major, minor = find_toolchains()[0].version.split(".")[:2]
    return f"{int(major) - 4}.{minor}"


def batches(chosen: Sequence[Probe]) -> list[list[str]]:
    """Names of spellings with the same sources, some at a time."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for probe in chosen:
        groups.setdefault(probe.sources, []).append(probe.name)
    return [names[at : at + _TOGETHER] for names in groups.values() for at in range(0, len(names), _TOGETHER)]


def assembled(chosen: list[Probe], target: str) -> tuple[list[Probe], bytes, dict[str, str]]:
    """The cubin of those that the assembler takes, and why not of the others."""
    refused: dict[str, str] = {}
    while chosen:
        text = module(chosen, target, ptx_version())
        try:
            return chosen, assemble(text, target, allow_notes=True).cubin, refused
        except AssembleError as error:
            entries = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(".visible")]
            for number, message in re.findall(r"line (\d+); error\s*:\s*(.*)", error.log):
                place = sum(entry <= int(number) for entry in entries) - 1
                refused[chosen[place].name] = message
            left = [probe for probe in chosen if probe.name not in refused]
            if len(left) == len(chosen):
                raise
            chosen = left
    return [], b"", refused


def run(names: list[str], target: str, seed: int) -> list[dict[str, Any]]:
    """Run and compare some spellings of equal sources."""
    global _context
    if _context is None:
        _context = Context(0).__enter__()
    known = cases.probes(target)
    chosen, cubin, refused = assembled([known[name] for name in names], target)
    rows: list[dict[str, Any]] = [
        {"spelling": name, "inputs": 0, "mismatches": "", "short": "", "all": "", "first": f"not assembled: {why}"}
        for name, why in refused.items()
    ]
    given = tuple(inputs(known[names[0]].sources, seed))
    for place, probe in enumerate(chosen):
        outputs = tuple(((COUNT,), CONTAINERS[type] if type != "pred" else np.uint8) for type in probe.results)
        launch = Launch(cubin, f"k{place}", given, outputs, grid=(COUNT // BLOCK // probe.count, 1, 1), block=(BLOCK, 1, 1))
        hardware = _context.run(launch)
        count, first = cases.mismatches(probe, given, hardware, cases.expected(probe, given))
        short, whole = cases.digest(hardware, SHORT), cases.digest(hardware)
        rows.append(
            {"spelling": probe.name, "inputs": COUNT, "mismatches": count, "short": short, "all": whole, "first": first}
        )
    return rows


def measure(target: str, seed: int, workers: int, pattern: str) -> Iterator[dict[str, Any]]:
    """The lines of every spelling, as they are done."""
    chosen = [probe for name, probe in cases.probes(target).items() if re.search(pattern, name)]
    with ProcessPoolExecutor(workers) as pool:
        for future in [pool.submit(run, names, target, seed) for names in batches(chosen)]:
            yield from future.result()


def keep(folder: Path) -> None:
    """Put what was measured into the recordings: one compressed table and what made it."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / "scalars.csv.xz").write_bytes(lzma.compress((folder / "scalars.csv").read_bytes(), preset=9))
    (RECORDED / "scalars.json").write_text((folder / "scalars.json").read_text())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write, count; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.scalars", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a regular expression that spellings must contain")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="put what FOLDER holds into the recordings")
    asked = parser.parse_args(arguments)
    if asked.keep:
        keep(asked.folder)
        return 0
    began = time.perf_counter()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(asked.folder / "scalars.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in measure(asked.target, asked.seed, asked.workers, asked.only):
            writer.writerow(row)
            file.flush()
            rows.append(row)
    gpu = device_info()
    header = {
        "gpu": gpu.name, "driver": gpu.driver_version, "assembler": find_toolchains()[0].version, "target": asked.target,
        "seed": asked.seed, "date": datetime.date.today().isoformat(), "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    (asked.folder / "scalars.json").write_text(json.dumps(header, indent=1) + "\n")
    wrong = [row for row in rows if row["mismatches"]]
    ran = [row for row in rows if row["inputs"]]
    for row in wrong:
        print(f"{row['spelling']}: {row['mismatches']} of {row['inputs']} differ; {row['first']}")
    print(f"{len(ran)} spellings, {len(wrong)} differ, {len(rows) - len(ran)} not assembled, {header['seconds']} s")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
