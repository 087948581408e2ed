"""What calls of the CUDA driver raise. Importing this module needs neither cuda-python nor a GPU."""

from __future__ import annotations


class CudaError(RuntimeError):
    """A driver call failed. `sticky` says that the context is lost and only a new process can go on."""

    def __init__(self, call: str, code: str, sticky: bool) -> None:
        super().__init__(call, code, sticky)
        self.call, self.code, self.sticky = call, code, sticky

    def __str__(self) -> str:
        return f"{self.call} returned {self.code}" + (", which poisons the context" if self.sticky else "")


class DriverUnavailable(RuntimeError):
    """There is no way to a GPU here; the text says what is missing."""
