"""Constants that an operand's elements lack or have too much, and factors of parts of K: what they come to is linear in sums of lines.

A zero point of B that is not subtracted adds, to each output, that number times the sum of its row of A; one for each column, or for each group of K and column, alike. Zero
points of both operands add a number for each row, one for each column and a constant. A scale of a group of K multiplies the group's products.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.least_squares import in_parts
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals

_GROUPS = (16, 32, 64, 128, 256)  # of K
_TIMES = 2  # outputs of a line for each number that is solved for
_TELLS = 0.01  # of a usual output: what the numbers come to
_SIDE = 64  # rows and columns that one constant of each operand is tried on first
_FIRST = 4  # lines that are solved first: they refuse most
_CLOSE = 0.02  # how near to a whole number a constant or a count comes
_ADVICE = (
    "the zero point of {x} is not subtracted, or subtracted twice, or with the wrong sign, or it is another line's"
)


def _constants(added: dict[str, Numbers], group: int, rest: float, whole: bool) -> WrongKernel:
    """Numbers added to the elements of an operand, by operand: (groups of K, lines), or (groups, 1); and one to every output."""
    names = []
    for name, z in added.items():
        line, other = ("column", "row of a") if name == "b" else ("row", "column of b")
        each = [f"each {line}"] if z.shape[1] > 1 else []
        each += [f"each {group} of K"] if z.shape[0] > 1 else []
        said = f"one for {' and '.join(each)}, from {z.min():.4g} to {z.max():.4g}" if each else f"{z[0, 0]:.4g}"
        said += f": each output is off by that times the sum of its {other}"
        names.append((f"constant added to {name}", said, _ADVICE.format(x=name)))
    both = group * float(np.prod([z[0, 0] for z in added.values()])) if len(added) > 1 else np.inf
    if rest and abs(both - rest) > _CLOSE * abs(rest):
        names.append(("bias added", f"{rest:.6g} to every output", "the product of both zero points, for instance"))

    def read(given: Operands) -> Operands:
        c = given.c + rest
        for name, lines in zip("ba", given.scaled(), strict=True):
            if name in added:
                z = added[name]
                more = _sums(lines, group if z.shape[0] > 1 else lines.shape[2]) @ z
                c = c + (more if name == "b" else more.swapaxes(1, 2))
        return given._replace(c=(np.rint(c) + 2.0**31) % 2.0**32 - 2.0**31 if whole else c)

    return WrongKernel(tuple(names), read, rank=2 + len(added))


def _factors_of(name: str, group: int, factors: Numbers) -> WrongKernel:
    """The products of each group of K and of each line times a factor, (lines, groups). name: "a": of each row, "b": of each column."""
    line = "row" if name == "a" else "column"
    said = f"the products of each {group} of K and each {line} are multiplied by numbers from {factors.min():.4g} to {factors.max():.4g}"
    advice = f"look at the scales of {name} along K: which group's and which {line}'s they are, and whether they are applied once"

    def read(given: Operands) -> Operands:
        lines = given.a if name == "a" else given.b
        return given.reading(name, lines * np.repeat(factors, group, axis=1)[:, : lines.shape[2]])

    return WrongKernel(((f"scales of {name} wrong", said, advice),), read)


def _sums(lines: Numbers, group: int) -> Numbers:
    """Sums of each group of K: (..., lines, groups)."""
    return in_parts(lines, group).sum(axis=-1)


def _open(problem: Problem, reals: Reals, wrong: Mask) -> bool:
    """Whether it is one matrix, most of it is wrong, and by more than rounding."""
    rows, columns = problem.sizes
    if len(wrong) > 1 or reals.floor or not reals.finite[:, :rows, :columns].all():
        return False
    off, usual = (float(np.sqrt((x**2).mean())) for x in (reals.observed - reals.right, reals.right))
    return bool(wrong[:, :rows, :columns].mean() >= 0.5 and off >= _TELLS * usual)


def _of_one(reals: Reals, rows: int, columns: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Lines of both operands, how far outputs are off, and how far rounding takes them."""
    place = 0, slice(rows), slice(columns)
    return reals.a[0, :rows], reals.b[0, :columns], (reals.observed - reals.right)[place], 2 * reals.reach[place]


def line_sums(problem: Problem, reals: Reals, wrong: Mask, grouped: bool = False) -> Iterator[WrongKernel]:
    """Those that give every output of one matrix; `grouped`: if groups of K have their own."""
    if not _open(problem, reals, wrong):
        return
    whole = problem.machine.formats["d"].kind != "float"
    rows, columns = problem.sizes
    a, b, off, reach = _of_one(reals, rows, columns)
    depth = problem.length
    few = np.s_[:_SIDE, :_SIDE]
    both = _both(a[:_SIDE], b[:_SIDE], off[few], reach[few], whole) and _both(a, b, off, reach, whole)
    if both is not None:
        yield from () if grouped else (both,)
        return
    for group in (depth, *(size for size in _GROUPS[::-1] if size < depth)):
        for name, lines, aim, far in (("b", a, off, reach), ("a", b, off.T, reach.T)):
            count = -(-depth // group)
            if len(lines) < _TIMES * count + 4:
                continue
            sums = _sums(lines[:, :depth], group)
            z = _least(sums, aim[:, :_FIRST])
            if z is not None and (np.abs(sums @ z - aim[:, :_FIRST]) <= far[:, :_FIRST]).all():
                z = _least(sums, aim)
                assert z is not None  # of the same terms
                z = np.rint(z) if whole and (np.abs(z - np.rint(z)) < _CLOSE).all() else z
                if (np.abs(sums @ z - aim) <= far).all():
                    if group < depth or not grouped:
                        yield _constants({name: _across(z, len(reals.lines(name)[0]))}, group, 0.0, whole)
                    return


def group_factors(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Factors of each line and each group of K that give every output of one matrix, none of them zero."""
    if not _open(problem, reals, wrong):
        return
    rows, columns = problem.sizes
    a, b, off, reach = _of_one(reals, rows, columns)
    depth = problem.length
    for group in (size for size in _GROUPS[::-1] if size < depth):
        for name, lines, other, aim, far in (("b", a, b, off, reach), ("a", b, a, off.T, reach.T)):
            if len(lines) < _TIMES * -(-depth // group) + 4:
                continue
            most = reals.stretched(np.inf, (0, slice(rows), slice(columns)))
            found = _factors(lines[:, :depth], other[:, :depth], aim, far, most if name == "b" else most.T, group)
            if found is not None and np.abs(found).min() > _TELLS:
                ends = ((0, len(reals.lines(name)[0]) - len(found)), (0, 0))
                yield _factors_of(name, group, np.pad(found, ends, constant_values=1.0))
                return


def _across(z: Numbers, lines: int) -> Numbers:
    """(groups, 1) if all lines have the same numbers, else (groups, lines)."""
    if np.ptp(z, axis=1).max() <= 1e-3 * np.abs(z).max():
        found: Numbers = z.mean(axis=1, keepdims=True)
        return found
    return np.pad(z, ((0, 0), (0, lines - z.shape[1])))


def _least(terms: Numbers, aim: Numbers) -> Numbers | None:
    """Numbers (groups, lines) of which terms (others, groups) make what is wanted, (others, lines)."""
    if not np.isfinite(terms).all() or not np.isfinite(aim).all():
        return None
    found, _, rank, _ = np.linalg.lstsq(terms, aim, rcond=1e-9)
    return None if rank < terms.shape[1] else found.astype(np.float64)


def _both(a: Numbers, b: Numbers, off: Numbers, reach: Numbers, whole: bool) -> WrongKernel | None:
    """One constant of each operand, and one of every output."""
    terms = np.broadcast_arrays(a.sum(axis=1)[:, None], b.sum(axis=1)[None], np.ones((1, 1)))
    flat: npt.NDArray[np.float64] = np.stack([x.reshape(-1) for x in terms], axis=1)
    found = _least(flat, off.reshape(-1, 1))
    if found is None:
        return None
    numbers = found[:, 0]
    if whole:
        numbers = np.rint(numbers)
    size = np.abs(flat).mean(axis=0) * np.abs(numbers)
    numbers = np.where(size <= float(np.median(reach)), 0.0, numbers)
    if not numbers.any() or (np.abs(flat @ numbers - off.reshape(-1)) > reach.reshape(-1)).any():
        return None
    added = {name: np.array([[number]]) for name, number in zip("ba", numbers[:2], strict=True) if number}
    return _constants(added, a.shape[1], float(numbers[2]), whole)


def _factors(lines: Numbers, own: Numbers, aim: Numbers, reach: Numbers, most: Numbers, group: int) -> Numbers | None:
    """Factors (lines of the operand, groups) of the products of each group; None if they do not give everything."""
    if _fitted(lines, own[:_FIRST], aim[:, :_FIRST], reach[:, :_FIRST], most[:, :_FIRST], group) is None:
        return None
    found = _fitted(lines, own, aim, reach, most, group)
    if found is None or np.ptp(found) <= 1e-3:
        return None
    counts = np.abs(found - np.rint(found[:1])) <= _CLOSE  # groups that are added several times, the same in every line
    return None if counts.all() else found


def _fitted(lines: Numbers, own: Numbers, aim: Numbers, reach: Numbers, most: Numbers, group: int) -> Numbers | None:
    """The best factors, if they give everything; most: how far rounding takes outputs whatever the factors."""
    one, other = in_parts(lines, group), in_parts(own, group)
    products = np.einsum("igk,jgk->jig", one, other, optimize=True)
    square = products.swapaxes(1, 2) @ products
    try:
        more = np.linalg.solve(square, products.swapaxes(1, 2) @ aim.T[:, :, None])
    except np.linalg.LinAlgError:
        return None
    far = reach.T * np.maximum(1.0, np.abs(more + 1)[:, :, 0].max(axis=1, keepdims=True))
    far = np.minimum(far, np.maximum(reach, most).T)
    found: Numbers = more[:, :, 0] + 1
    return found if (np.abs((products @ more)[:, :, 0] - aim.T) <= far).all() else None
