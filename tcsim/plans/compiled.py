"""Chains of f32 FMA compiled by numba. It needs numba: `pip install 'tcsim[fast]'`. Bits do not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.engines import threads
from tcsim.engines.loops import loop
from tcsim.libdevice.compiled import fma

_ROWS = 4
"""Rows of a that one row of b meets while it is in the cache."""
_LEAST = 1 << 18  # FMAs of a thread's part


@loop(nogil=True, error_model="numpy")
def _loop(a: Any, b: Any, places: Any, out: Any, first: Any, last: Any) -> None:
    """a (batch, M, K), b (batch, K, N), places (chains, elements), out (chains, batch, M, N): the blocks of rows from first to last."""
    count, batch, m, n = out.shape
    blocks = (m + _ROWS - 1) // _ROWS
    for number in range(first, last):
        block, rest = number % blocks, number // blocks
        t, c = rest % batch, rest // batch
        rows = min(_ROWS, m - block * _ROWS)
        result, left = out[c, t, block * _ROWS : block * _ROWS + rows], a[t, block * _ROWS : block * _ROWS + rows]
        for i in range(places.shape[1]):
            k = places[c, i]
            if k < 0:
                continue
            right = b[t, k]
            for row in range(rows):
                factor, total = left[row, k], result[row]
                for column in range(n):
                    total[column] = fma(factor, right[column], total[column])


def chains(a: Any, b: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """The same as `tcsim.plans.orders.chains`; `shape` is that of the result."""
    *lead, m, n = shape
    if n < m:  # the inner loop runs along the longer side
        found = chains(np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), places, (*lead, n, m))
        return np.swapaxes(found, -1, -2)
    batch = int(np.prod(lead, dtype=np.int64))
    left, right = (
        np.ascontiguousarray(np.broadcast_to(x, (*lead, *x.shape[-2:]))).reshape(batch, *x.shape[-2:]) for x in (a, b)
    )
    out = np.zeros((len(places), batch, m, n), np.float32)
    work = _ROWS * n * places.shape[1]
    blocks = len(places) * batch * ((m + _ROWS - 1) // _ROWS)
    threads.share(lambda first, last: _loop(left, right, places, out, first, last), blocks, max(1, _LEAST // work))
    return out.reshape(len(places), *shape)
