"""`python -m tests.evaluation.noise [--count N] [--first NUMBER]`: how many outputs that are not the product of the operands are explained."""

from __future__ import annotations

import argparse
import time
from collections import Counter

import tcsim
from tests.evaluation.noise.cases import case


def main() -> None:
    """Ask all; those that are explained are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="cases")
    parser.add_argument("--first", type=int, default=0, help="the first number")
    given = parser.parse_args()
    verdicts: Counter[str] = Counter()
    number, slowest = given.first, (0.0, "")
    while verdicts.total() < given.count:
        own = case(number)
        number += 1
        if own is None:
            continue
        start = time.process_time()
        found = tcsim.diagnose(own.instruction, **own.arguments)
        slowest = max(slowest, (time.process_time() - start, own.said))
        verdicts[found.verdict] += 1
        if found.verdict != "not explained":
            print(f"{own.number}: {own.said}", *found.lines()[1:4], sep="\n  ", flush=True)
    print(f"{verdicts.total()} cases: {dict(verdicts)}; slowest {slowest[0]:.1f} s: {slowest[1]}")


if __name__ == "__main__":
    main()
