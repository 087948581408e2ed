"""`python -m tests.kernels.tutorials FOLDER [NAME ...] [--arch sm_90] [--save FOLDER]`: run Triton's tutorials on the model, and say how right they are.

FOLDER is python/tutorials of Triton's repository, of the version that is installed, or a copy of it. Prints for each tutorial and arch
its launches, seconds, and the largest difference from torch in its own comparisons, which have to hold. --save writes the launches as
recordings and cubins for `python -m tests.kernels.tutorials.on_gpu`. It needs Triton, torch, pandas and matplotlib.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from triton.backends.nvidia.compiler import get_ptxas

import tcsim.launchers
from tcsim.launchers import recording
from tests.kernels.tutorials.patches import TUTORIALS

ROW = "| {:<10} | {:<8} | {:>8} | {:>12} | {:>8} | {:>10} | {:>14} | {:>7} |"
HEADS = ("tutorial", "arch", "launches", "instructions", "s", "s in all", "max difference", "hazards")


class Differences:
    """The comparisons that a tutorial makes with torch: the largest difference, and whether all hold."""

    def __init__(self) -> None:
        self.largest, self.compared, self.hold = 0.0, 0, True

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A comparison of torch that is also counted here."""

        def compare(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
            self.largest = max(self.largest, float((a.float() - b.float()).abs().max()))
            self.compared += 1
            answer = function(a, b, *rest, **options)
            self.hold = self.hold and answer is not False
            return answer

        return compare


def ran(name: str, folder: Path, arch: str, save: Path | None) -> tuple[list[Any], bool]:
    """Run a tutorial; its row of the table, and whether it is right."""
    tutorial, differences, began = TUTORIALS[name], Differences(), time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / tutorial.file
        path.write_text(tutorial.patched((folder / tutorial.file).read_text(encoding="utf-8")), encoding="utf-8")
        with (
            tcsim.launchers.triton(arch, save=save) as session,
            patch.object(torch, "allclose", differences.watched(torch.allclose)),
            patch.object(torch.testing, "assert_close", differences.watched(torch.testing.assert_close)),
        ):
            runpy.run_path(str(path), run_name="__main__")
    hazards, seconds = (
        sum(len(own.run.hazards) for own in session.launches),
        sum(own.seconds for own in session.launches),
    )
    row = [
        name, arch, len(session.launches), f"{sum(own.run.instructions for own in session.launches):,}", f"{seconds:.1f}",
        f"{time.perf_counter() - began:.1f}", f"{differences.largest:.3g}", hazards,
    ]  # fmt: skip
    return row, differences.hold and differences.compared > 0 and not hazards


def assembled(path: Path, arch: str) -> None:
    """Write the cubin of a saved launch beside it, made by Triton's own assembler."""
    ptx, number = path.with_suffix(".ptx"), int(arch.removeprefix("sm_"))
    ptx.write_bytes(recording.read(path).ptx)
    target = arch + "a" * (number >= 90)
    subprocess.run(
        [get_ptxas(number).path, f"--gpu-name={target}", str(ptx), "-o", str(path.with_suffix(".cubin"))], check=True
    )
    ptx.unlink()


def main(arguments: list[str]) -> int:
    """Run the chosen tutorials; the exit status says whether one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.tutorials", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(TUTORIALS))
    parser.add_argument("--arch", action="append")
    parser.add_argument("--save", type=Path)
    given = parser.parse_intermixed_args(arguments)
    rows, right = [], True
    for arch in given.arch or ["sm_90"]:
        for name in given.names:
            save = given.save / f"{arch}_{name.replace(' ', '_')}" if given.save else None
            row, good = ran(name, given.folder, arch, save)
            rows.append(row)
            right = right and good
            for path in sorted(save.glob("*.npz")) if save else ():
                assembled(path, arch)
    print(ROW.format(*HEADS), ROW.format(*["---"] * len(HEADS)), *(ROW.format(*row) for row in rows), sep="\n")
    print("all right" if right else "WRONG")
    return int(not right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
