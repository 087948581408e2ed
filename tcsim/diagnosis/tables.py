"""What a kernel takes each code of an operand, or of its scale factors, for: a table of values, read off the outputs.

An output is a sum over the codes of B of B's value times the sum of the elements of A that it meets; so the values of all codes follow from enough outputs,
and whatever a conversion does wrong shows as a table. Of the scale factors of both operands, pairs of codes have a value, and the same table on both sides is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.least_squares import samples, weights
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.where import listing
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import Format

_LISTED = 6  # codes that are written out
_NEARLY = 0.2  # of what outputs are off by: what rounding an element may leave
_BITS = 11  # of a constant
_CLOSE = 0.02  # of the usual value: how exactly a value of a table is known


def table_of(name: str, was: Numbers, now: Numbers, mistake: str, said: str) -> WrongKernel:
    """A kernel that takes each value of operand `name` ("a", "b", or the factors "scale_a", "scale_b", "scale_a and scale_b") for another; was: ascending."""
    advice = f"look at the conversion or the unpacking of {name}: sign, bias, zero point, which format the codes are taken for"

    def taken(values: Numbers, operand: str) -> Numbers:
        if operand not in name.split(" and "):
            return values
        at = np.minimum(np.searchsorted(was, values), len(was) - 1)
        found: Numbers = np.where(was[at] == values, now[at], values)
        return found

    def read(given: Operands) -> Operands:
        scales = given.scales and (taken(given.scales[0], "scale_a"), taken(given.scales[1], "scale_b"))
        return Operands(taken(given.a, "a"), taken(given.b, "b"), given.c, scales)

    return WrongKernel(((f"{name}: {mistake}", said, advice),), read)


def tables(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """A table of one operand's values, or of its factors'; a table of both operands' factors."""
    formats = problem.machine.formats
    for name in "ba":
        yield from _shifted(reals, open_, name, formats[name])
    for place, name in enumerate("ba"):
        if formats[name].bits <= 8 and (reals.positions is None or name == "b"):
            yield from _of_elements(reals, open_, name, formats[name], 1 - place)
    if reals.factors is not None:
        for names in ("a", "b"):
            yield from _of_factors(reals, open_, names, formats["scale"])
        yield from _of_both(reals, open_, formats["scale"])


def _shifted(reals: Reals, open_: Mask, name: str, format: Format) -> Iterator[WrongKernel]:
    """A constant added to every element of an operand of 16 bits, which is rounded again: outputs are off by nearly that times sums of the other's lines."""
    if format.kind != "float" or format.bits != 16 or reals.factors is not None or reals.positions is not None:
        return
    sums = reals.lines("a" if name == "b" else "b").sum(axis=2)
    sums = np.broadcast_to(sums[:, :, None] if name == "b" else sums[:, None], open_.shape)[open_ & reals.finite]
    off = (reals.observed - reals.right)[open_ & reals.finite]
    size = float(sums @ sums)
    by = float(off @ sums) / size if size else 0.0
    if not by or float(np.sqrt(((off - by * sums) ** 2).mean())) > _NEARLY * float(np.sqrt((off**2).mean())):
        return
    was = np.unique(reals.lines(name))
    unit = 2.0 ** np.floor(np.log2(abs(by)))
    for constant in dict.fromkeys(float(np.rint(by / unit * 2**bits) * unit / 2**bits) for bits in range(_BITS)):
        now = decode(encode(was + constant, format), format).astype(np.float64)
        said = f"{abs(constant):g} is {'subtracted from' if constant < 0 else 'added to'} every element, which is rounded to {format.name}: a zero point that is off by as much"
        found = table_of(name, was, now, "off by a constant", said)
        near = abs(constant - by) <= _NEARLY * abs(by) and np.isfinite(now).all()
        if near and (found.gives(reals) | ~open_).all():
            yield found
            return


def _of_elements(reals: Reals, open_: Mask, name: str, format: Format, place: int) -> Iterator[WrongKernel]:
    bare = (reals.a, reals.b) if reals.bare is None else reals.bare
    was, which = _numbered(bare[place])
    chosen = samples(reals, open_, len(was))
    if chosen is None:
        return
    t, i, j = chosen.T
    own, met = (which[t, i], reals.b[t, j]) if name == "a" else (which[t, j], reals.a[t, i])
    if reals.factors is not None:
        by = reals.factors[place][t, i if name == "a" else j]
        met = met * np.repeat(by, met.shape[1] // by.shape[1], axis=1)
    yield from _table(reals, chosen, name, was, _summed(own, met, len(was)), format)


def _of_factors(reals: Reals, open_: Mask, name: str, format: Format) -> Iterator[WrongKernel]:
    if reals.factors is None or reals.bare is None:
        return
    place = "ab".index(name)
    was, which = _numbered(reals.factors[place])
    chosen = samples(reals, open_, len(was))
    if chosen is None:
        return
    t, lines = chosen[:, 0], (chosen[:, 1], chosen[:, 2])
    blocks = _blocks(reals, chosen) * reals.factors[1 - place][t, lines[1 - place]]
    terms = _summed(which[t, lines[place]], blocks, len(was))
    yield from _table(reals, chosen, f"scale_{name}", was, terms, format)


def _of_both(reals: Reals, open_: Mask, format: Format) -> Iterator[WrongKernel]:
    if reals.factors is None or reals.bare is None:
        return
    was, which = np.unique(np.concatenate([x.reshape(-1) for x in reals.factors]), return_inverse=True)
    size = reals.factors[0].size
    a, b = (x.reshape(y.shape) for x, y in zip(np.split(which.reshape(-1), [size]), reals.factors, strict=True))
    own = np.arange(len(was))
    number = np.minimum.outer(own, own) * len(was) + np.maximum.outer(own, own)
    pairs, number = np.unique(number, return_inverse=True)  # of two codes, whichever operand has which
    number = number.reshape(len(was), len(was))
    chosen = samples(reals, open_, len(pairs))
    if chosen is None:
        return
    t, i, j = chosen.T
    terms = _summed(number[a[t, i], b[t, j]], _blocks(reals, chosen), len(pairs))
    place = tuple(chosen.T)
    found = weights(terms, (reals.observed - reals.c)[place])
    if found is None:
        return
    square = found[np.diag(number)]
    if not (square > 0).all():
        return
    now = np.sqrt(square)
    if (np.abs(now[:, None] * now - found[number]) <= _CLOSE * np.abs(found[number])).all():
        yield from _snapped("scale_a and scale_b", was, now, format)


def _blocks(reals: Reals, chosen: npt.NDArray[np.int64]) -> Numbers:
    """The products of each block of K without factors, (samples, blocks)."""
    if reals.factors is None or reals.bare is None:
        raise ValueError("no factors")
    t, i, j = chosen.T
    products = reals.bare[0][t, i] * reals.bare[1][t, j]
    found: Numbers = products.reshape(len(t), reals.factors[0].shape[2], -1).sum(axis=2)
    return found


def _numbered(values: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """The different values, and which each is."""
    was, which = np.unique(values, return_inverse=True)
    return was, which.reshape(values.shape)


def _summed(number: npt.NDArray[Any], values: Numbers, count: int) -> Numbers:
    """(samples, count): the sums of values of each number."""
    flat = (np.arange(len(number))[:, None] * count + number).reshape(-1)
    sums: Numbers = np.bincount(flat, values.reshape(-1), minlength=len(number) * count).astype(np.float64)
    return sums.reshape(-1, count)


def _table(
    reals: Reals, chosen: npt.NDArray[np.int64], name: str, was: Numbers, terms: Numbers, format: Format
) -> Iterator[WrongKernel]:
    place = tuple(chosen.T)
    wanted = (reals.observed - reals.c)[place]
    found = weights(terms, wanted)
    if found is None:
        return
    now = np.where(np.isnan(found), was, found)
    if (np.abs(terms @ now - wanted) <= 2 * reals.reach[place]).mean() > 0.9:
        yield from _snapped(name, was, now, format)


def _snapped(name: str, was: Numbers, now: Numbers, format: Format) -> Iterator[WrongKernel]:
    """The table with values that the format has."""
    codes = encode(np.rint(now) if format.kind != "float" else now, format, saturate=True)
    near = decode(codes, format).astype(np.float64)
    usual = float(np.sqrt((was**2).mean()))
    if (np.abs(near - now) > _CLOSE * np.maximum(np.abs(near), usual)).any() or np.array_equal(near, was):
        return
    yield table_of(name, was, near, *_said(was, near))


def _said(was: Numbers, now: Numbers) -> tuple[str, str]:
    """(mistake, detail) of a table."""
    off = now - was
    values, counts = np.unique(off, return_counts=True)
    common = float(values[counts.argmax()])
    powers = np.exp2(np.floor(np.log2(np.maximum(np.abs(was), 1e-300)))) * np.sign(was)
    if common and counts.max() > 0.8 * len(was):
        rest = "" if counts.max() == len(was) else f"; but {_listed(was, now, off != common)}"
        what = f"{abs(common):g} is {'subtracted from' if common < 0 else 'added to'} every element"
        return "off by a constant", f"{what}, as of a zero point that is off by {abs(common):g}{rest}"
    if np.array_equal(now, powers):
        return "fraction dropped", "every value is cut to a power of two: its exponent is read, not its mantissa"
    if (now == now[0]).all():
        return "ignored", f"every value counts as {now[0]:g}"
    moved = was != 0
    ratio = now[moved] / was[moved]
    if len(ratio) and np.ptp(ratio) <= 1e-6 * np.abs(ratio).max():
        return "scaled", f"every value counts {ratio[0]:g} times"
    return "codes taken for other values", _listed(was, now, now != was)


def _listed(was: Numbers, now: Numbers, which: Mask) -> str:
    return listing([f"{was[one]:g} counts as {now[one]:g}" for one in np.flatnonzero(which)], _LISTED, ", ")
