"""A bar in the terminal while a grid runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tcsim.ptx.launch.grid import Progress as Told


@contextmanager
def bar(kernel: str, to: TextIO | None) -> Iterator[Told | None]:
    """What `Kernel.launch` takes as progress: a bar that is gone when the launch ends; None where there is no terminal."""
    if to is None or not to.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=to), transient=True) as shown:
        task = shown.add_task(kernel[:24], total=None, said="")

        def told(ended: int, clusters: int, instructions: int) -> None:
            shown.update(task, completed=ended, total=clusters, said=f"{instructions:,} instructions")

        yield told
