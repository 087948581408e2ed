"""Arrays from and to files: .npz and .npy, and PyTorch's .pt."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.array_files import LARGEST, ArrayFile, check_stored
from tcsim.core.errors import OperandError, shortened
from tcsim.core.files import replacing


def read_arrays(path: str, what: str) -> Mapping[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file, each read when it is asked for; of an .npy file one, named "x".

    NumPy forgets the names of ml_dtypes types: such arrays become unsigned integers of the same bits, which are codes.

    Raises OperandError for a file that is missing or is neither, and, of an array that is asked for, for one that is
    damaged or too large.
    """
    try:
        return _tensors(path, what) if path.endswith((".pt", ".pth")) else ArrayFile(path)
    except FileNotFoundError:
        near = sorted(item.name for item in Path(path).resolve().parent.glob("*.np[yz]"))
        also = f"; here are {', '.join(near[:8])}" if near else ""
        raise OperandError(f"{what}: no file {path!r}; valid: an .npz or .npy file{also}") from None


def _tensors(path: str, what: str) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a PyTorch file: one, or a dict of them; those that NumPy has no type for as their bits."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise OperandError(
            f"{what}: {path!r} needs PyTorch, which is not installed; valid: .npz and .npy files"
        ) from None
    check_stored(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        why = shortened(" ".join(str(error).split()), 200)
        raise OperandError(f"{what}: {path!r} is not a file of tensors: {why}") from None
    given = loaded if isinstance(loaded, dict) else {"x": loaded}
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    out = {}
    left = LARGEST
    for name, tensor in given.items():
        quoted = f"{what}: {path!r}: {shortened(name)}"
        if not isinstance(tensor, torch.Tensor):
            raise OperandError(f"{quoted} is a {type(tensor).__name__}; valid: tensors")
        left -= tensor.numel() * tensor.element_size()  # of an expanded one more than the file has
        if left < 0:
            raise OperandError(f"{quoted}: the tensors have more than {LARGEST} bytes, which is all that is read")
        try:
            plain = tensor.detach().contiguous()
            try:
                out[str(name)] = plain.numpy()
            except TypeError:  # bfloat16, float8
                size = plain.element_size()
                out[str(name)] = plain.view(bits[size]).numpy().view(f"u{size}")
        except (TypeError, RuntimeError, KeyError, NotImplementedError):  # sparse, quantised, complex of 32 bits
            raise OperandError(
                f"{quoted} is {tensor.dtype}, {tensor.layout}; valid: dense tensors of numbers"
            ) from None
    return out


def write_arrays(path: str, arrays: dict[str, Any]) -> None:
    """Write an .npz file.

    Raises OperandError for a name that does not end so, or a file that cannot be written.
    """
    if not path.endswith(".npz"):
        raise OperandError(f"cannot write {path!r}; valid: names that end in .npz")
    try:
        with replacing(path) as file:
            np.savez(file, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot write {path!r}: {error}") from None
