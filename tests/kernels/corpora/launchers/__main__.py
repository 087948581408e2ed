"""`python -m tests.kernels.corpora.launchers --out FOLDER [LAUNCHER ...]`: record the launches of each program here on this GPU, and replay them on the CPU.

A launcher whose package is not installed is named as absent. FOLDER gets launchers.txt, the table, and launchers.xz, all recordings together:
put it into tests/data/launches, and `python -m tests.kernels.corpora.replay` replays them too. The exit status says whether fewer than 12 launches of four launchers were recorded and replayed equal.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.launchers.job import execute
from tcsim.launchers.recording import Recording, read
from tests.kernels.corpora import recording
from tests.kernels.corpora.pack import ROOT

FOLDER = Path(__file__).parent
PROGRAMS = {
    "cuda_bindings": "cuda.bindings.driver",
    "cuda_core": "cuda.core",
    "cupy": "cupy",
    "triton": "triton",
    "torch": "triton",
}
"""By program: the package whose launches are recorded."""
LEAST_LAUNCHES, LEAST_LAUNCHERS = 12, 4
SECONDS = 150


def recorded(name: str, folder: Path) -> str:
    """Run a program and record it; what it said."""
    command = [
        sys.executable,
        "-m",
        "hwkernels.capture",
        "-o",
        str(folder),
        "--max-launches",
        "12",
        "--launcher",
        PROGRAMS[name],
        str(FOLDER / f"with_{name}.py"),
    ]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    try:
        found = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS} s"
    return f"exit status {found.returncode}\n{found.stderr[-3000:]}"


def packed(own: Recording) -> dict[str, Any]:
    """A recording's entries for a pack: its PTX as an array, which a pack holds once."""
    return own.fields() | {"ptx": np.frombuffer(own.ptx, np.uint8)}


def main(arguments: list[str]) -> int:
    """Record and replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("launcher", nargs="*", help=", ".join(PROGRAMS))
    given = parser.parse_args(arguments)
    if unknown := set(given.launcher) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}; valid: {', '.join(PROGRAMS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    lines, kept, equal, launchers = [], {}, 0, set()
    for name in given.launcher or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            said = recorded(name, Path(folder))
            lines.append(f"{name}: {time.perf_counter() - start:.0f} s, {said}")
            for path in sorted(Path(folder).glob("*.npz")):
                own = read(path)
                if all((buffer.before == buffer.after).all() for buffer in own.buffers):
                    lines.append(f"--   {name} {path.stem}: not kept, since it changes nothing")
                    continue
                kept[f"{name}_{path.stem}"] = packed(own)
                try:
                    found = execute(own.job())
                except ValueError as error:  # one that cannot run must not hide the others
                    lines.append(f"FAIL {name} {path.stem}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                changed = sum(found.changed(region) for region in found.job.regions)
                good = found.passed and found.equal is True and changed > 0
                equal += good
                launchers |= {name} if good else set()
                lines.append(
                    f"{'ok  ' if good else 'FAIL'} {name} {path.stem}: {found.run.instructions} instructions, {changed} bytes changed, {found.seconds:.2f} s"
                )
                lines += [
                    f"    {own.name}: {line}" for own in found.comparisons if not own.equal for line in own.lines()
                ]
                lines += [f"    {hazard}" for hazard in found.run.hazards] + [f"    note: {note}" for note in own.notes]
        print(*lines, sep="\n", flush=True)
        (given.out / "launchers.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recording.write(given.out / "launchers.xz", kept)
    print(
        f"{equal} of {len(kept)} recorded launches replayed equal, through {len(launchers)} launchers: {', '.join(sorted(launchers))}"
    )
    return int(equal < LEAST_LAUNCHES or len(launchers) < LEAST_LAUNCHERS or equal < len(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
