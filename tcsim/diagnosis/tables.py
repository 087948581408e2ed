"""What a kernel takes each code of an operand for: a table of values, read off the outputs.

An output is a sum over the codes of B of B's value times the sum of the elements of A that it meets; so the values of all codes follow from enough outputs,
and whatever a conversion does wrong shows as a table.
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
    """A kernel that takes each value of operand `name` for another; was: ascending."""
    advice = f"look at the conversion or the unpacking of {name}: sign, bias, zero point, which format the codes are taken for"

    def read(given: Operands) -> Operands:
        values = given.a if name == "a" else given.b
        at = np.minimum(np.searchsorted(was, values), len(was) - 1)
        return given.reading(name, np.where(was[at] == values, now[at], values))

    return WrongKernel(((f"{name}: {mistake}", said, advice),), read)


def tables(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """A table of one operand's values."""
    formats = problem.machine.formats
    for name in "ba":
        yield from _shifted(reals, open_, name, formats[name])
    for place, name in enumerate("ba"):
        if formats[name].bits <= 8 and (reals.positions is None or name == "b"):
            yield from _of_elements(reals, open_, name, formats[name], 1 - place)


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
    if common and counts.max() > 0.8 * len(was):
        rest = "" if counts.max() == len(was) else f"; but {_listed(was, now, off != common)}"
        what = f"{abs(common):g} is {'subtracted from' if common < 0 else 'added to'} every element"
        return "off by a constant", f"{what}, as of a zero point that is off by {abs(common):g}{rest}"
    if (now == now[0]).all():
        return "ignored", f"every value counts as {now[0]:g}"
    moved = was != 0
    ratio = now[moved] / was[moved]
    if len(ratio) and np.ptp(ratio) <= 1e-6 * np.abs(ratio).max():
        return "scaled", f"every value counts {ratio[0]:g} times"
    return "codes taken for other values", _listed(was, now, now != was)


def _listed(was: Numbers, now: Numbers, which: Mask) -> str:
    return listing([f"{was[one]:g} counts as {now[one]:g}" for one in np.flatnonzero(which)], _LISTED, ", ")
