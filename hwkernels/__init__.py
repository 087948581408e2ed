"""The real instructions: PTX written, assembled, and launched on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwkernels.gemm_call import SparseMatrix as SparseMatrix
    from hwkernels.gemm_call import compress as compress
    from hwkernels.gemm_call import gemm as gemm
    from hwkernels.gemm_call import plan_gemm as plan_gemm

__all__ = ["SparseMatrix", "compress", "gemm", "plan_gemm"]


def __getattr__(name: str) -> Any:
    """`gemm` and what belongs to it, imported when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module 'hwkernels' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("hwkernels.gemm_call"), name)
