"""The call: which backend torch takes, and its outputs."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.attention import composite, cudnn, efficient, flash
from tcsim.aten.attention.products import Call, added
from tcsim.aten.formats import rounded
from tcsim.core.errors import NotModelledError

Array = npt.NDArray[Any]


def backend_of(q: Array, k: Array, masked: bool = False) -> str:
    """The backend that torch takes by itself on an H200: cuDNN; flash where one query meets one key or D is not a multiple of 8; efficient for float32.

    >>> backend_of(np.zeros((1, 2, 1, 64), np.float16), np.zeros((1, 2, 9, 64), np.float16))
    'cudnn'
    """
    if q.dtype == np.float32:
        return "efficient"
    if q.shape[-1] % 8 == 0 and not q.shape[-2] == k.shape[-2] == 1:
        return "cudnn"
    return "math" if masked else "flash"


def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    backend: str = "default",
) -> Array:
    """softmax(q k^T * scale + mask) v, as torch.nn.functional.scaled_dot_product_attention without dropout.

    q: (batch, heads, M, D), bfloat16, float16 or float32; k, v: (batch, groups, N, D) of the same dtype, heads a multiple of groups (torch's enable_gqa);
    mask: bool (True: seen) or of q's dtype, broadcast to (batch, heads, M, N); causal: key j is seen by query i if j <= i; scale: None for
    1 / sqrt(D); backend: "default", "cudnn", "flash", "efficient", "math". The result is (batch, heads, M, D) of q's dtype.

    Raises NotModelledError for a backend that does not take such a call, or whose order of sums is not known.

    >>> x = np.ones((1, 1, 2, 16), np.float16)
    >>> scaled_dot_product_attention(x, x, x)[0, 0, 0, :2].tolist()
    [1.0, 1.0]
    """
    batch, heads, m, size = q.shape
    groups, n = k.shape[1:3]
    name = backend_of(q, k, mask is not None) if backend == "default" else backend
    double = 1 / sqrt(size) if scale is None else scale
    share = heads // groups
    flat = [np.repeat(x, share if x is not q else 1, axis=1).reshape(batch * heads, -1, size) for x in (q, k, v)]
    hidden = cudnn.hidden(q.dtype) if name == "cudnn" else np.float32(-np.inf)
    bias = None if mask is None else added(mask, (batch, heads, m, n), hidden)
    call = Call(flat[0], flat[1], flat[2], np.float32(double), bias, np.arange(m) if causal else None)
    if q.dtype == np.float32 and name not in ("math", "efficient"):
        raise NotModelledError(f"float32 attention by the backend {name}; modelled: efficient, math")
    with np.errstate(all="ignore"):
        if name == "cudnn":
            y = cudnn.attention(call, batch * groups)
        elif name == "flash":
            if bias is not None:
                raise NotModelledError("flash attention takes no mask; modelled with one: cudnn, efficient, math")
            shared = m == 1 and share > 1
            count = flash.splits(batch * (groups if shared else heads), share if shared else m, n, size)
            y = flash.attention(call, count)
        elif name == "efficient":
            y = efficient.attention(call)
        elif name == "math":
            y = composite.attention(call, double)
        else:
            raise ValueError(f"no backend {name!r}: default, cudnn, flash, efficient, math")
    return rounded(y, q.dtype).reshape(q.shape)
