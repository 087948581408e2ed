"""What is tested of each family: inputs, mutants, comparison. Named as the slices of tcsim.isa.

Each slice says in its `TESTBENCHES` by the name of a family who tests it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from conformance.testbench import Testbench


@cache
def testbenches() -> dict[str, Testbench]:
    """The testbench of each family: what the slices say."""
    found: dict[str, Testbench] = {}
    for item in pkgutil.iter_modules(__path__, f"{__name__}."):
        found |= getattr(importlib.import_module(item.name), "TESTBENCHES", {})
    return found


def testbench_of(family: str) -> Testbench:
    """The testbench of a family.

    Raises ValueError if it has none.
    """
    if family not in testbenches():
        raise ValueError(f"no testbench for family {family}; valid: {', '.join(testbenches())}")
    return testbenches()[family]
