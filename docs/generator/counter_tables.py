"""The table of docs/counters.md: the rules of `tcsim.ptx.counters`, with the launches that each was compared with."""

from __future__ import annotations

from generator.markdown import code, table
from tcsim.ptx.counters.rules import OPERATIONS


def rules() -> str:
    """By kind of access and counter."""
    rows = []
    for own in OPERATIONS.values():
        rows += [(own.name, code(rule.counter), f"{rule.confirmed} of {rule.compared}", rule.status) for rule in own.rules if rule.compared]
        rows += [(own.name, code(name), "", "unknown") for name in own.unknown]
    return table(("access", "counter", "launches", "known"), rows, (2,))
