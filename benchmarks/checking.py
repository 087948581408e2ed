"""What looking for hazards costs: processor time of a launch with the check, against the same launch without it.

python benchmarks/checking.py [WORD ...]        print the table, of kernels whose name has one of the words
python benchmarks/checking.py --engine numba    with another engine than NumPy multiplying
python benchmarks/checking.py --check           exit status 1 if a kernel is above the goal
"""

from __future__ import annotations

import argparse
import sys

from conformance.kernels.gemm import GemmCase
from conformance.kernels.scaled import ScaledCase
from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
from tcsim.engines.choice import using
from tests.corpora.gemm.products import Case, arch_of, multiplied

GOAL = 1.5
TIMES = 3  # of each, one after the other; the least counts
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
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with using(given.engine):
        above = measured(given.words)
    print(f"engine: {given.engine}; goal: {GOAL}; {above} above it")
    return int(above > 0 and given.check)


def measured(words: list[str]) -> int:
    """Print a line for each kernel; how many are above the goal."""
    above = 0
    print(f"{'kernel':28} {'without':>9} {'with':>9} {'ratio':>6}")
    for name, (case, target) in cases().items():
        if words and not any(word in name for word in words):
            continue
        multiplied(case, arch_of(target))
        seconds = {False: [0.0] * TIMES, True: [0.0] * TIMES}
        for turn in range(TIMES):
            for check in (False, True):
                found = multiplied(case, arch_of(target), check=check)
                if not found.good:
                    raise ValueError(f"{name}: {found.wrong} bytes are wrong, {found.run.hazards[:3]}")
                seconds[check][turn] = found.seconds
        without, with_check = min(seconds[False]), min(seconds[True])
        above += with_check > GOAL * without
        print(f"{name:28} {without:8.3f}s {with_check:8.3f}s {with_check / without:6.2f}", flush=True)
    return above


if __name__ == "__main__":
    sys.exit(main())
