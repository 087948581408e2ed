"""Quantized operands: a constant in each group of K and each line of an operand, or factors of them, read off the outputs.

A zero point of B that is not subtracted adds, to each output, that number times the sum of its row of A; a wrong scale multiplies the group's products. Either way what
an output is off by is linear in one number for each group, and the outputs of a line give more equations than there are groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.least_squares import in_parts
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import Format

_GROUPS = (256, 128, 64, 32, 16)  # of K
_TIMES = 2  # outputs of a line for each number that is solved for
_TELLS = 0.01  # of a usual output: what the numbers come to
_FIRST = 4  # lines that are solved first: they refuse most
_BITS = 11  # of a number that is rounded
_CLOSE = 0.02  # how near to a whole number a count comes
_NEAR = 1e-5  # of a number: what rounding of all outputs may take off it
_ZERO = "the zero point of {x} is not subtracted, or subtracted twice, or with the wrong sign, or it is another line's or group's"
_SCALE = "look at the scales of {x} along K: which group's and which line's they are, and whether they are applied once"


def constants(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """A number added to each element of an operand, for each group of K and each line."""
    yield from _of_groups(problem, reals, wrong, True)


def factors(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Factors of each group of K and each line of an operand, none of them zero."""
    yield from _of_groups(problem, reals, wrong, False)


def _of_groups(problem: Problem, reals: Reals, wrong: Mask, adds: bool) -> Iterator[WrongKernel]:
    (rows, columns), depth = problem.sizes, problem.length
    place = np.s_[0, :rows, :columns]
    if len(wrong) > 1 or problem.positions is not None or reals.floor or not reals.finite[place].all():
        return
    off, right = (reals.observed - reals.right)[place], reals.right[place]
    if not adds and problem.machine.formats["d"].kind != "float":
        return  # no integer is a scale
    if wrong[place].mean() < 0.5 or (off**2).mean() < _TELLS**2 * (right**2).mean():
        return
    a, b = reals.a[0, :rows, :depth], reals.b[0, :columns, :depth]
    for group in (depth, *(size for size in _GROUPS if size < depth)):
        for name, lines, others, aim, far in (
            ("b", b, a, off.T, reals.reach[place].T),
            ("a", a, b, off, reals.reach[place]),
        ):
            if len(others) < _TIMES * -(-depth // group) + 4 or (group == depth and not adds):
                continue
            found = None
            for few in (slice(_FIRST), slice(None)):
                found = _numbers(lines[few], others, aim[few], far[few], group, adds)
                if found is None:
                    break
            if found is None or (not adds and (np.abs(found).min() <= _TELLS or _counts(found))):
                continue
            format = problem.machine.formats[name]
            tried = ((_short(found), format), (found, format), (found, None))
            for numbers, elements in tried if format.kind == "float" else ((np.rint(found), format),):
                item = _kernel(name, group, numbers, adds, elements)
                if item.everywhere(reals):
                    yield item
                    return


def _numbers(lines: Numbers, others: Numbers, aim: Numbers, far: Numbers, group: int, adds: bool) -> Numbers | None:
    """Constants, or factors, (lines, groups) that give what outputs (lines, others) are off by, up to rounding; None if none do."""
    own, met = in_parts(lines, group), in_parts(others, group)
    terms = met.sum(axis=2)[None] if adds else np.einsum("jgk,igk->jig", own, met, optimize=True)
    square = terms.swapaxes(1, 2) @ terms
    try:
        found: Numbers = np.linalg.solve(square, terms.swapaxes(1, 2) @ aim[:, :, None])
    except np.linalg.LinAlgError:
        return None
    more = 1.0 if adds else np.maximum(1.0, np.abs(found + 1).max(axis=1))  # rounding takes larger products further
    if (np.abs((terms @ found)[:, :, 0] - aim) > 2 * far * more).any():
        return None
    return found[:, :, 0] + (not adds)


def _short(found: Numbers) -> Numbers:
    """Numbers of few bits, as constants of quantized operands are."""
    fraction, exponent = np.frexp(found)
    return np.ldexp(np.rint(fraction * 2**_BITS), exponent - _BITS)


def _counts(found: Numbers) -> bool:
    """Whether groups are added several times, the same in every line: that is no scale."""
    return bool((np.abs(found - np.rint(found[:1])) <= _CLOSE).all())


def _kernel(name: str, group: int, numbers: Numbers, adds: bool, format: Format | None) -> WrongKernel:
    """A kernel with those (lines, groups). format: of the elements that it makes, if they are rounded to one."""
    line, other = ("column", "row of a") if name == "b" else ("row", "column of b")
    each = [f"each {line}"] * bool(np.ptp(numbers, axis=0).max() > _CLOSE * np.abs(numbers).max())
    each += [f"each {group} of K"] * (numbers.shape[1] > 1)
    these = f"from {numbers.min():.4g} to {numbers.max():.4g}"
    if adds:
        said = f"one for {' and '.join(each)}, {these}" if each else f"{numbers.mean():.4g}"
        names = f"constant added to {name}", f"{said}: each output is off by that times the sum of its {other}", _ZERO
    else:
        said = f"the products of {' and '.join(each)} are multiplied by numbers {these}"
        ones = np.flatnonzero((np.abs(numbers - 1) < _CLOSE).all(axis=0))
        said += f"; group {', '.join(map(str, ones))} of {numbers.shape[1]} is right" if len(ones) else ""
        names = f"scales of {name} wrong", said, _SCALE
    read = partial(_read, name, group, numbers, adds, format)
    return WrongKernel(((*names[:2], names[2].format(x=name)),), read)


def _read(name: str, group: int, numbers: Numbers, adds: bool, format: Format | None, given: Operands) -> Operands:
    lines, others = (given.a, given.b) if name == "a" else (given.b, given.a)
    depth = min(lines.shape[2], group * numbers.shape[1])
    own = np.s_[:, : len(numbers), :depth]
    if adds and format is not None and format.kind != "float":  # elements may become larger than their format
        c = given.c.copy()
        more = in_parts(others[:, :, :depth], group).sum(axis=3) @ numbers.T
        c.swapaxes(1, 2 if name == "a" else 1)[:, :, : len(numbers)] += more
        return given._replace(c=c)
    by = np.repeat(numbers, group, axis=1)[:, :depth]
    found = lines.copy()
    found[own] = lines[own] + by if adds else lines[own] * by
    if format is not None:
        found[own] = decode(encode(found[own], format, saturate=True), format)
    return given.reading(name, found)


def in_both(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """A constant in each element of A and one in each of B, or sums that are corrected for such constants wrongly."""
    known = reals.finite & wrong
    if problem.positions is not None or reals.factors is not None or reals.floor or not enough(int(known.sum()), 3):
        return
    given = reals.b.sum(axis=2)[:, None], reals.a.sum(axis=2)[:, :, None], np.ones((1, 1, 1))
    terms = np.stack([np.broadcast_to(x, known.shape)[known] for x in given], axis=1)
    off = (reals.observed - reals.right)[known]
    found = np.linalg.lstsq(terms, off, rcond=None)[0]
    short = np.array([float(f"{x:.4g}") for x in found])
    found = np.where(np.abs(found - short) <= _NEAR * np.abs(found), short, found)
    size = np.sqrt((terms**2).mean(axis=0)) * np.abs(found)
    found = np.where(size <= _NEAR * size.max(), 0.0, found)
    found = np.rint(found) if problem.machine.formats["d"].kind != "float" else found
    yield _corrected(problem.length, *found.tolist())


def _corrected(depth: int, of_a: float, of_b: float, rest: float) -> WrongKernel:
    """A kernel whose outputs are off by a constant of A times sums of B, one of B times sums of A, and a number."""
    both = abs(rest - of_a * of_b * depth) <= _TELLS * abs(rest) and of_a and of_b
    said = [f"{of_a:g} times the sum of its column of b"] * bool(of_a) + [
        f"{of_b:g} times the sum of its row of a"
    ] * bool(of_b)
    said += [f"{rest:g}"] * bool(rest)
    detail = f"each output is off by {' and '.join(said)}"
    detail += f": {of_a:g} more in each element of a, {of_b:g} in each of b" * bool(both)
    advice = (
        _ZERO.format(x="both operands")
        if both
        else "look at the sums that correct the result for zero points, and at K times the product of both"
    )
    mistake = (
        "constants added to a and b"
        if both
        else "zero points corrected wrongly"
        if of_a or of_b
        else "constant added to the result"
    )

    def read(given: Operands) -> Operands:
        more = of_a * given.b.sum(axis=2)[:, None] + of_b * given.a.sum(axis=2)[:, :, None] + rest
        return given._replace(c=given.c + more)

    return WrongKernel(((mistake, detail, advice),), read)
