"""Arrays of other libraries: read without importing them, types that NumPy lacks too, and what cannot be read is one line."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcsim.core.errors import OperandError
from tcsim.numbers.foreign import on_host

VALUES = np.array([[1.5, -2.0], [0.25, 8.0]], np.float32)


class Tensor:
    """What is used of a torch.Tensor: on a GPU that is imagined, with a gradient, not contiguous."""

    __module__ = "torch"

    def __init__(self, data: np.ndarray, dtype: str, steps: tuple[str, ...] = ()) -> None:
        self.data, self.dtype, self.steps = data, dtype, steps

    def _after(self, step: str) -> Tensor:
        return Tensor(self.data, self.dtype, (*self.steps, step))

    def detach(self) -> Tensor:
        """Without its gradient."""
        return self._after("detach")

    def cpu(self) -> Tensor:
        """On the host."""
        return self._after("cpu")

    def contiguous(self) -> Tensor:
        """In one piece."""
        return self._after("contiguous")

    def view(self, dtype: str) -> Tensor:
        """Its bits as another type."""
        assert "contiguous" in self.steps
        return Tensor(self.data.view(dtype), f"torch.{dtype}", self.steps)

    def numpy(self) -> np.ndarray:
        """As torch gives it: not for types that NumPy lacks."""
        assert set(self.steps) >= {"detach", "cpu"}
        if self.dtype in ("torch.bfloat16", "torch.float8_e4m3fn"):
            raise TypeError(f"Got unsupported ScalarType {self.dtype}")
        return self.data


class Exported:
    """An array that knows DLPack alone."""

    def __dlpack__(self, **options: Any) -> Any:
        return VALUES.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return VALUES.__dlpack_device__()


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch")
    module.int16, module.uint8 = "int16", "uint8"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "torch.float32"),
        (ml_dtypes.bfloat16, "torch.bfloat16"),
        (ml_dtypes.float8_e4m3fn, "torch.float8_e4m3fn"),
    ],
)
def test_tensors(dtype: Any, name: str) -> None:
    found = on_host(Tensor(VALUES.astype(dtype), name), "a")
    assert found.dtype == dtype and (found.astype(np.float32) == VALUES).all()


def test_others() -> None:
    assert (on_host(Exported(), "a") == VALUES).all()
    kind = type("ndarray", (), {"__module__": "cupy", "get": lambda self: VALUES})
    assert (on_host(kind(), "a") == VALUES).all()
    assert (on_host([[1, 2]], "a") == [[1, 2]]).all()


def test_what_cannot_be_read() -> None:
    kind = type("Meta", (), {"__dlpack__": lambda self, **options: (_ for _ in ()).throw(BufferError("no memory"))})
    with pytest.raises(OperandError, match="a is a Meta that cannot be read: no memory"):
        on_host(kind(), "a", OperandError)
