"""SDPA's math backend: q and k scaled, two products in float32, softmax between them, one rounding at the end."""

from __future__ import annotations

import numpy as np

from tcsim.aten.attention.products import Array, Call
from tcsim.aten.formats import F32
from tcsim.aten.softmax import softmax
from tcsim.libdevice.operations import fma


def chain(a: F32, b: F32) -> F32:
    """a b with float32 fma, k ascending: (heads, M, K) and (heads, K, N), as cuBLAS's SIMT kernels compute what they do not split."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total = fma(a[..., k, None], b[..., k, None, :], total)
    return total


def _wide(x: Array) -> F32:
    return x.astype(np.float32)


def attention(call: Call, scale: float) -> F32:
    """The outputs (heads, M, D) in float32; scale: in double precision."""
    root = np.float32(np.sqrt(scale))
    result = np.empty(call.q.shape, np.float32)
    for at, piece in call.pieces(1 << 30):
        s = piece.hidden(chain(_wide(piece.q) * root, (_wide(piece.k) * root).swapaxes(-1, -2)))
        s = s if piece.bias is None else s + piece.bias
        p = np.where(np.isneginf(s).all(-1, keepdims=True), np.float32(0), softmax(s))
        result[at] = chain(p, _wide(piece.v))
    return result
