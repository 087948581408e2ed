"""How often a kernel may take each k: blocks of K left out or taken again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.pipelines import Sequence, causes, sequences
from tcsim.diagnosis.reals import Numbers
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
    """Of K = depth, padded: every range of the instruction's steps left out or taken twice, every second block, the first again for the last, a part of every tile."""
    blocks = -(-padded // step)
    place = np.arange(padded) // step
    seen = set()
    if 1 < blocks <= _MOST:
        for first in range(blocks):
            for last in range(first, blocks):
                inside = (place >= first) & (place <= last)
                if not inside.all():
                    restarted = (first, last) == (0, blocks - 2)  # the catalogue has a name for it
                    for weights, rank in (
                        (np.where(inside, 0.0, 1.0), 4 if restarted else 1),
                        (np.where(inside, 2.0, 1.0), 1),
                    ):
                        seen.add(weights.tobytes())
                        yield counted(weights, rank, step, depth)
    for size in STEPS:
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
                yield counted(weights, 2, step, depth)
        for number in range(last + 1):  # one stale stage of both operands
            for by in (1, 2):
                for other in (number - by, number + by):
                    if 0 <= other <= last:
                        weights = np.where(block == other, 2.0, np.where(block == number, 0.0, 1.0))
                        if weights.tobytes() not in seen:
                            seen.add(weights.tobytes())
                            yield counted(weights, 3, step, depth)
        for kept in {0, last}:  # always the same tile
            if blocks % size == 0 and last > 0:
                weights = np.where(block == kept, last + 1.0, 0.0)
                if weights.tobytes() not in seen:
                    seen.add(weights.tobytes())
                    yield counted(weights, 2 if kept else _NO_STEP, step, depth)
    for size in STEPS[1:]:  # inside a tile always the same step
        for kept in {0, size - 1}:
            if size < blocks or blocks % size == 0:
                weights = np.where(place % size == kept, float(size), 0.0)
                if weights.tobytes() not in seen:
                    seen.add(weights.tobytes())
                    yield counted(weights, 2, step, depth)
    parts = [(size, taken) for size in STEPS[1:] if size < blocks for taken in range(1, size)]
    for size, taken in parts:  # of every tile
        for inside in (place % size < taken, place % size >= size - taken):
            weights = np.where(inside, 1.0, 0.0)
            if weights.tobytes() not in seen:
                seen.add(weights.tobytes())
                yield counted(weights, 2, step, depth)
    for found in sequences(padded, step):
        weights = found.counts(padded).astype(np.float64)
        if weights.tobytes() not in seen:
            seen.add(weights.tobytes())
            yield counted(weights, 3, step, depth)


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
