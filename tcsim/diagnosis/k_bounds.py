"""K that ends too early, or begins too late, at any k: loads that are masked by another bound than K, read off the outputs."""

from __future__ import annotations

from functools import partial

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.maps import Ints, Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.where import ranges

_SAMPLES = 24  # outputs that every bound is tried on
_ENOUGH = 0.9  # of them a bound must give
_ADVICE = "look at what the loads along K are masked by: the bound must be K itself, and the index that of the element"


def bounds(problem: Problem, reals: Reals, open_: Mask) -> tuple[Rule, ...]:
    """Rules of B that leave out all k from a bound on, or up to it, where it is not one of the instruction's steps; of A the same is true.

    open_: (batch, M, N), the outputs that are looked at.
    """
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    i, j = np.nonzero(open_[matrix] & reals.finite[matrix])
    if len(i) < _SAMPLES // 3:
        return ()
    some = repeatable().permutation(len(i))[:_SAMPLES]
    i, j = i[some], j[some]
    depth = problem.length
    step = problem.machine.shape[2]
    sums = np.cumsum(reals.a[matrix, i, :depth] * reals.b[matrix, j, :depth], axis=1)
    wanted = (reals.observed - reals.c)[matrix, i, j][:, None]
    reach = reals.reach[matrix, i, j][:, None]
    found = []
    for early, told in ((True, sums), (False, sums[:, -1:] - sums)):
        share = (np.abs(told - wanted) <= reach).mean(axis=0)
        bound = int(share.argmax()) + 1
        if share[bound - 1] >= _ENOUGH and bound % step and bound < depth:
            lost = np.arange(bound, depth) if early else np.arange(bound)
            said = f"K {ranges(lost)} of a, of b or of both are zeros"
            where = partial(_inside, 0 if early else bound, bound if early else depth)
            found.append(Rule("K block missing", said, _ADVICE, where, 2))
    return tuple(found)


def _inside(first: int, last: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return np.where((k >= first) & (k < last), r, -1), k
