"""How a kernel is started without writing Python for it: a launch file, a launch that was recorded on a GPU, a script for Triton.

with tcsim.launchers.triton(arch="sm_90"):
    kernel[grid](x, y, n)  # Triton's or Gluon's; x and y are CPU tensors
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsim.launchers.triton_session import triton

__all__ = ["triton"]

if not TYPE_CHECKING:  # imported when it is asked for: Triton is an extra

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'tcsim.launchers' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"tcsim.launchers.{name}_session"), name)
        return found
