"""Mends that were found for operands that are wrong, and whether every product of the launch would be right with them.

A mend is only printed if it is: each later product of the instruction is judged as it would be with it (`tcsim.ptx.check.layout.origins`), and no
other mistake of layout is left without a mend. So much as one product that would not be right, or that is right as it is, and none is named.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tcsim.ptx.check.findings import Findings, Key
from tcsim.ptx.check.layout.tiles import Mend, View


@dataclass(eq=False)
class Trial:
    """A mend, and the finding that it is for."""

    finding: Key
    rule: str
    key: Hashable  # of the mend
    mend: str  # in words
    said: str  # the message with it
    change: Mapping[str, Any] = field(default_factory=dict)  # the mend as data
    early: bool = False  # whether the instruction was right before, as it is


class Trials:
    """The mends of one cluster."""

    def __init__(self) -> None:
        self.every: list[Trial] = []
        self.right: set[tuple[int, str]] = set()  # instructions and operands that were right as they are
        self.lost = False  # whether something is wrong that no mend is known for, or that one does not mend
        self.wide: dict[str, Trial] = {}  # that all instructions need, which read an operand
        self._of: dict[tuple[int, str], Trial] = {}
        self._rows: dict[tuple[str, int], frozenset[int]] = {}  # by operand and element that begins a row, of one k

    def rows(self, view: View) -> None:
        """Note the rows of an operand as it would be with a mend: two have the same ones, or others."""
        own = frozenset(view.found[:, 0].tolist())
        if any(self._rows.setdefault((view.name, row), own) != own for row in own):
            self.lost = True

    def of(self, view: View) -> Trial | None:
        """That of an instruction's operand."""
        return self._of.get((view.line, view.name)) or self.wide.get(view.name)

    def is_named(self, view: View) -> bool:
        """Whether an instruction's operand has a finding of its own."""
        return (view.line, view.name) in self._of

    def widen(self, view: View) -> None:
        """What mends an instruction's operand is what all need that read it, those too that are right by themselves."""
        trial = self._of[view.line, view.name]
        trial.early = False
        self.wide[view.name] = trial

    def add(self, trial: Trial, view: View | None = None, wide: bool = False) -> None:
        """A mend is found; view: of an operand that is read otherwise each time; wide: so is each that others read."""
        self.every.append(trial)
        if view is not None:
            key = view.line, view.name
            trial.early = key in self.right and not wide
            self._of[key] = trial

    def known(self, view: View) -> Iterator[Mend]:
        """Mends of other instructions for an operand of the same name, as they would be here."""
        for key in dict.fromkeys(own.key for (_, name), own in reversed(self._of.items()) if name == view.name):
            rule = next(own.rule for own in self._of.values() if own.key == key)
            mend = view.source.again(key)
            if mend is not None:
                yield replace(mend, rule=rule)

    def refute(self, trials: Iterable[Trial | None]) -> None:
        """A product would not be right with these: then none is named."""
        self.lost = self.lost or any(own is not None for own in trials)

    def settle(self, findings: Findings) -> None:
        """Name the mends, if all together mend all."""
        if self.lost or any(own.early for own in self.every):
            return
        for own in reversed(self.every):
            findings.mended(own.finding, own.said, own.mend, own.change)
