"""What a kind of golden answers is: names, and for each a call that makes its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tcsim.ptx import Run

Value = str | bytes
Entry = tuple[str, Callable[[], Value]]
Schedule = str | int


@dataclass(frozen=True)
class Scope:
    """What is asked of every kind."""

    schedules: tuple[Schedule, ...] = ("late", 1)  # of recorded launches
    reports: int = 12  # one kind of wrong kernels in this many


Kind = Callable[[Scope], Iterator[Entry]]
"""The same entries in the same order in every process."""


def as_json(data: Any) -> str:
    """Plain data, a line for each of its parts."""
    return json.dumps(data, indent=1, default=repr, ensure_ascii=False)


def facts_of(run: Run) -> Iterator[str]:
    """How a run ended, what it counted and printed."""
    yield f"completed {run.completed}, {run.instructions} instructions"
    yield from (f"inexact {name}: {count}" for name, count in sorted(run.inexact.items()))
    yield f"output {run.output!r}"


def hazards_of(run: Run) -> str:
    """Every hazard of a run with all that it says, in order."""
    told = [f"completed {run.completed}, {len(run.hazards)} hazards"]
    for own in run.hazards:
        told += [f"{own.severity} {own.name} line {own.line} other line {own.other_line}", f"  {own.message}"]
        rest = {name: value for name, value in own.as_dict().items() if name not in _SAID}
        told += [f"  {name}: {json.dumps(value, default=repr)}" for name, value in rest.items()]
    return "\n".join(told)


_SAID = ("name", "severity", "message", "line", "other_line")


def chosen(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """The names that begin with one of some words, in the order of these; each word has to have one."""
    found = [[name for name in names if name.startswith(word)] for word in words]
    lost = [word for word, own in zip(words, found, strict=True) if not own]
    if lost:
        raise ValueError(f"nothing is named {lost}")
    return [own[0] for own in found]
