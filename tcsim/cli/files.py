"""Arrays from and to files: .npz and .npy, and PyTorch's .pt."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def read_arrays(path: str, what: str) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file; of an .npy file one, named "x".

    NumPy forgets the names of ml_dtypes types: such arrays become unsigned integers of the same bits, which are codes.

    Raises OperandError for a file that is missing or is neither.
    """
    import numpy as np

    from tcsim.core.errors import OperandError

    if path.endswith((".pt", ".pth")):
        return _tensors(path, what)
    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        near = sorted(item.name for item in Path(path).resolve().parent.glob("*.np[yz]"))
        also = f"; here are {', '.join(near[:8])}" if near else ""
        raise OperandError(f"{what}: no file {path!r}; valid: an .npz or .npy file{also}") from None
    except (OSError, ValueError, EOFError) as error:
        raise OperandError(f"{what}: {path!r} is not an .npz or .npy file without objects: {error}") from None
    arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    return {name: _typed(array) for name, array in arrays.items()}


def _tensors(path: str, what: str) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a PyTorch file: one, or a dict of them; those that NumPy has no type for as their bits."""
    from tcsim.core.errors import OperandError

    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise OperandError(
            f"{what}: {path!r} needs PyTorch, which is not installed; valid: .npz and .npy files"
        ) from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        raise OperandError(f"{what}: {path!r} is not a file of tensors: {error}") from None
    given = loaded if isinstance(loaded, dict) else {"x": loaded}
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    out = {}
    for name, tensor in given.items():
        plain = tensor.detach().contiguous()
        try:
            out[str(name)] = plain.numpy()
        except TypeError:  # bfloat16, float8
            size = plain.element_size()
            out[str(name)] = plain.view(bits[size]).numpy().view(f"u{size}")
    return out


def _typed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import numpy as np

    if array.dtype.kind != "V" or array.dtype.names is not None:
        return array
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def write_arrays(path: str, arrays: dict[str, Any]) -> None:
    """Write an .npz file.

    Raises OperandError for a name that does not end so, or a file that cannot be written.
    """
    import numpy as np

    from tcsim.core.errors import OperandError

    if not path.endswith(".npz"):
        raise OperandError(f"cannot write {path!r}; valid: names that end in .npz")
    try:
        np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    except OSError as error:
        raise OperandError(f"cannot write {path!r}: {error}") from None
