"""`python -m tests.hazards.corpora`: every recorded launch, and a share of the GEMM kernels of every generation, with the check.

Prints each launch that has hazards, by name; fails for an error that is not known.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from tcsim.ptx import Run
from tests.kernels.corpora.gemm.products import arch_of, multiplied
from tests.kernels.corpora.gemm.whole import share
from tests.kernels.corpora.replay import DEFECTS, launches, replayed

ACROSS = {f"triton_atomics_{target}": {"GMEM_SCOPE"} for target in ("sm_80", "sm_90a")}
"""The errors between blocks of recorded launches: atomics with scope .cta at places of two blocks, for their spelling."""


def runs() -> Iterator[tuple[str, Run, set[str]]]:
    """Each launch by name, and the errors that it is known to have."""
    for name, launch in launches():
        yield name, replayed(launch, origins=True, races=True).run, DEFECTS.get(name, set()) | ACROSS.get(name, set())
    for case, target, schedule in share():
        yield (
            f"{case.id} {target} {schedule}",
            multiplied(case, arch_of(target), schedule, check=True, origins=True, races=True).run,
            set(),
        )


def main() -> int:
    """The exit status says whether an error was found that is not known."""
    count, wrong, found = 0, 0, Counter[str]()
    for name, run, known in runs():
        count += 1
        counts = Counter({own.name: 0 for own in run.hazards})
        for own in run.hazards:
            counts[own.name] += own.count
        found.update(counts)
        bad = not run.completed or {own.name for own in run.errors} != known
        wrong += bad
        if counts or bad:
            print(f"{'WRONG ' if bad else ''}{name}: {dict(counts)}", flush=True)
            for own in run.errors[:2] if bad else ():
                print(f"    {own}")
    print(f"{count} launches, {wrong} wrong; {dict(found)}")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    sys.exit(main())
