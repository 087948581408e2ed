"""What a launch computed whose bits are not known exactly, instruction by instruction."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tcsim.isa.scalar.table import Array
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.ptx.machine.turns import Turns

_PRECISION = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}
_LEAST = -1074
"""The exponent of the lowest bit of any number of these types."""


@dataclass
class Sum:
    """What threads added to one address."""

    instruction: str
    count: int = 0
    magnitude: int = 0  # of all addends and what was there before, in units of 2**_LEAST
    unit: int = 1024  # exponent of the lowest bit of any of them
    started_at_zero: bool = False
    old: bool = False  # whether a thread took the value before


@dataclass
class Sums:
    """Floating-point sums in memory: whether their bits depend on the order in which threads add.

    They do not if one thread adds, if two add to a zero, or if every partial sum is exact in whatever order.
    """

    type_of: dict[str, str] = field(default_factory=dict)
    sums: dict[tuple[object, int], Sum] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)
    brought: list[tuple[str, str, Array, Array, Array]] = field(default_factory=list)  # by copies that add

    def add(
        self, instruction: str, type: str, where: object, addresses: Array, before: Array, values: Array, old: bool
    ) -> None:
        """Additions of some threads: the addresses, of shared memory those of the cluster `where`, what was there, what was added."""
        self.type_of[instruction] = type
        for address, first, value in zip(addresses.tolist(), before.tolist(), values.tolist(), strict=True):
            key = where if address >= SHARED_WINDOW else "", address
            own = self.sums.get(key)
            if own is None:
                own = self.sums[key] = Sum(instruction)
                self._count(own, type, first)
                own.started_at_zero = own.magnitude == 0
            own.count += 1
            own.old |= old
            self._count(own, type, value)

    def take(self, other: Sums) -> bool:
        """Take over what blocks that come later did, if it was at other addresses; whether it was."""
        places, own = other.turns.places, self.turns.places
        if not (self.sums.keys().isdisjoint(other.sums) and own.keys().isdisjoint(places)):
            return False
        self.sums.update(other.sums)
        self.type_of.update(other.type_of)
        self.turns.update(other.turns)
        self.brought += other.brought
        return True

    def bring(self, instruction: str, type: str, addresses: Array, before: Array, values: Array) -> None:
        """Additions of a copy, in global memory."""
        self.brought.append((instruction, type, addresses, before, values))

    def _count_brought(self) -> None:
        """Count the additions of copies to addresses that something else adds to as well."""
        if not self.brought:
            return
        every, counts = np.unique(np.concatenate([own[2] for own in self.brought]), return_counts=True)
        alone = np.array([address for where, address in self.sums if where == ""], np.uint64)
        often = np.union1d(every[counts > 1], np.intersect1d(every, alone))
        for instruction, type, addresses, before, values in self.brought:
            chosen = np.isin(addresses, often)
            self.add(instruction, type, "", addresses[chosen], before[chosen], values[chosen], False)
        self.brought = []

    @staticmethod
    def _count(own: Sum, type: str, code: int) -> None:
        number = _value(code, type)
        if not math.isfinite(number):
            own.magnitude, own.unit = 1 << 3000, _LEAST  # infinities and NaN: no claim
        elif number:
            numerator, denominator = number.as_integer_ratio()
            exponent = 1 - denominator.bit_length()
            own.magnitude += abs(numerator) << (exponent - _LEAST)
            own.unit = min(own.unit, exponent + (numerator & -numerator).bit_length() - 1)

    def inexact(self) -> Counter[str]:
        """By instruction, the additions to addresses whose sum depends on the order, and other atomics of which something does."""
        self._count_brought()
        found = self.turns.inexact()
        for own in self.sums.values():
            exact = own.magnitude <= 1 << (own.unit - _LEAST + _PRECISION[self.type_of[own.instruction]])
            if own.count > 1 and (own.old or not (exact or (own.count == 2 and own.started_at_zero))):
                found[own.instruction] += own.count
        return found


def _value(code: int, type: str) -> float:
    """The number that a code stands for."""
    if type == "bf16":
        type, code = "f32", code << 16
    letter, width = {"f32": ("f", 4), "f64": ("d", 8), "f16": ("e", 2)}[type]
    return float(struct.unpack("<" + letter, code.to_bytes(width, "little"))[0])


def halves(codes: Array, type: str) -> list[tuple[Array, str]]:
    """Codes of a packed type as codes of each half."""
    if not type.endswith("x2"):
        return [(codes, type)]
    wide = np.ascontiguousarray(codes).view(np.uint16)
    return [(wide[place::2], type.removesuffix("x2")) for place in (0, 1)]
