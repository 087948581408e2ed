"""cross_entropy as PyTorch 2.11 computes it on a GPU, and embedding, which only copies."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import F32, rounded
from tcsim.aten.reductions import sum as added
from tcsim.aten.softmax import halves, log_softmax
from tcsim.core.errors import NotModelledError
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


def embedding(index: Indices, weight: Array) -> Array:
    """The rows of `weight` (rows, size) that `index` names, as torch.nn.functional.embedding.

    >>> embedding(np.array([1]), np.float32([[1, 2], [3, 4]])).tolist()
    [[3.0, 4.0]]
    """
    return weight[index]


def _threads(samples: int) -> int:
    """Threads of the one block that adds the losses: about one for 16, a power of two from 32 to 1,024."""
    return int(np.clip(1 << max(0, round(log2(max(samples, 1) / 16))), 32, 1024))


def _block_sum(losses: F32, weights: F32, dtype: npt.DTypeLike) -> tuple[F32, F32]:
    """The sums of -loss * weight, a product of the type, and of weights: thread t adds samples t, t + threads, ...; then the threads in halves."""
    threads = _threads(len(losses))
    total, weight = np.zeros(threads, np.float32), np.zeros(threads, np.float32)
    for start in range(0, len(losses), threads):
        x, w = losses[start : start + threads], weights[start : start + threads]
        total[: len(x)] = (
            fma(-x, w, total[: len(x)])
            if dtype == np.float32
            else total[: len(x)] - rounded(x * w, dtype).astype(np.float32)
        )
        weight[: len(x)] += w
    return _joined(total), _joined(weight)


def _joined(x: F32) -> F32:
    """The sum of all threads, a power of two: the first half with the second, until one is left."""
    return halves(x)


def cross_entropy(
    x: Array,
    target: Indices,
    weight: Array | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Array:
    """-log_softmax(x)[target], averaged by weight, as torch.nn.functional.cross_entropy.

    x: (samples, classes) of float32, bfloat16 or float16; target: (samples,) indices; weight: (classes,) of x's dtype; reduction: "mean", "sum" or
    "none". The result is of x's dtype: () or (samples,).

    Raises NotModelledError for x with more axes (sums by atomic additions, in no fixed order), and for weights with label smoothing.

    >>> float(cross_entropy(np.float32([[0, 0]]), np.array([1])))
    0.6931471824645996
    """
    if x.ndim != 2:
        raise NotModelledError(
            f"cross_entropy of {x.ndim} axes: sums by atomic additions; modelled: (samples, classes)"
        )
    if label_smoothing and (weight is not None or reduction == "none"):
        raise NotModelledError(
            "cross_entropy with label smoothing and weights, or not reduced; modelled: label smoothing alone"
        )
    logarithms = log_softmax(x)
    loss = nll_loss(logarithms, target, weight, reduction, ignore_index)[0]
    if not label_smoothing:
        return loss
    seen = target != ignore_index
    with np.errstate(all="ignore"):
        smooth = added(np.where(seen, -added(logarithms, -1), x.dtype.type(0)))
        if reduction == "mean":
            smooth = rounded(smooth.astype(np.float32) / np.float32(seen.sum()), x.dtype)
        parts = (
            rounded(part.astype(np.float32) * np.float32(factor), x.dtype).astype(np.float32)
            for part, factor in ((loss, 1 - label_smoothing), (smooth, label_smoothing / x.shape[1]))
        )
        return rounded(np.add(*parts), x.dtype)


def nll_loss(
    logarithms: Array, target: Indices, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100
) -> tuple[Array, Array]:
    """-logarithms[target] by weight, and the sum of the weights, as torch's nll_loss_forward; arguments as `cross_entropy` takes them, both of the same dtype.

    >>> [float(x) for x in nll_loss(np.float32([[-1, -2]] * 3), np.array([1, 1, 0]), reduction="sum")]
    [5.0, 3.0]
    """
    seen = target != ignore_index
    index = np.where(seen, target, 0)
    ones = np.ones(len(target), np.float32)
    w = np.where(seen, ones if weight is None else weight.astype(np.float32)[index], np.float32(0))
    losses = np.take_along_axis(logarithms, index[:, None], 1)[:, 0].astype(np.float32)
    dtype = logarithms.dtype
    with np.errstate(all="ignore"):
        if reduction == "none":
            return rounded(np.where(seen, -losses * w, np.float32(0)), dtype), np.zeros((), dtype)
        total, weights = _block_sum(losses, w, dtype)
        return rounded(total / weights if reduction == "mean" else total, dtype), rounded(weights, dtype)
