"""SDPA's math backend: q and k scaled, two products in float32, softmax between them, one rounding at the end."""

from __future__ import annotations

import numpy as np

from tcsim.aten.attention.products import Array, Call
from tcsim.aten.formats import F32
from tcsim.aten.softmax import softmax
from tcsim.core.errors import NotModelledError
from tcsim.libdevice.operations import fma
from tcsim.plans import plan, product


def chain(a: F32, b: F32) -> F32:
    """a b with float32 fma, k ascending: (heads, M, K) and (heads, K, N), as cuBLAS's SIMT kernels compute what they do not split."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total = fma(a[..., k, None], b[..., k, None, :], total)
    return total


def row(a: F32, b: F32, layout: str) -> F32:
    """a b of one row (heads, 1, K) and (heads, K, N), which cuBLAS computes as a matrix times a vector. Raises NotModelledError for a shape that was not recorded."""
    found = plan("bmm", m=1, n=b.shape[-1], k=a.shape[-1], format="f32", layout=layout, batch=len(a))
    if not found.modelled or found.source == "assumed":
        raise NotModelledError(
            f"the math backend with one query: {found}; modelled: shapes that were recorded (docs/explain.md)"
        )
    return product(found, a, b).view(np.float32)


def _wide(x: Array) -> F32:
    return x.astype(np.float32)


def attention(call: Call, scale: float) -> F32:
    """The outputs (heads, M, D) in float32; scale: in double precision."""
    root = np.float32(np.sqrt(scale))
    result = np.empty(call.q.shape, np.float32)
    one = call.q.shape[1] == 1
    for at, piece in [((slice(None),) * 2, call)] if one else call.pieces(1 << 30):
        q, k = _wide(piece.q) * root, (_wide(piece.k) * root).swapaxes(-1, -2)
        s = piece.hidden(row(q, k, "TN") if one else chain(q, k))
        s = s if piece.bias is None else s + piece.bias
        p = np.where(np.isneginf(s).all(-1, keepdims=True), np.float32(0), softmax(s))
        result[at] = row(p, _wide(piece.v), "NN") if one else chain(p, _wide(piece.v))
    return result
