"""How far a campaign is: a bar where rich is installed, nothing where not."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Progress:
    """A bar for each instruction, on the error output."""

    def __init__(self) -> None:
        try:
            self._rich: Any = importlib.import_module("rich.progress")
            console = importlib.import_module("rich.console").Console(stderr=True)
        except ImportError:
            self._rich = self._bar = None
            return
        rich = self._rich
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
        )
        self._bar = rich.Progress(*columns, console=console)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, name: str, samples: int, done: int) -> Callable[[int], None]:
        """Show an instruction, some of whose samples are done already. Call the result with the number of each further batch."""
        if self._bar is None:
            return lambda more: None
        bar, task = self._bar, self._bar.add_task(name, total=samples, completed=done)
        return lambda more: bar.advance(task, more)
