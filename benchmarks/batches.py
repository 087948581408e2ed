"""What batches save: the recorded launches of many blocks, with their blocks one after the other and in batches, without the check and with it.

python benchmarks/batches.py [WORD ...]    print the table, of launches whose name has one of the words
python benchmarks/batches.py --times 5     repeat each launch five times and report the least processor time
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from time import process_time

from tcsim.launchers.job import prepared
from tcsim.launchers.recording import Recording
from tcsim.ptx import Limits
from tests.kernels.corpora.replay import ARCH, launches

WIDE = "cuda_wide_"
KINDS = [(batch, check) for check in (False, True) for batch in (1, Limits().batch)]


def seconds(recording: Recording, batch: int, check: bool, times: int) -> tuple[float, int]:
    """The least processor time of some launches, and the most blocks that ran at once."""
    took, most = [], 1
    for _ in range(times + 1):  # the first one fills what is remembered
        made = prepared(replace(recording.job(ARCH, "late", Limits(batch=batch, processes=1)), check=check), None)
        begin = process_time()
        run = made.kernel.launch(made.memory, made.params, **made.options, check=check)
        took.append(process_time() - begin)
        most = run.batch
    return min(took[1:]), most


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    print(f"{'launch':26} {'blocks':>7} {'batch':>6} {'one':>8} {'batches':>8} {'ratio':>6} {'check':>8} {'batches':>8} {'ratio':>6} {'of it':>6}")  # fmt: skip
    total = [0.0] * len(KINDS)
    for name, recording in launches():
        if not name.startswith(WIDE) or (given.words and not any(word in name for word in given.words)):
            continue
        found = [seconds(recording, batch, check, given.times) for batch, check in KINDS]
        x, y, z = recording.job(ARCH, "late", Limits()).grid
        line(name.removeprefix(WIDE), x * y * z, found[1][1], [own for own, _ in found])
        total = [before + own for before, (own, _) in zip(total, found, strict=True)]
    line("all", 0, 0, total)


def line(name: str, blocks: int, batch: int, took: list[float]) -> None:
    """Of a launch the seconds without the check and with it, what batches save of each, and what the check costs in batches."""
    off, fast, on, checked = took
    print(f"{name:26} {blocks:7} {batch:6} {off:8.3f} {fast:8.3f} {off / fast:6.1f} {on:8.3f} {checked:8.3f} {on / checked:6.1f} {checked / fast:6.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
