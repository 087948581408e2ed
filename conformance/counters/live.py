"""Launches of one instruction under Nsight Compute. `python -m conformance.counters.live FOLDER` is what it watches."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from conformance.counters.comparison import SUMS, Launch
from conformance.counters.patterns import GLOBAL_BYTES, LANES, PATTERNS, cases, module
from hwkernels.device import toolchain
from hwkernels.device.driver import call
from hwkernels.device.kernel_launch import Address, KernelLaunch, launched, open_executor

CUBIN, CASES, LOG = "patterns.cubin", "cases.json", "ncu.csv"
MOST_S = 900.0


def measured(target: str = "sm_90a", seed: int = 40, ncu: str = "ncu") -> list[Launch]:
    """Launch every case under Nsight Compute, and return what it counted. Raises RuntimeError, with its output, if it fails."""
    every = cases(seed)
    files = {CASES: json.dumps(every)}
    found = profiled(module(list(PATTERNS)), CUBIN, ("conformance.counters.live",), tuple(SUMS), files, target, ncu)
    return [
        Launch(name, tuple(first), tuple(second), own) for (name, first, second), own in zip(every, found, strict=True)
    ]


def profiled(
    text: str, cubin: str, command: Sequence[str], counters: Sequence[str], files: Mapping[str, str] = MappingProxyType({}),
    target: str = "sm_90a", ncu: str = "ncu",
) -> list[Mapping[str, int]]:  # fmt: skip
    """The counters of each launch that `python -m COMMAND FOLDER` makes, with the machine code of PTX and files in that folder.

    Raises RuntimeError, with its output, if Nsight Compute fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / cubin).write_bytes(toolchain.assemble(text, target, allow_notes=True).cubin)
        for name, own in files.items():
            (place / name).write_text(own, encoding="utf-8")
        watched = [
            ncu, "--clock-control", "none", "--metrics", ",".join(counters), "--csv", "--page", "raw", "--log-file", str(place / LOG),
            sys.executable, "-m", *command, folder,
        ]  # fmt: skip
        done = subprocess.run(watched, capture_output=True, text=True, timeout=MOST_S, check=False)
        if done.returncode or not (place / LOG).is_file():
            raise RuntimeError(f"{' '.join(watched[:3])}: {(done.stdout + done.stderr)[-2000:]}")
        return rows((place / LOG).read_text(encoding="utf-8"))


def rows(text: str) -> list[Mapping[str, int]]:
    """The counters of each launch, from what `ncu --csv --page raw` wrote.

    >>> rows('==PROF== Connected\\n"ID","Kernel Name","a.sum"\\n"","","sector"\\n"0","k0","1,024"\\n')
    [{'a.sum': 1024}]
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    head, _, *others = csv.reader(lines)
    return [
        {
            name: round(float(value.replace(",", "")))
            for name, value in zip(head, own, strict=True)
            if name.endswith(".sum")
        }
        for own in others
    ]


def _launch(folder: str) -> None:
    """Launch the cases of a folder."""
    place, order = Path(folder), list(PATTERNS)
    open_executor(0)
    image = (place / CUBIN).read_bytes()
    room = int(call("cuMemAlloc", 2 * GLOBAL_BYTES))
    start = -(-room // GLOBAL_BYTES) * GLOBAL_BYTES
    for name, *sides in json.loads((place / CASES).read_text(encoding="utf-8")):
        lanes = tuple(np.array(own, np.uint32).view(np.uint8) for own in sides)
        params = (Address(0), Address(1), start.to_bytes(8, "little"), Address(2))
        launched(
            KernelLaunch(
                image, f"k{order.index(name)}", params, (*lanes, np.zeros(256, np.uint8)), (1, 1, 1), (LANES, 1, 1)
            )
        )


if __name__ == "__main__":
    _launch(sys.argv[1])
