"""Tensors as NumPy arrays of the host, and back, without changing a bit."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
FORMATS = MappingProxyType(
    {
        torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "s8", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2",
    }
)  # fmt: skip
"""By dtype the format, of those that are computed with."""
DTYPES = MappingProxyType({format: dtype for dtype, format in FORMATS.items()})
"""By format the dtype."""
_AS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16), torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}  # fmt: skip
"""Types that torch does not hand to NumPy: through which type, and as which."""
_BACK = {np.dtype(array): (np.dtype(str(through).removeprefix("torch.")), own) for own, (through, array) in _AS.items()}


def array(x: torch.Tensor) -> Array:
    """The elements where they lie, with the strides that they have; those of another device are copied.

    >>> array(torch.ones(2, dtype=torch.bfloat16))
    array([1, 1], dtype=bfloat16)
    """
    x = x.detach().resolve_neg().cpu()
    if x.dtype in _AS:
        through, own = _AS[x.dtype]
        return x.view(through).numpy().view(own)
    return x.numpy()


def tensor(x: Array) -> torch.Tensor:
    """An array as a tensor.

    >>> tensor(np.ones(2, ml_dtypes.bfloat16))
    tensor([1., 1.], dtype=torch.bfloat16)
    """
    x = np.ascontiguousarray(x) if x.ndim else np.array(x)
    if x.dtype in _BACK:
        through, own = _BACK[x.dtype]
        return torch.from_numpy(x.view(through)).view(own)
    return torch.from_numpy(x if x.flags.writeable else x.copy())
