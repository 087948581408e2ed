"""Gradients of nll_loss, to which cross_entropy comes down, and of embedding, as PyTorch 2.11 computes them on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import rounded
from tcsim.core.errors import NotModelledError
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

FEW_INDICES = 3072
AT_ONCE = 32
ROWS_OF_A_PART = 10


def nll_loss(
    grad: Array, shape: tuple[int, int], target: Indices, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100, total_weight: Array | None = None
) -> Array:  # fmt: skip
    """-weight * grad at each target, zero elsewhere, (samples, classes); the mean's grad is divided by the total weight.

    grad: () or, if not reduced, (samples,); total_weight: what `tcsim.aten.loss.nll_loss` returns beside the loss.

    >>> nll_loss(np.float32(1), (1, 3), np.array([1]), total_weight=np.float32(2)).tolist()
    [[0.0, -0.5, 0.0]]
    """
    dtype = grad.dtype
    seen = target != ignore_index
    index = np.where(seen, target, 0)
    w = np.ones(len(target), np.float32) if weight is None else weight.astype(np.float32)[index]
    with np.errstate(all="ignore"):
        own = grad.astype(np.float32)
        if reduction == "mean" and total_weight is not None:
            own = rounded(np.divide(-own, np.asarray(total_weight, np.float32)), dtype).astype(np.float32)
        else:
            own = -own
        found = np.zeros(shape, dtype)
        found[np.arange(len(target))[seen], index[seen]] = rounded(w * own, dtype)[seen]
    return found


def embedding(grad: Array, index: Indices, rows: int, padding: int = -1, by_frequency: bool = False) -> Array:
    """The gradient (rows, size) of a table whose rows `index` names: sums of the rows of grad (indices, size).

    Up to 3,072 indices: of each 32 those of equal index are added in float32, the sum is rounded and added to what there is, which is rounded. Else the indices are
    sorted, and parts of ten rows added.

    Raises NotModelledError for float32 with more indices: two runs on one GPU differ.

    >>> embedding(np.float32([[1], [2], [4]]), np.array([1, 0, 1]), 3).tolist()
    [[2.0], [5.0], [0.0]]
    """
    size = grad.shape[-1]
    grad, index = grad.reshape(-1, size), index.reshape(-1)
    found = np.zeros((rows, size), grad.dtype)
    if len(index) <= FEW_INDICES and not by_frequency:
        for start in range(0, len(index), AT_ONCE):
            part = index[start : start + AT_ONCE]
            names, place, sums = _grouped(part, grad[start : start + AT_ONCE].astype(np.float32))
            kept = names != padding
            found[names[kept]] = rounded(
                found[names[kept]].astype(np.float32) + rounded(sums, grad.dtype)[kept].astype(np.float32), grad.dtype
            )
        return found
    if grad.dtype == np.float32 and not by_frequency:
        raise NotModelledError(
            f"embedding: a gradient of float32 over {len(index)} indices is added in no fixed order; modelled: up to {FEW_INDICES}, or bfloat16 and float16"
        )
    order = np.argsort(index, kind="stable")
    ordered, wide = index[order], grad[order].astype(np.float32)
    begin = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.arange(len(ordered)) - np.repeat(begin, np.diff(np.append(begin, len(ordered))))
    share = None
    if by_frequency:
        counts = np.repeat(np.diff(np.append(begin, len(ordered))), np.diff(np.append(begin, len(ordered))))
        share = np.float32(1) / counts.astype(np.float32)
    parts = np.cumsum(rank % ROWS_OF_A_PART == 0) - 1
    _, first, sums = _grouped(parts, wide, share)
    names, _, totals = _grouped(ordered[first], sums)
    kept = names != padding
    found[names[kept]] = rounded(totals, grad.dtype)[kept]
    return found


def _grouped(names: Indices, x: Array, factor: Array | None = None) -> tuple[Indices, Indices, Array]:
    """Of rows with equal names, each times its factor, the sums in order: names, where each comes first, sums."""
    unique, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    begin = np.flatnonzero(np.concatenate([[True], np.diff(inverse[order]) != 0])) if len(order) else order
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(begin, np.diff(np.append(begin, len(order))))
    sums = x[first] if factor is None else x[first] * factor[first, None]
    with np.errstate(all="ignore"):
        for turn in range(1, int(rank.max(initial=0)) + 1):
            some = rank == turn
            own = sums[inverse[some]]
            sums[inverse[some]] = own + x[some] if factor is None else fma(x[some], factor[some, None], own)
    return unique, first, sums
