"""How well `tcsim.diagnose` names the mistakes of kernels, by set and by kind: docs/measurements/diagnosis.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


def by_kind() -> str:
    """A table for each set whose kinds were kept."""
    return "\n\n".join(_of_sets())


def _of_sets() -> Iterator[str]:
    for own in _measured()["sets"]:
        if not own["kinds"]:
            continue
        rows = [
            (f"{code(name)} {sentence}" if sentence else name, _where(source), *(count or "" for count in counts))
            for name, sentence, source, counts in own["kinds"]
        ]
        yield f"### The {own['set']} set\n\n{own['writer']}"
        yield table(("kind", "met in", *_measured()["judgements"]), rows, range(2, 7))
