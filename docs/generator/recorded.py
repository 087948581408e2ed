"""Tables of what was measured once, from docs/measurements/tables.json: each with the command, the date and the commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import table

_FILE = Path(__file__).resolve().parent.parent / "measurements" / "tables.json"


@cache
def recorded_tables() -> dict[str, Any]:
    """All of them by name."""
    return json.loads(_FILE.read_text(encoding="utf-8"))


def recorded(name: str) -> Callable[[], str]:
    """What writes the table of that name, with how and when it was measured."""

    def write() -> str:
        own = recorded_tables()[name]
        when = ", ".join(word for word in (own["date"], own["commit"]) if word)
        return f"{own['said']} ({when}.)\n\n" + table(own["head"], own["rows"], own["numbers"])

    return write
