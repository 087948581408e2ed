"""What a GPU answered, as kept in the tree: digests of every spelling's results, and the raw answers to the questions."""

from __future__ import annotations

import csv
import io
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent.parent / "recordings" / "sm_90" / "scalars"
TABLE, HEADER, ANSWERS = "scalars.csv.xz", "scalars.json", "questions.npy.xz"


class Recorded(NamedTuple):
    """A spelling's results on the hardware."""

    inputs: int
    mismatches: int  # with the model of the day
    short: str  # the digest of the first results
    all: str
    first: str


def exists() -> bool:
    """Whether there is a recording."""
    return (FOLDER / TABLE).exists()


@cache
def header() -> dict[str, Any]:
    """GPU, driver, assembler, date, and what was said of each question."""
    found: dict[str, Any] = json.loads((FOLDER / HEADER).read_text())
    return found


@cache
def spellings() -> dict[str, Recorded]:
    """Every spelling that ran."""
    text = lzma.decompress((FOLDER / TABLE).read_bytes()).decode()
    return {
        row["spelling"]: Recorded(int(row["inputs"]), int(row["mismatches"]), row["short"], row["all"], row["first"])
        for row in csv.DictReader(io.StringIO(text))
        if int(row["inputs"])
    }


@cache
def answers() -> dict[str, npt.NDArray[np.uint8]]:
    """The hardware's answer to each question."""
    stacked = np.load(io.BytesIO(lzma.decompress((FOLDER / ANSWERS).read_bytes())))
    return dict(zip(header()["answered"], stacked, strict=True))


def keep(folder: Path) -> None:
    """Put what `python -m conformance.scalars` wrote into the tree."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / TABLE).write_bytes(lzma.compress((folder / "scalars.csv").read_bytes(), preset=9))
    (FOLDER / HEADER).write_text((folder / "scalars.json").read_text())
    with np.load(folder / "questions.npz") as found:
        packed = io.BytesIO()
        np.save(packed, np.stack([found[name] for name in sorted(found)]))
    (FOLDER / ANSWERS).write_bytes(lzma.compress(packed.getvalue(), preset=9))
