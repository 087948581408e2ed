"""How fast kernels at real sizes run: one table, of one machine; each figure in a process of its own, seconds by the clock, without the check.

python benchmarks/real_sizes.py                   print the table: the first launch, with nothing kept from earlier ones; the best of later ones; without
                                                  compiled code; Triton's kernels also with TRITON_INTERPRET=1. It needs triton and torch.
python benchmarks/real_sizes.py --before FOLDER   and the best of later ones with another checkout of this project
python benchmarks/real_sizes.py --large           and the product of 4096, which takes minutes
python benchmarks/real_sizes.py --json FILE       keep the figures too
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LATER = 5  # launches behind the first
LONG = 20.0  # seconds of a launch that is not repeated
WAYS = {
    "now": {},
    "before": {},
    "plain": {"TCSIM_REGIONS": "off"},
    "interpreter": {"TRITON_INTERPRET": "1"},
}
"""What a figure is of, and its environment."""
LARGE = "4096 x 4096 x 4096, persistent, TMA + wgmma"
"""What takes minutes: it is not computed without compiled code."""
TRITON = (
    "attention, 4096 tokens x 1 head x 64", "attention, 1024 tokens x 1 head x 64", "matmul 512 x 512 x 512",
    "layer norm 1151 x 1024", "softmax 1823 x 781", "vector add 98,432",
)  # fmt: skip


def products() -> dict[str, Any]:
    """The products of `kernels.py`."""
    from kernels import CUBES, LARGE_CUBE

    return dict((*CUBES, LARGE_CUBE))


def seconds(name: str, way: str) -> tuple[list[float], str]:
    """The seconds of launches in this process, and a digest of what they left."""
    found = list[float]()
    if name in TRITON:
        import torch
        from triton_kernels import KERNELS

        torch.manual_seed(0)
        launch, out = KERNELS[name]()
        if way == "interpreter":
            found = _timed(launch, 2)
        else:
            import tcsim.launchers

            with tcsim.launchers.triton(arch="sm_90", check=False, log=None):
                found = _timed(launch)
        return found, hashlib.sha256(out.numpy().tobytes()).hexdigest()
    from kernels import product

    while len(found) <= LATER and (not found or found[0] < LONG):
        kernel, size, arch, block_n, clusters = products()[name]
        one = product(kernel, size, arch, block_n, clusters, clock=True)
        if not one.good:
            raise RuntimeError(f"{name}: a byte is wrong")
        found.append(one.seconds)
    return found, "as expected"


def _timed(launch: Any, later: int = LATER) -> list[float]:
    found = list[float]()
    while len(found) <= later and (not found or found[0] < LONG):
        start = time.perf_counter()
        launch()
        found.append(time.perf_counter() - start)
    return found


def asked(name: str, way: str, folder: str) -> dict[str, Any]:
    """What another process measures, which keeps nothing from earlier ones. folder: the checkout that it runs."""
    with tempfile.TemporaryDirectory() as kept:
        path = os.pathsep.join((folder, *filter(None, [os.environ.get("PYTHONPATH")])))
        env = os.environ | {"PYTHONPATH": path, "TCSIM_CACHE_DIR": kept} | WAYS[way]
        command = [sys.executable, __file__, "--row", name, "--way", way]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}, {way}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, before: str) -> dict[str, Any]:
    """The figures of one kernel. Raises RuntimeError where two ways leave different bytes."""
    root = str(HERE.parent)
    ways = (
        {"now": root}
        | ({} if name == LARGE else {"plain": root})
        | ({"before": before} if before else {})
        | ({"interpreter": root} if name in TRITON else {})
    )
    found = {way: asked(name, way, folder) for way, folder in ways.items()}
    if len({own["digest"] for way, own in found.items() if way != "interpreter"}) > 1:
        raise RuntimeError(f"{name}: not every way leaves the same bytes")
    best = {way: min(own["seconds"][1:] or own["seconds"]) for way, own in found.items()}
    return {"kernel": name, "first": found["now"]["seconds"][0], **best}


def main() -> int:
    """Print the table, or measure one figure of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="", metavar="FOLDER")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--json", default="", metavar="FILE")
    parser.add_argument(
        "--only", nargs="*", default=[""], metavar="WORD", help="kernels whose name has one of the words"
    )
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        if given.way == "plain":
            from tcsim.engines.choice import using

            with using("numpy"):
                found, digest = seconds(given.row, given.way)
        else:
            found, digest = seconds(given.row, given.way)
        print(json.dumps({"seconds": found, "digest": digest}))
        return 0
    names = [
        own
        for own in (*products(), *TRITON)
        if any(word in own for word in given.only) and (given.large or own != LARGE)
    ]
    columns = ("first", "now", "before", "plain", "interpreter")
    print(f"{date.today()}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processors")
    print(f"| kernel | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    rows = []
    for name in names:
        rows.append(row(name, given.before))
        print(f"| {name} | " + " | ".join(f"{rows[-1][own]:.3f}" if own in rows[-1] else "" for own in columns) + " |", flush=True)  # fmt: skip
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
