"""Video instructions: absolute differences of the parts of a word, as CUDA's `__vabsdiffu4`, `__vsadu2` and their like compile to.

Source: PTX ISA, section Video Instructions. Of the many there the tables have those that compilers emit for sm_70 and later;
operands with a selector (`%r1.b3210`) are not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tcsim.isa.scalar.table import Array, Compute, Scalar
from tcsim.lowering.traced import contiguous

_WORDS: dict[tuple[str, int], np.dtype[Any]] = {
    ("u32", 2): np.dtype(np.uint16), ("s32", 2): np.dtype(np.int16), ("u32", 4): np.dtype(np.uint8), ("s32", 4): np.dtype(np.int8),
}  # fmt: skip
"""What a part of a word is, by type and number of parts."""


def differences(parts: int, type: str, mode: str) -> Compute:
    """|a - b| of 2 or 4 parts of a word; with add their sum and c. A difference of parts of one signedness fits, so that sat changes nothing.

    >>> a, b = (np.array([code], np.uint32) for code in (0x80_7F_01_00, 0x7F_80_03_00))
    >>> hex(differences(4, "s32", "")(a, b, np.uint32(9))[0])
    '0xffff0200'
    """
    word = _WORDS[type, parts]

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (contiguous(code) for code in np.broadcast_arrays(a, b, c))
        x, y = (code.view(word).reshape(*code.shape, parts).astype(np.int64) for code in (a, b))
        found = np.abs(x - y)
        if mode == "add":
            return c + found.sum(-1).astype(np.uint32)
        return found.astype(f"u{word.itemsize}").view(np.uint32).reshape(c.shape)

    return compute


def table() -> Iterator[Scalar]:
    """Every spelling. c is read with add alone: it would stand in parts that a destination's mask leaves out."""
    for parts in (2, 4):
        for type in ("u32", "s32"):
            for mode in ("", "sat", "add"):
                name = f"vabsdiff{parts}.u32.{type}.{type}{'.' * bool(mode)}{mode}"
                yield Scalar(name, ("u32",), (type, type, "u32"), differences(parts, type, mode))
