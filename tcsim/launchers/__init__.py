"""How a kernel is started without writing Python for it: a launch file, a launch that was recorded on a GPU, a script for Triton or CuTe DSL.

with tcsim.launchers.triton(arch="sm_90"):
    kernel[grid](x, y, n)  # Triton's or Gluon's; x and y are CPU tensors
with tcsim.launchers.cute(arch="sm_90"):
    function(from_dlpack(x), from_dlpack(y))  # CuTe DSL's
answer = tcsim.launchers.diagnose("gemm.ptx", "launch.toml")  # what is wrong with a launch, and what mends it
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsim.launchers.cute_session import cute
    from tcsim.launchers.diagnosed import diagnose
    from tcsim.launchers.triton_session import triton

__all__ = ["cute", "diagnose", "triton"]
_MODULES = {"cute": "cute_session", "diagnose": "diagnosed", "triton": "triton_session"}

if not TYPE_CHECKING:  # imported when it is asked for: Triton and CuTe DSL are extras

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'tcsim.launchers' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"tcsim.launchers.{_MODULES[name]}"), name)
        return found
