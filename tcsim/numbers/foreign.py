"""Arrays of PyTorch, CuPy and whatever speaks DLPack, as NumPy arrays; none of those libraries is imported."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array
from tcsim.core.errors import FormatError, TcsimError

_TORCH = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "torch.float8_e8m0fnu": ("uint8", ml_dtypes.float8_e8m0fnu),
}
"""Types of PyTorch that NumPy does not have: the integer of their size, and the type of ml_dtypes."""


def on_host(value: Any, what: str, error: type[TcsimError] = FormatError) -> npt.NDArray[Any]:
    """A NumPy array of what an array of any library holds, copied from the GPU if it lies there.

    Raises `error` for what cannot be read.

    >>> on_host([[1, 2]], "a")
    array([[1, 2]])
    """
    if isinstance(value, (np.ndarray, np.generic, list, tuple, int, float)):
        return as_array(value, what, error)
    try:
        if hasattr(value, "detach") and hasattr(value, "cpu"):
            return _from_torch(value.detach().cpu().contiguous())
        if type(value).__module__.partition(".")[0] == "cupy":
            return np.asarray(value.get())
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
    except (RuntimeError, BufferError, TypeError, AttributeError, NotImplementedError) as problem:
        raise error(f"{what} is a {type(value).__name__} that cannot be read: {problem}") from None
    return as_array(value, what, error)


def _from_torch(tensor: Any) -> npt.NDArray[Any]:
    other = _TORCH.get(str(tensor.dtype))
    if other is None:
        return np.asarray(tensor.numpy())
    integer = getattr(sys.modules[type(tensor).__module__.partition(".")[0]], other[0])
    return np.asarray(tensor.view(integer).numpy()).view(other[1])
