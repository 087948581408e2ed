"""`python -m tests.hazards.matrix [--kernel WORD] [--every N] [--jobs N] [--out FILE]`: every mutant of every kernel, and what a run says of it.

Prints a line for each mutant that is not named, and the table by kinds of mutants. --out writes what was found as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.hazards.matrix.packed import BUILT, write
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import NAMED, SILENT, Verdict
from tests.hazards.matrix.whole import verdicts


def written(path: Path, found: list[Verdict]) -> None:
    """Write verdicts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([own.as_dict() for own in found], indent=1), encoding="utf-8")


def main() -> int:
    """The exit status says whether a mutant is silent."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix", description=__doc__)
    parser.add_argument("--kernel", action="append", default=[], help="a part of a kernel's name")
    parser.add_argument("--every", type=int, default=1, help="judge only every n-th mutant")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pack", action="store_true", help=f"write {BUILT.name} for hosts without NVRTC, and end")
    parser.add_argument("--packed", action="store_true", help="take the PTX from there: no NVRTC is needed")
    given = parser.parse_args()
    if given.pack:
        write(BUILT)
        print(f"{BUILT}: {BUILT.stat().st_size} bytes")
        return 0
    names = [name for name in subjects() if not given.kernel or any(word in name for word in given.kernel)]
    start, found = time.perf_counter(), []
    for own in verdicts(names, given.every, given.jobs, BUILT if given.packed else None):
        if (
            given.out and found and found[-1].subject != own.subject
        ):  # a run may be ended: what there is by then is worth having
            written(given.out, found)
        found.append(own)
        if own.verdict != NAMED:
            print(f"{own.verdict:10} {own.key}{' ' + own.names[0] if own.names else ''}"[:240], flush=True)
    if given.out:
        written(given.out, found)
    counts = {
        verdict: sum(own.verdict == verdict for own in found) for verdict in sorted({own.verdict for own in found})
    }
    print(f"{len(found)} mutants of {len(names)} kernels, {time.perf_counter() - start:.0f} s: {counts}")
    return int(counts.get(SILENT, 0) > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())
