"""The gradients of scaled dot-product attention as cuDNN computes them on an H200, which torch takes for bfloat16 and float16 there."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.attention.cudnn import WGMMA_TILE, by_blocks, hidden, scaled
from tcsim.aten.attention.products import LARGEST, LOG2E, Call, added, finite, product, scores
from tcsim.aten.formats import F32, rounded
from tcsim.aten.reductions import sum as sum_of
from tcsim.aten.softmax import halves
from tcsim.core.errors import NotModelledError
from tcsim.libdevice.operations import ex2, fma, lg2

Array = npt.NDArray[Any]

LN2 = np.float32(0.6931471805599453)
VECTOR = 8
"""Elements of a row that one thread multiplies."""


def _row_products(grad: Array, y: Array) -> F32:
    """The sums of grad * y of each row: a thread adds pairs of products of eight neighbours, then threads in halves."""
    a, b = (x.astype(np.float32).reshape(*x.shape[:-1], -1, VECTOR) for x in (grad, y))
    total: F32 = np.zeros(a.shape[:-1], np.float32)
    for i in range(0, VECTOR, 2):
        total = total + fma(a[..., i], b[..., i], a[..., i + 1] * b[..., i + 1])
    width = 1 << (total.shape[-1] - 1).bit_length()
    padded = np.zeros((*total.shape[:-1], width), np.float32)
    padded[..., : total.shape[-1]] = total
    return halves(padded)


def _of_heads(call: Call, grad: Array) -> tuple[F32, F32, F32]:
    """dq, dk and dv in float32 of some heads."""
    dtype = call.q.dtype
    s, factor = scaled(call, scores(call), False)
    s = call.hidden(s)
    outputs, largest, sums = by_blocks(s, call.v, factor)
    logarithm = fma(finite(largest) * factor, LN2, lg2(sums) * LN2)[..., None]
    shifted = s - logarithm if call.bias is not None else fma(s, call.scale, -logarithm)
    p = np.where(np.isneginf(s), np.float32(0), ex2(shifted * LOG2E))
    along = _row_products(grad, rounded(outputs, dtype))[..., None]
    ds = rounded(p * (product(grad, call.v.swapaxes(-1, -2)) - along) * call.scale, dtype)
    dq: F32 | None = None
    for start in range(0, call.keys, WGMMA_TILE):
        tile = slice(start, start + WGMMA_TILE)
        part = product(ds[..., tile], call.k[:, tile])
        dq = part if dq is None else dq + part
    assert dq is not None
    return dq, product(ds.swapaxes(-1, -2), call.q), product(rounded(p, dtype).swapaxes(-1, -2), grad)


def scaled_dot_product_attention(
    grad: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v by cuDNN; arguments as `tcsim.aten.attention.sdpa` takes them.

    grad, q: (batch, heads, M, D); k, v: (batch, groups, N, D), all bfloat16 or float16; the gradients of the heads that share a group are rounded and added. With more than 256 keys the GPU adds the parts of dq, one of each 128 keys,
    in no fixed order; here it is the order of the keys.

    Raises NotModelledError for float32 and for one query.

    >>> x = np.ones((1, 1, 2, 16), np.float16)
    >>> dq, dk, dv = scaled_dot_product_attention(x, x, x, x)
    >>> dq[0, 0, 0, :2].tolist(), dv[0, 0, 0, :2].tolist()
    ([0.0, 0.0], [1.0, 1.0])
    """
    batch, heads, m, size = q.shape
    groups, n = k.shape[1:3]
    if q.dtype == np.float32 or m == 1 or size % VECTOR:
        raise NotModelledError(
            "attention's gradient: modelled: cuDNN's, bfloat16 and float16, several queries, a head size that is a multiple of 8"
        )
    share = heads // groups
    flat = [
        np.repeat(x, 1 if x.shape[1] == heads else share, axis=1).reshape(batch * heads, -1, size)
        for x in (q, k, v, grad)
    ]
    found = [np.empty(x.shape, q.dtype) for x in flat[:3]]
    some = max(1, LARGEST // (m * n))
    number = np.float32(1 / sqrt(size) if scale is None else scale)
    bias = None if mask is None else added(mask, (batch, heads, m, n), hidden(q.dtype))
    with np.errstate(all="ignore"):
        for start in range(0, batch * heads, some):
            at = slice(start, start + some)
            own = [np.ascontiguousarray(x[at]) for x in flat]
            rows = np.arange(m) if causal else None
            call = Call(own[0], own[1], own[2], number, None if bias is None else bias[at], rows)
            for result, part in zip(found, _of_heads(call, own[3]), strict=True):
                result[at] = rounded(part, q.dtype)
    dq, dk, dv = found
    if share > 1:
        dk, dv = (sum_of(x.reshape(batch, groups, share, n, size), 2) for x in (dk, dv))
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
