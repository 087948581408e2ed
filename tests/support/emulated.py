"""An H200 under emulation, as often as a model asks for it; the runs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tcsim.torch


class Emulated:
    """Called, a context that computes with an H200's bits."""

    def __init__(self) -> None:
        self.runs: list[tcsim.torch.Run] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Begin a run, and end it behind the block."""
        with tcsim.torch.emulate("H200") as run:
            self.runs.append(run)
            yield
