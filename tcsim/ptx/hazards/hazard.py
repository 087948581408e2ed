"""Hazards: what a kernel may do wrong, by name, and what a run says of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tcsim.core.display import Shown
from tcsim.ptx.hazards.rules import RULES, Rule

HAZARDS: MappingProxyType[str, Rule] = MappingProxyType({rule.name: rule for rule in RULES})
"""Every name that a run can report, and nothing else: names of rules that are not looked for yet are not here."""

_OPCODE = re.compile(r"[\s;{]")
SEVERITIES: MappingProxyType[str, str] = MappingProxyType({
    "error": "undefined, or different bits in a legal order of completion",
    "strict": "a rule is broken; no failure of hardware is known",
    "repaired": "ptxas adds what is missing, or serialises",
    "perf": "synchronisation that orders nothing",
})  # fmt: skip
"""What each severity means, the worst first. Only errors make a launch fail."""


@dataclass(frozen=True)
class Hazard(Shown):
    """Something that is wrong in what the kernel did.

    >>> Hazard("TRAP", "a thread executed trap", line=7).severity
    'error'
    """

    name: str  # of HAZARDS
    message: str
    line: int | None = None  # of the PTX text, from 1
    other_line: int | None = None  # of the instruction that it conflicts with
    source: str | None = None  # "file:line" of .loc: the kernel's, for an instruction in a function that was inlined
    other_source: str | None = None
    block: tuple[int, int, int] | None = None  # the first in which it was seen
    thread: int | None = None  # in that block: x + y * width + z * width * height; warp thread // 32, lane thread % 32
    detail: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    inlined: tuple[str, ...] = ()  # lines of the functions that were inlined at `source`, the innermost last
    other_inlined: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """ "error", "strict", "repaired" or "perf"."""
        return HAZARDS[self.name].severity

    def as_dict(self) -> dict[str, Any]:
        """As plain data, the severity after the name."""
        named = dict(vars(self))
        named |= {"detail": dict(self.detail), "inlined": list(self.inlined), "other_inlined": list(self.other_inlined)}
        return {"name": named.pop("name"), "severity": self.severity, **named}

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        where += [" > ".join((self.source, *self.inlined))] if self.source else []
        where += [f"block {self.block}"] if self.block is not None else []
        where += [f"warp {self.thread // 32} lane {self.thread % 32}"] if self.thread is not None else []
        return f"{self.name}: {self.message}" + (f" ({', '.join(where)})" if where else "")


def worst_first(hazards: Iterable[Hazard]) -> list[Hazard]:
    """By severity, and of one severity as they came."""
    rank = {name: place for place, name in enumerate(SEVERITIES)}
    return sorted(hazards, key=lambda own: rank[own.severity])


Cause = tuple[str, str, str]


def cause_of(own: Hazard, text: Sequence[str] = ()) -> Cause:
    """What hazards of one cause have in common: the rule, and both lines of the source; without .loc what the instructions are.

    text: the lines of the PTX.
    """

    def place(source: str | None, line: int | None) -> str:
        if source is not None or line is None:
            return source or ""
        return _OPCODE.split(text[line - 1].strip(), 1)[0] if 0 < line <= len(text) else str(line)

    return own.name, place(own.source, own.line), place(own.other_source, own.other_line)


def merged(hazards: Sequence[Hazard], completed: bool = True, clusters: int = 1) -> list[Hazard]:
    """One hazard for each (name, line, other line), in order of the first, with the number of all; not completed: what ended the run stays last.

    clusters: how many were watched. Mends are kept only if they mend each of them.

    >>> merged([Hazard("TRAP", "a", 1), Hazard("TRAP", "b", 1), Hazard("TRAP", "c", 2)])[0].count
    2
    """
    found: dict[tuple[str, int | None, int | None], Hazard] = {}
    for item in hazards:
        key = item.name, item.line, item.other_line
        found[key] = replace(found[key], count=found[key].count + item.count) if key in found else item
    if hazards and not completed:
        found[key] = found.pop(key)
    judged = [own for own in hazards if "operand" in own.detail]
    mends = Counter((own.name, own.line, own.other_line, own.detail.get("mend")) for own in judged)
    if any(mend is None or count < clusters for (*_, mend), count in mends.items()):
        found = {key: without_mend(own) for key, own in found.items()}
    return list(found.values())


def without_mend(own: Hazard) -> Hazard:
    """A hazard with what is wrong alone."""
    if "found" not in own.detail:
        return own
    detail = {key: value for key, value in own.detail.items() if key not in ("mend", "found", "change")}
    return replace(own, message=own.detail["found"], detail=detail)
