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
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.where import listing
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

_LISTED = 6  # codes that are written out
_NEARLY = 0.2  # of what outputs are off by: what rounding an element may leave
_NOTHING = 1e-5  # of the usual value: it is zero
_LEAST = 1e-300  # no format has it
_VALUES = 256  # that an operand has
_BITS = 11  # of a constant
_MOSTLY = 0.8  # of the values that a clamp must give, as far as they are told
_CLOSE = 0.02  # of the usual value: how exactly a value of a table is known


def table_of(name: str, was: Numbers, now: Numbers, mistake: str, said: str) -> WrongKernel:
    """A kernel that takes each value of operand `name`, or of scale_a or scale_b, for another; was: ascending."""
    advice = f"look at the conversion or the unpacking of {name}: sign, bias, zero point, which format the codes are taken for"

    def taken(values: Numbers) -> Numbers:
        own = _told(values)
        at = np.minimum(np.searchsorted(was, own), len(was) - 1)
        return np.where(was[at] == own, now[at], values)

    def read(given: Operands) -> Operands:
        if given.scales is not None and name.startswith("scale"):
            one, other = given.scales
            return given._replace(scales=(taken(one), other) if name == "scale_a" else (one, taken(other)))
        return given.reading(name, taken(given.a if name == "a" else given.b))

    return WrongKernel(((f"{name}: {mistake}", said, advice),), read)


def tables(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """A table of one operand's values."""
    formats = problem.machine.formats
    for name in "ba":
        yield from _shifted(reals, open_, name, formats[name])
    for place, name in enumerate("ba"):
        if reals.positions is None or name == "b":
            yield from _of_elements(reals, open_, name, formats[name], 1 - place)
        if reals.factors is not None:
            yield from _of_factors(reals, open_, f"scale_{name}", formats["scale"], 1 - place)


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
    chosen = samples(reals, open_, len(was)) if len(was) <= _VALUES else None
    if chosen is None:
        return
    t, i, j = chosen.T
    own, met = (which[t, i], reals.b[t, j]) if name == "a" else (which[t, j], reals.a[t, i])
    if reals.factors is not None:
        by = reals.factors[place][t, i if name == "a" else j]
        met = met * np.repeat(by, met.shape[1] // by.shape[1], axis=1)
    yield from _table(reals, chosen, name, was, _summed(own, met, len(was)), format)


def _of_factors(reals: Reals, open_: Mask, name: str, format: Format, place: int) -> Iterator[WrongKernel]:
    if reals.factors is None or reals.bare is None:
        return
    was, which = _numbered(reals.factors[place])
    chosen = samples(reals, open_, len(was))
    if chosen is not None:
        t, i, j = chosen.T
        own = i if place == 0 else j
        terms = reals.bare[0][t, i] * reals.bare[1][t, j]
        sums = terms.reshape(len(t), reals.factors[0].shape[2], -1).sum(axis=2)
        sums = sums * reals.factors[1 - place][t, j if place == 0 else i]
        yield from _table(reals, chosen, name, was, _summed(which[t, own], sums, len(was)), format)


def _told(values: Numbers) -> Numbers:
    """Values, a negative zero as something below zero: its code may count as another value."""
    return np.where((values == 0) & np.signbit(values), -_LEAST, values)


def _numbered(values: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """The different values, and which each is."""
    was, which = np.unique(_told(values), return_inverse=True)
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
    reach = np.maximum(reals.reach[place], reals.far(np.abs(terms) @ np.abs(now), wanted))
    if (np.abs(terms @ now - wanted) <= 2 * reach).mean() > 0.9:
        yield from _snapped(name, was, now, format)


def _snapped(name: str, was: Numbers, now: Numbers, format: Format) -> Iterator[WrongKernel]:
    """The table, its values rounded to those of the format, or to those of another format of the same width."""
    usual = float(np.sqrt((was**2).mean()))
    if format.kind == "float" and (clamped := _clamped(was, now, format)) is not None:
        yield table_of(name, was, clamped[0], "values clamped", clamped[1])
    for other in (*(one for one in FORMATS.values() if one.bits == format.bits <= 8 and one is not format), format):
        if other is format:
            codes = encode(
                np.rint(now) if format.kind != "float" else np.where(np.abs(now) < _NOTHING * usual, 0, now),
                format,
                saturate=True,
            )
        else:
            codes = encode(was, format)  # of the least below zero: the negative zero
        near = decode(codes, other).astype(np.float64)
        if not np.isfinite(near).all() or (np.abs(near - was) <= _LEAST).all():
            continue
        if (
            np.abs(near - now) <= _CLOSE * np.maximum(np.abs(near), usual * (1.0 if other is format else _NOTHING))
        ).all():
            words = (
                _bits(encode(was, format), codes, format) or _said(was, near)
                if other is format
                else (f"codes taken for {other.name}", f"as in: {_listed(was, near, near != was)}")
            )
            yield table_of(name, was, near, *words)
            return


def _clamped(was: Numbers, now: Numbers, format: Format) -> tuple[Numbers, str] | None:
    """The table of a clamp, or of a largest value that is reached too soon, where most of what was found says so; and that in words."""
    plain = np.where(np.abs(was) <= _LEAST, 0.0, was)
    form, said = plain, []
    for sign, end in ((-1, "below"), (1, "above")):
        side = (sign * was > 0) & (np.abs(now - was) > _CLOSE * np.abs(was).max())
        if side.any():
            value = float(decode(encode(float(np.median(now[side])), format, saturate=True), format))
            alike = side & (np.abs(now - value) <= _CLOSE * abs(value))
            start = float(np.abs(was[alike]).min()) if alike.any() else np.inf
            start = abs(value) if sign * value > 0 and abs(value) < start else start
            form = np.where(sign * was >= start, value, form)
            said.append(f"every value of {sign * start:g} or {end} counts as {value:g}")
    many = (np.abs(now - form) <= _CLOSE * np.abs(was).max()).mean() > _MOSTLY and (form != plain).sum() > 1
    return (form, ", ".join(said)) if many else None


def _bits(was: Codes, now: Codes, format: Format) -> tuple[str, str] | None:
    """(mistake, detail) where the same bits of every code are cleared, set or turned; None if they are not."""
    cleared, set_ = (int(np.bitwise_or.reduce(x & ~y)) & format.code_mask for x, y in ((was, now), (now, was)))
    for mask, changed, what in (
        (cleared, was & ~was.dtype.type(cleared), "cleared"),
        (set_, was | was.dtype.type(set_), "set"),
    ):
        if mask and np.array_equal(changed, now):
            return f"bits {what}", f"of every code the bits {mask:#x} are {what}"
    return None


def _said(was: Numbers, now: Numbers) -> tuple[str, str]:
    """(mistake, detail) of a table."""
    off = np.where(np.abs(now - was) <= _LEAST, 0.0, now - was)
    values, counts = np.unique(off, return_counts=True)
    common = float(values[counts.argmax()])
    if common and counts.max() > 0.8 * len(was):
        rest = "" if counts.max() == len(was) else f"; but {_listed(was, now, off != common)}"
        what = f"{abs(common):g} is {'subtracted from' if common < 0 else 'added to'} every element"
        return "off by a constant", f"{what}, as of a zero point that is off by {abs(common):g}{rest}"
    if (now == now[0]).all():
        return "ignored", f"every value counts as {now[0]:g}"
    moved = np.abs(was) > _LEAST
    ratio = now[moved] / was[moved]
    if len(ratio) and np.ptp(ratio) <= 1e-6 * np.abs(ratio).max():
        return "scaled", f"every value counts {ratio[0]:g} times"
    return "codes taken for other values", _listed(was, now, now != was)


def _listed(was: Numbers, now: Numbers, which: Mask) -> str:
    which &= np.abs(now - was) > _LEAST
    names = [f"{was[one]:g}" if was[one] != -_LEAST else "-0" for one in range(len(was))]
    return listing([f"{names[one]} counts as {now[one]:g}" for one in np.flatnonzero(which)], _LISTED, ", ")
