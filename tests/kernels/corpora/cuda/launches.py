"""What the launches of the CUDA kernels share: how a case is registered, and exact expectations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.kernels.corpora.case import Array, Close, Source, case

HOPPER = ("sm_90a",)
U32 = 0xFFFFFFFF


def exact(values: Any, dtype: Any) -> Close:
    """Every element as given."""
    return Close(np.asarray(values).astype(dtype), dtype)


def source(file: str, *flags: str) -> Source:
    """A file of this folder."""
    return Source("cuda", f"{file}.cu", options=tuple((flag, "") for flag in flags))


def cuda(file: str, targets: tuple[str, ...] = ("sm_80", "sm_90a")) -> Callable[[Any], Any]:
    """Register a case whose entry has the function's name."""

    def register(make: Any) -> Any:
        return case(source(file), make.__name__, targets)(make)

    return register


def wide(file: str) -> Callable[[Any], Any]:
    """Register a case of many blocks, `wide_` and the function's name, whose entry has the function's name."""

    def register(make: Any) -> Any:
        return case(source(f"wide_{file}"), make.__name__, HOPPER, f"wide_{make.__name__}")(make)

    return register


def windows(base: Array, starts: Array, length: int) -> Array:
    """Pieces of a ring of numbers, one from each start: they differ, and take little room in a recording."""
    return base[(starts[..., None] + np.arange(length)) % len(base)]


def signed(x: int) -> int:
    """A 32-bit word as a signed number."""
    return (x & U32) - (1 << 32 if x & 0x80000000 else 0)
