"""What looking for hazards costs: a launch with the check against the same launch without it, one after the other, several times.

The ratios are those of the medians, by processor time and by the clock.

python benchmarks/checking.py [WORD ...]        print the table, of kernels whose name has one of the words
python benchmarks/checking.py --engine numba    with another engine than NumPy multiplying
python benchmarks/checking.py --races           races in global memory are looked for too; the goal does not count
python benchmarks/checking.py --times 9         so many launches of each kind
python benchmarks/checking.py --check           exit status 1 if a kernel is above the goal by processor time
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from time import perf_counter, process_time

from conformance.kernels.gemm import GemmCase
from conformance.kernels.scaled import ScaledCase
from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
from tcsim.engines.choice import using
from tests.kernels.corpora.gemm.products import Case, arch_of, multiplied

GOAL = 1.5
SIZE, SCALED_SIZE = (256, 256, 256), (256, 256, 512)


def cases() -> dict[str, tuple[Case, str]]:
    """Every GEMM kernel with one product, and its target."""
    plain = {
        name: (GemmCase(name, own.formats[0], own.formats[0], "f32", SIZE, "random"), own.target)
        for name, own in KERNELS.items()
    }
    scaled = {
        name: (ScaledCase(name, own.formats[0], own.formats[0], "f32", SCALED_SIZE, "random"), own.target)
        for name, own in SCALED_KERNELS.items()
    }
    return plain | scaled


def main() -> int:
    """Measure all kernels; the exit status says whether each costs what it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--engine", default="numpy")
    parser.add_argument("--races", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with using(given.engine):
        above = measured(given.words, given.times, given.races)
    goal = "races too" if given.races else f"goal: {GOAL}; {above} above it"
    print(f"engine: {given.engine}; {goal}; medians of {given.times}")
    return int(above > 0 and given.check and not given.races)


def measured(words: list[str], times: int, races: bool) -> int:
    """Print a line for each kernel; how many are above the goal."""
    above = 0
    print(f"{'kernel':28} {'without':>9} {'with':>9} {'ratio':>6} {'by the clock':>13}")
    for name, (case, target) in cases().items():
        if words and not any(word in name for word in words):
            continue
        took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for turn in range(times + 1):
            for check, own in took.items():
                seconds = launched(name, case, target, check, races and check)
                if turn:  # the first launches fill what is remembered
                    own.append(seconds)
        (without, plain), (with_check, checked) = (map(median, zip(*own, strict=True)) for own in took.values())
        above += with_check > GOAL * without
        print(
            f"{name:28} {without:8.3f}s {with_check:8.3f}s {with_check / without:6.2f} {checked / plain:13.2f}",
            flush=True,
        )
    return above


def launched(name: str, case: Case, target: str, check: bool, races: bool) -> tuple[float, float]:
    """The processor time of a launch, and the time by the clock."""
    marks: list[tuple[float, float]] = []

    def timer() -> float:
        marks.append((process_time(), perf_counter()))
        return marks[-1][0]

    found = multiplied(case, arch_of(target), check=check, races=races, timer=timer)
    if not found.good:
        raise ValueError(f"{name}: {found.wrong} bytes are wrong, {found.run.hazards[:3]}")
    (start, begin), (end, over) = marks
    return end - start, over - begin


if __name__ == "__main__":
    sys.exit(main())
