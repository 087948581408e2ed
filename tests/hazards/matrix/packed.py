"""The kernels of the matrix as one file, for a GPU host that has no NVRTC: PTX, and the lines that a launch executes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tcsim.ptx import parse
from tests.corpora.pack import ROOT, Compiled
from tests.hazards.matrix.mutants import Mutant, mutants
from tests.hazards.matrix.statements import Text
from tests.hazards.matrix.subjects import Subject, subjects
from tests.hazards.matrix.verdicts import executed

BUILT = ROOT / "build" / "hazard_matrix.xz"


def write(path: Path, generations: tuple[str, ...]) -> None:
    """Write the kernels of some generations."""
    found = {
        own.name: {"compiled": asdict(own.compiled), "lines": sorted(executed(own))}
        for own in subjects().values()
        if own.generation in generations
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(json.dumps(found).encode()))


def read(path: Path) -> Iterator[tuple[Subject, Compiled, list[Mutant]]]:
    """Each kernel, its PTX, and its mutants."""
    for name, own in json.loads(lzma.decompress(path.read_bytes())).items():
        subject, compiled = subjects()[name], Compiled(**own["compiled"])
        subject.__dict__["compiled"] = compiled
        text = Text(compiled.ptx, parse(compiled.ptx).kernel(subject.entry).function)
        yield subject, compiled, list(mutants(text, frozenset(own["lines"])))
