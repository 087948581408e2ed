"""Batches: matrices taken from another place of the batch, strides of the batch that are wrong, and axes that are exchanged (heads and tokens)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.equivalence import right_of
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.whole import Whole

_SIDE = 6  # rows and columns of each matrix that are tried first
_MOST = 64  # matrices of a batch of which every pair is tried
_LISTED = 6
_AXES = {
    "a": ("rows", "K"),
    "b": ("K", "columns"),
    "b as K-major": ("columns", "K"),
    "c": ("rows", "columns"),
    "d": ("rows", "columns"),
}
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Place:
    """Where the elements of one operand are read: element (matrix, row, k) of memory of `shape` at `place`; -1: nothing."""

    name: str  # a, b, c, d, or "b as K-major"
    mistake: str
    detail: str
    advice: str
    place: Ints  # (batch, rows, elements)

    def read(self, x: Array) -> Array:
        """An operand (batch, rows, elements) read like that; it may be longer than what was given, and stays as it is there."""
        turned = x.swapaxes(1, 2) if "K-major" in self.name else x
        _, rows, elements = self.place.shape
        own = turned[:, :rows, :elements]
        found = turned.copy()
        memory = own.reshape(-1)
        found[:, :rows, :elements] = np.where(self.place < 0, memory.dtype.type(0), memory[self.place])
        return found.swapaxes(1, 2) if "K-major" in self.name else found


@dataclass(frozen=True, eq=False)
class Batched(Whole):
    """Places of one or several operands."""

    places: tuple[Place, ...]

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Smaller is simpler."""
        return 1 + len(self.places)

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [(f"{one.name[0]}: {one.mistake}", one.detail, one.advice) for one in self.places]

    def all_values(self, reals: Reals) -> Numbers:
        """What it predicts of all matrices."""
        a, b, c = reals.a, reals.b.swapaxes(1, 2), reals.c
        for one in self.places:
            a = one.read(a) if one.name == "a" else a
            b = one.read(b) if one.name[0] == "b" else b
            c = one.read(c) if one.name == "c" else c
        found: Numbers = a @ b + c
        for one in self.places:
            found = one.read(found) if one.name == "d" else found
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        found: Numbers = self.all_values(reals)[matrix]
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding; sums of another matrix are of its size."""
        reach = np.maximum(reals.reach[matrix], float(np.median(reals.reach)))
        found: Mask = np.abs(self.values(reals, matrix) - reals.observed[matrix]) <= reach
        return found & reals.finite[matrix]

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output, bit for bit."""
        changed = replace(problem, finish=None)
        for one in self.places:
            if one.name == "a":
                changed = replace(changed, a=one.read(changed.a))
            elif one.name[0] == "b":
                changed = replace(changed, b=one.read(changed.b))
            elif one.name == "c":
                changed = replace(changed, c=one.read(changed.c))
        found = right_of(changed)
        for one in self.places:
            found = one.read(found) if one.name == "d" else found
        return found


def batched(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Batched]:
    """Those that give all outputs, one operand's first."""
    count = len(wrong)
    if count < 2 or problem.positions is not None or problem.scales is not None or not (wrong & reals.finite).any():
        return
    rows, columns = problem.size or (wrong.shape[1], wrong.shape[2])
    depth = problem.depth or reals.a.shape[2]
    sizes = {
        "a": (rows, depth),
        "b": (depth, columns),
        "b as K-major": (columns, depth),
        "c": (rows, columns),
        "d": (rows, columns),
    }
    names = [name for name in sizes if name != "c" or problem.c.any()]
    listed = {name: [*_strides(name, count, *sizes[name], [x * y for x, y in sizes.values()])] for name in names}
    for maps in _matched(reals, rows, columns):
        found = tuple(_of_map(name, at, *sizes[name]) for name, at in maps.items())
        if found and _gives(Batched(found), reals):
            yield Batched(found)
            return
    for name in names:
        for one in listed[name]:
            if _gives(Batched((one,)), reals):
                yield Batched((one,))
                return
    for one, other in product(listed["a"], [*listed["b"], *listed["b as K-major"]]):
        if _gives(Batched((one, other)), reals):
            yield Batched((one, other))
            return


def _gives(item: Batched, reals: Reals) -> bool:
    """Whether every output is given."""
    values = item.all_values(reals)
    reach = np.maximum(reals.reach, float(np.median(reals.reach)))
    return bool((np.abs(values - reals.observed) <= reach)[reals.finite].all())


def _matched(reals: Reals, rows: int, columns: int) -> Iterator[dict[str, Ints]]:
    """Which matrix of each operand every output matrix comes from, if it is one; a single operand's maps first."""
    count = len(reals.a)
    if count > _MOST:
        return
    some = [np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (rows, columns)]
    place = np.ix_(np.arange(count), *some)
    seen, c, reach = (
        reals.observed[place],
        reals.c[place],
        np.maximum(reals.reach[place], float(np.median(reals.reach))),
    )
    products = np.einsum("tik,ujk->tuij", reals.a[:, some[0]], reals.b[:, some[1]], optimize=True)
    own = np.arange(count)
    same = products[own, own]
    options = {
        "d": (same + c)[None].repeat(count, axis=0),  # [output, source]
        "a": products.swapaxes(0, 1) + c[:, None],
        "b": products + c[:, None],
        "a b": same[None] + c[:, None],
        "c": same[:, None] + c[None],
    }
    for name, values in options.items():
        if name == "c" and not c.any():
            continue
        fits = (np.abs(values - seen[:, None]) <= reach[:, None]).all(axis=(2, 3))
        if fits.any(axis=1).all():
            at = np.where(fits[own, own], own, fits.argmax(axis=1))
            if (at != own).any():
                yield dict.fromkeys(name.split(), at)


def _of_map(name: str, at: Ints, rows: int, elements: int) -> Place:
    count = len(at)
    own = np.arange(count)
    inner = np.arange(rows * elements).reshape(1, rows, elements)
    advice = f"look at the stride of the batch of {name} and at the index of the batch (blockIdx.z), where {name}'s pointer is made"
    for group in range(2, count):
        if np.array_equal(at, own // group) or np.array_equal(at, own // group * group):
            detail = f"{group} neighbours share one: {_listing(at)}"
            break
    else:
        detail = "the next one of the batch" if np.array_equal(at, (own + 1) % count) else _listing(at)
    mistake = "another matrix of the batch"
    if (at == at[0]).all():
        mistake, detail = "batch index ignored", f"the stride of the batch is 0: matrix {int(at[0])} for every one"
    if name == "d":
        mistake, detail = f"stored at another place: {mistake}", detail
    return Place(name, mistake, detail, advice, at[:, None, None] * (rows * elements) + inner)


def _listing(at: Ints) -> str:
    moved = [f"matrix {int(source)} for {place}" for place, source in enumerate(at) if place != source]
    return ", ".join(moved[:_LISTED]) + (f" and {len(moved) - _LISTED} more" if len(moved) > _LISTED else "")


def _strides(name: str, count: int, rows: int, elements: int, others: list[int]) -> Iterator[Place]:
    """Wrong strides of the batch, and axes that are exchanged."""
    size = rows * elements
    t, row, at = np.ogrid[:count, :rows, :elements]
    first, second = _AXES[name]
    tight = f"[batch][{first}][{second}]"
    axes = (
        ((t * elements + row * count * elements + at), f"[{first}][batch][{second}]"),
        ((row * elements + at) * count + t, f"[{first}][{second}][batch]"),
        ((t * rows + row) + at * count * rows, f"[{second}][batch][{first}]"),
    )
    advice = f"look at the strides of the batch (heads) and of the {first} (tokens) of {name[0]}, and at a transpose that was not made"
    for place, said in axes:
        stored = np.empty(place.size, np.int64)
        stored[place.reshape(-1)] = np.arange(place.size)
        for which, there in ((said, place), (tight, stored.reshape(place.shape))):
            other = tight if which == said else said
            detail = f"memory of {other} is taken for {which}: batch (heads) and {first} (tokens) are exchanged"
            yield Place(name, "axes of the batch exchanged", detail, advice, there)
    for stride in sorted({*others, size // 2, 2 * size, elements, size + elements} - {size}):
        place = t * stride + row * elements + at
        detail = f"{stride} elements from matrix to matrix instead of {size}"
        if name != "d":
            yield Place(
                name,
                "batch stride wrong",
                detail,
                f"look at the stride of the batch of {name[0]}",
                np.where(place < count * size, place, -1),
            )
