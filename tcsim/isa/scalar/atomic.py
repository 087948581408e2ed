"""Atomics and reductions of PTX (atom, red): what they make of the old value, for each state space.

Sources: PTX ISA, sections atom and red; the lists of types, spaces and targets are those that ptxas 13.5.37 accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from tcsim.arithmetic import floating
from tcsim.isa.scalar.floating import _each, _element, _in_format
from tcsim.isa.scalar.table import CONTAINERS, SINCE, Array, Compute, signed

SHARED = ("shared", "shared::cta", "shared::cluster")
EVERYWHERE = ("", "global", *SHARED)
"""The state spaces of an atomic; the first is a generic address."""
COMMUTING = ("add", "and", "or", "xor", "min", "max")
"""Operations that leave the same in memory in whatever order threads come, where they do not round."""


@dataclass(frozen=True)
class Atomic:
    """An operation on memory, the type of an element and how many elements an instruction takes."""

    operation: str
    type: str
    compute: Compute  # (old, operands) -> new, arrays of codes
    count: int = 1
    noftz: bool = False
    spaces: tuple[str, ...] = EVERYWHERE
    targets: frozenset[str] = SINCE[70]
    returns_only: bool = False  # an atom, not a red

    @property
    def mnemonic(self) -> str:
        """What stands behind the state space: "add.noftz.v2.f16"."""
        words = (self.operation, "noftz" * self.noftz, f"v{self.count}" * (self.count > 1), self.type)
        return ".".join(word for word in words if word)

    @property
    def rounds(self) -> bool:
        """Whether it adds floating-point numbers, whose sum depends on their order."""
        return self.operation == "add" and self.type.startswith(("f", "bf"))

    @property
    def loops(self) -> bool:
        """Whether ptxas makes of it in shared memory a loop around a compare and swap of 8 bytes (read off its machine code for sm_90a)."""
        return CONTAINERS[self.type].itemsize == 8 and self.operation not in ("exch", "cas")

    @property
    def operands(self) -> int:
        """Of the operation, the address and the old value apart."""
        return 2 if self.operation == "cas" else 1


def _signed(codes: Array, type: str) -> Array:
    return signed(codes) if type[0] == "s" else codes


_INTEGER: dict[str, Compute] = {
    "add": lambda old, a: old + a,
    "and": lambda old, a: old & a,
    "or": lambda old, a: old | a,
    "xor": lambda old, a: old ^ a,
    "exch": lambda old, a: a,
    "cas": lambda old, a, b: np.where(old == a, b, old),
    "inc": lambda old, a: np.where(old >= a, 0, old + 1).astype(old.dtype),
    "dec": lambda old, a: np.where((old == 0) | (old > a), a, old - 1).astype(old.dtype),
}
_TYPES = {
    "add": ("u32", "s32", "u64"), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"), "inc": ("u32",), "dec": ("u32",),
}  # fmt: skip


def _extreme(type: str, largest: bool) -> Compute:
    choose = np.maximum if largest else np.minimum
    return lambda old, a: choose(_signed(old, type), _signed(a, type)).view(CONTAINERS[type])


def _float(operation: str, type: str) -> Compute:
    if operation == "add":
        return _in_format(floating.add, type)
    choose = partial(floating.extreme, format=_element(type), largest=operation == "max")
    return _each(type, choose)


def table() -> Iterator[Atomic]:
    """Every operation, type and count of elements."""
    for operation, types in _TYPES.items():
        for type in types:
            alone = operation in ("exch", "cas")
            own = SINCE[90 if type == "b128" else 70]
            yield Atomic(operation, type, _INTEGER[operation], targets=own, returns_only=alone)
    for operation in ("min", "max"):
        for type in ("u32", "s32", "u64", "s64"):
            yield Atomic(operation, type, _extreme(type, operation == "max"))
    yield Atomic("add", "f32", _in_format(floating.add, "f32"))
    yield Atomic("add", "f64", _in_format(floating.add, "f64"))
    for type, number in (("f16", 70), ("f16x2", 70), ("bf16", 90), ("bf16x2", 90), ("f32", 90)):
        yield Atomic("add", type, _float("add", type), noftz=True, targets=SINCE[number])
    outside = ("", "global")
    for count in (2, 4):
        for noftz in (False, True):
            yield Atomic("add", "f32", _float("add", "f32"), count, noftz, outside, SINCE[90])
    for operation in ("add", "min", "max"):
        for type in ("f16", "bf16", "f16x2", "bf16x2"):
            for count in (2, 4) if type.endswith("x2") else (2, 4, 8):
                yield Atomic(operation, type, _float(operation, type), count, True, outside, SINCE[90])


@cache
def atomics() -> dict[str, Atomic]:
    """The operations by what stands behind the state space.

    >>> atomics()["max.noftz.v8.f16"].count, atomics()["cas.b16"].operands
    (8, 2)
    """
    return {item.mnemonic: item for item in table()}


def _keeping_nan(old: Array, a: Array) -> Array:
    """A sum of f64 in global memory: NaN passes through as it is, the addend's before the old value's."""
    found = floating.add(old, a, "f64")
    return np.where(floating.is_nan(a, "f64"), a, np.where(floating.is_nan(old, "f64"), old, found))


def combination(item: Atomic, space: str) -> Compute:
    """What an operation makes of the old value in a state space; a generic address counts as one in global memory.

    add.f32 in global memory takes subnormal numbers as zeros, add.f64 keeps a signalling NaN; in shared memory both are loops around an
    ordinary addition of the old value to the operand (measured on an H200).
    """
    if item.operation != "add" or item.noftz or item.type not in ("f32", "f64"):
        return item.compute
    if space.startswith("shared"):
        return lambda old, a: item.compute(a, old)
    return _keeping_nan if item.type == "f64" else _in_format(floating.add, "f32", ftz=True)
