"""Functions of other packages, replaced while launches are recorded and put back afterwards."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hwkernels.capture.session import MAX_BYTES, MAX_LAUNCHES, Session


class Patches:
    """Attributes that were replaced."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put `make(what is there)` in the place of an attribute; nothing where there is none."""
        old = getattr(owner, name, None)
        if old is not None:
            setattr(owner, name, make(old))
            self._undo.append(lambda: setattr(owner, name, old))

    def environment(self, name: str, value: str) -> None:
        """Set an environment variable."""
        old = os.environ.get(name)
        os.environ[name] = value
        self._undo.append(lambda: os.environ.pop(name, None) if old is None else os.environ.update({name: old}))

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


HOOKS = {
    "cuda.bindings.driver": "hwkernels.capture.cuda_bindings",
    "cuda.core": "hwkernels.capture.cuda_core",
    "cupy": "hwkernels.capture.cupy_kernels",
    "triton": "hwkernels.capture.triton_kernels",
}
"""By package: the module whose `install(session, patches)` hooks its launches."""


@contextmanager
def capture(
    folder: str | Path, max_bytes: int = MAX_BYTES, max_launches: int = MAX_LAUNCHES, kernels: Sequence[str] = (), gpu: Any = None,
    launchers: Sequence[str] = tuple(HOOKS),
) -> Iterator[Session]:  # fmt: skip
    """Record the launches within the `with` block, each in a file of `folder`; `session.lines()` says which and which not.

    max_launches, max_bytes: of all launches, and of the memory of one. kernels: only those whose name contains one of these. launchers: the
    packages that are hooked, if they are installed. What was imported from them by name before (`from cuda.core import launch`)
    is not: import after, or use `python -m hwkernels.capture`. Raises ValueError for a package that is not one of these.
    """
    unknown = [name for name in launchers if name not in HOOKS]
    if unknown:
        raise ValueError(f"launchers={unknown}; valid: {', '.join(HOOKS)}")
    session, patches = Session(folder, max_bytes, max_launches, kernels, gpu), Patches()
    try:
        for name in launchers:
            if _importable(name):
                importlib.import_module(HOOKS[name]).install(session, patches)
        yield session
    finally:
        patches.undo()


def _importable(name: str) -> bool:
    """Whether a package can be imported; one that is installed but broken counts as absent."""
    if sys.modules.get(name) is not None:
        return True
    try:
        importlib.import_module(name)
    except Exception:  # a package without its libraries raises many kinds
        return False
    return True
