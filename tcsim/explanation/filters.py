"""The orders in which convolutions run through K: positions of the filter and channels, as implicit GEMM kernels nest them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError

BLOCKS = (64, 32, 16, 8)
"""Channels of a block, those of a row of 128 bytes of tf32 among them."""


def filter_orders(k: int, positions: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Orders of a K that runs over a filter's positions, and for each over all channels: names, and places of K in that order.

    `tcsim.explain` takes K in the order of its arguments; a kernel may nest positions and channels otherwise. Ask about each order:
    `explain(a[..., places], b[..., places, :], observed)`.

    Raises OperandError if K is not a multiple of the positions.

    Post-conditions:
        all(sorted(places) == [*range(k)] for _, places in result)

    >>> [(name, places.tolist()) for name, places in filter_orders(6, 3)]
    [('positions, then channels', [0, 1, 2, 3, 4, 5]), ('channels, then positions', [0, 2, 4, 1, 3, 5])]
    """
    if positions < 1 or k % positions:
        raise OperandError(f"filter_orders: K = {k}, {positions} positions; valid: positions that divide K")
    channels = k // positions
    places = np.arange(k).reshape(positions, channels)
    yield "positions, then channels", places.reshape(-1)
    yield "channels, then positions", places.T.reshape(-1)
    for block in BLOCKS:
        if block < channels and not channels % block:
            nested = places.reshape(positions, channels // block, block).swapaxes(0, 1)
            yield f"blocks of {block} channels, positions, channels of the block", nested.reshape(-1)
