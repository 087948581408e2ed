"""`python -m conformance.kernels.campaign FOLDER`: what a release records on a GPU, in one go, as one archive, and what a fresh seed says.

1. what seed 0 lacks, 2. level 2, 3. a further seed, each by `conformance.kernels.record` and then packed: `recorded.tar` in the folder, to be
unpacked in conformance/recordings; then `python -m conformance.suite.manifest`. 4. the whole suite live with a fresh seed: `live.txt`.
Every step has a limit of time; one that exceeds it ends, and what it had recorded is kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.suite import packs
from tcsim.core.files import replacing


def record(root: Path, label: str, seconds: float, log: Path, *arguments: str) -> str:
    """Record into a folder and pack it: a line on what came of it."""
    start = time.monotonic()
    command = [sys.executable, "-m", "conformance.kernels.record", str(root), *arguments]
    status = run(command, seconds, log)
    written = [path for arch in root.glob("sm_*") for path in packs.pack(root, arch.name, label)]
    size = sum(path.stat().st_size for path in written)
    return f"{label}: status {status}, {len(written)} packs, {size:,} bytes, {time.monotonic() - start:.0f} s"


def run(command: Sequence[str], seconds: float, log: Path) -> int | str:
    """Its exit status, or that it was ended; all processes of its group end with it."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, process_group=0)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return f"ended after {seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, pack, run live."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kernels.campaign", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1, help="further seed to record")
    parser.add_argument("--fresh", type=int, help="seed of the live run (default: none)")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) * 3 // 4))
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of each step")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        processes = ("--processes", str(options.processes), "--cubins", str(root / "cubins"))
        steps = (("more", ()), ("level-2", ("--level", "2")), (f"seed-{options.seed}", ("--seed", str(options.seed))))
        for label, more in steps:
            print(
                record(root / label, label, options.limit, options.folder / f"{label}.txt", *processes, *more),
                flush=True,
            )
        with replacing(options.folder / "recorded.tar") as file, tarfile.open(fileobj=file, mode="w") as archive:
            for label, _ in steps:
                for path in sorted((root / label).glob("sm_*/**/*.npz")):
                    archive.add(path, path.relative_to(root / label))
    if options.fresh is not None:
        command = [sys.executable, "-m", "pytest", "conformance/", "--live", "--seed", str(options.fresh), "-q"]
        command += ["-p", "no:cacheprovider", "-n", str(options.processes)]
        status = run(command, options.limit, options.folder / "live.txt")
        print(f"live with seed {options.fresh}: status {status}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
