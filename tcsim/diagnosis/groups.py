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
from tcsim.diagnosis.where import described
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import Format

_GROUPS = (256, 128, 64, 32, 16)  # of K
_TIMES = 2  # outputs of a line for each number that is solved for
_TELLS = 0.01  # of a usual output: what the numbers come to
_FIRST = 4  # lines that are solved first: they refuse most
_BITS = 11  # of a number that is rounded
_ROUNDED = 4  # standard deviations: what rounding each element takes a sum off
_SURE = 4  # standard deviations: how far a number that is solved for may be off
_NOTHING = 1e-6  # a constant that is none
_FAR = 1e6  # lines, which count less than any number that is alike
_STEPS = (1, -1, 2, -2, 4, -4, 8, -8, 16, -16)  # lines or groups on
_CANCELS = 1e-5  # of a product: what is left of it beside a constant is none
_LEVELS = 256  # of values of a quantized group
_MOST = 0.6  # of the zero points, which are told by the least value that is there
_CLOSE = 0.02  # how near to a whole number a count comes
_NEAR = 1e-5  # of a number: what rounding of all outputs may take off it
_HUGE = 1e150  # sums whose squares are no numbers
_ZERO = "the zero point of {x} is not subtracted, or subtracted twice, or with the wrong sign, or it is another line's or group's"
_SCALE = "look at the scales of {x} along K: which group's and which line's they are, and whether they are applied once"


def constants(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """A number added to each element of an operand, for each group of K and each line."""
    yield from _of_groups(problem, reals, wrong, True, False)


def factors(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Factors of each group of K and each line of an operand, none of them zero; or factors and constants."""
    if problem.machine.formats["d"].kind == "float":  # no integer is a scale
        found = next(_of_groups(problem, reals, wrong, False, True), None)
        yield from _of_groups(problem, reals, wrong, True, True) if found is None else (found,)


def _of_groups(problem: Problem, reals: Reals, wrong: Mask, adds: bool, scales: bool) -> Iterator[WrongKernel]:
    (rows, columns), depth = problem.sizes, problem.length
    place = np.s_[0, :rows, :columns]
    if len(wrong) > 1 or problem.positions is not None or reals.floor or not reals.finite[place].all():
        return
    off, right, open_ = (reals.observed - reals.right)[place], reals.right[place], wrong[place]
    a, b = reals.a[0, :rows, :depth], reals.b[0, :columns, :depth]
    for group in (depth, *(size for size in _GROUPS if size < depth)):
        for name, lines, others, aim, far, held in (
            ("b", b, a, off.T, reals.reach[place].T, open_.T),
            ("a", a, b, off, reals.reach[place], open_),
        ):
            count, own = -(-depth // group), np.flatnonzero(held.any(axis=1))
            if len(others) < _TIMES * count + 4 or (count == 1 and not adds):
                continue
            if held[own].mean() < 0.5 or (aim[own] ** 2).mean() < _TELLS**2 * (right**2).mean():
                continue
            format = problem.machine.formats[name]
            found = None
            for few in (own[:_FIRST], own):
                found = _numbers(lines[few], others, aim[few], far[few], group, adds, scales, format)
                if found is None:
                    break
            if found is None or (scales and (np.abs(found[1]).min() <= _TELLS or _counts(found[1]))):
                continue
            more, by, unsure = (np.full((len(lines), count), usual) for usual in (0.0, 1.0, 0.0))
            more[own], by[own], unsure[own] = found
            short = _short(more, unsure), _short(by, unsure)
            tried = ((*short, format), (more, by, format), (more, by, None))
            for numbers in tried if format.kind == "float" else ((np.rint(more), by, format),):
                item = _kernel(name, group, lines, *numbers)
                if item.everywhere(reals):
                    yield item
                    return


def _numbers(
    lines: Numbers, others: Numbers, aim: Numbers, far: Numbers, group: int, adds: bool, scales: bool, format: Format
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Constants and factors, (lines, groups), that give what outputs (lines, others) are off by, up to rounding, and how far they may be off themselves; None if none do."""
    own, met = in_parts(lines, group), in_parts(others, group)
    given = [np.broadcast_to(met.sum(axis=2), (len(own), *met.shape[:2]))] * adds
    given += [np.einsum("jgk,igk->jig", own, met, optimize=True)] * scales
    terms = np.concatenate(given, axis=2)
    square = terms.swapaxes(1, 2) @ terms
    try:
        inverse = np.linalg.inv(square)
    except np.linalg.LinAlgError:
        return None
    found = inverse @ (terms.swapaxes(1, 2) @ aim[:, :, None])
    rest = (terms @ found)[:, :, 0] - aim
    more, by = (found[:, : own.shape[1], 0] * adds, 1.0 + found[:, -own.shape[1] :, 0] * scales)
    far = 2 * far * np.maximum(1.0, np.abs(by).max(axis=1, keepdims=True))  # rounding takes larger products further
    if format.kind == "float" and format.bits > 8:  # elements are rounded
        made = (own * by[..., None] + more[..., None]).reshape(len(own), -1)
        far = far + _ROUNDED * 2.0**-format.fraction_bits * np.sqrt(made**2 @ (met.reshape(len(met), -1) ** 2).T)
    if (np.abs(rest) > far).any():
        return None
    spread = np.sqrt(np.maximum(np.diagonal(inverse, axis1=1, axis2=2), 0) * (rest**2).mean(axis=1, keepdims=True))
    return more, by, _SURE * spread[:, -own.shape[1] :]


def _short(found: Numbers, unsure: Numbers) -> Numbers:
    """Numbers of as few bits as they may have, as constants and scales of quantized operands are."""
    unsure = np.maximum(unsure, _NOTHING * np.abs(found))
    short = np.where(np.abs(found) <= np.maximum(unsure, _NOTHING), 0.0, np.nan)
    fraction, exponent = np.frexp(found)
    for bits in range(1, _BITS + 1):
        fewer = np.ldexp(np.rint(fraction * 2**bits), exponent - bits)
        short = np.where(np.isnan(short) & (np.abs(fewer - found) <= unsure), fewer, short)
    return np.where(np.isnan(short), found, short)


def _counts(found: Numbers) -> bool:
    """Whether groups are added several times, the same in every line: that is no scale."""
    return bool((np.abs(found - np.rint(found[:1])) <= _CLOSE).all())


def _kernel(name: str, group: int, lines: Numbers, more: Numbers, by: Numbers, format: Format | None) -> WrongKernel:
    """A kernel whose operand has those constants and factors, (lines, groups). format: of the elements that it makes, if they are rounded to one."""
    line, other = ("column", "row of a") if name == "b" else ("row", "column of b")
    both = np.stack([more, by])
    each = [f"each {line}"] * bool((np.ptp(both, axis=1).max(axis=1) > _CLOSE * np.abs(both).max(axis=(1, 2))).any())
    each += [f"each {group} of K"] * (more.shape[1] > 1)
    ones = np.flatnonzero((np.abs(by - 1) < _CLOSE).all(axis=0) & (np.abs(more) < _NOTHING).all(axis=0))
    right = f"; group {', '.join(map(str, ones))} of {more.shape[1]} is right" if len(ones) else ""
    these = f"from {more.min():.4g} to {more.max():.4g}"
    said = [
        f"the products of {' and '.join(each)} are multiplied by numbers from {by.min():.4g} to {by.max():.4g}{right}"
    ]
    if more.any():
        constant = f"one for {' and '.join(each)}, {these}" if each else f"{more.mean():.4g}"
        said = (
            [*said, f"and constants are added {these}"]
            if (by != 1).any()
            else [f"{constant}: each output is off by that times the sum of its {other}{right}"]
        )
    mistake = (
        f"scales and zero points of {name} wrong"
        if len(said) > 1
        else f"constant added to {name}"
        if more.any()
        else f"scales of {name} wrong"
    )
    advice = "; ".join([_SCALE] * bool((by != 1).any()) + [_ZERO] * bool(more.any()))
    seen = _quantized(lines, group, more, by, line)
    read = partial(_read, name, group, more, by, format)
    return WrongKernel(((mistake, "; ".join([", ".join(said), *seen]), advice.format(x=name)),), read)


def _quantized(lines: Numbers, group: int, more: Numbers, by: Numbers, line: str) -> list[str]:
    """Whose scales and zero points those are, as far as the steps between the values of each group tell, which are its own scale."""
    own = in_parts(lines, group)
    least = np.frexp(np.where(own == 0, np.inf, np.abs(own)).min(axis=2, keepdims=True))[1] - _BITS
    whole = np.ldexp(own, -least)
    if not np.isfinite(whole).all() or np.abs(whole).max() >= 2.0**62 or (whole != np.rint(whole)).any():
        return []
    unit = np.gcd.reduce(whole.astype(np.int64), axis=2)
    step = np.ldexp(unit.astype(np.float64), least[..., 0])
    if not step.all() or (np.abs(own).max(axis=2) > _LEVELS * step).any():
        return []
    found, scale = [], step * by
    if (np.abs(by - 1) > _CLOSE).any():
        texts = {"1": np.ones_like(step), "the square of its own": step**2, "the inverse of its own": 1 / step}
        found += [f"every scale is {text}" for text, values in texts.items() if np.allclose(values, scale, 1e-3, 0.0)]
        found += ["" if found else _taken(step, scale, "scale", line, 1.0)]
    if more.any():
        zero, off = -np.rint(own.min(axis=2) / step), np.rint(more / scale)
        taken, wrong = zero - off, np.abs(more) > _NOTHING
        for number, text in (
            (off, "{:g} steps of the values, a zero point that is off by as many"),
            (taken, "as if every zero point were {:g}"),
        ):
            if (number[wrong] == number[wrong][0]).mean() > _MOST:
                found.append(text.format(number[wrong][0]))
        for times, text in ((1, "not subtracted"), (2, "added")):
            if (off == times * zero)[wrong].mean() > _MOST:
                found.append(f"as if the zero points were {text}")
        found += ["" if found and found[-1] else _taken(zero, taken, "zero point", line, _MOST)]
    return [text for text in found if text]


def whose_scales(lines: Numbers, by: Numbers, line: str) -> str:
    """The same of factors of whole lines, behind a semicolon."""
    return "".join(f"; {text}" for text in _quantized(lines, lines.shape[1], 0 * by, by, line))


def _taken(own: Numbers, seen: Numbers, what: str, line: str, share: float) -> str:
    """Whose number (lines, groups) each group, or each line, has; empty if that is not one's."""
    for across, kind in ((0, "group"), (1, line)):
        ours, theirs = (x if across else x.T for x in (own, seen))
        alike = (np.abs(ours[None] - theirs[:, None]) <= 1e-3 * np.abs(theirs[:, None])).mean(axis=2)
        lines, last = np.arange(len(ours)), len(ours) - 1
        nearest = alike - np.abs(lines - lines[:, None]) / _FAR  # of several that are alike
        moved = [one for by in _STEPS for one in (np.clip(lines + by, 0, last), (lines + by) % len(lines))]
        for at in (lines, 0 * lines, lines // 2, *moved, nearest.argmax(axis=1)) if last else ():
            if alike[lines, at].min() >= share:
                if (at == lines).all():
                    break
                return f"the {what}s: {described(at, f'{kind}s')}"
    flat = np.ascontiguousarray(own.T).reshape(own.shape), own.reshape(own.T.shape).T
    if any((np.abs(one - seen) <= 1e-3 * np.abs(seen)).mean() >= share for one in flat):
        return f"the {what}s lie group by group and are read {line} by {line}, or the other way round: the table is transposed"
    return ""


def _read(name: str, group: int, more: Numbers, by: Numbers, format: Format | None, given: Operands) -> Operands:
    lines, others = (given.a, given.b) if name == "a" else (given.b, given.a)
    depth = min(lines.shape[2], group * more.shape[1])
    own = np.s_[:, : len(more), :depth]
    if format is not None and format.kind != "float":  # elements may become larger than their format
        c = given.c.copy()
        added = in_parts(others[:, :, :depth], group).sum(axis=3) @ more.T
        c.swapaxes(1, 2 if name == "a" else 1)[:, :, : len(more)] += added
        return given._replace(c=c)
    by, more = (np.repeat(x, group, axis=1)[:, :depth] for x in (by, more))
    found = lines.copy()
    product = lines[own] * by
    made = product + more
    found[own] = np.where(np.abs(made) <= _CANCELS * np.abs(product), 0.0, made)
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
    largest = float(np.abs(terms).max()), float(np.abs(off).max())
    if not 0 < max(largest) < _HUGE:  # nor what is not a number
        return
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
