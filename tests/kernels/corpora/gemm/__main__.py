"""Every GEMM kernel of hwkernels on the CPU, under every schedule: a table of what was compared with `tcsim.gemm`.

python -m tests.kernels.corpora.gemm [--kernel WORD] [--target TARGET] [--schedule late|early|SEED]
"""

from __future__ import annotations

import argparse
import sys

from tests.kernels.corpora.gemm.products import arch_of, multiplied
from tests.kernels.corpora.gemm.whole import SCHEDULES, products


def main() -> int:
    """Print the table; 1 if anything differs or does not end."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.corpora.gemm", description=__doc__)
    parser.add_argument("--kernel", default="", help="a part of the kernel's name")
    parser.add_argument("--target", default="", help="one PTX target; all without")
    parser.add_argument("--schedule", help="one schedule: late, early or a seed; all three without")
    parser.add_argument("--every", type=int, default=1, help="run one product of this many")
    given = parser.parse_args()
    schedules = SCHEDULES
    if given.schedule:
        schedules = (int(given.schedule) if given.schedule.isdigit() else given.schedule,)
    wanted = [pair for pair in products(given.target) if given.kernel in pair[0].kernel][:: given.every]
    print(f"{'target':9} {'product':86} {'schedule':9} {'blocks':>8} {'bytes':>9} {'differ':>7} {'s':>6}")
    count = compared = wrong = bad = 0
    seconds = 0.0
    for case, target in wanted:
        for schedule in schedules:
            found = multiplied(case, arch_of(target), schedule)
            count, compared, wrong = count + 1, compared + found.compared, wrong + found.wrong
            seconds += found.seconds
            bad += not found.good
            notes = "".join(f"\n    {own.name}: {own.message}"[:300] for own in found.run.hazards)
            print(
                f"{target:9} {case.id:86} {schedule!s:9} {found.run.instructions:8,} {found.compared:9,} {found.wrong:7,} "
                f"{found.seconds:6.2f}{notes}",
                flush=True,
            )
    print(
        f"{count:,} launches of {len(wanted):,} products, {compared:,} bytes compared, {wrong:,} differ, {bad:,} launches bad, "
        f"{seconds:,.0f} s of CPU"
    )
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
