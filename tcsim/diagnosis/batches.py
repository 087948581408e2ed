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
_FEW = 4  # outputs that tell where a matrix begins
_FIT = 0.9  # of the outputs tried


def batched(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Other matrices of the batch in the place of one operand's, of both operands', of their factors or of the output's; wrong strides and axes of the batch."""
    if 1 < len(wrong) <= _MOST and problem.positions is None and (wrong & reals.finite).any():
        whole = [_of_matrices(names, at) for names, at in _matched(reals, *problem.sizes)]
        yield from whole
        if not whole:
            yield from _by_lines(reals, *problem.sizes)
        if problem.scales is None and not whole:
            yield from _matched_by_k(problem, reals)
            yield from _summed(problem, reals)
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


def _by_lines(reals: Reals, rows: int, columns: int) -> Iterator[WrongKernel]:
    """Which matrix of an operand, or of the output, each row or each column of every output matrix comes from."""
    count = len(reals.a)
    few = [np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (rows, columns)]
    for axis, other, name in ((1, few[1], "b"), (2, few[0], "a")):
        seen, right, c = (
            x[:, :rows, :columns].take(other, axis=3 - axis) for x in (reals.observed, reals.right, reals.c)
        )
        reach = np.maximum(reals.reach[:, :rows, :columns].take(other, axis=3 - axis), float(np.median(reals.reach)))
        a, b = reals.a[:, :rows], reals.b[:, :columns]
        a, b = (a, b[:, other]) if axis == 1 else (a[:, other], b)
        products = np.einsum("tik,ujk->tuij" if name == "b" else "uik,tjk->tuij", a, b, optimize=True)
        for what, values in ((name, products + c[:, None]), ("d", right[None]), ("c", (right - c)[:, None] + c[None])):
            fits = np.asarray(np.all(np.abs(values - seen[:, None]) <= reach[:, None], axis=4 - axis))  # (t, u, lines)
            nothing = np.all(seen == 0, axis=3 - axis) & (what == "d")
            if (fits.any(axis=1) | nothing).all() and (what != "c" or c.any()):
                own = np.arange(count)
                at = np.where(fits.any(axis=1), fits.argmax(axis=1), -1)
                at = np.where(fits[own, own], own[:, None], at)
                if (at != own[:, None]).any() and (at >= 0).any():
                    yield _of_lines(what, axis, at)


def _of_lines(name: str, axis: int, at: Ints) -> WrongKernel:
    """at: the matrix that each row (axis 1) or column of the batch takes an operand from, or is stored from; -1 for nothing, (batch, lines)."""
    own = np.broadcast_to(np.arange(len(at))[:, None], at.shape)
    pairs, place = np.unique(np.stack([own, np.maximum(at, 0)]).reshape(2, -1), axis=1, return_inverse=True)
    place = place.reshape(at.shape)

    def read(given: Operands) -> Operands:
        a, b, c = (x[pairs[1 if name in (what, "d") else 0]] for what, x in zip("abc", given[:3], strict=True))
        if given.scales is None:
            return Operands(a, b, c)
        one, other = (x[pairs[1 if name in (what, "d") else 0]] for what, x in zip("ab", given.scales, strict=True))
        return Operands(a, b, c, (one, other))

    def store(computed: Array, right: Array) -> Array:
        found = right.copy()
        lines = np.arange(at.shape[1])
        if axis == 1:
            found[:, lines] = np.where((at < 0)[..., None], computed.dtype.type(0), computed[place, lines])
        else:
            found[..., lines] = np.where(
                (at < 0)[:, None], computed.dtype.type(0), computed[place, :, lines].swapaxes(1, 2)
            )
        return found

    return WrongKernel(_said_of_parts(name, at, "rows" if axis == 1 else "columns", _LINES_ADVICE), read, store, 3)


def _summed(problem: Problem, reals: Reals) -> Iterator[WrongKernel]:
    """Accumulators that keep the sums of other matrices."""
    count, own = len(reals.a), np.arange(len(reals.a))
    held = np.zeros((count, count), bool)
    for t in range(count):
        places = np.argwhere(reals.usable & (own == t)[:, None, None])
        if not enough(len(places), count):
            return
        if not (reals.observed[t] - reals.c[t])[reals.usable[t]].any():
            continue
        found = solved_at(reals, some_of(places, 3 * count + 64), lambda own: reals.product[:, own[:, 1], own[:, 2]].T)
        if found is None or not np.isin(found, (0, 1)).all():
            return
        held[t] = found
    if held.sum(axis=1).max() < 2:
        return

    def read(given: Operands) -> Operands:
        a = (given.a[None] * held[:, :, None, None]).swapaxes(1, 2)
        b = np.broadcast_to(given.b.swapaxes(0, 1), (count, *given.b.swapaxes(0, 1).shape))
        return Operands(a.reshape(*a.shape[:2], -1), b.reshape(*b.shape[:2], -1), given.c)

    if held.diagonal().all():
        mistake, how = "accumulators not cleared between matrices of the batch", "holds also the sum of"
        advice = "clear the accumulators, or set scale_d to 0, at the first K tile of every matrix or group"
    else:
        mistake, how = "d: matrices of the batch added to one another", "holds the sum of"
        advice = "look at the stride of the batch of d and at the index of the batch where its pointer is made"
    others = [held[t] & ((own != t) | (how == "holds the sum of")) for t in own]
    said = [f"matrix {t} {how} {ranges(np.flatnonzero(others[t])) or 'none'}" for t in own if held[t].sum() != 1]
    yield WrongKernel(((mistake, listing(said, _LISTED), advice),), read, rank=2)


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
    each = np.repeat(at, unit, axis=1)[:, :depth]

    def read(given: Operands) -> Operands:
        a, b = (
            np.take_along_axis(x, each[:, None], axis=0) if name in names else x
            for name, x in zip("ab", given[:2], strict=True)
        )
        return Operands(a, b, given.c)

    said = [one for name in names.split() for one in _said_of_parts(name, each, "K", _K_ADVICE)]
    return WrongKernel(tuple(said), read, rank=2 + len(said))


def _said_of_parts(name: str, at: Ints, what: str, when: str) -> tuple[tuple[str, str, str]]:
    """What is said of the matrices that k, rows or columns come from, (batch, places); -1 for none."""
    own = np.arange(len(at))
    maps: dict[bytes, Mask] = {}
    for place in np.flatnonzero((at != own[:, None]).any(axis=0)).tolist():
        maps.setdefault(at[:, place].tobytes(), np.zeros(at.shape[1], bool))[place] = True
    listed = []
    for places in maps.values():
        _, detail, advice = _said_of_matrices(name, at[:, int(places.argmax())])
        listed.append(f"in {what} {ranges(np.flatnonzero(places))} {detail}")
    mistake = "another matrix of the batch" if name != "d" else "stored at another place: another matrix of the batch"
    mistake += f" in a part of {'the ' * (what != 'K')}{what}"
    return ((f"{name}: {mistake}", listing(listed, _LISTED), advice + when),)


_K_ADVICE = "; and at when they change: a tensor map or a pointer of the next matrix while copies still read the last"
_LINES_ADVICE = "; and at the offsets of groups (experts): which group a tile or a row at its edge belongs to"
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
        for mistake, detail, where in _strides(name, axes, shape, _begins(reals, name, memory)):
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
    name: str, axes: tuple[str, str], shape: tuple[int, int, int], begins: Ints
) -> Iterator[tuple[str, str, Place]]:
    """(mistake, detail, places). begins: where the second matrix may begin."""
    called = "batch", *axes
    tight = "".join(f"[{axis}]" for axis in called)
    for order in _ORDERS_OF_AXES:
        said = "".join(f"[{called[axis]}]" for axis in order)
        for taken, lies in ((said, tight), (tight, said)):
            detail = f"memory of {lies} is taken for {taken}: the strides of batch (heads) and {axes[0]} (tokens) are exchanged"
            yield "axes of the batch exchanged", detail, partial(_axes, order, shape, lies == said)
    size = shape[1] * shape[2]
    for stride in begins[begins != size][:_LISTED].tolist():
        row = f", the stride of its {axes[0]}" * (stride == shape[2])
        row += f", {stride // shape[2]} {axes[0]} for {shape[1]}" * (stride % shape[2] == 0 and not row)
        detail = f"{stride} elements from matrix to matrix instead of {size}{row}"
        yield "batch stride wrong", detail, partial(_stored_apart if name == "d" else _apart, stride, shape)
        off = stride - size
        lines = f", {abs(off) // shape[2]} {axes[0]}" * (off % shape[2] == 0)
        said = f"by {off} elements{lines}, across the matrices of the batch: what lies outside is zero"
        yield "pointer off", said, partial(_late, -off if name == "d" else off, shape)


def _begins(reals: Reals, name: str, memory: Numbers) -> Ints:
    """Where in the memory of a batch its second matrix begins, as a few of its outputs tell."""
    few, depth = np.arange(min(_FEW, *reals.c.shape[1:])), reals.a.shape[2]
    rows, columns = (few, 0 * few) if name.startswith("b") else (0 * few, few)
    if not reals.finite[1, rows, columns].all():
        return np.zeros(0, np.int64)
    flat = np.ascontiguousarray(memory).reshape(-1)
    seen, reach, c = (x[1, rows, columns] for x in (reals.observed, reals.reach, reals.c))
    if name in "cd":
        here = np.ascontiguousarray(reals.observed[:, : memory.shape[1], : memory.shape[2]]).reshape(-1)
        at = np.lib.stride_tricks.sliding_window_view(flat if name == "c" else here, len(few))
        sought = seen - reals.product[1, rows, columns] if name == "c" else reals.right[1, rows, columns]
        return np.flatnonzero((np.abs(at - sought) <= reach).all(axis=1))
    pitch = memory.shape[2] if name == "b" else 1
    met = (reals.a if name.startswith("b") else reals.b)[1, : len(few), :depth]
    lanes = np.pad(flat, (0, -len(flat) % pitch)).reshape(-1, pitch)
    size = len(lanes) + depth
    wave = np.fft.rfft(lanes, size, axis=0)
    fits = np.ones(lanes.shape, bool)
    for own, wanted, far, more in zip(met, seen, reach, c, strict=True):  # the products of a line with every place
        sums = np.fft.irfft(wave * np.fft.rfft(own, size).conj()[:, None], size, axis=0)[: len(lanes)]
        fits &= np.abs(sums + more - wanted) <= far
    return np.flatnonzero(fits.reshape(-1))


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


def _late(off: int, shape: tuple[int, int, int], t: Ints, row: Ints, element: Ints) -> Ints:
    place = t * (shape[1] * shape[2]) + row * shape[2] + element + off
    return np.where((place >= 0) & (place < np.prod(shape)), place, -1)


def _stored_apart(stride: int, shape: tuple[int, int, int], t: Ints, row: Ints, element: Ints) -> Ints:
    """What stands in memory where matrices are stored so far apart, later ones over earlier ones."""
    size = shape[1] * shape[2]
    place = t * size + row * shape[2] + element
    matrix = np.minimum(place // stride, shape[0] - 1) if stride else 0 * place + shape[0] - 1
    inside = place - matrix * stride
    return np.where(inside < size, matrix * size + inside, -1)


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
    moved = [
        f"matrix {source} for {place}".replace("matrix -1", "nothing")
        for place, source in enumerate(at.tolist())
        if place != source
    ]
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
