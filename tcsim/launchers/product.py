"""The product that a launch computes, as its own instructions say: which arrays an element of the result was multiplied from, and which way they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import ml_dtypes
import numpy as np

from tcsim.core.errors import OperandError
from tcsim.diagnosis import Diagnosis, diagnose
from tcsim.launchers.elements import Array, Bytes
from tcsim.launchers.factors import Factor, factors_of
from tcsim.launchers.job import Job, Region
from tcsim.model.instruction import Instruction
from tcsim.multiplication import machine_of
from tcsim.ptx import Session
from tcsim.ptx.stepping.log import Record
from tcsim.ptx.stepping.why import Node, nearest_first

_WALK = 400
"""Nodes of a tree in which the product of an element is looked for."""
_NARROW = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}  # fmt: skip
"""Formats of a result that instructions give in f32, by what `tcsim.diagnose` knows them by."""
_LINES = 16
"""Rows of an operand whose addresses are compared."""
_FAR = 2.0**-6
"""What no order of summation and no format of 16 bits takes an element away from its sum, as a part of the sum of sizes."""
Place = tuple[str, tuple[int, ...]]
"""An element of an array: its name, and where it is."""


@dataclass(frozen=True, eq=False)
class Made:
    """What an element of the result was made of."""

    records: tuple[Record, ...]  # the products, one for each part of K
    last: Node  # the instruction that left it in global memory, or nothing
    nodes: Mapping[str, Node]  # "a", "b", "c": what was read
    read: Mapping[str, tuple[Place | None, ...]]  # the same, element by element; None: of no array


@dataclass(frozen=True, eq=False)
class Product:
    """d = a b + c: matrices of a launch."""

    instruction: Instruction
    a: Factor
    b: Factor
    d: Factor
    c: Factor | None
    idesc: int | None
    lines: tuple[int, ...]  # of its instructions, as far as they were seen

    def __str__(self) -> str:
        return f"{self.d} = {self.a} @ {self.b}" + (f" + {self.c}" if self.c else "")

    def diagnosed(self, job: Job, after: Mapping[str, Bytes]) -> Diagnosis | None:
        """`tcsim.diagnose` of the result that a launch left; None for arrays that it cannot take."""
        named = {own.name: own for own in job.regions}
        formats = machine_of(self.instruction, "diagnose", self.idesc).formats
        given: dict[str, Any] = {
            name: _codes(named[own.name], named[own.name].before, own.turned, formats[name])
            for name, own in (("a", self.a), ("b", self.b), ("c", self.c))
            if own is not None
        }
        observed = _result(named[self.d.name], after[self.d.name], self.d.turned, formats["d"])
        if observed is None or any(own is None for own in given.values()):
            return None
        given |= {} if self.idesc is None else {"idesc": self.idesc}
        try:
            return diagnose(self.instruction, observed=observed, **given)
        except OperandError:
            return None

    def is_right(self, job: Job, after: Mapping[str, Bytes]) -> bool:
        """Whether the result is the product, in some order of summation."""
        named = next(own for own in job.regions if own.name == self.d.name)
        if named.elements.bits >= 16 and self.furthest(job, after)[3] > _FAR:
            return False
        found = self.diagnosed(job, after)
        return found is not None and found.verdict == "correct"

    def furthest(self, job: Job, after: Mapping[str, Bytes]) -> tuple[tuple[int, ...], float, float, float]:
        """The element of D that is furthest off: where it is, what it is, what it should be, and how far off it is as a part of the sum's sizes."""
        named = {own.name: own for own in job.regions}
        a, b = (_values(named[own.name], named[own.name].before, own.turned) for own in (self.a, self.b))
        c = 0 if self.c is None else _values(named[self.c.name], named[self.c.name].before, self.c.turned)
        region = named[self.d.name]
        got, want = _values(region, after[self.d.name], self.d.turned), a @ b + c
        with np.errstate(all="ignore"):
            off = np.nan_to_num(
                np.abs(got - want) / (np.abs(a) @ np.abs(b) + np.abs(c) + np.finfo(float).tiny), nan=np.inf
            )
        row, column = np.unravel_index(int(np.argmax(off)), off.shape)
        point = (int(column), int(row)) if self.d.turned else (int(row), int(column))
        return _index(region, point), float(got[row, column]), float(want[row, column]), float(off[row, column])

    def wanted(self, name: str, index: Sequence[int], k: int) -> Place:
        """The element of A or B that an element of D needs."""
        row, column = index[::-1] if self.d.turned else index
        own = self.a if name == "a" else self.b
        place = (row, k) if name == "a" else (k, column)
        return own.name, place[::-1] if own.turned else place

    def depth(self, job: Job) -> int:
        """K."""
        return _shape(next(own for own in job.regions if own.name == self.a.name))[0 if self.a.turned else 1]

    def pitch(self, session: Session, job: Job) -> str:
        """How far apart most of the first rows of A or B are read, by their addresses; empty where they are read as they lie."""
        named = {own.name: own for own in job.regions}
        d = named[self.d.name]
        for name, own in (("a", self.a), ("b", self.b)):
            shape, read, right = named[own.name].shape, list[int](), list[int]()
            for line in range(min(*_shape(d), _LINES)):
                across = (name == "b") != self.d.turned  # whether lines of the operand are columns of D as it lies
                index = _index(d, (0, line) if across else (line, 0))
                made = made_of(session, d.name, index)
                place = made.read[name][0] if made is not None and made.read[name] else None
                if place is not None and place[0] == own.name:
                    read.append(int(np.ravel_multi_index(place[1], shape)))
                    right.append(int(np.ravel_multi_index(self.wanted(name, index[-2:], 0)[1], shape[-2:])))
            (step, often), *_ = Counter(np.diff(read).tolist()).most_common(1) or [(0, 0)]
            lie = right[1] - right[0] if often else 0
            if 2 * often > _LINES // 2 and step != lie > 1:
                return f"{own.name} is read as if its rows lay {step} elements apart; they lie {lie} apart"
        return ""

    def registers(
        self, name: str, index: Sequence[int], places: Sequence[Place | None], wrong: Sequence[int]
    ) -> tuple[str, tuple[int, int] | None]:  # fmt: skip
        """Whether an operand's registers were taken for each other, or those of the result: the one that is needed, and the one that was taken.

        places: what was read of a row of A or a column of B; `wrong` marks elements read from elsewhere.
        """
        row, column = index[::-1] if self.d.turned else index
        own, line = (self.a, row) if name == "a" else (self.b, column)
        turned = own.turned if name == "a" else not own.turned
        found = [
            (k, place[1][-2:][::-1] if turned else place[1][-2:]) for k in wrong if (place := places[k]) is not None
        ]
        if (
            len(found) == len(places)
            and len({at for at, _ in (one for _, one in found)}) == 1
            and all(k == at for k, (_, at) in found)
        ):
            other = found[0][1][0]  # another row or column all along K
            point = (other, column) if name == "a" else (row, other)
            return "d", self._taken("d", (row, column), point)
        for k, (other, at) in found:
            needed, taken = ((line, k), (other, at)) if name == "a" else ((k, line), (at, other))
            registers = self._taken(name, needed, taken)
            if registers is not None:
                return name, registers
        return name, None

    def _taken(self, name: str, needed: Sequence[int], taken: Sequence[int]) -> tuple[int, int] | None:
        """The registers of one lane that hold two elements of an operand; None if no lane holds both."""
        if name not in self.instruction.operands:
            return None
        layout = self.instruction.operands[name].layout
        places = [
            layout.where(*(at % size for at, size in zip(point, (layout.rows, layout.columns), strict=True)))
            for point in (needed, taken)
        ]
        blocks = [
            tuple(at // size for at, size in zip(point, (layout.rows, layout.columns), strict=True))
            for point in (needed, taken)
        ]
        (lane, first, _), (other, second, _) = ([int(part) for part in own] for own in places)
        return (first, second) if blocks[0] == blocks[1] and lane == other and first != second else None


def made_of(session: Session, name: str, index: Sequence[int]) -> Made | None:
    """What an element of an array was made of, after a launch; None where no product was."""
    why = session.why(f"{name}[{', '.join(map(str, index))}]")
    if not why.nodes:
        return None
    for node in islice(nearest_first(why.nodes), _WALK):
        nodes = {own.label[0].lower(): own for own in node.children if own.label[:1] in ("A", "B", "C")}
        if {"a", "b"} <= nodes.keys():
            return Made(tuple(node.made), why.nodes[0], nodes, {key: tuple(_places(own)) for key, own in nodes.items()})
    return None


def product_of(session: Session, job: Job) -> tuple[Product | None, str]:
    """The product that a launch that ran computes, and why it is not known."""
    results = [own for own in job.regions if len(_shape(own)) == 2 and own.name in session.arrays]
    said = factors_of(job.product)
    results.sort(key=lambda own: (own.name != said["d"].name if said else False, own.expected is None))
    for region in results:
        rows, columns = _shape(region)
        points = (
            (0, 0),
            (rows // 2 + rows // 8, 0),
            (0, columns // 2 + columns // 8),
            (rows - 1, columns - 1),
            (rows // 4, columns // 4),
        )
        made = {point: made_of(session, region.name, _index(region, point)) for point in dict.fromkeys(points)}
        known = {point: own for point, own in made.items() if own is not None}
        if known:
            return _product(job, region, known)
    return (
        None,
        "no array of two dimensions was made by a product of a tensor core; of a result write shape = [rows, columns]",
    )


def _product(job: Job, region: Region, made: Mapping[tuple[int, int], Made]) -> tuple[Product | None, str]:
    named, arrays, said = {own.name: own for own in job.regions}, dict[str, str](), factors_of(job.product)
    instruction, idesc = _asked(next(iter(made.values())).records[-1])
    machine = machine_of(instruction, "diagnose", idesc)
    if machine.sparsity is not None or machine.blocks:
        return None, f"{instruction.mnemonic} takes metadata or scale factors, which no array is known to hold"
    for name in "ab":
        found = Counter(place[0] for own in made.values() for place in own.read[name] if place is not None)
        if not found:
            return None, f"operand {name} of {instruction.mnemonic} comes from no array with a name"
        arrays[name] = found.most_common(1)[0][0] if not said else said[name].name
    shapes = {name: _shape(named[own]) for name, own in arrays.items()} | {"d": _shape(region)}
    wanted = [tuple(said[name].turned for name in "dab")] if said else product((False, True), repeat=3)
    ways = [(cost, turned) for turned in wanted if (cost := _apart(made, arrays, shapes, *turned)) is not None]
    if not ways:
        shown = [
            f"{named[own].name} {' x '.join(map(str, named[own].shape))}" for own in (*arrays.values(), region.name)
        ]
        return None, f"{shown[0]} and {shown[1]} have no product of the shape of {shown[2]}"
    d, a, b = (Factor(own, turned) for own, turned in zip((region.name, *arrays.values()), min(ways)[1], strict=True))
    lines = tuple(sorted({one.site.item.line for own in made.values() for one in own.records}))
    return Product(instruction, a, b, d, said.get("c") or _added(made, d), idesc, lines), ""


def _apart(
    made: Mapping[tuple[int, int], Made], arrays: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], *turned: bool
) -> tuple[int, int] | None:  # fmt: skip
    """How many of the elements that were read are not those of a product of matrices that lie one way or the other, and how far they are off.

    None if there is no such product.
    """
    if any(len(own) != 2 for own in shapes.values()):
        return None
    d, a, b = turned
    (m, k), (depth, n), (rows, columns) = (
        shapes[name][::-1] if own else shapes[name] for name, own in zip("abd", (a, b, d), strict=True)
    )
    if k != depth or (m, n) != (rows, columns):
        return None
    others = total = 0
    for point, own in made.items():
        row, column = point[::-1] if d else point
        for name, line, other in (("a", row, a), ("b", column, not b)):
            for at, place in enumerate(own.read[name]):
                if place is not None and place[0] == arrays[name]:
                    first, second = place[1][-2:][::-1] if other else place[1][-2:]
                    others += (first, second) != (line, at)
                    total += abs(first - line) + abs(second - at)
    return others, total


def _added(made: Mapping[Any, Made], d: Factor) -> Factor | None:
    """The array that the product is added to: what the accumulator began with."""
    arrays = {place[0] for own in made.values() for place in own.read.get("c", ()) if place is not None}
    return Factor(arrays.pop(), d.turned) if len(arrays) == 1 else None


def _asked(record: Record) -> tuple[Any, int | None]:
    """The instruction that multiplied, and the instruction descriptor that it got."""
    asked = record.work.asked if record.work is not None else record.asked[0]
    idesc = asked.operands.get("idesc")
    return asked.bound.model, None if idesc is None else int(np.asarray(idesc).flat[0])


def _places(node: Node) -> Iterator[Place | None]:
    for element, time in node.reads:
        origin = node.trail.origin(element[0], time)
        named = None if origin is None or isinstance(origin, (Record, tuple)) else node.trail.named(origin)
        yield None if named is None else (named[0].name, named[1])


def _shape(region: Region) -> tuple[int, ...]:
    """Without dimensions of one that come first."""
    shape = region.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _index(region: Region, point: tuple[int, int]) -> tuple[int, ...]:
    return (0,) * (len(region.shape) - 2) + point


def _values(region: Region, data: Bytes, turned: bool) -> Array:
    found = region.elements.values(region.elements.to_codes(data)).astype(np.float64).reshape(_shape(region))
    return found.T if turned else found


def _codes(region: Region, data: Bytes, turned: bool, format: Any) -> Array | None:
    """An array as codes of an operand's format; None where it holds others."""
    own = region.elements
    if own.name != format.name and not (
        own.dtype.itemsize * 8 == format.container_bits and (own.format is None or format.name == "tf32")
    ):
        return None
    codes = own.to_codes(data).reshape(_shape(region)).astype(format.dtype)
    if format.ignored_low_bits:
        codes &= format.dtype.type(~((1 << format.ignored_low_bits) - 1) & ((1 << format.container_bits) - 1))
    return np.ascontiguousarray(codes.T if turned else codes)


def _result(region: Region, data: Bytes, turned: bool, format: Any) -> Array | None:
    """The result as `tcsim.diagnose` takes it: codes, or floats of a narrower type."""
    codes = _codes(region, data, turned, format)
    narrow = _NARROW.get(region.elements.name) if format.name == "f32" else None
    if codes is not None or narrow is None:
        return codes
    own = region.elements.to_codes(data).reshape(_shape(region))
    return np.ascontiguousarray(own.T if turned else own).view(narrow)
