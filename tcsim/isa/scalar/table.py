"""What a scalar instruction is: its spelling, the types of its operands, and what it computes on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.targets import at_least
from tcsim.lowering.traced import contiguous

Array = npt.NDArray[Any]
Compute = Callable[..., Any]
Factors = Callable[..., tuple[Any, Any]]

CONTAINERS: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": np.dtype(np.uint16), "bf16": np.dtype(np.uint16), "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32),
    "u16x2": np.dtype(np.uint32), "s16x2": np.dtype(np.uint32), "u8x4": np.dtype(np.uint32), "s8x4": np.dtype(np.uint32),
    "f32": np.dtype(np.uint32), "f64": np.dtype(np.uint64), "f32x2": np.dtype(np.uint64),
    "e4m3x2": np.dtype(np.uint16), "e5m2x2": np.dtype(np.uint16), "tf32": np.dtype(np.uint32),
    "b128": np.dtype((np.void, 16)),
}  # fmt: skip
"""How a value of each type is held: its bits as an unsigned integer, a predicate as a bool."""


SINCE = {number: at_least(number) for number in (70, 72, 75, 80, 86, 90, 100)}
"""Targets by the first compute capability that has an instruction."""
BYTES_IN_WORDS = frozenset(("sm_107f", "sm_107a", "sm_120f", "sm_120a", "sm_121f", "sm_121a"))
"""The targets with arithmetic on four bytes of a register, and more that saturates."""


@dataclass(frozen=True)
class Scalar:
    """One spelling.

    `compute` takes the sources as arrays of codes (immediates as NumPy scalars) that broadcast, and gives the array of the
    result, or a tuple of several. With `reads_carry` the last argument is the carry flag (bool), with `writes_carry` the last
    result is the new one.
    """

    mnemonic: str
    results: tuple[str, ...]  # types
    sources: tuple[str, ...]
    compute: Compute
    reads_carry: bool = False
    writes_carry: bool = False
    immediates: tuple[int, ...] = ()  # places of sources that are immediates, passed as ints
    inexact: bool = False  # bits known on sm_90 alone: functions of the MUFU
    targets: frozenset[str] = SINCE[70]
    signs: tuple[int, int] | None = (
        None  # of the two sources of a sum without a rounding modifier: the assembler fuses it with a product
    )
    passes: int = 0  # -1: its result is its source negated, and the assembler looks through it
    factors: Factors | None = None  # of a product that may be fused so, and whether its last source is a constant
    guarded: Compute | None = (
        None  # in place of `compute` and its guard, if it has one: of the guard, the old result and the sources
    )
    ignores: str = ""  # what becomes of it under a guard that the assembler does not keep to
    subroutine: bool = False  # the assembler makes branches of it, which a product and its sum are not fused across
    folded: Compute | None = (
        None  # in place of `compute` where the last source is a constant, which the assembler knows
    )


def spellings(stem: str, *choices: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every combination of modifiers, empty ones left out, with what was chosen.

    >>> [name for name, _ in spellings("add", ("", "sat"), ("s32",))]
    ['add.s32', 'add.sat.s32']
    """
    for chosen in product(*choices):
        yield ".".join([stem, *(part for part in chosen if part)]), chosen


def signed(codes: Array) -> Array:
    """The codes as signed integers."""
    return codes.view(f"i{codes.dtype.itemsize}")


def unsigned(values: Array) -> Array:
    """Signed integers as codes."""
    return values.view(f"u{values.dtype.itemsize}")


def pairs(function: Compute, half: np.dtype[Any] = CONTAINERS["b16"]) -> Compute:
    """A function of codes of a container, done on each of the two or more that a wider code holds."""

    def both(*codes: Array) -> Array:
        wide = np.broadcast_arrays(*codes)
        split = [contiguous(array).view(half).reshape(*array.shape, -1) for array in wide]
        found: Array = contiguous(function(*split))
        return found.view(wide[0].dtype).reshape(wide[0].shape)

    return both
