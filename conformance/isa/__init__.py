"""What is tested of each family: inputs, mutants, comparison. Named as the slices of tcsim.isa.

A slice is a module with `EXERCISES`, which says by the name of a family who tests it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from conformance.slice import Exercise


@cache
def exercises() -> dict[str, Exercise]:
    """The exercise of each family: what the slices say."""
    found: dict[str, Exercise] = {}
    for item in pkgutil.walk_packages(__path__, f"{__name__}."):
        found |= getattr(importlib.import_module(item.name), "EXERCISES", {})
    return found


def exercise_of(family: str) -> Exercise:
    """The exercise of a family.

    Raises ValueError if it has none.
    """
    if family not in exercises():
        raise ValueError(f"no exercise for family {family}; valid: {', '.join(exercises())}")
    return exercises()[family]
