"""Tables of mutants, the suite's and those of the model's source: what killed each, and why some survive. From docs/measurements."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table
from tcsim import catalog

_FOLDER = Path(__file__).resolve().parent.parent / "measurements"


@cache
def _read(name: str) -> dict[str, Any]:
    content = (_FOLDER / name).read_bytes()
    return json.loads(lzma.decompress(content) if name.endswith(".xz") else content)


def _measured() -> dict[str, Any]:
    return _read("mutants.json.xz")


def _fate(mutant: dict[str, Any]) -> str:
    """What killed a mutant, or "survives"."""
    return "recordings" if mutant["replay"] else "tests" if mutant["tests"] else "survives"


def named() -> str:
    """What contradicts the suite's own mutants, family by family."""
    measured = _read("named-mutants.json")
    rows = [
        (name, len({*own["recordings"], *own["model"], *own["neither"]}), own["instructions"], len(own["recordings"]),
         len(own["model"]), len(own["survivors"]) + len(own["neither"]))
        for name, own in measured["families"].items()
    ]  # fmt: skip
    head = ("family", "mutants", "instructions asked", "contradicted by recordings", "by the model alone", "survive")
    return f"Run on {measured['date']}.\n\n" + table(head, rows, (1, 2, 3, 4, 5))


def total() -> str:
    """How many there are, and when they were run."""
    fates = Counter(_fate(mutant) for mutant in _measured()["mutants"])
    return (
        f"{fates.total()} mutants, run on {_measured()['date']}: {fates['recordings']} contradicted by recorded hardware results, "
        f"{fates['tests']} by a test. {fates['survives']} change nothing that shows, for the reasons below."
    )


def by_module() -> str:
    """What became of the mutants of each module that computes, and of each folder of what behaves."""
    fates: dict[str, Counter[str]] = {}
    for mutant in _measured()["mutants"]:
        name = mutant["module"]
        fates.setdefault(name if mutant["families"] else name.rpartition("/")[0], Counter())[_fate(mutant)] += 1
    rows = [
        (code(module), own.total(), own["recordings"], own["tests"], own["survives"])
        for module, own in sorted(fates.items())
    ]
    return table(
        ("module", "mutants", "killed by recordings", "killed by tests", "explained"),
        rows,
        (1, 2, 3, 4),
    )


def by_family() -> str:
    """What became of the mutants of the modules that each family runs through; a mutant counts for all its families."""
    fates: dict[str, Counter[str]] = {family.name: Counter() for family in catalog.families()}
    recorded = {name for mutant in _measured()["mutants"] for name in mutant["families"]} - {"all"}
    for mutant in _measured()["mutants"]:
        for name in recorded if mutant["families"] == ["all"] else mutant["families"]:
            fates[name][_fate(mutant)] += 1
    rows = [(name, own.total(), own["recordings"], own["tests"], own["survives"]) for name, own in fates.items() if own]
    return table(
        ("family", "mutants", "killed by recordings", "killed by tests", "survive"),
        rows,
        (1, 2, 3, 4),
    )


def survivors() -> str:
    """Each that nothing contradicts and that has a reason."""
    rows = [
        (f"{code(mutant['module'])}, line {mutant['line']}", code(mutant["was"]), code(mutant["becomes"]),
         _read("mutants-reasons.json")[mutant["name"]])
        for mutant in _measured()["mutants"]
        if _fate(mutant) == "survives"
    ]  # fmt: skip
    return table(("where", "right", "mutant", "why nothing shows"), sorted(rows))
