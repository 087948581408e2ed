"""Tables of docs/counters.md: the rules of `tcsim.ptx.counters`, with the launches that each was compared with; the counters of the recorded launches."""

from __future__ import annotations

import json
from pathlib import Path

from generator.markdown import code, table
from tcsim.ptx.counters.rules import OPERATIONS


def rules() -> str:
    """By kind of access and counter."""
    rows = []
    for own in OPERATIONS.values():
        rows += [
            (own.name, code(rule.counter), f"{rule.confirmed} of {rule.compared}", rule.status)
            for rule in own.rules
            if rule.compared
        ]
        rows += [(own.name, code(name), "", "unknown") for name in own.unknown]
    return table(("access", "counter", "launches", "known"), rows, (2,))


RESULTS = Path(__file__).resolve().parent.parent / "measurements" / "counters.json"


def launches() -> str:
    """By counter: launches in which the GPU's is the model's."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["counters"].items()
    return table(
        ("counter", "equal", "launches", "above the GPU's"), ((code(name), *own) for name, own in rows), (1, 2, 3)
    )
