"""The slices of the conformance suite: the same names and families as those of tcsim.isa, each family with one testbench."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from conformance.isa import slices, testbench_of
from tcsim import catalog, isa
from tcsim.model.family import Family


def families_of(value: Any) -> list[str]:
    """The names of the families that a module's attribute holds."""
    return [each.name for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Family)]


def test_slices_are_those_of_the_model() -> None:
    modelled: dict[str, set[str]] = defaultdict(set)
    for item in pkgutil.walk_packages(isa.__path__, f"{isa.__name__}."):
        for value in vars(importlib.import_module(item.name)).values():
            modelled[item.name.split(".")[2]].update(families_of(value))
    assert {name: set(own) for name, own in slices().items()} == {name: own for name, own in modelled.items() if own}


def test_every_family_has_one_testbench() -> None:
    found = Counter(family for own in slices().values() for family in own)
    assert found == Counter(family.name for family in catalog.families())
    with pytest.raises(ValueError, match=r"no testbench for family 'mma'; valid: .*mma.sync"):
        testbench_of("mma")


def test_mutants_have_names_of_their_own_and_say_what_they_get_wrong() -> None:
    named = 0
    for own in slices().values():
        for family, testbench in own.items():
            names = Counter(mutant.name for mutant in testbench.mutants)
            assert not names or max(names.values()) == 1, (family, names)
            assert all(re.search(r"\w", mutant.mistake) for mutant in testbench.mutants)
            named += len(names)
    assert named > 300
