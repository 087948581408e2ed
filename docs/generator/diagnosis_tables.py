"""How well `tcsim.diagnose` names the mistakes of kernels, by set and by kind: docs/measurements/diagnosis.json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table

_FILE = Path(__file__).resolve().parent.parent / "measurements" / "diagnosis.json"


@cache
def _measured() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def _counts(counts: list[int]) -> list[str]:
    """The first count in percent too, rounded down; no zeros."""
    return [f"{counts[0]} ({100 * counts[0] // sum(counts)} %)", *(str(count or "") for count in counts[1:])]


def _right(counts: list[int] | None) -> str:
    return f"{counts[0]} of {sum(counts)}" if counts else ""


def by_set() -> str:
    """Each set at first sight, and after its reports had been read."""
    rows = [
        (own["set"], run["run"], f"{run['date']}, {run['commit']}", sum(run["mistakes"]), *_counts(run["mistakes"]), _right(run["right"]))
        for own in _measured()["sets"]
        for run in own["runs"]
    ]  # fmt: skip
    head = ("set", "run", "date, commit", "cases", *_measured()["judgements"], "right kernels called right")
    return table(head, rows, range(3, 10))


def unseen() -> str:
    """All sets but the first, one case of each kind, with seeds that nobody had used."""
    rows = [
        (own["seed"], own["sets"], f"{own['date']}, {own['commit']}", sum(own["mistakes"]), *_counts(own["mistakes"]), _right(own["right"]))
        for own in _measured()["unseen seeds"]
    ]  # fmt: skip
    head = ("seed", "sets", "date, commit", "cases", *_measured()["judgements"], "right kernels called right")
    return table(head, rows, (0, *range(3, 10)))


def _where(source: str) -> str:
    """A link to the thread that a kind was met in."""
    if "#" not in source:
        return f"[forum](https://{source})" if "/" in source else source
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})"


def writers() -> str:
    """Who wrote each set, and of how many of its kinds every case is named right and alone."""
    rows = [
        (own["set"], own["writer"], len(own["kinds"]), sum(not any(counts[1:]) for *_, counts in own["kinds"]))
        for own in _measured()["sets"]
        if own["kinds"]
    ]
    return table(("set", "writer", "kinds", "right and alone in every case"), rows, (2, 3))


def by_kind() -> str:
    """The kinds of which some case is not named right and alone."""
    rows = [
        (
            own["set"],
            f"{code(name)} {sentence}" if sentence else name,
            _where(source),
            *(count or "" for count in counts),
        )
        for own in _measured()["sets"]
        for name, sentence, source, counts in own["kinds"]
        if any(counts[1:])
    ]
    return table(("set", "kind", "met in", *_measured()["judgements"]), rows, range(3, 8))
