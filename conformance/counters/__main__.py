"""`python -m conformance.counters [--ncu [--out FILE]]`: the counters that the model gives beside those of a GPU.

Without --ncu the recording of an H200 is replayed; with it every launch runs under Nsight Compute on this machine's GPU, and --out keeps
what it counted. Prints how many counters are equal, and the first that are not. Exit status 1 if a counter that the model calls exact differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.counters.comparison import RECORDED, as_dict, compared, evidence, read, write
from conformance.counters.live import measured

SHOWN = 20


def main(arguments: Sequence[str]) -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m conformance.counters", description=__doc__)
    parser.add_argument("--ncu", nargs="?", const="ncu", help="Nsight Compute's command")
    parser.add_argument("--out", type=Path, help="keep what was counted in this file")
    parser.add_argument("--recording", type=Path, action="append", help="replay this file, not those of the tree")
    given = parser.parse_args(arguments)
    if given.ncu:
        from hwkernels.device.driver import device_info  # only where there is a GPU

        info = device_info()
        launches = measured(ncu=given.ncu)
        if given.out is not None:
            write(given.out, {"gpu": info.name, "driver": info.driver_version}, launches)
    else:
        launches = []
        for path in given.recording or RECORDED:
            made, replayed = read(path)
            print(f"{path.name}:", ", ".join(f"{name} {value}" for name, value in made.items()))
            launches += replayed
    found = compared(launches)
    for name, (equal, total) in as_dict(evidence(launches)).items():
        print(f"{equal:>5,} of {total:>5,}  {name}")
    for own in found[:SHOWN]:
        print(f"{'EXACT ' * own.exact}{own}")
    return int(any(own.exact for own in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
