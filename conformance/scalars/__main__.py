"""`python -m conformance.scalars OUT`: run every scalar spelling on the GPU of this machine and compare it with the model.

Writes OUT/scalars.csv: a line for each spelling with inputs, mismatches, the digests of the hardware's answers (of the first 4,096
inputs, of all) and the first mismatch; OUT/questions.npz: what the hardware answers to the questions of
`conformance.scalars.questions`, raw; OUT/scalars.json: GPU, driver, assembler, date, the verdict on each question.
`python -m conformance.scalars --keep OUT` puts all of it into the recordings, judged by the model at hand, without a GPU. Processes share the GPU; each assembles, runs and compares
some spellings.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from conformance.scalars import cases, recorded
from conformance.scalars.inputs import COUNT, SHORT, inputs
from conformance.scalars.questions import LANES, WARPS, Question, judged, questions
from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.errors import CudaError
from hwkernels.device.toolchain import AssembleError, assemble, find_toolchains
from hwkernels.probes.scalar import BLOCK, Probe, module
from tcsim.core.files import replacing, write_file
from tcsim.isa.scalar.table import CONTAINERS

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
        launch = Launch(
            cubin, f"k{place}", given, outputs, grid=(COUNT // BLOCK // probe.count, 1, 1), block=(BLOCK, 1, 1)
        )
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
        for names, future in [(names, pool.submit(run, names, target, seed)) for names in batches(chosen)]:
            try:
                yield from future.result()
            except (BrokenProcessPool, CudaError, AssembleError) as error:
                reason = f"not run: {error}"[:300].replace("\n", " ")
                yield from (
                    dict.fromkeys(COLUMNS, "") | {"spelling": name, "inputs": 0, "first": reason} for name in names
                )


def ask(question: Question, target: str) -> tuple[np.ndarray[Any, Any] | None, str]:
    """What the hardware answers, and whether the model does too: asked three times in a process of its own."""
    global _context
    _context = _context or Context(0).__enter__()
    outputs = (((question.out_bytes,), np.uint8),)
    try:
        cubin = assemble(question.ptx, target, allow_notes=True).cubin
        found = _context.run(
            Launch(cubin, "ask", question.inputs, outputs, grid=(WARPS, 1, 1), block=(LANES, 1, 1), repeat=3)
        )
    except (AssembleError, CudaError) as error:
        return None, f"not asked: {error}"[:200]
    if not all(np.array_equal(found[0], other) for other in found):
        return found[0], "unstable: three runs differ"
    return found[0], judged(question, found[0])


def ask_all(target: str, workers: int) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Every question: answers of the hardware, and verdicts."""
    answers, verdicts = {}, {}
    with ProcessPoolExecutor(workers) as pool:
        for name, future in [(name, pool.submit(ask_named, name, target)) for name in questions()]:
            try:
                found, verdicts[name] = future.result()
            except BrokenProcessPool as error:
                found, verdicts[name] = None, f"not asked: {error}"
            if found is not None:
                answers[name] = found
    return answers, verdicts


def ask_named(name: str, target: str) -> tuple[np.ndarray[Any, Any] | None, str]:
    """`ask` by the question's name: what goes to another process is small."""
    return ask(questions()[name], target)


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
        recorded.keep(asked.folder)
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
    answers, verdicts = ask_all(asked.target, min(asked.workers, 8)) if not asked.only else ({}, {})
    with replacing(asked.folder / "questions.npz") as file:
        np.savez_compressed(file, **answers)  # type: ignore[arg-type]
    for name, verdict in verdicts.items():
        if verdict != "equal":
            print(f"{name}: {verdict}")
    gpu = device_info()
    header = {
        "gpu": gpu.name, "driver": gpu.driver_version, "assembler": find_toolchains()[0].version, "target": asked.target,
        "seed": asked.seed, "date": datetime.date.today().isoformat(), "seconds": round(time.perf_counter() - began, 1),
        "questions": verdicts, "answered": sorted(answers),
    }  # fmt: skip
    write_file(asked.folder / "scalars.json", json.dumps(header, indent=1) + "\n")
    wrong = [row for row in rows if row["mismatches"]]
    ran = [row for row in rows if row["inputs"]]
    for row in wrong:
        print(f"{row['spelling']}: {row['mismatches']} of {row['inputs']} differ; {row['first']}")
    print(f"{len(ran)} spellings, {len(wrong)} differ, {len(rows) - len(ran)} not run, {header['seconds']} s")
    equal = sum(verdict == "equal" for verdict in verdicts.values())
    print(f"{equal} of {len(verdicts)} questions answered as the model says")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
