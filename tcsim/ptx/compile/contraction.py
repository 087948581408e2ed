"""What the assembler makes of PTX that leaves it open: products fused with the sums that they go into, and functions of constants.

As ptxas 13.5 does, found by assembling small programs and reading the machine code; `tests/unit/tcsim/ptx/fused_cases.py` keeps what was
found, and where 12.9 and 13.0 differ. A product becomes part of an add or sub of the same type if neither has a rounding modifier, both or neither have .ftz, the product does not
saturate, and all that reads it is such sums: itself, negated, through mov, or through an instruction that gives its source back. It does so for f32, f64, f16
and bf16, packed or not, and not with -O0 or --fmad=false. A product with a constant factor is fused wherever the sums are; an
immediate, a parameter of the kernel and a .const variable at a fixed address are constants. Others are fused if they and their sums are in one basic block, as the assembler
sees it: subroutines, calls, memory fences and most predicated instructions cut it. Of two products in a sum one is fused: `_Products.places`, which is ptxas's choice in a basic block, and a guess across several.
The product is a mul, or the last step of div.approx, div.full or rcp.approx. Special functions of constants: `tcsim.isa.special.folding`.

Wherever a sum may have a product the machine computes both, and counts where they differ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from tcsim.isa.ordinary.table import Path, space_in
from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.ptx.compile.flow import BEFORE, Flow, written
from tcsim.ptx.compile.identities import EXPONENTS, SIGNS, identity
from tcsim.ptx.compile.known import Known, moves
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.text.syntax import Function, Instruction, Register, Vector

_AWAY = ("local", "param")
"""State spaces through which the assembler follows values, as it does through calls: a product may come back from there."""


@dataclass(frozen=True)
class Source:
    """A source of a sum that is a product, or may be one."""

    place: int  # which source of the sum it is
    register: str  # through which it comes
    fused: bool  # whether the assembler fuses it, as far as is known
    product: int  # the instruction, or one of them
    kept: bool  # whether it is the only one, and what it multiplies is still there
    sign: int  # of the product on its way, if so


@dataclass(frozen=True)
class Sum:
    """A sum with sources that are products, or may be."""

    sources: tuple[Source, ...]
    unknown: bool = False  # whether a product may come from where the function cannot tell


@dataclass
class Choices:
    """What the assembler does with a function, by the index of the instruction."""

    sums: dict[int, Sum] = field(default_factory=dict)
    factors: dict[int, Callable[..., tuple[Any, Any]]] = field(
        default_factory=dict
    )  # of products: (*sources) -> what is multiplied
    followed_products: set[int] = field(default_factory=set)  # whose factors registers have to keep
    passes: dict[int, tuple[str, int]] = field(
        default_factory=dict
    )  # what hands a product on: of which register, and 1 or -1
    followed: frozenset[str] = frozenset()  # registers that may hold a product
    folded: frozenset[int] = frozenset()  # functions whose last source it knows


def _words(opcode: str) -> tuple[frozenset[str], str]:
    """The modifiers and the type of a spelling."""
    _, *words = opcode.split(".")
    return frozenset(words[:-1]), words[-1] if words else ""


class _Products:
    """The products and sums of a function."""

    def __init__(self, function: Function, rows: Mapping[int, Scalar]) -> None:
        self.function, self.body, self.rows = function, function.body, rows
        self.flow = Flow(function)
        self.known = Known(function, rows, self.flow)
        self.folded = frozenset(
            index
            for index, row in rows.items()
            if row.folded and self.known.constant(self.body[index].operands[-1], index) == "number"
        )
        self.sums = {
            index for index, row in rows.items() if row.signs is not None and len(self.body[index].operands) == 3
        }
        self.products = {
            index for index, row in rows.items()
            if row.factors is not None and "sat" not in _words(self.body[index].opcode)[0] and not self._all_numbers(index)
        }  # fmt: skip
        self.passes, self.users = cache(self._passes), cache(self._users)
        self.stays, self.far = cache(self._stays), cache(self._far)

    # --- what hands a value on

    def _all_numbers(self, index: int) -> bool:
        return all(self.known.constant(own, index) == "number" for own in self.body[index].operands[1:])

    def _passes(self, index: int) -> tuple[str, int] | None:
        """The register whose value an instruction gives, and 1, or -1 if negated; None if it gives something else."""
        item, row = self.body[index], self.rows.get(index)
        if moves(item):
            return (item.operands[1].name, 1) if isinstance(item.operands[1], Register) else None
        if row is None or len(row.results) != 1 or len(item.operands) != len(row.sources) + 1:
            return None
        names = [own.name if isinstance(own, Register) else own for own in item.operands[1:]]
        if len(names) > 1 and len(set(names)) == len(names) and all(isinstance(own, str) for own in names):
            return None  # a function of several registers
        places: dict[Any, int] = {}
        pattern = tuple(places.setdefault(own, len(places)) if isinstance(own, str) else own for own in names)
        for name, number in places.items():
            sign = identity(item.opcode, pattern, number) if isinstance(name, str) else None
            if sign is not None:
                return name, sign
        return None

    # --- from sums back to products

    def origins(self, register: str, index: int) -> tuple[dict[int, int], bool, bool]:
        """The products that a register may hold at an instruction, with their signs, whether it is one for certain, and whether it may come from elsewhere."""
        found, sure, away, seen = dict[int, int](), True, False, set[tuple[str, int, int, bool]]()
        pending = [(register, index, 1, False)]
        while pending:
            name, place, sign, magnitude = key = pending.pop()
            if key in seen:
                continue
            seen.add(key)
            for at in self.flow.reaching(name, place):
                if at == BEFORE:
                    sure, away = False, away or not self.function.entry
                    continue
                item = self.body[at]
                sure &= item.predicate is None
                passed = self.passes(at)
                if passed is not None:
                    sure &= not magnitude and (passed[1] != 0 or sign > 0)  # of magnitudes only a square's own is fused
                    turned = 1 if magnitude or not passed[1] else passed[1]
                    pending.append((passed[0], at, sign * turned, magnitude or not passed[1]))
                elif at in self.products:
                    if not magnitude or item.operands[1] == item.operands[2]:
                        sure &= found.get(at, sign) == sign
                        found[at] = sign
                elif (element := self._unpacked(name, at)) is not None:
                    pending.append((element, at, sign, magnitude))
                else:
                    sure = False
                    away |= _gives(item) and not self.known.fixed(item)
        return found, sure and len(found) == 1, away

    def _unpacked(self, name: str, index: int) -> str | None:
        """Of a vector that a mov takes apart just as another one put it together: the register that one of its parts was."""
        item = self.body[index]
        if (
            ordinary(item.opcode).path != "move"
            or not isinstance(item.operands[0], Vector)
            or not isinstance(item.operands[1], Register)
        ):
            return None
        places = self.flow.reaching(item.operands[1].name, index)
        first = self.body[next(iter(places))] if len(places) == 1 and BEFORE not in places else None
        if (
            first is None
            or first.predicate is not None
            or not isinstance(first.operands[-1], Vector)
            or ordinary(first.opcode).path != "move"
        ):
            return None
        parts = [own.name if isinstance(own, Register) else "" for own in item.operands[0].items]
        whole = first.operands[1].items  # type: ignore[union-attr]
        source = whole[parts.index(name)] if name in parts and len(whole) == len(parts) else None
        return source.name if isinstance(source, Register) else None

    def like(self, product: int, sum_at: int) -> bool:
        """Whether a product and a sum have one type, and both or neither flush."""
        words, type = _words(self.body[product].opcode)
        others, other = _words(self.body[sum_at].opcode)
        return type == other and ("ftz" in words) == ("ftz" in others)

    # --- from products on to sums

    def _goes(self, index: int, name: str, seen: set[tuple[int, str]]) -> Iterator[int]:
        """The instructions that read what one writes to a register, looking through what hands it on."""
        for place in self.flow.uses(index, name):
            passed = self.passes(place)
            given = (
                [(place, own) for own in written(self.body[place])]
                if passed and passed[0] == name
                else self._parts(place, name)
            )
            if not given:
                yield place
            for own in given:
                if own not in seen:
                    seen.add(own)
                    yield from self._goes(*own, seen)

    def _parts(self, place: int, name: str) -> list[tuple[int, str]]:
        """Where a register comes out again that a mov puts into a vector, if that vector is only taken apart."""
        item = self.body[place]
        if ordinary(item.opcode).path != "move" or not isinstance(item.operands[1], Vector):
            return []
        users = [own for to in written(item) for own in self.flow.uses(place, to)]
        found = [[(own, to) for to in written(self.body[own]) if self._unpacked(to, own) is not None] for own in users]
        return [own for each in found for own in each if self._unpacked(own[1], own[0]) == name] if all(found) else []

    def _users(self, product: int) -> list[int]:
        """The instructions that need a product, looking through what hands it on."""
        return [
            place
            for name in set(written(self.body[product]))
            for place in dict.fromkeys(self._goes(product, name, set()))
            if place in self.flow.live
        ]

    def _stays(self, product: int) -> bool:
        """Whether a product is fused with nothing: something else than sums needs it as it is.

        Of parameters and numbers alone the assembler makes it again where it is needed.
        """
        known = all(self.known.maybe(own, product) for own in self.body[product].operands[1:])
        return not known and any(
            self._needs(place, product) and self._surely(product, place) for place in self.users(product)
        )

    def _surely(self, product: int, place: int) -> bool:
        """Whether an instruction needs a product where it is, for all that the assembler can know: arithmetic it moves past the cuts of a block."""
        if not self.flow.surely(product, place):
            return False
        block = self.flow.block(product)
        if place not in self.rows:
            return block != self.flow.block(place) or self._together(product, place)
        return bisect_right(self._cuts, product) == bisect_left(self._cuts, self.flow.end(block))

    def _needs(self, place: int, product: int) -> bool:
        item = self.body[place]
        if place in self.sums and self.like(product, place):
            sources = [own for own in item.operands[1:] if isinstance(own, Register)]
            return len(sources) == 2 and all(
                set(self.origins(own.name, place)[0]) == {product} for own in sources
            )  # x + x
        return not _keeps(item)

    def _far(self, product: int) -> bool:
        """Whether a product has no constant factor and a basic block of the assembler ends between it and a sum."""
        constant = self._by_constant(product)
        return not constant and any(not self._together(product, place) for place in self.users(product))

    def _by_constant(self, product: int) -> bool:
        """Whether what a product multiplies by is a constant: of a quotient the reciprocal of a number."""
        if self.rows[product].folded:
            return product in self.folded
        return any(self.known.constant(own, product) for own in self.body[product].operands[1:])

    @cached_property
    def _cuts(self) -> list[int]:
        """The instructions behind which the assembler begins a basic block."""
        return [index for index, item in enumerate(self.body) if self._cut(index, item)]

    def _cut(self, index: int, item: Instruction) -> bool:
        row = self.rows.get(index)
        if item.predicate is not None and (row is None or row.subroutine) and not moves(item):
            return True
        if row is not None:
            constant = (
                row.subroutine and len(row.sources) == 1 and self.known.constant(item.operands[1], index) == "number"
            )
            return row.subroutine and not constant
        return ordinary(item.opcode).cuts

    def _together(self, product: int, place: int) -> bool:
        if not product < place or self.flow.block(product) != self.flow.block(place):
            return False
        return bisect_right(self._cuts, product) == bisect_left(self._cuts, place)

    def _only_summed(self, product: int) -> bool:
        """Whether a product goes into sums alone that the assembler may fuse it with."""
        users = self.users(product)
        return not self.far(product) and all(own in self.sums and not self._needs(own, product) for own in users)

    def places(self, found: Mapping[int, Sequence[Source]]) -> dict[int, int]:
        """Which source each sum takes as a product, of those that are one for certain.

        Products that one sum reads are fused first, in the order of the sums, then those that several read. Of two, a sum takes that
        with fewer readers, of equals its first. The other one it needs rounded: that is fused with no sum that comes later.
        """
        chosen, rounded = dict[int, int](), set[int]()
        for several in (False, True):
            for index in sorted(self.flow.live & set(found) - set(chosen)):
                readers = [
                    (len(self.users(own.product)), own.place)
                    for own in found[index]
                    if own.fused and own.product not in rounded and self._only_summed(own.product)
                ]
                if readers and (several or min(readers)[0] < 2):
                    place = chosen[index] = min(readers)[1]
                    other = self.body[index].operands[2 - place]
                    rounded |= set(self.origins(other.name, index)[0]) if isinstance(other, Register) else set()
        return chosen

    def _kept(self, product: int, place: int) -> bool:
        """Whether an instruction of one block comes after a product, and what it multiplies is not written between them."""
        if not product < place or self.flow.block(product) != self.flow.block(place):
            return False
        names = {own.name for own in self.body[product].operands[1:] if isinstance(own, Register)}
        return not any(product <= at < place for name in names for at in self.flow.writes.get(name, ()))

    # --- all together

    def choose(self, away: frozenset[str]) -> Choices:
        """away: types of products that the functions of the module hand to each other, or to local memory."""
        made = Choices(folded=self.folded)
        for index in self.products:
            factors = self.rows[index].factors
            assert factors is not None
            made.factors[index] = partial(factors, index in self.folded)
        found = {index: self._sources(index, away) for index in sorted(self.sums)}
        places = self.places({index: sources for index, (sources, _) in found.items()})
        for index, (sources, unknown) in found.items():
            if sources or unknown:
                fused = (replace(own, fused=own.place == places.get(index)) for own in sources)
                made.sums[index] = Sum(tuple(fused), unknown)
        self._follow(made)
        return made

    def _sources(self, index: int, away: frozenset[str]) -> tuple[list[Source], bool]:
        """Sources of a sum that may be products, fused if they are for certain, and whether one may come from elsewhere."""
        item, found, unknown = self.body[index], list[Source](), False
        for place, operand in enumerate(item.operands[1:]):
            if not isinstance(operand, Register):
                continue
            products, sure, elsewhere = self.origins(operand.name, index)
            products = {own: sign for own, sign in products.items() if self.like(own, index) and not self.stays(own)}
            unknown |= elsewhere and _words(item.opcode)[1] in away
            if products:
                own = min(products)
                found.append(Source(place, operand.name, sure, own, sure and self._kept(own, index), products[own]))
        return found, unknown

    def _follow(self, made: Choices) -> None:
        """Which registers hold products on their way to sums, and who writes them."""
        pending = [
            (source.register, index) for index, own in made.sums.items() for source in own.sources if not source.kept
        ]
        seen = set(pending)
        while pending:
            register, index = pending.pop()
            for at in self.flow.reaching(register, index):
                if at == BEFORE:
                    continue
                passed, element = self.passes(at), self._unpacked(register, at)
                if at in self.products and passed is None:
                    made.followed_products.add(at)
                    continue
                if passed is None and element is None:
                    continue
                made.passes[at] = passed or (element or "", 1)
                following = made.passes[at][0], at
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        made.followed = frozenset(name for name, _ in seen)

    def handed_out(self) -> Iterator[str]:
        """The types of products that go to local memory, to parameters, to other functions."""
        for index in self.products:
            returned = not self.function.entry and set(written(self.body[index])).intersection(self.flow.returns)
            if returned or any(_keeps(self.body[place]) for place in self.users(index)):
                yield _words(self.body[index].opcode)[1]


def _keeps(item: Instruction) -> bool:
    """Whether an instruction puts something where the assembler follows it: into a thread's own memory, or a call."""
    return _passes(item, "store")


def _gives(item: Instruction) -> bool:
    """Whether an instruction takes something from there."""
    return _passes(item, "load")


def _passes(item: Instruction, path: Path) -> bool:
    row = ordinary(item.opcode)
    return row.control == "call" or (row.path == path and space_in(item.opcode).partition("::")[0] in _AWAY)


def choices(function: Function, handed: frozenset[str] = frozenset()) -> Choices:
    """Sums that may be fused with products, and functions of constants. handed: what `handed_over` says of all functions of a program."""
    own = _products(function)
    if own is None:
        return Choices()
    return own.choose(handed) if own.sums and (own.products or handed) else Choices(folded=own.folded)


def handed_over(functions: Sequence[Function]) -> frozenset[str]:
    """The types of products that leave registers for local memory, or a function for another one: the assembler may follow them there."""
    found = [
        _products(function)
        for function in functions
        if len(functions) > 1 or any(_keeps(item) for item in function.body)
    ]
    return frozenset(type for own in found if own is not None for type in own.handed_out())


def _products(function: Function) -> _Products | None:
    found = [(index, scalar(item.opcode, len(item.operands) - 1)) for index, item in enumerate(function.body)]
    rows = {index: row for index, row in found if row is not None}
    return _Products(function, rows) if any(row.factors or row.folded or row.signs for row in rows.values()) else None


def fused(item: Instruction, source: Source) -> Callable[..., Any]:
    """(other source of the sum, factor, factor) -> the bits that one rounding gives."""
    words, type = _words(item.opcode)
    sum, found = (
        scalar(item.opcode),
        scalar(".".join(["fma", "rn", *(word for word in ("ftz", "sat") if word in words), type])),
    )
    if sum is None or sum.signs is None or found is None:
        raise ValueError(item.opcode)
    sign, same = CONTAINERS[type].type(SIGNS[type]), CONTAINERS[type].type(0)
    flips = (source.sign * sum.signs[source.place] < 0, sum.signs[1 - source.place] < 0)
    return partial(_fused, found.compute, *(sign if own else same for own in flips))


def _fused(compute: Callable[..., Any], product: Any, rest: Any, other: Any, a: Any, b: Any) -> Any:
    """product, rest: bits that change in a factor, and in the other source."""
    return compute(a ^ product if product else a, b, other ^ rest if rest else other)


def differ(type: str, one: Any, two: Any) -> Any:
    """Where two results differ, NaN equal to NaN."""
    if type.endswith("x2"):
        half = type.removesuffix("x2")
        parts = [
            differ(half, *(np.ascontiguousarray(own).view(CONTAINERS[half])[place::2] for own in (one, two)))
            for place in (0, 1)
        ]
        return parts[0] | parts[1]
    top = one.dtype.type(EXPONENTS[type])
    below = one.dtype.type(SIGNS[type] - 1)
    return (one != two) & ~(((one & below) > top) & ((two & below) > top))
