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
    return {
        row["spelling"]: Recorded(int(row["inputs"]), int(row["mismatches"]), row["short"], row["all"], row["first"])
        for row in _lines()
        if int(row["inputs"])
    }


@cache
def answers() -> dict[str, npt.NDArray[np.uint8]]:
    """The hardware's answer to each question."""
    stacked = np.load(io.BytesIO(lzma.decompress((FOLDER / ANSWERS).read_bytes())))
    return dict(zip(header()["answered"], stacked, strict=True))


def keep(folder: Path) -> None:
    """Put what `python -m conformance.scalars` wrote into the tree: the hardware's digests and answers, with the verdicts of the model at hand.

    A run of some spellings (`--only`) has no answers: its lines join those that are there, and the header says when they were asked.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(folder / "scalars.csv", newline="") as file:
        rows = {row["spelling"]: _judged_again(row) for row in csv.DictReader(file)}
    about = json.loads((folder / "scalars.json").read_text())
    if about["answered"]:
        with np.load(folder / "questions.npz") as archive:
            found = {name: archive[name] for name in sorted(archive) if name in questions.questions()}
        verdicts = {name: questions.judged(questions.questions()[name], own) for name, own in found.items()}
        about |= {"questions": verdicts, "answered": list(found)}
        packed = io.BytesIO()
        np.save(packed, np.stack(list(found.values())))
        write_file(FOLDER / ANSWERS, lzma.compress(packed.getvalue(), preset=9))
    else:
        run = {name: about[name] for name in ("gpu", "driver", "assembler", "date")} | {"spellings": list(rows)}
        about = header() | {"later": [*header().get("later", []), run]}
        rows = {row["spelling"]: row for row in _lines()} | rows
    table = io.StringIO()
    writer = csv.DictWriter(table, next(iter(rows.values())), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    write_file(FOLDER / TABLE, lzma.compress(table.getvalue().encode(), preset=9))
    write_file(FOLDER / HEADER, json.dumps(about, indent=1) + "\n")


def _lines() -> list[dict[str, str]]:
    """The lines of the table."""
    return list(csv.DictReader(io.StringIO(lzma.decompress((FOLDER / TABLE).read_bytes()).decode())))


def _judged_again(row: dict[str, str]) -> dict[str, str]:
    """The line of a spelling, without its mismatches if the model now gives the digest of all results."""
    if row["mismatches"] in ("", "0"):
        return row
    probe = cases.probes()[row["spelling"]]
    equal = cases.digest(cases.expected(probe, inputs(probe.sources))) == row["all"]
    return row | {"mismatches": "0", "first": ""} if equal else row
