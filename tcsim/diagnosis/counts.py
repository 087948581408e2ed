"""How often a kernel may take each k: blocks of K left out or taken again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tcsim.arithmetic.steps import runs
from tcsim.diagnosis.reals import Numbers

_MISSING, _REPEATED, _MISCOUNTED = "K block missing", "K block repeated", "K blocks miscounted"
_MOST = 32  # blocks whose every range is tried


@dataclass(frozen=True)
class Count:
    """How often each k is taken."""

    mistake: str
    detail: str
    weights: Numbers  # (K,)
    rank: int

    advice = "count the iterations of the K loop, the splits and their ranges"


def counts(depth: int, step: int) -> Iterator[Count]:
    """Every range of the instruction's steps left out or taken twice, every second block, the first again for the last."""
    blocks = -(-depth // step)
    place = np.arange(depth) // step
    seen = set()
    if 1 < blocks <= _MOST:
        for first in range(blocks):
            for last in range(first, blocks):
                inside = (place >= first) & (place <= last)
                if not inside.all():
                    restarted = (first, last) == (0, blocks - 2)  # the catalogue has a name for it
                    yield counted(np.where(inside, 0.0, 1.0), 4 if restarted else 1)
                    yield counted(np.where(inside, 2.0, 1.0), 1)
    for size in (1, 2, 4, 8, 16):
        block = place // size
        last = int(block[-1])
        for weights in (
            *(np.where(block % 2 == odd, 0.0, 1.0) for odd in (0, 1)),
            np.where(block == 0, 2.0, np.where(block == last, 0.0, 1.0)),
            np.where(block == last, 2.0, np.where(block == 0, 0.0, 1.0)),
        ):
            key = weights.tobytes()
            if last and key not in seen:
                seen.add(key)
                yield counted(weights, 2)
        for number in range(1, last):  # one stale stage of both operands
            for by in (1, 2):
                for other in (number - by, number + by):
                    if 0 <= other <= last:
                        weights = np.where(block == other, 2.0, np.where(block == number, 0.0, 1.0))
                        if weights.tobytes() not in seen:
                            seen.add(weights.tobytes())
                            yield counted(weights, 3)
    for size in (2, 4, 8, 16):  # inside a tile always the same step
        for kept in {0, size - 1}:
            if size < blocks or blocks % size == 0:
                yield counted(np.where(place % size == kept, float(size), 0.0), 2)


def counted(weights: Numbers, rank: int) -> Count:
    """The mistake of these weights."""
    missing, more = np.flatnonzero(weights == 0), np.flatnonzero(weights > 1)
    parts = []
    if len(missing):
        parts.append(f"K {runs(tuple(missing.tolist()))} not added")
    for times in sorted(set(weights[more].tolist())):
        where = runs(tuple(np.flatnonzero(weights == times).tolist()))
        parts.append(f"K {where} added {int(times)} times")
    name = _MISCOUNTED if len(missing) and len(more) else (_MISSING if len(missing) else _REPEATED)
    return Count(name, ", ".join(parts), weights, rank)
