"""Orders of summation as data: which parts of K have an accumulator of their own, and how the parts are added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.explanation.arithmetic import Arithmetic, Codes, zeros

FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class Order:
    """K cut at `bounds`; in each part `turn` accumulators take blocks of `block` in turn; the parts are added as `sum` says."""

    bounds: tuple[int, ...]  # 0, ..., K
    sum: str = "ascending"
    turn: int = 1
    block: int = 0
    residue: int = 0  # of a tile: what a part has beyond whole tiles fills a tile of its own, before all others
    name: str = ""  # for readers
    rank: int = 0  # how unlikely

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others: with one part, or two, no order of sums is another."""
        parts = (len(self.bounds) - 1) * self.turn
        plain = parts == 1 or (parts == 2 and self.sum in SUMS)
        return (self.bounds, self.turn, self.block if self.turn > 1 else 0, self.residue, "" if plain else self.sum)

    def places(self, k: int, step: int) -> list[npt.NDArray[np.int64]]:
        """Of each accumulator the places of K that it takes, whole blocks of an instruction; -1: a zero.

        >>> [part.tolist() for part in Order((0, 6), turn=2, block=2).places(6, 2)]
        [[0, 1, 4, 5], [2, 3, -1, -1]]
        >>> [part.tolist() for part in Order((0, 5), residue=4).places(5, 4)]
        [[0, -1, -1, -1, 1, 2, 3, 4]]
        """
        found = []
        for start, end in pairwise(self.bounds):
            if self.residue:
                found.append(_shifted(start, end, self.residue, step))
            elif self.turn == 1:
                found.append(np.arange(start, end))
            else:
                blocks = _filled(np.arange(start, end), self.turn * self.block).reshape(-1, self.turn, self.block)
                found += [blocks[:, place].reshape(-1) for place in range(self.turn)]
        return [_filled(places, step) for places in found]


def _filled(places: npt.NDArray[np.int64], unit: int) -> npt.NDArray[np.int64]:
    return np.pad(places, (0, -len(places) % unit), constant_values=-1)


def _shifted(start: int, end: int, tile: int, step: int) -> npt.NDArray[np.int64]:
    lead = start + (end - start) % tile
    return np.concatenate([_filled(np.arange(start, lead), step), np.arange(lead, end)])


def ascending(parts: list[Floats]) -> Floats:
    """((p0 + p1) + p2) + ..."""
    return reduce(np.add, parts)


def descending(parts: list[Floats]) -> Floats:
    """From the last part to the first."""
    return reduce(np.add, parts[::-1])


def pairs(parts: list[Floats]) -> Floats:
    """Neighbours first: (p0 + p1) + (p2 + p3), ..."""
    while len(parts) > 1:
        parts = [reduce(np.add, parts[place : place + 2]) for place in range(0, len(parts), 2)]
    return parts[0]


def halves(parts: list[Floats]) -> Floats:
    """Each with the one half the number further, as lanes of a warp exchange sums."""
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        parts = [reduce(np.add, parts[place::half]) for place in range(half)]
    return parts[0]


def once(parts: list[Floats]) -> Floats:
    """In f64, rounded once."""
    kind = parts[0].dtype
    return reduce(np.add, [part.astype(np.float64) for part in parts]).astype(kind)


BUFFERS = 8
"""Where the kernels sm80_xmma of cuBLASLt add the parts of a split in place. Found on two recorded products of an H200 (docs/explain.md)."""


def buffers(parts: list[Floats]) -> Floats:
    """The last part, then in ascending order 8 sums: part p of the others was added to sum p mod 8.

    >>> p = [np.float32(each) for each in (1, 2**24, 3, 4, 5, 6, 7, 8, 9, -(2**24))]
    >>> bool(buffers(p) == (p[9] + (p[0] + p[8])) + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + p[7] != ascending(p))
    True
    """
    *others, last = parts
    return reduce(np.add, [reduce(np.add, others[place::BUFFERS]) for place in range(min(BUFFERS, len(others)))], last)


SUMS: dict[str, Callable[[list[Floats]], Floats]] = {
    "ascending": ascending, "descending": descending, "pairs": pairs, "halves": halves, "in f64": once, "buffers": buffers,
}  # fmt: skip
ROUNDED = {"partials in the output's format": False, "running total in the output's format": True}
"""Sums that round to the output's format: each part, or each sum."""


def add(parts: list[Codes], order: Order, accumulator: str, rounded: Callable[[Floats], Floats]) -> Codes:
    """The parts added. `rounded`: values rounded to the output's format, in the accumulator's."""
    if len(parts) == 1:
        return parts[0]
    if accumulator not in FLOATS:
        return reduce(np.add, parts)
    values = [part.view(FLOATS[accumulator]) for part in parts]
    with np.errstate(all="ignore"):
        if order.sum not in ROUNDED:
            return SUMS[order.sum](values).view(parts[0].dtype)
        values = [rounded(part) for part in values]
        if not ROUNDED[order.sum]:
            return ascending(values).view(parts[0].dtype)
        return reduce(lambda total, part: rounded(total + part), values).view(parts[0].dtype)


def run(arithmetic: Arithmetic, a: Codes, b: Codes, places: npt.NDArray[np.int64]) -> Codes:
    """One accumulator over some places of K: a (batch, M, K + 1) and b (batch, K + 1, N), whose last place holds zeros."""
    total = zeros((a.shape[0], a.shape[1], b.shape[2]), arithmetic)
    for block in places.reshape(-1, arithmetic.step):
        total = arithmetic.advance(a[:, :, block], b[:, block], total)
    return total


class Chains:
    """Accumulators of chosen outputs, kept: each row of a (P, K) with the same row of b (P, K)."""

    def __init__(self, arithmetic: Arithmetic, a: Codes, b: Codes) -> None:
        self.arithmetic, self.k = arithmetic, a.shape[1]
        self._a, self._b = (np.pad(x, ((0, 0), (0, -x.shape[1] % arithmetic.step + 1))) for x in (a, b))
        self._held: dict[tuple[int, int], Codes] = {}
        self._apart: dict[tuple[Any, ...], list[Codes]] = {}

    @cached_property
    def outputs(self) -> int:
        """P."""
        return len(self._a)

    def prepare(self, orders: list[Order]) -> None:
        """Compute together all parts that some orders have, as far as they are runs of an instruction's blocks."""
        step = self.arithmetic.step
        wanted = {
            part
            for order in orders
            if order.turn == 1
            for part in pairwise(order.bounds)
            if self._plain(*part, order.residue)
        }
        wanted -= set(self._held)
        self._prepare_apart(orders)
        if not wanted:
            return
        starts = np.array(sorted({start for start, _ in wanted}), np.int64)
        last = max(end for _, end in wanted)
        ends: dict[int, list[int]] = {}
        for start, end in wanted:
            ends.setdefault(end, []).append(start)
        total = zeros((self.outputs, 1, len(starts)), self.arithmetic)
        place = {start: number for number, start in enumerate(starts.tolist())}
        for k in range(0, last, step):
            live = int(np.searchsorted(starts, k, "right"))
            b = np.broadcast_to(self._b[:, k : k + step, None], (self.outputs, step, live))
            total[:, :, :live] = self.arithmetic.advance(self._a[:, None, k : k + step], b, total[:, :, :live])
            end = min(k + step, self.k)
            for start in ends.get(end, ()):
                self._held[start, end] = total[:, 0, place[start]].copy()

    def _prepare_apart(self, orders: list[Order]) -> None:
        """The parts that are not runs of whole blocks, together."""
        keys = {
            (part, order.residue): None
            for order in orders if order.turn == 1
            for part in pairwise(order.bounds) if not self._plain(*part, order.residue)
        }  # fmt: skip
        listed = [key for key in keys if key not in self._apart]
        if listed:
            step = self.arithmetic.step
            places = [Order(part, residue=residue).places(self.k, step)[0] for part, residue in listed]
            self._apart |= {key: [found] for key, found in zip(listed, self._together(places), strict=True)}

    def _plain(self, start: int, end: int, residue: int) -> bool:
        """Whether a part is a run of whole blocks, the last one's end apart."""
        step = self.arithmetic.step
        odd = residue and (end - start) % residue % step
        return not odd and start % step == 0 and (end % step == 0 or end == self.k)

    def parts(self, order: Order) -> list[Codes]:
        """The accumulators that an order adds."""
        if order.turn > 1:
            key: tuple[Any, ...] = (order.bounds, order.turn, order.block)
            if key not in self._apart:
                self._apart[key] = self._together(order.places(self.k, self.arithmetic.step))
            return self._apart[key]
        found = []
        for bounds in pairwise(order.bounds):
            if bounds not in self._held and self._plain(*bounds, 0):
                self.prepare([Order(bounds)])
            if self._plain(*bounds, order.residue):
                found.append(self._held[bounds])
                continue
            key = (bounds, order.residue)
            if key not in self._apart:
                self._apart[key] = self._together(
                    Order(bounds, residue=order.residue).places(self.k, self.arithmetic.step)
                )
            found += self._apart[key]
        return found

    def _together(self, places: list[npt.NDArray[np.int64]]) -> list[Codes]:
        """Accumulators over some places each, all at once."""
        longest = max(map(len, places))
        chosen = np.array([np.pad(item, (0, longest - len(item)), constant_values=-1) for item in places])
        a, b = (x[:, chosen].reshape(self.outputs * len(places), longest) for x in (self._a, self._b))
        found = run(self.arithmetic, a[:, None], b[:, :, None], np.arange(longest)).reshape(self.outputs, len(places))
        return [found[:, place].copy() for place in range(len(places))]


def contiguous(k: int, unit: int) -> Iterator[Order]:
    """Orders whose accumulators take runs of K, likeliest first, each once. unit: what bounds are multiples of."""
    return _once(_contiguous(k, unit))


def residue_first(k: int, step: int, align: int) -> Iterator[Order]:
    """Orders of CUTLASS's kernels: parts of K are multiples of `align` elements, 16 bytes, and what a part has beyond whole tiles comes first."""
    return _once(_residue_first(k, step, align), _ODD)


def in_turn(k: int, step: int) -> Iterator[Order]:
    """Orders whose accumulators take blocks of K in turn, likeliest first, each once. step: of the instruction."""
    return _once(_in_turn(k, step), _LATER)


def _once(listed: Iterable[Order], rank: int = 0) -> Iterator[Order]:
    seen: set[tuple[Any, ...]] = set()
    for place, order in enumerate(listed, rank):
        if order.key not in seen:
            seen.add(order.key)
            yield replace(order, rank=place)


ONE = "one accumulator"
UNITS = (64, 32, 128, 16, 8, 256)
"""Elements of K that a tile of a kernel may take."""
SPLITS = (*range(2, 33), 36, 40, 44, 48, 56, 64)
FRESH = (128, 64, 32, 256, 512, 16, 1024)
"""Elements of K after which an accumulator is added to a total, and starts again."""
TURNS = (2, 4, 8, 16, 32, 3, 6)


_VARIANT = 1 << 12  # by which the rank of another way to add exceeds that of the plain one
_ODD = 1 << 19  # rank of the first order with a residue
_LATER = 1 << 20  # rank of the first order that is not contiguous


def _contiguous(k: int, unit: int) -> Iterator[Order]:
    yield Order((0, k), name=ONE)
    for bounds, name in _partitions(k, unit):
        yield Order(bounds, name=name)


def _residue_first(k: int, step: int, align: int) -> Iterator[Order]:
    for tile in (64, 32, 16) if step > 1 else (0,):
        for split in (1, *SPLITS):
            length = -(-k // (split * align)) * align
            name = f"K split in {-(-k // length)} parts of {length}" if split > 1 else ONE
            first = f", what exceeds tiles of {tile} first" if tile else ""
            if max(tile, step) <= k:
                yield Order(_cut(k, length), residue=tile, name=name + first)


def variants(order: Order, rounding: bool) -> Iterator[Order]:
    """An order with its parts added in every other way. rounding: whether the output's format is narrower than an accumulator."""
    for place, sum in enumerate((*SUMS, *ROUNDED) if rounding else SUMS, 1):
        if sum != order.sum:
            yield replace(order, sum=sum, name=f"{order.name}, added {SAID[sum]}", rank=order.rank + place * _VARIANT)


def _in_turn(k: int, step: int) -> Iterator[Order]:
    for turn in TURNS:
        for block in (step, *(size for size in (1, 2, 4, 8, 16, 32, 64, 128) if size > step)):
            if turn * block > k:
                continue
            yield Order((0, k), turn=turn, block=block, name=f"{turn} accumulators that take blocks of {block} in turn")


SAID = {
    "ascending": "in ascending order", "descending": "in descending order", "pairs": "in pairs", "halves": "in halves",
    "in f64": "in f64", "buffers": f"in {BUFFERS} sums, these to the last", "partials in the output's format": "after rounding each to the output's format",
    "running total in the output's format": "with each sum rounded to the output's format",
}  # fmt: skip


def _partitions(k: int, unit: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Bounds and what they are called."""
    for length in FRESH:
        if length < k and length % unit == 0:
            yield _cut(k, length), f"a fresh accumulator every {length} elements of K"
    for tile in UNITS:
        blocks = -(-k // tile)
        if tile % unit:
            continue
        for split in SPLITS:
            if split > blocks:
                break
            length = -(-blocks // split) * tile
            yield _cut(k, length), f"K split in {-(-k // length)} parts of {length}"
            small, more = divmod(blocks, split)
            for counts in (
                [small + 1] * more + [small] * (split - more),
                [small] * (split - more) + [small + 1] * more,
            ):
                bounds = tuple(min(k, int(end) * tile) for end in np.cumsum([0, *counts]))
                yield bounds, f"K split in {split} parts of {small} or {small + 1} blocks of {tile}"


def _cut(k: int, length: int) -> tuple[int, ...]:
    return (*range(0, k, length), k)
