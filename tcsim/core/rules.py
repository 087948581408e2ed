"""Tables with one row for each arch that changed something: which row is in force on an arch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from tcsim.core.errors import TcsimError
from tcsim.core.targets import ARCHS, Arch


class Rule(Protocol):
    """A row that holds from an arch on, until a later row of the same kind."""

    @property
    def first(self) -> int:
        """The number of the earliest arch for which it holds."""
        ...


R = TypeVar("R", bound=Rule)


class NoRuleError(TcsimError, LookupError):
    """An arch for which a table has no row, nor for any arch that stands in for it."""


def in_force(rules: Iterable[R], arch: Arch) -> R:
    """The latest row that holds on an arch, of several that begin together the first; if there is none, its relative's.

    Raises NoRuleError if the relative has none either.

    >>> from tcsim.arithmetic.units import UNITS
    >>> half = [unit for unit in UNITS if "half" in unit.inputs]
    >>> [(name, in_force(half, ARCHS[name]).fraction_bits) for name in ("sm_75", "sm_89", "sm_121")]
    [('sm_75', 24), ('sm_89', 24), ('sm_121', 25)]
    """
    rules = tuple(rules)
    if found := [rule for rule in rules if rule.first <= arch.number]:
        return max(found, key=lambda rule: rule.first)
    if arch.relative == arch.name:
        raise NoRuleError(
            f"no rule for {arch.name}; valid: sm_{min((rule.first for rule in rules), default=0)} and later"
        )
    return in_force(rules, ARCHS[arch.relative])
