"""Who watches a cluster run (`Kernel.launch(observe=)`)."""

from __future__ import annotations

from tcsim.ptx.machine.observer import Observer

__all__ = ["Observer"]
