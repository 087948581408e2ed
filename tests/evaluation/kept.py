"""docs/measurements/diagnosis.json: what came out of the sets of wrong kernels. docs/generate.py makes docs/reference/tables/diagnosis.md of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "measurements" / "diagnosis.json"


def keep(name: str, run: str, mistakes: list[int], right: list[int], kinds: list[list[Any]]) -> None:
    """Replace a run of a set, and the results by kind: lists of name, sentence, source and counts. A set that is not there is added.

    Of a kind that is right and alone in every case only the name and the counts are written: no page says the rest.
    """
    found = json.loads(FILE.read_text(encoding="utf-8"))
    own = next((each for each in found["sets"] if each["set"] == name), None)
    if own is None:
        own = {"set": name, "writer": "", "runs": [], "kinds": []}
        found["sets"].append(own)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    new = {"run": run, "date": time.strftime("%Y-%m-%d"), "commit": commit.strip()}
    own["runs"] = [each for each in own["runs"] if each["run"] != run]
    own["runs"].append(new | {"mistakes": mistakes, "right": right if sum(right) else None})
    own["kinds"] = kinds
    FILE.write_text("\n".join(_lines(found)) + "\n", encoding="utf-8")


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """JSON with a line for each run and kind, so that a diff can be read."""
    yield "{"
    yield f' "judgements": {json.dumps(found["judgements"])},'
    yield ' "sets": ['
    for own in found["sets"]:
        yield f'  {{"set": {json.dumps(own["set"])}, "writer": {json.dumps(own["writer"], ensure_ascii=False)},'
        yield '   "runs": ['
        yield from _joined("    ", own["runs"])
        yield '   ],\n   "kinds": ['
        yield from _joined("    ", [kind if any(kind[3][1:]) else [kind[0], "", "", kind[3]] for kind in own["kinds"]])
        yield f"   ]}}{'' if own is found['sets'][-1] else ','}"
    yield ' ],\n "unseen seeds": ['
    yield from _joined("  ", found["unseen seeds"])
    yield " ]\n}"


def _joined(indent: str, items: list[Any]) -> Iterator[str]:
    for place, item in enumerate(items, 1):
        yield f"{indent}{json.dumps(item, ensure_ascii=False)}{',' if place < len(items) else ''}"
