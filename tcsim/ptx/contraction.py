"""What the assembler makes of PTX that leaves it open: products fused with the sums that they go into, and functions of constants.

As ptxas 13.5 does for sm_90a, found by assembling pairs and reading the machine code. A product becomes part of an add or sub of
the same type if neither has a rounding modifier, both or neither have .ftz, the product does not saturate, and it goes only into such
sums, itself, negated or through a mov. It does so for f32, f64, f16 and bf16, packed or not, and not with --fmad=false. Both are in one basic block,
without a subroutine as that of div.rn between them; across blocks it is done for products by constants, and not for others that we tried.
The product is a mul, or the last step of div.approx, div.full or rcp.approx. Special functions of constants: `tcsim.isa.special.folding`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.ptx.control import TERMINATORS
from tcsim.ptx.ordinary import ROWS as ORDINARY
from tcsim.ptx.syntax import Address, Function, Group, Immediate, Instruction, Operand, Pair, Register, Tensor, Vector

_SIGNS = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f16x2": 0x80008000, "bf16x2": 0x80008000}
_EXPONENTS = {"f32": 0x7F800000, "f64": 0x7FF << 52, "f16": 0x7C00, "bf16": 0x7F80}


@dataclass(frozen=True)
class Product:
    """A product in a sum: its sources, how they give the factors, which source of the sum it is, and whether it is negated on its way there."""

    sources: tuple[Operand, ...]
    factors: Callable[..., tuple[Any, Any]]
    place: int
    negated: bool
    block: bool  # whether both are in one basic block: else they are fused in some cases only, and not here


def _words(opcode: str) -> tuple[frozenset[str], str]:
    """The modifiers and the type of a spelling."""
    _, *words = opcode.split(".")
    return frozenset(words[:-1]), words[-1] if words else ""


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


def _between(places: list[int], first: int, last: int) -> bool:
    return bisect_right(places, first) < bisect_left(places, last)


class _Flow:
    """Where the registers of a function are written and read."""

    def __init__(self, function: Function, rows: Mapping[int, Scalar]) -> None:
        self.branches = [
            index for index, item in enumerate(function.body) if item.opcode.partition(".")[0] in TERMINATORS
        ]
        self.rows = rows
        self.subroutines = [index for index, row in rows.items() if row.subroutine]
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

    def passes(self, index: int) -> int:
        """1 or -1 if an instruction's result is its one source, or that negated; else 0."""
        item = self.body[index]
        if len(item.operands) != 2:
            return 0
        own = ORDINARY.get(item.opcode.partition(".")[0])
        return 1 if own is not None and own.path == "move" else self.rows[index].passes if index in self.rows else 0

    def goes_only_into(self, name: str, sums: set[int], depth: int = 4) -> bool:
        """Whether a register is read by sums alone, itself, moved or negated."""
        for index in self.reads.get(name, ()):
            if index in sums:
                continue
            if not depth or not self.passes(index):
                return False
            if not all(self.goes_only_into(own, sums, depth - 1) for own in _written(self.body[index])):
                return False
        return True

    def constant(self, operand: Operand, index: int) -> bool:
        """Whether a source of an instruction is an immediate, itself or through mov."""
        for _ in range(4):
            if isinstance(operand, Immediate):
                return True
            at = self.writer(operand.name, index) if isinstance(operand, Register) else None
            if at is None or self.passes(at) != 1:
                return False
            operand, index = self.body[at].operands[1], at
        return False

    def straight(self, first: int, last: int) -> bool:
        """Whether no label lies between two instructions."""
        return bisect_right(self.labels, first) == bisect_right(self.labels, last)

    def in_block(self, first: int, last: int) -> bool:
        """Whether nothing between two instructions branches."""
        return self.straight(first, last) and not _between(self.branches, first, last)

    def kept(self, operand: Operand, first: int, last: int) -> bool:
        """Whether a register is not written between two instructions."""
        return not isinstance(operand, Register) or not any(
            first < own < last for own in self.writes.get(operand.name, ())
        )


@dataclass(frozen=True)
class Choices:
    """What the assembler does with a function, by the index of the instruction."""

    products: dict[int, Product]  # that it fuses with a sum
    folded: frozenset[int]  # functions whose last source it knows


def choices(function: Function) -> Choices:
    """Sums that are fused with a product, and functions of constants."""
    found = [(index, scalar(item.opcode, len(item.operands) - 1)) for index, item in enumerate(function.body)]
    rows = {index: row for index, row in found if row is not None}
    if not any(row.factors or row.folded for row in rows.values()):
        return Choices({}, frozenset())
    flow = _Flow(function, rows)
    folded = frozenset(
        index for index, row in rows.items() if row.folded and flow.constant(function.body[index].operands[-1], index)
    )
    sums = {index for index, row in rows.items() if row.signs is not None}
    products: dict[int, Product] = {}
    for index in sorted(sums):
        for place in (1, 0):
            product = _product(flow, index, place, sums, rows, folded)
            if product is not None:
                products[index] = product
    return Choices(products, folded)


def _product(
    flow: _Flow, sum_at: int, place: int, sums: set[int], rows: dict[int, Scalar], folded: frozenset[int]
) -> Product | None:
    """The product that a source of a sum is, followed back through mov and neg."""
    item, index, negated = flow.body[sum_at], sum_at, False
    words, type = _words(item.opcode)
    flushes = "ftz" in words
    if len(item.operands) != 3 or item.operands[1] == item.operands[2]:
        return None
    operand = item.operands[1 + place]
    for _ in range(4):
        at = flow.writer(operand.name, index) if isinstance(operand, Register) else None
        if at is None or not isinstance(operand, Register):
            return None
        if not flow.goes_only_into(operand.name, sums):
            return None
        index, item = at, flow.body[at]
        words, own_type = _words(item.opcode)
        row = rows.get(at)
        if row is not None and row.factors is not None:
            sources = item.operands[1:]
            if "sat" in words or ("ftz" in words) != flushes or own_type != type:
                return None
            if not all(flow.kept(own, at, sum_at) for own in sources) or _between(flow.subroutines, at, sum_at):
                return None
            if all(isinstance(own, Immediate) for own in sources):
                return None
            return Product(
                tuple(sources), partial(row.factors, at in folded), place, negated, flow.in_block(at, sum_at)
            )
        if not flow.passes(at):
            return None
        negated ^= flow.passes(at) < 0
        operand = item.operands[1]
    return None


def fused(item: Instruction, product: Product) -> Callable[..., Any]:
    """(other source of the sum, *sources of the product) -> the bits that one rounding gives."""
    words, type = _words(item.opcode)
    sum, found = (
        scalar(item.opcode),
        scalar(".".join(["fma", "rn", *(word for word in ("ftz", "sat") if word in words), type])),
    )
    if sum is None or sum.signs is None or found is None:
        raise ValueError(item.opcode)
    compute, sign = found.compute, CONTAINERS[type].type(_SIGNS[type])
    flips_product, flips_other = product.negated ^ (sum.signs[product.place] < 0), sum.signs[1 - product.place] < 0

    def both(other: Any, *sources: Any) -> Any:
        a, b = product.factors(*sources)
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
