"""What the benchmark needs for the sparse kernels: a pruned A, and the vendor's product with it, through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The class of torch.sparse's tensor says which library multiplies. Source: torch.sparse.semi_structured
VENDORS = {
    "SparseSemiStructuredTensorCUSPARSELT": "cusparselt",
    "SparseSemiStructuredTensorCUTLASS": "cutlass sparse",
}


def pruned(torch: Any, a: Any, group: int) -> Any:
    """A matrix (M, K) in which each `group` neighbours along K keep the half that is largest in magnitude.

    Raises ValueError if K has no whole groups.
    """
    rows, k = a.shape
    if k % group:
        raise ValueError(f"K = {k}; valid for the sparse kernels' benchmark: multiples of {group}")
    parts = a.view(rows, k // group, group)
    chosen = parts.float().abs().topk(group // 2, dim=-1).indices
    mask = torch.zeros(parts.shape, dtype=torch.bool, device=a.device).scatter_(-1, chosen, True)
    return torch.where(mask, parts, torch.zeros((), dtype=a.dtype, device=a.device)).view(rows, k)


def vendor(torch: Any, a: Any, b: Any) -> tuple[str, Callable[[], Any]] | str:
    """The name of torch's sparse library and its product of a pruned a (M, K) with the transpose of b (N, K); or why there is none."""
    try:
        compressed = torch.sparse.to_sparse_semi_structured(a)
        name = VENDORS.get(type(compressed).__name__, type(compressed).__name__)
        torch.mm(compressed, b.t())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return f"torch {torch.__version__} multiplies no sparse {a.dtype}: {str(error).splitlines()[0] if str(error) else error!r}"
    return name, lambda: torch.mm(compressed, b.t())
