"""A pytest plugin for tests of kernels: `assert_bits`, and a `launch` that runs on a GPU where there is one and on `tcsim` where not.

Every pytest of the environment loads it, so it imports nothing of the packages that it uses before a test asks for them. docs/pytest.md shows it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.testing.bits import assert_bits

__all__ = ["assert_bits"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'conformance.testing' has no attribute {name!r}")
        return getattr(import_module("conformance.testing.bits"), name)
