"""Loops compiled by numba, and kept in its cache for as long as no source of the engines changes.

numba keeps a compiled function until the file in which it stands changes. But a loop holds what it calls and the constants that it
names, of other files too. So its name in the cache has a digest of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba


def digest_of(folder: Path) -> str:
    """Sixteen hexadecimal digits that say what the Python sources of a folder are: their names and bytes."""
    found = sha256()
    for path in sorted(folder.glob("*.py")):
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


DIGEST = digest_of(Path(__file__).parent)


def loop(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As numba.njit with options, and with the digest in the name under which the cache keeps it."""

    def compiled(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__qualname__}_{DIGEST}"
        return numba.njit(**options)(function)

    return compiled
