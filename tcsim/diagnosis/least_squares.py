"""Sums of unknown terms: which weights of some terms give the wanted outputs, by least squares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals

MOST = 1700  # unknowns that are solved for at once
_TIMES = 2  # samples for each unknown
_BLOCK = 64  # unknowns
_OFF = 0.2  # how far from a whole number a weight may come out
_CHANCE = 3  # standard deviations: what two terms add to each other, both lack
_FEW, _EACH = 64, 16  # samples that are looked at first, and more for each term that a sum has
_TELLS = 0.01  # of a usual sum: how far rounding may take one, whatever the weights; of a term: what is left when the others are taken off


def samples(reals: Reals, open_: Mask, unknowns: int) -> Ints | None:
    """Outputs enough for so many unknowns, (n, 3), open ones if these are enough; None if there are too few."""
    known = reals.usable
    if enough(int((open_ & known).sum()), unknowns):
        known = open_ & known
    if unknowns > MOST or not enough(int(known.sum()), unknowns):
        return None
    return some_of(np.argwhere(known), _TIMES * unknowns + 64)


def in_tile(reals: Reals, rows: Ints, columns: Ints, unknowns: int) -> Ints | None:
    """Enough outputs of one tile of the first matrix to solve for that many unknowns, (n, 3); None if there are too few."""
    known = np.argwhere(reals.usable[0][np.ix_(rows, columns)])
    if not enough(len(known), unknowns):
        return None
    i, j = some_of(known, 3 * unknowns + 64).T
    return np.stack([0 * i, rows[i], columns[j]], axis=1)


def in_parts(x: Numbers, unit: int) -> Numbers:
    """The last axis in parts of `unit`, with zeros behind its end: (..., parts, unit)."""
    if x.shape[-1] % unit:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % unit)])
    return x.reshape(*x.shape[:-1], -1, unit)


def solved_at(
    reals: Reals, chosen: Ints | None, terms_of: Callable[[Ints], Numbers], most: float = np.inf, usual: float = np.inf
) -> Ints | None:
    """Whole weights of terms (samples, ...), in their shape, that give some outputs (samples, 3) but for C; None if there are none, or no outputs.

    A few samples refuse most: only for what they leave are the terms of all reckoned out.
    """
    if chosen is None:
        return None
    few = _FEW + _EACH * int(min(most, usual, len(chosen)))
    for own in (chosen[:few], chosen) if 2 * few < len(chosen) else (chosen,):
        place, terms = tuple(own.T), terms_of(own)
        wanted, reach = (reals.observed[place] - reals.c[place]), reals.reach[place]
        flat = terms.reshape(len(own), -1)
        if _unlike(flat, wanted, reach, most):
            return None
    found = whole_weights(flat, wanted, reach, most, usual)
    return None if found is None else found.reshape(terms.shape[1:])


def sources(times: Ints | None) -> Ints | None:
    """The one of (..., sources) whose weight is 1, -1 for none; None if there are other weights, or several."""
    if times is None or not np.isin(times, (0, 1)).all() or (times.sum(axis=-1) > 1).any():
        return None
    found: Ints = np.where(times.any(axis=-1), times.argmax(axis=-1), -1)
    return found


def weights(terms: Numbers, wanted: Numbers) -> Numbers | None:
    """Weights (unknowns,) of terms (samples, unknowns); NaN where the terms leave them open; None if they cannot be found."""
    size = np.sqrt((terms**2).sum(axis=0))
    known = size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)
    if not known.any():
        return None
    scaled = terms[:, known] / size[known]
    try:
        lower = np.linalg.cholesky(scaled.T @ scaled)
    except np.linalg.LinAlgError:
        return None
    if np.diag(lower).min() < _TELLS:
        return None  # the same outputs come of other weights
    found = np.full(terms.shape[1], np.nan)
    half = _substituted(lower, scaled.T @ wanted)
    found[known] = _substituted(lower.T[::-1, ::-1], half[::-1])[::-1] / size[known]
    return found


def _substituted(lower: Numbers, wanted: Numbers) -> Numbers:
    """x of lower x = wanted, a block after another."""
    found = np.empty_like(wanted)
    for start in range(0, len(wanted), _BLOCK):
        own = slice(start, start + _BLOCK)
        found[own] = np.linalg.solve(lower[own, own], wanted[own] - lower[own, :start] @ found[:start])
    return found


def whole_weights(
    terms: Numbers, wanted: Numbers, reach: Numbers, most: float = np.inf, usual: float = np.inf
) -> Ints | None:
    """Whole weights that give the wanted sums within reach; 0 for terms that are zero; None if there are none.

    usual: of all weights of a right sum: rounding takes a sum of more terms further.
    most: of all weights together, if that is known.
    """
    if _unlike(terms, wanted, reach, most):
        return None
    found = weights(terms / reach[:, None], wanted / reach)  # outputs that are known better count more
    if found is None:
        return None
    found = np.nan_to_num(found)
    near = np.rint(found)
    far = reach * max(1.0, float(np.abs(near).sum()) / usual)
    reach = np.minimum(far, np.maximum(reach, _TELLS * float(np.median(np.abs(wanted)))))
    if (np.abs(found - near) > _OFF).any() or (np.abs(terms @ near - wanted) > reach).any():
        return None
    return near.astype(np.int64)


def _unlike(terms: Numbers, wanted: Numbers, reach: Numbers, most: float) -> bool:
    """Whether sums are like none of the terms.

    |wanted|^2 is the sum of each weight times its term's share in it, and along a term whose weight is not zero lies its size or more, but for
    what the other terms add there by chance.
    """
    size, off = float(np.linalg.norm(wanted)), float(np.linalg.norm(reach))
    along, each = np.abs(wanted @ terms), np.linalg.norm(terms, axis=0)
    chance = _CHANCE * size / np.sqrt(len(wanted)) * each
    small = most * float(along.max(initial=0.0)) < size * (size - off)
    return small or (size > off and bool((along + chance < each**2).all()))
