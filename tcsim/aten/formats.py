"""The float types of PyTorch's operations, and the rounding to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

FORMATS = MappingProxyType(
    {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
)
"""NumPy's types by their names in PTX."""


def rounded(x: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """f32 values in a float type, to nearest even, NaN canonical.

    >>> rounded(np.array([1 / 3], np.float32), np.float16)
    array([0.3333], dtype=float16)
    """
    with np.errstate(all="ignore"):
        result = np.array(x).astype(dtype)
    wrong = np.isnan(x)
    if wrong.any():
        result.view(np.uint32 if result.itemsize == 4 else np.uint16)[wrong] = (
            0x7FFFFFFF if result.itemsize == 4 else 0x7FFF
        )
    return result
