"""Which outputs a mask holds, in words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import runs
from tcsim.diagnosis.reals import Mask


def where_text(mask: Mask) -> str:
    """Matrices, rows and columns that hold any.

    >>> where_text(np.eye(4, dtype=bool)[None])
    'rows 0-3, columns 0-3'
    """
    texts = []
    if len(mask) > 1:
        texts.append(f"matrices {_ranges(np.flatnonzero(mask.any(axis=(1, 2))))}")
    texts.append(f"rows {_ranges(np.flatnonzero(mask.any(axis=(0, 2))))}")
    texts.append(f"columns {_ranges(np.flatnonzero(mask.any(axis=(0, 1))))}")
    return ", ".join(texts)


def _ranges(places: npt.NDArray[np.intp]) -> str:
    text = runs(tuple(int(x) for x in places))
    return text if len(text) <= 60 else f"{len(places)} of {places[0]}-{places[-1]}"
