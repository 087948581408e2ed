"""The real instructions: PTX written, assembled, and launched on a GPU."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwkernels.convert_call import convert as convert
    from hwkernels.gemm_call import SparseMatrix as SparseMatrix
    from hwkernels.gemm_call import compress as compress
    from hwkernels.gemm_call import gemm as gemm
    from hwkernels.gemm_call import plan_gemm as plan_gemm
    from hwkernels.scaled_call import plan_scaled_gemm as plan_scaled_gemm
    from hwkernels.scaled_call import scaled_gemm as scaled_gemm

_MODULES = MappingProxyType(
    {
        "SparseMatrix": "gemm_call",
        "compress": "gemm_call",
        "convert": "convert_call",
        "gemm": "gemm_call",
        "plan_gemm": "gemm_call",
        "plan_scaled_gemm": "scaled_call",
        "scaled_gemm": "scaled_call",
    }
)
__all__ = ["SparseMatrix", "compress", "convert", "gemm", "plan_gemm", "plan_scaled_gemm", "scaled_gemm"]


def __getattr__(name: str) -> Any:
    """The calls of this package, each imported when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hwkernels' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hwkernels.{_MODULES[name]}"), name)
