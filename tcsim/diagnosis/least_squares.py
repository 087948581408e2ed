"""Sums of unknown terms: which weights of some terms give the wanted outputs, by least squares."""

from __future__ import annotations

import numpy as np

from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals

MOST = 1100  # unknowns that are solved for at once
_TIMES = 3  # samples for each unknown
_LEAST = 1.5
_OFF = 0.2  # how far from a whole number a weight may come out


def samples(reals: Reals, open_: Mask, unknowns: int) -> Ints | None:
    """Open outputs enough for so many unknowns, (n, 3); None if there are too few."""
    usable = open_ & reals.finite
    usable &= (reals.observed > 0) if reals.floor else True
    places = np.argwhere(usable)
    if unknowns > MOST or len(places) < _LEAST * unknowns + 8:
        return None
    random = np.random.default_rng(0)
    found: Ints = places[random.permutation(len(places))[: _TIMES * unknowns + 64]]
    return found


def weights(terms: Numbers, wanted: Numbers) -> Numbers | None:
    """Weights (unknowns,) of terms (samples, unknowns); NaN where the terms leave them open; None if they cannot be found."""
    size = np.sqrt((terms**2).sum(axis=0))
    known = size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)
    if not known.any():
        return None
    scaled = terms[:, known] / size[known]
    try:
        values, vectors = np.linalg.eigh(scaled.T @ scaled)
    except np.linalg.LinAlgError:
        return None
    if values[0] < 1e-7 * values[-1]:
        return None  # the same outputs come of other weights
    found = np.full(terms.shape[1], np.nan)
    found[known] = vectors @ ((vectors.T @ (scaled.T @ wanted)) / values) / size[known]
    return found


def whole_weights(terms: Numbers, wanted: Numbers, reach: Numbers) -> Ints | None:
    """Whole weights that give the wanted sums within reach; 0 for terms that are zero; None if there are none."""
    found = weights(terms, wanted)
    if found is None:
        return None
    found = np.nan_to_num(found)
    near = np.rint(found)
    if (np.abs(found - near) > _OFF).any() or (np.abs(terms @ near - wanted) > reach).any():
        return None
    return near.astype(np.int64)
