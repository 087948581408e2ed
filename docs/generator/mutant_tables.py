"""Tables of the mutants of the model's source: what killed each, and why some survive. From docs/measurements/mutants.json."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table
from tcsim import catalog

_FOLDER = Path(__file__).resolve().parent.parent / "measurements"


@cache
def _measured() -> dict[str, Any]:
    return json.loads((_FOLDER / "mutants.json").read_text(encoding="utf-8"))


@cache
def _reasons() -> dict[str, str]:
    return json.loads((_FOLDER / "mutants-reasons.json").read_text(encoding="utf-8"))


def _fate(mutant: dict[str, Any]) -> str:
    """What killed a mutant; "not asked": it survived the recordings, and the tests were not run."""
    if mutant["replay"]:
        return "recordings"
    return "not asked" if mutant["tests"] is None else "tests" if mutant["tests"] else "survives"


def total() -> str:
    """How many there are, and when they were run."""
    fates = Counter(_fate(mutant) for mutant in _measured()["mutants"])
    return (
        f"{fates.total()} mutants, run on {_measured()['date']}: {fates['recordings']} contradicted by recorded hardware results, "
        f"{fates['tests']} by a test, {fates['survives']} by none; the tests were not asked of {fates['not asked']} yet."
    )


def by_module() -> str:
    """What became of the mutants of each module."""
    fates: dict[str, Counter[str]] = {}
    for mutant in _measured()["mutants"]:
        fates.setdefault(mutant["module"], Counter())[_fate(mutant)] += 1
    rows = [
        (code(module), own.total(), own["recordings"], own["tests"], own["survives"], own["not asked"])
        for module, own in sorted(fates.items())
    ]
    return table(
        ("module", "mutants", "killed by recordings", "killed by tests", "survive", "tests not asked"),
        rows,
        (1, 2, 3, 4, 5),
    )


def by_family() -> str:
    """What became of the mutants of the modules that each family runs through; a mutant counts for all its families."""
    fates: dict[str, Counter[str]] = {family.name: Counter() for family in catalog.families()}
    recorded = {name for mutant in _measured()["mutants"] for name in mutant["families"]} - {"all"}
    for mutant in _measured()["mutants"]:
        for name in recorded if mutant["families"] == ["all"] else mutant["families"]:
            fates[name][_fate(mutant)] += 1
    rows = [
        (name, own.total(), own["recordings"], own["tests"], own["survives"], own["not asked"])
        for name, own in fates.items()
        if own
    ]
    return table(
        ("family", "mutants", "killed by recordings", "killed by tests", "survive", "tests not asked"),
        rows,
        (1, 2, 3, 4, 5),
    )


def survivors() -> str:
    """Each that nothing contradicts, and why."""
    rows = [
        (f"{code(mutant['module'])}, line {mutant['line']}", code(mutant["was"]), code(mutant["becomes"]),
         _reasons().get(mutant["name"], "**unexplained**"))
        for mutant in _measured()["mutants"]
        if _fate(mutant) == "survives"
    ]  # fmt: skip
    return table(("where", "right", "mutant", "why nothing shows"), sorted(rows))
