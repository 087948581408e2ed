"""Tables, code and short lists of archs and targets in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from tcsim.core.targets import ARCHS, since, suffixed_since

NOTICE = "<!-- Written by docs/generate.py from the code. Do not edit. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A Markdown table; the columns whose indices are in `numbers` are right-aligned."""
    lines = [" | ".join(head), " | ".join("---:" if place in numbers else "---" for place in range(len(head)))]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def code(text: object) -> str:
    """Text in backticks."""
    return f"`{text}`"


def arch_ranges(names: Iterable[str]) -> str:
    """Archs in ascending order, runs of neighbours joined: "sm_80 to sm_89, sm_120"."""
    order = list(ARCHS)
    places = sorted({order.index(name) for name in names})
    parts = []
    while places:
        last = 0
        while last + 1 < len(places) and places[last + 1] == places[0] + last + 1:
            last += 1
        run, places = places[: last + 1], places[last + 1 :]
        names_of_run = [order[place] for place in run]
        parts.append(f"{names_of_run[0]} to {names_of_run[-1]}" if len(run) > 2 else ", ".join(names_of_run))
    return ", ".join(parts)


def target_text(targets: Sequence[str]) -> str:
    """The targets of a row in few words."""
    return _target_text(tuple(targets))


@cache
def _target_text(targets: tuple[str, ...]) -> str:
    for arch in reversed(ARCHS):  # f and a targets begin with sm_90a: earlier archs have the same set
        if set(targets) == set(since(arch)):
            return f"{arch} and later"
        if set(targets) == set(suffixed_since(arch)):
            return f"f and a targets of {arch} and later"
    return ", ".join(targets)
