"""Products that the assembler may fuse with the sum that they go into: PTX leaves it open, and the bits may depend on it.

What ptxas 13.5 does for sm_90a, found by assembling pairs and reading the machine code: a mul becomes part of an add or sub of
the same type if neither has a rounding modifier, both or neither have .ftz, the mul does not saturate, and the product goes only into such
sums, itself, negated or through a mov. It does so for f32, f64, f16 and bf16, packed or not, across branches too, and not with --fmad=false.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.ptx.syntax import Address, Function, Group, Immediate, Instruction, Operand, Pair, Register, Tensor, Vector

_SIGNS = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f16x2": 0x80008000, "bf16x2": 0x80008000}
_EXPONENTS = {"f32": 0x7F800000, "f64": 0x7FF << 52, "f16": 0x7C00, "bf16": 0x7F80}


@dataclass(frozen=True)
class Product:
    """A product in a sum: its factors, which source of the sum it is, and whether it is negated on its way there."""

    factors: tuple[Operand, Operand]
    place: int
    negated: bool


def _words(opcode: str) -> tuple[str, frozenset[str], str]:
    stem, *words = opcode.split(".")
    return stem, frozenset(words[:-1]), words[-1] if words else ""


def _contracts(opcode: str) -> Scalar | None:
    found = scalar(opcode)
    return found if found is not None and found.contracts else None


def _written(item: Instruction) -> Iterator[str]:
    """The registers that an instruction may write: those of its first operand."""
    first = item.operands[:1]
    for operand in first:
        for one in (
            operand.items
            if isinstance(operand, Vector)
            else (operand.first, operand.second)
            if isinstance(operand, Pair)
            else (operand,)
        ):
            if isinstance(one, Register):
                yield one.name


def _read(item: Instruction) -> Iterator[str]:
    """The registers that an instruction reads, its predicate apart."""
    first = 0 if isinstance(item.operands[0], Address) else 1
    pending: list[Operand] = list(item.operands[first:])
    pending += [item.operands[0]] * (first == 1 and not list(_written(item)))
    while pending:
        operand = pending.pop()
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, (Vector, Group)):
            pending += operand.items
        elif isinstance(operand, Address):
            pending.append(operand.base)
        elif isinstance(operand, Tensor):
            pending += [operand.base, *operand.coordinates]


class _Flow:
    """Where the registers of a function are written and read."""

    def __init__(self, function: Function) -> None:
        self.body, self.labels = function.body, sorted(function.labels.values())
        self.writes: dict[str, list[int]] = {}
        self.reads: dict[str, list[int]] = {}
        for index, item in enumerate(self.body):
            for name in _written(item):
                self.writes.setdefault(name, []).append(index)
            for name in _read(item) if item.operands else ():
                self.reads.setdefault(name, []).append(index)

    def writer(self, name: str, index: int) -> int | None:
        """The one instruction whose value a register has at an instruction, or None if that cannot be told."""
        every = self.writes.get(name, [])
        place = bisect_left(every, index) - 1
        if place < 0 or (len(every) > 1 and not self.straight(every[place], index)):
            return None
        return every[place] if self.body[every[place]].predicate is None else None

    def straight(self, first: int, last: int) -> bool:
        """Whether no label lies between two instructions."""
        return bisect_right(self.labels, first) == bisect_right(self.labels, last)

    def kept(self, operand: Operand, first: int, last: int) -> bool:
        """Whether a register is not written between two instructions."""
        return not isinstance(operand, Register) or not any(
            first < own < last for own in self.writes.get(operand.name, ())
        )


def contractions(function: Function) -> dict[int, Product]:
    """The sums of a function that may be fused with a product, by the index of the instruction."""
    if not any(item.opcode.startswith("mul.") and _contracts(item.opcode) for item in function.body):
        return {}
    flow = _Flow(function)
    sums = {
        index
        for index, item in enumerate(function.body)
        if item.opcode[:4] in ("add.", "sub.") and _contracts(item.opcode)
    }
    found: dict[int, Product] = {}
    for index in sorted(sums):
        for place in (1, 0):
            product = _product(flow, index, place, sums)
            if product is not None:
                found[index] = product
    return found


def _product(flow: _Flow, sum_at: int, place: int, sums: set[int]) -> Product | None:
    """The product that a source of a sum is, followed back through mov and neg."""
    item, index, negated = flow.body[sum_at], sum_at, False
    _, words, type = _words(item.opcode)
    kind = words - {"sat"}, type
    if len(item.operands) != 3 or item.operands[1] == item.operands[2]:
        return None
    operand = item.operands[1 + place]
    for _ in range(4):
        at = flow.writer(operand.name, index) if isinstance(operand, Register) else None
        if at is None or not isinstance(operand, Register):
            return None
        if any(
            own not in sums and flow.body[own].opcode[:4] not in ("mov.", "neg.") for own in flow.reads[operand.name]
        ):
            return None
        index, item = at, flow.body[at]
        stem, words, type = _words(item.opcode)
        if stem == "mul":
            factors = item.operands[1:]
            if not _contracts(item.opcode) or (words, type) != kind or len(factors) != 2:
                return None
            if not all(flow.kept(own, at, sum_at) for own in factors) or all(
                isinstance(own, Immediate) for own in factors
            ):
                return None
            return Product((factors[0], factors[1]), place, negated)
        if stem not in ("mov", "neg") or len(item.operands) != 2:
            return None
        negated ^= stem == "neg"
        operand = item.operands[1]
    return None


def fused(item: Instruction, product: Product) -> Callable[..., Any]:
    """(a, b, other source) -> the bits that one rounding gives."""
    stem, words, type = _words(item.opcode)
    found = scalar(".".join(["fma", "rn", *(word for word in ("ftz", "sat") if word in words), type]))
    if found is None:
        raise ValueError(item.opcode)
    compute, sign = found.compute, CONTAINERS[type].type(_SIGNS[type])
    flips_product = product.negated ^ (stem == "sub" and product.place == 1)
    flips_other = stem == "sub" and product.place == 0

    def both(a: Any, b: Any, other: Any) -> Any:
        return compute(a ^ sign if flips_product else a, b, other ^ sign if flips_other else other)

    return both


def differ(type: str, one: Any, two: Any) -> Any:
    """Where two results differ, NaN equal to NaN."""
    if type.endswith("x2"):
        half = type.removesuffix("x2")
        parts = [
            differ(half, *(np.ascontiguousarray(own).view(np.uint16)[place::2] for own in (one, two)))
            for place in (0, 1)
        ]
        return parts[0] | parts[1]
    top = one.dtype.type(_EXPONENTS[type])
    below = one.dtype.type(_SIGNS[type] - 1)
    return (one != two) & ~(((one & below) > top) & ((two & below) > top))
