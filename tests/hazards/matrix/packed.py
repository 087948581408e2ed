"""The kernels of the matrix as one file, for hosts that have no NVRTC: PTX, and the lines that a launch executes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tcsim.ptx import parse
from tests.hazards.matrix.mutants import Mutant, mutants
from tests.hazards.matrix.statements import Text
from tests.hazards.matrix.subjects import Subject, subjects
from tests.hazards.matrix.verdicts import executed
from tests.kernels.corpora.pack import ROOT, Compiled

BUILT = ROOT / "build" / "hazard_matrix.xz"


def write(path: Path) -> None:
    """Write the kernels."""
    found = {
        own.name: {"compiled": asdict(own.compiled), "lines": sorted(executed(own))} for own in subjects().values()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(json.dumps(found).encode()))


def use(path: Path) -> dict[str, frozenset[int]]:
    """Take the PTX of the kernels from a file; the lines that their launches execute."""
    found = {}
    for name, own in json.loads(lzma.decompress(path.read_bytes())).items():
        subjects()[name].__dict__["compiled"] = Compiled(**own["compiled"])
        found[name] = frozenset(own["lines"])
    return found


def read(path: Path, generations: tuple[str, ...]) -> Iterator[tuple[Subject, list[Mutant]]]:
    """Each kernel of some generations, and its mutants."""
    for name, lines in use(path).items():
        subject = subjects()[name]
        if subject.generation in generations:
            text = Text(subject.compiled.ptx, parse(subject.compiled.ptx).kernel(subject.entry).function)
            yield subject, list(mutants(text, lines))
