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

from conformance.scalars import cases, questions
from conformance.scalars.inputs import inputs
from tcsim.core.files import write_file

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
    """Put what `python -m conformance.scalars` wrote into the tree: the hardware's digests and answers, with the verdicts of the model at hand."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(folder / "scalars.csv", newline="") as file:
        rows = [_judged_again(row) for row in csv.DictReader(file)]
    table = io.StringIO()
    writer = csv.DictWriter(table, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(FOLDER / TABLE, lzma.compress(table.getvalue().encode(), preset=9))
    with np.load(folder / "questions.npz") as file:
        found = {name: file[name] for name in sorted(file) if name in questions.questions()}
    verdicts = {name: questions.judged(questions.questions()[name], own) for name, own in found.items()}
    header = json.loads((folder / "scalars.json").read_text()) | {"questions": verdicts, "answered": list(found)}
    write_file(FOLDER / HEADER, json.dumps(header, indent=1) + "\n")
    packed = io.BytesIO()
    np.save(packed, np.stack(list(found.values())))
    write_file(FOLDER / ANSWERS, lzma.compress(packed.getvalue(), preset=9))


def _judged_again(row: dict[str, str]) -> dict[str, str]:
    """The line of a spelling, without its mismatches if the model now gives the digest of all results."""
    if row["mismatches"] in ("", "0"):
        return row
    probe = cases.probes()[row["spelling"]]
    equal = cases.digest(cases.expected(probe, inputs(probe.sources))) == row["all"]
    return row | {"mismatches": "0", "first": ""} if equal else row
