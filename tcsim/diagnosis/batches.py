"""Batches: matrices taken from another place of the batch, strides of the batch that are wrong, and axes that are exchanged (heads and tokens)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Reals

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
        _, rows, elements = self.place.shape
        found = x.copy()
        memory = x[:, :rows, :elements].reshape(-1)
        found[:, :rows, :elements] = np.where(self.place < 0, memory.dtype.type(0), memory[self.place])
        return found


def _kernel(places: tuple[Place, ...]) -> WrongKernel:
    """A kernel that reads, or stores, one or several operands so."""
    by_name = {one.name[:1] if one.name != "b" else "b as rows of K": one for one in places}

    def read(given: Operands) -> Operands:
        b = given.b
        if "b as rows of K" in by_name:
            b = by_name["b as rows of K"].read(b.swapaxes(1, 2)).swapaxes(1, 2)
        return Operands(
            *(by_name[x].read(y) if x in by_name else y for x, y in zip("abc", (given.a, b, given.c), strict=True))
        )

    said = tuple((f"{one.name[0]}: {one.mistake}", one.detail, one.advice) for one in places)
    stored = by_name.get("d")
    store = (lambda found, right: found) if stored is None else (lambda found, right: stored.read(found))
    return WrongKernel(said, read, store, 1 + len(places))


def batched(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Those that give all outputs, one operand's first."""
    count = len(wrong)
    if count < 2 or problem.positions is not None or problem.scales is not None or not (wrong & reals.finite).any():
        return
    rows, columns = problem.sizes
    depth = problem.length
    sizes = {
        "a": (rows, depth),
        "b": (depth, columns),
        "b as K-major": (columns, depth),
        "c": (rows, columns),
        "d": (rows, columns),
    }
    names = [name for name in sizes if name != "c" or problem.c.any()]
    listed = {name: [*_strides(name, count, *sizes[name], [x * y for x, y in sizes.values()])] for name in names}
    every: Iterator[tuple[Place, ...]] = chain(
        (
            tuple(_of_map(name, at, *sizes[name]) for name, at in maps.items())
            for maps in _matched(reals, rows, columns)
        ),
        ((one,) for name in names for one in listed[name]),
        product(listed["a"], [*listed["b"], *listed["b as K-major"]]),
    )
    yield from islice((item for item in map(_kernel, every) if item.everywhere(reals)), 1)


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
