"""Batches: operands, factors or outputs of other matrices, of all of K or of a part; wrong strides and axes of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.hypothesis import Array, Operands, WrongKernel
from tcsim.diagnosis.least_squares import in_parts, solved_at, sources
from tcsim.diagnosis.maps import STEPS
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.where import listing, ranges

_SAMPLES = 48  # outputs that every stride is tried on first
_SIDE = 6  # rows and columns of each matrix that are tried first
_MOST = 64  # matrices of a batch of which every pair is tried
_LISTED = 6
_UNKNOWNS = 256  # parts of K of all matrices
_FIT = 0.9  # of the outputs tried


def batched(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Other matrices of the batch in the place of one operand's, of both operands', of their factors or of the output's; wrong strides and axes of the batch."""
    if 1 < len(wrong) <= _MOST and problem.positions is None and (wrong & reals.finite).any():
        whole = [_of_matrices(names, at) for names, at in _matched(reals, *problem.sizes)]
        yield from whole
        if problem.scales is None and not whole:
            yield from _matched_by_k(problem, reals)
            yield from _laid(problem, reals, wrong)


def _of_matrices(names: str, at: Ints) -> WrongKernel:
    """The matrix that each of the batch is of some operands, or of the output d."""

    def read(given: Operands) -> Operands:
        a, b, c = (x[at] if name in names.split() else x for name, x in zip("abc", given[:3], strict=True))
        if given.scales is None:
            return Operands(a, b, c)
        one, other = (x[at] if f"scale_{n}" in names else x for n, x in zip("ab", given.scales, strict=True))
        return Operands(a, b, c, (one, other))

    def store(computed: Array, right: Array) -> Array:
        return computed[at] if names == "d" else computed

    said = tuple(_said_of_matrices(name, at) for name in names.split())
    return WrongKernel(said, read, store, 1 + len(said))


def _matched(reals: Reals, rows: int, columns: int) -> Iterator[tuple[str, Ints]]:
    """Which matrix of an operand, or of several alike, every output matrix comes from, if it is one."""
    count = len(reals.a)
    some = [np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (rows, columns)]
    place = np.ix_(np.arange(count), *some)
    seen, c = reals.observed[place], reals.c[place]
    reach = np.maximum(reals.reach[place], float(np.median(reals.reach)))
    products = np.einsum("tik,ujk->tuij", reals.a[:, some[0]], reals.b[:, some[1]], optimize=True)
    own = np.arange(count)
    same = products[own, own]
    of_a, of_b = ("a", "b") if reals.factors is None else ("a scale_a", "b scale_b")
    options = {
        "d": (same + c)[None].repeat(count, axis=0),  # [output, source]
        of_a: products.swapaxes(0, 1) + c[:, None],
        of_b: products + c[:, None],
        f"{of_a} {of_b}": same[None] + c[:, None],
        "c": same[:, None] + c[None],
    }
    if reals.factors is not None and reals.bare is not None:
        lines = [x[:, which] for x, which in zip(reals.bare, some, strict=True)]
        one, other = (x[:, which] for x, which in zip(reals.factors, some, strict=True))
        terms = [x.reshape(*x.shape[:2], one.shape[2], -1) for x in lines]
        sums = np.einsum("tigk,tjgk->tijg", *terms, optimize=True)
        for names, of in (("scale_b", "tig,ujg"), ("scale_a", "uig,tjg"), ("scale_a scale_b", "uig,ujg")):
            options[names] = np.einsum(f"tijg,{of}->tuij", sums, one, other, optimize=True) + c[:, None]
    for names, values in options.items():
        fits = (np.abs(values - seen[:, None]) <= reach[:, None]).all(axis=(2, 3))
        if fits.any(axis=1).all() and (names != "c" or c.any()):
            at = np.where(fits[own, own], own, fits.argmax(axis=1))
            if (at != own).any():
                yield names, at


def _matched_by_k(problem: Problem, reals: Reals) -> Iterator[WrongKernel]:
    """Which matrix of both operands, or of one, every output matrix takes each part of K from, of the longest parts that give any."""
    count, depth = len(reals.a), reals.a.shape[2]
    for unit in (times * problem.step for times in STEPS[::-1] if times * problem.step < depth):
        parts = -(-depth // unit)
        for names in ("a b", "b", "a") if count * parts <= _UNKNOWNS else ():
            found: list[Ints] = []
            for t in range(count):
                places = np.argwhere(reals.usable & (np.arange(count) == t)[:, None, None])
                chosen = some_of(places, 3 * count * parts + 64) if enough(len(places), count * parts) else None
                terms = partial(_terms_by_k, reals, names, t, unit)
                at = sources(solved_at(reals, chosen, terms, most=parts, usual=parts))
                if at is None or (at < 0).any():
                    break
                found.append(at)
            if len(found) == count and (np.array(found) != np.arange(count)[:, None]).any():
                yield _of_matrices_by_k(names, np.array(found), unit, depth)
                return


def _terms_by_k(reals: Reals, names: str, t: int, unit: int, chosen: Ints) -> Numbers:
    """The products of each part of K of outputs of matrix t, (samples, parts, matrices) that operands are of."""
    a, b = (
        x[:, lines] if name in names else x[t : t + 1, lines]
        for name, x, lines in (("a", reals.a, chosen[:, 1]), ("b", reals.b, chosen[:, 2]))
    )
    return np.moveaxis(in_parts(a * b, unit).sum(axis=3), 0, 2)


def _of_matrices_by_k(names: str, at: Ints, unit: int, depth: int) -> WrongKernel:
    """at: the matrix that each of the batch is in each part of K, (batch, parts)."""
    own = np.arange(len(at))
    each = np.repeat(at, unit, axis=1)[:, :depth]

    def read(given: Operands) -> Operands:
        a, b = (
            np.take_along_axis(x, each[:, None], axis=0) if name in names else x
            for name, x in zip("ab", given[:2], strict=True)
        )
        return Operands(a, b, given.c)

    maps: dict[bytes, Mask] = {}
    for part in np.flatnonzero((at != own[:, None]).any(axis=0)).tolist():
        maps.setdefault(at[:, part].tobytes(), np.zeros(at.shape[1], bool))[part] = True
    said = []
    for name in names.split():
        of_k = []
        for parts in maps.values():
            mistake, detail, advice = _said_of_matrices(name, at[:, int(parts.argmax())])
            of_k.append(f"in K {ranges(np.flatnonzero(np.repeat(parts, unit)[:depth]))} {detail}")
        mistake = f"{name}: another matrix of the batch in a part of K"
        when = (
            "; and at when they change: a tensor map or a pointer of the next matrix while copies still read the last"
        )
        said.append((mistake, listing(of_k, _LISTED), advice + when))
    return WrongKernel(tuple(said), read, rank=2 + len(said))


_AXES = {"a": ("rows", "K"), "b": ("K", "columns"), "b as it is": ("columns", "K"), "c": ("rows", "columns")}
_ORDERS_OF_AXES = ((1, 0, 2), (1, 2, 0), (2, 0, 1))
Place = Callable[[Ints, Ints, Ints], Ints]  # (matrix, line, element) -> where in memory, -1 outside


def _laid(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Memory of a batch that is read, or stored, with another stride from matrix to matrix, or with its axes exchanged."""
    (rows, columns), depth, count = problem.sizes, problem.length, len(wrong)
    t, i, j = some_of(np.argwhere(wrong & reals.finite), _SAMPLES).T
    place = t, i, j
    lines = {"a": reals.a[:, :rows, :depth], "b": reals.b[:, :columns, :depth].swapaxes(1, 2)}
    held = {**lines, "b as it is": reals.b[:, :columns, :depth], "c": reals.c[:, :rows, :columns]}
    held["d"] = reals.right[:, :rows, :columns]
    for name, memory in held.items() if min(memory.size for memory in held.values()) else ():
        if name == "c" and not memory.any():
            continue
        shape = count, *memory.shape[1:]
        axes = _AXES["c" if name == "d" else name]
        for mistake, detail, where in _strides(name, axes, shape, [count and x[0].size for x in held.values()]):
            if name in "cd":
                found = _from(memory, where, t, i, j) + (reals.product[place] if name == "c" else 0.0)
            else:
                k, own, other = np.arange(depth), *((i, j) if name == "a" else (j, i))
                at = (k, own[:, None]) if name == "b" else (own[:, None], k)
                met = (reals.b if name == "a" else reals.a)[t, other, :depth]
                found = (_from(memory, where, t[:, None], *at) * met).sum(axis=1) + reals.c[place]
            if (np.abs(found - reals.observed[place]) <= reals.reach[place]).mean() >= _FIT:
                yield _laid_so(name, mistake, detail, where, shape)


def _from(memory: Array, where: Place, t: Ints, row: Ints, element: Ints) -> Array:
    """Elements of a batch (matrices, lines, elements) from other places in its memory; zeros outside."""
    at = where(t, row, element)
    return np.where(at < 0, memory.dtype.type(0), np.ascontiguousarray(memory).reshape(-1)[at])


def _strides(
    name: str, axes: tuple[str, str], shape: tuple[int, int, int], others: list[int]
) -> Iterator[tuple[str, str, Place]]:
    """(mistake, detail, places). others: the sizes of matrices, whose strides may be taken for this one's."""
    called = "batch", *axes
    tight = "".join(f"[{axis}]" for axis in called)
    for order in _ORDERS_OF_AXES:
        said = "".join(f"[{called[axis]}]" for axis in order)
        for taken, lies in ((said, tight), (tight, said)):
            detail = f"memory of {lies} is taken for {taken}: the strides of batch (heads) and {axes[0]} (tokens) are exchanged"
            yield "axes of the batch exchanged", detail, partial(_axes, order, shape, lies == said)
    size = shape[1] * shape[2]
    for stride in sorted({*others, size // 2, 2 * size, shape[2], size + shape[2]} - {size}) if name != "d" else ():
        row = f", the stride of its {axes[0]}" * (stride == shape[2])
        detail = f"{stride} elements from matrix to matrix instead of {size}{row}"
        yield "batch stride wrong", detail, partial(_apart, stride, shape)


def _axes(order: tuple[int, ...], shape: tuple[int, int, int], lies: bool, *index: Ints) -> Ints:
    """Where an element is read whose memory is taken for one with the axes in another order; lies: whose memory has that order, and is taken for the usual one."""
    index = tuple(np.broadcast_arrays(*index))
    there = tuple(shape[axis] for axis in order)
    if not lies:
        return np.ravel_multi_index(tuple(index[axis] for axis in order), there)
    found = np.unravel_index(np.ravel_multi_index(index, shape), there)
    return np.ravel_multi_index(tuple(found[order.index(axis)] for axis in range(3)), shape)


def _apart(stride: int, shape: tuple[int, int, int], t: Ints, row: Ints, element: Ints) -> Ints:
    place = t * stride + row * shape[2] + element
    return np.where(place < np.prod(shape), place, -1)


def _laid_so(name: str, mistake: str, detail: str, where: Place, shape: tuple[int, int, int]) -> WrongKernel:
    """A kernel that reads, or stores, one operand so. shape: (matrices, lines, elements) of its memory."""

    def again(x: Array) -> Array:
        found = x.copy()
        part = np.s_[:, : shape[1], : shape[2]]
        found[part] = _from(x[part], where, *np.indices(shape))
        return found

    def read(given: Operands) -> Operands:
        if name == "b":
            return given._replace(b=again(given.b.swapaxes(1, 2)).swapaxes(1, 2))
        if name == "c":
            return given._replace(c=again(given.c))
        return given if name == "d" else given.reading(name[0], again(given.a if name == "a" else given.b))

    def store(computed: Array, right: Array) -> Array:
        return again(computed) if name == "d" else computed

    advice = f"look at the strides of the batch (heads) and of the axes beside it of {name[0]}, and at a transpose that was not made"
    return WrongKernel(((f"{name[0]}: {mistake}", detail, advice),), read, store, 2)


def _said_of_matrices(name: str, at: Ints) -> tuple[str, str, str]:
    """(mistake, detail, advice)."""
    own = np.arange(len(at))
    moved = [f"matrix {source} for {place}" for place, source in enumerate(at.tolist()) if place != source]
    detail = listing(moved, _LISTED, ", ")
    for group in range(2, len(at)):
        if np.array_equal(at, own // group) or np.array_equal(at, own // group * group):
            detail = f"{group} neighbours share one: {detail}"
            break
    mistake = "another matrix of the batch" if name != "d" else "stored at another place: another matrix of the batch"
    if (at == at[0]).all():
        mistake, detail = "batch index ignored", f"the stride of the batch is 0: matrix {at[0]} for every one"
    advice = f"look at the stride of the batch of {name} and at the index of the batch (blockIdx.z), where {name}'s pointer is made"
    return f"{name}: {mistake}", detail, advice
