"""What is tested of each family: inputs, mutants, comparison. Named as the slices of tcsim.isa.

Each slice says in its `TESTBENCHES` by the name of a family who tests it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from conformance.testbench import Testbench


@cache
def slices() -> dict[str, dict[str, Testbench]]:
    """Of each slice its families, with their testbenches."""
    found = {item.name: importlib.import_module(f"{__name__}.{item.name}") for item in pkgutil.iter_modules(__path__)}
    return {name: module.TESTBENCHES for name, module in found.items() if hasattr(module, "TESTBENCHES")}


@cache
def _testbenches() -> dict[str, Testbench]:
    return {name: testbench for own in slices().values() for name, testbench in own.items()}


def testbench_of(family: str) -> Testbench:
    """The testbench of a family.

    Raises ValueError if it has none.
    """
    found = _testbenches()
    if family not in found:
        raise ValueError(f"no testbench for family {family!r}; valid: {', '.join(found)}")
    return found[family]
