"""Metadata of sparse multiplies as an input: 4-bit groups, the lanes that hold them, and a B that the kept elements meet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.stimuli.problem import Codes
from conformance.stimuli.stream import Stream
from tcsim.layouts.sparsity import Sparsity

METADATA_CLASSES = ("unordered", "repeated")  # of metadata: both indices swapped; both the same


def allowed(sparsity: Sparsity, name: str) -> npt.NDArray[np.uint8]:
    """The 4-bit groups that a class takes."""
    if name == "repeated":
        return np.array([0b0000, 0b0101, 0b1010, 0b1111, *sparsity.valid], np.uint8)
    increasing = [group for group in sparsity.valid if group & 3 < group >> 2]
    return np.array(sparsity.valid if name == "unordered" else increasing, np.uint8)


def spread(b: Codes, columns: npt.NDArray[np.int64]) -> Codes:
    """B (count, K, N) in which the kept element j of row 0 meets b[:, j]; the other rows hold the neighbours of those."""
    out = np.repeat(np.roll(b, 1, axis=1), 2, axis=1)
    out[np.arange(len(b))[:, None], columns] = b
    return out


def words(sparsity: Sparsity, groups: npt.NDArray[np.uint8], selector: int, stream: Stream) -> npt.NDArray[np.uint32]:
    """Metadata (samples, lanes, 1) that says 4-bit groups; lanes and bits that the selector does not name are random."""
    said = sparsity.words_of(groups, selector)
    used = sparsity.words_of(np.full(groups.shape[1:], 15, np.uint8), selector)
    noise = stream.words((len(groups), sparsity.lanes)).astype(np.uint32)
    return (said | (noise & ~used))[..., None]
