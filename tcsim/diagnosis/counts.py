"""How often a kernel may take each k: blocks of K left out or taken again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations_with_replacement, product

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.pipelines import Sequence, causes, sequences
from tcsim.diagnosis.reals import Ints, Numbers
from tcsim.diagnosis.report import CAUSES
from tcsim.diagnosis.sizes import STEPS
from tcsim.diagnosis.where import ranges

_MISSING, _REPEATED, _MISCOUNTED = "K block missing", "K block repeated", "K blocks miscounted"
_NO_STEP = 5  # the rank of the first tile every time: two operands that do not advance say it more plainly
_MOST = 32  # blocks whose every range is tried


@dataclass(frozen=True)
class Count:
    """How often each k is taken."""

    mistake: str
    detail: str
    weights: Numbers  # (K,)
    rank: int
    step: int  # the instruction's K

    @property
    def advice(self) -> str:
        """What to look at, and what in a kernel takes each k so often."""
        said = self._causes[1]
        look = "count the iterations of the K loop, the splits and their ranges"
        return f"{look}; {CAUSES}{said}" if said else look

    @cached_property
    def _causes(self) -> tuple[list[Sequence], str]:
        return causes(self.weights, len(self.weights), self.step)

    def orders(self, step: int) -> Iterator[tuple[int, ...]]:
        """The steps as a kernel may take them: what is repeated at once, in tiles, at the end or at the start; none if a step is cut."""
        padded = np.pad(self.weights, (0, -len(self.weights) % step), mode="edge").reshape(-1, step)
        if (padded != padded[:, :1]).any():
            return
        times = padded[:, 0].astype(int)
        steps = np.arange(len(times))
        once, again = steps[times > 0], np.repeat(steps, np.maximum(times - 1, 0))
        again = again[np.lexsort((again, _turns(again)))]
        listed = [np.array(one.steps(len(self.weights), step), np.int64) for one in self._causes[0]]
        listed += [np.concatenate(rounds) for rounds in ([once, again], [again, once])]
        for size in STEPS:
            tiles = [steps[start : start + size] for start in range(0, len(steps), size)]
            rounds = [tile[times[tile] > turn] for tile in tiles for turn in range(int(times[tile].max()))]
            listed.append(np.concatenate([*rounds, steps[:0]]))
        yield from dict.fromkeys(tuple(int(step) for step in order) for order in listed)

    @property
    def restarted(self) -> bool:
        """Only the end of K is left, each k once."""
        kept = np.flatnonzero(self.weights)
        return bool(len(kept) and (self.weights[kept[0] :] == 1).all())


def _turns(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which time each of some sorted steps comes."""
    return np.arange(len(steps)) - np.searchsorted(steps, steps)


def counts(padded: int, step: int, depth: int) -> Iterator[Count]:
    """Of K = depth, padded: every range of the instruction's steps left out or taken twice, blocks of others, parts of tiles, what pipelines do; each once."""
    seen = set()
    of_sequences = ((found.counts(padded).astype(np.float64), 3) for found in sequences(padded, step))
    for weights, rank in chain(_of_blocks(padded, step), _of_tiles(padded, step), of_sequences):
        key = weights.tobytes()
        if key not in seen:
            seen.add(key)
            yield counted(weights, rank, step, depth)


def _of_blocks(padded: int, step: int) -> Iterator[tuple[Numbers, int]]:
    """Ranges of steps left out or taken twice; every second block; a block taken again in the place of another, or of all."""
    blocks, place = -(-padded // step), np.arange(padded) // step
    for first, last in combinations_with_replacement(range(blocks), 2) if 1 < blocks <= _MOST else ():
        inside = (place >= first) & (place <= last)
        if not inside.all():
            yield np.where(inside, 0.0, 1.0), 4 if (first, last) == (0, blocks - 2) else 1  # else: restarted
            yield np.where(inside, 2.0, 1.0), 1
    for size in STEPS:
        block = place // size
        last = int(block[-1])
        if last:
            yield from ((np.where(block % 2 == odd, 0.0, 1.0), 2) for odd in (0, 1))
            yield from ((_instead(block, *pair), 2) for pair in ((last, 0), (0, last)))
        for number, by in product(range(last + 1), (1, 2)):  # one stale stage of both operands
            others = (other for other in (number - by, number + by) if 0 <= other <= last)
            yield from ((_instead(block, number, other), 3) for other in others)
        if last and blocks % size == 0:  # always the same tile
            yield np.where(block == 0, last + 1.0, 0.0), _NO_STEP
            yield np.where(block == last, last + 1.0, 0.0), 2


def _instead(block: Ints, lost: int, again: int) -> Numbers:
    return np.where(block == again, 2.0, np.where(block == lost, 0.0, 1.0))


def _of_tiles(padded: int, step: int) -> Iterator[tuple[Numbers, int]]:
    """Inside every tile always the same step; the first or the last steps of every tile alone."""
    blocks, place = -(-padded // step), np.arange(padded) // step
    for size in STEPS[1:]:
        if size < blocks or blocks % size == 0:
            yield from ((np.where(place % size == kept, float(size), 0.0), 2) for kept in (0, size - 1))
    for size in (size for size in STEPS[1:] if size < blocks):
        for taken in range(1, size):
            yield from ((np.where(x, 1.0, 0.0), 2) for x in (place % size < taken, place % size >= size - taken))


def counted(weights: Numbers, rank: int, step: int, depth: int | None = None) -> Count:
    """The mistake of these weights. step: the instruction's K; depth: K, without what pads it."""
    missing, more = np.flatnonzero(weights[:depth] == 0), np.flatnonzero(weights[:depth] > 1)
    parts = []
    if len(missing):
        parts.append(f"K {ranges(missing)} not added")
    for times in sorted(set(weights[more].tolist())):
        where = np.flatnonzero(weights[:depth] == times)
        parts.append(f"K {ranges(where)} added {int(times)} times")
    name = _MISCOUNTED if len(missing) and len(more) else (_MISSING if len(missing) else _REPEATED)
    return Count(name, ", ".join(parts), weights, rank, step)
