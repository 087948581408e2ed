"""Which tile of K each iteration of a wrong pipeline multiplies, and how often a wrong kernel takes each k: stages not awaited, overwritten or ignored; blocks left out or taken again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, combinations_with_replacement, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.maps import STEPS, Rule, of_blocks
from tcsim.diagnosis.reals import Ints, Numbers
from tcsim.diagnosis.report import CAUSES
from tcsim.diagnosis.where import ranges

_STAGES = (2, 3, 4, 5, 6)
_SLICES = range(2, 9)  # of split-K
_ALSO = 4  # other causes of the same
_FEW, _LISTED = 6, 8  # iterations that are said one by one; of those without a rule
_OTHERS = 2  # exceptions to a rule
_SPLIT = "every slice of split-K begins at k 0"
_OLD = "stages are read before they are filled again, and still hold the tile of the turn before"
_MOMENTS = 12  # iterations, at each of which an address may move on wrong, once
_NOTHING = -1  # a stage that nobody has written


@dataclass(frozen=True)
class Sequence:
    """The tile of K that each iteration multiplies; -1: zeros."""

    cause: str  # what in a kernel makes it
    size: int  # of a tile
    tiles: tuple[int, ...]
    stages: str = ""  # of the pipeline
    rank: int = 2
    both: bool = True  # happens to both operands as well as to one

    @property
    def said(self) -> str:
        """The cause and the tiles."""
        stages = f"{self.stages}, " if self.stages else ""
        return f"{self.cause} ({stages}tiles of {self.size}: {_in_words(self.tiles)})"

    def counts(self, depth: int) -> Ints:
        """How often each k is taken where both operands are read so."""
        tiles = np.array([tile for tile in self.tiles if tile != _NOTHING], np.int64)
        return np.repeat(np.bincount(tiles, minlength=len(self.tiles)), self.size)[:depth]

    def steps(self, depth: int, step: int) -> tuple[int, ...]:
        """The instruction's steps in the order they are taken."""
        each = self.size // step
        taken = (tile * each + place for tile in self.tiles if tile != _NOTHING for place in range(each))
        return tuple(at for at in taken if at < -(-depth // step))


def _in_words(tiles: tuple[int, ...]) -> str:
    """Which tile each iteration takes: a few one by one, of more the rule.

    >>> _in_words((-1, 0, 1)), _in_words((-1, -1, *range(8))), _in_words((0, 1, 2) * 3)
    ('iterations take nothing, 0, 1', 'each iteration takes the tile 2 before, but iterations 0-1 take nothing', 'iterations take 0-2 in turn')
    """
    whole, own = np.array(tiles), np.arange(len(tiles))
    listed = ["nothing" if tile == _NOTHING else str(tile) for tile in tiles]
    if len(tiles) <= _FEW:
        return f"iterations take {', '.join(listed)}"
    for size in range(2, len(tiles)):
        if np.array_equal(whole, own % size):
            return f"iterations take 0-{size - 1} in turn"
        if np.array_equal(whole, own // size * size):
            return f"every {size} iterations take the tile of the first of them"
    by = np.where(whole == _NOTHING, len(tiles), whole - own)
    values, counts = np.unique(by, return_counts=True)
    order = sorted(range(len(values)), key=lambda at: (int(values[at]) == len(tiles), -counts[at]))
    first, *others = (int(values[at]) for at in order)
    if len(others) > _OTHERS:
        return f"iterations take {', '.join(listed[:_LISTED])}, ..."
    which = {x: np.flatnonzero(by == x) for x in others}
    said = [
        f"but iteration{'s' * (len(at) > 1)} {ranges(at)} take{'s' * (len(at) == 1)} {_beside(x, len(tiles))}"
        for x, at in which.items()
    ]
    return ", ".join([f"each iteration takes {_beside(first, len(tiles))}", *said])


def _beside(by: int, nothing: int) -> str:
    """A tile by its distance from the iteration's own."""
    if by in (0, nothing):
        return "nothing" if by else "its own tile"
    return f"the tile {f'{abs(by)} ' * (abs(by) > 1)}{'before' if by < 0 else 'after'}"


@lru_cache(64)
def sequences(depth: int, step: int) -> tuple[Sequence, ...]:
    """Those of every size of tile and every number of stages, each once for a cause; whole and large tiles first. depth: K; step: the instruction's."""
    found: dict[tuple[int, tuple[int, ...], str], Sequence] = {}
    for size in sorted((step * tiles for tiles in STEPS), key=lambda size: (depth % size != 0, -size)):
        count = -(-depth // size)
        for one in _of_size(size, count, depth % size == 0) if count > 1 else ():
            if one.tiles != tuple(range(count)) and any(tile >= 0 for tile in one.tiles):
                found.setdefault((one.size, one.tiles, one.cause), one)
    return tuple(found.values())


@lru_cache(64)
def _counted(depth: int, step: int) -> dict[bytes, dict[str, Sequence]]:
    """Those of both operands by how often they take each k, one for each cause."""
    found: dict[bytes, dict[str, Sequence]] = {}
    for one in sequences(depth, step):
        if one.both:
            found.setdefault(one.counts(depth).astype(np.float64).tobytes(), {}).setdefault(one.cause, one)
    return found


def _of_size(size: int, count: int, whole: bool) -> Iterator[Sequence]:
    """whole: the last tile is as long as the others."""
    own = np.arange(count)

    def made(cause: str, tiles: Ints, stages: str, rank: int = 2, both: bool = True) -> Sequence:
        return Sequence(cause, size, tuple(int(tile) for tile in tiles), stages, rank, both)

    for stages in (stages for stages in (1, *_STAGES) if stages < count):
        said = f"{stages} stage{'s' * (stages > 1)}"
        yield made(
            "the copy is not awaited: a stage still holds the tile before, at first nothing",
            np.maximum(own - stages, _NOTHING),
            said,
        )
        yield made(
            "the next copy has overwritten the stage that is still read",
            np.where(own + stages < count, own + stages, own),
            said,
        )
    for stages in (stages for stages in _STAGES if stages < count):
        said, turn = f"{stages} stages", own // stages
        for cause, late in (
            (f"from the second turn on {_OLD} (a phase bit that never flips)", turn > 0),
            (f"in every second turn {_OLD} (a phase bit that is not flipped with the turn)", turn % 2 == 1),
            (
                f"from the second turn on the last stage is not awaited: {_OLD}",
                (turn > 0) & (own % stages == stages - 1),
            ),
            (f"from the second turn on the first stage is not awaited: {_OLD}", (turn > 0) & (own % stages == 0)),
        ):
            yield made(cause, np.where(late, own - stages, own), said)
        yield made("the ring is filled once and never again: every turn reads the first tiles", own % stages, said)
        for left in range(1, stages):
            drained = f"the last {left} cop{'y is' if left == 1 else 'ies are'} not awaited, as nothing more is committed behind them: {_OLD}"
            yield made(drained, np.where(own >= count - left, np.maximum(own - stages, _NOTHING), own), said, 3)
    for stages in (stages for stages in _STAGES if stages <= count):
        said = f"{stages} stages"
        yield made("the stage's index is ignored: always stage 0 is read", own // stages * stages, said)
        ahead = np.where(own + 1 < count, own + 1, own + 1 - stages)
        yield made("the next stage is read: one tile ahead, at the end an old one", ahead, said, 3)
    for producer in (stages for stages in _STAGES if stages < count):
        for consumer in (producer + 1, producer - 1):
            if consumer > 1:
                said = f"{producer} stages of the producer, {consumer} of the consumer"
                yield made("rings of different length", _two_rings(own, producer, consumer), said, 3)
    for filled in (stages - 1 for stages in _STAGES[1:] if stages <= count):
        once = "the prologue copies the first tile to every stage that it fills: the address moves on in the loop alone"
        yield made(once, np.where(own < filled, 0, own), f"{filled + 1} stages")
    for first in range(2, count if count <= _MOMENTS else 0):  # the first iteration or two have names of their own
        for by, what in ((1, "has moved on once too often"), (-1, "has once not moved on")):
            late = np.where(own >= first, own + by, own)
            tiles = np.where(late < count, late, _NOTHING)
            yield made(
                f"before iteration {first} the address {what}, or a slice of split-K begins wrong there", tiles, "", 3
            )
    for slices in _SLICES:
        each = -(-count // slices)
        if 1 < each < count:
            yield made(_SPLIT, own % each, f"{-(-count // each)} slices", 3)
    for by in (1, *_STAGES):
        if by < count:
            ahead = np.where(own + by < count, own + by, _NOTHING)
            rank = 1 if whole and by == 1 else 3  # zeros lie behind the end of K, anything in a new stage
            yield made(f"tiles are read {by} too early, at the end nothing", ahead, "", rank, False)


def _two_rings(own: Ints, producer: int, consumer: int) -> Ints:
    """The last copy so far into the stage that the consumer reads."""
    slot = own % consumer
    last = own - (own - slot) % producer
    return np.where((slot < producer) & (last >= 0), last, _NOTHING)


@lru_cache(64)
def sequence_rules(depth: int, step: int, part: str = "") -> tuple[Rule, ...]:
    """The sequences of one operand. part: "data" if its metadata or scale factors are those of the iteration."""
    advice = "producer and consumer disagree about the stage of the pipeline, or one does not wait for the other"
    k = np.arange(depth)
    alike: dict[bytes, list[Sequence]] = {}
    rules = []
    for found in sequences(depth, step):
        at = of_blocks(np.array(found.tiles), found.size, depth)(k, k, k)[1]
        alike.setdefault(at.tobytes(), []).append(found)
    for first, *others in alike.values():
        where = of_blocks(np.array(first.tiles), first.size, depth)
        causes = {one.cause: one.said for one in (first, *others)}
        also = [causes[cause] for cause in sorted(causes, key=lambda cause: cause != _SPLIT) if cause != first.cause]
        said = f"{advice}; {CAUSES}{'; '.join(also[:_ALSO])}" if also else advice
        rule = Rule("K blocks of {x} mismatched", first.said, said, where, min(one.rank for one in (first, *others)))
        rules.append(replace(rule, part=part) if part else rule)
    return tuple(rules)


def causes(weights: npt.NDArray[Any], depth: int, step: int) -> tuple[list[Sequence], str]:
    """The sequences that take each k so often, one of a kind, and in words what else in a kernel does."""
    found = _counted(depth, step).get(np.asarray(weights, np.float64).tobytes(), {})
    said = [found[cause].said for cause in sorted(found, key=lambda cause: cause != _SPLIT)]
    said = [f"in a and b alike, {said[0]}", *said[1:]] if said else []
    kept = np.flatnonzero(weights)
    if len(kept) and (weights[kept[0] :] == 1).all() and kept[0] > 0:
        first = int(kept[0])
        tiles = (step * tiles for tiles in STEPS)
        size = next((size for size in tiles if size >= depth - first and first % size == 0), 0)
        if size:
            said.insert(0, f"the accumulators are cleared in every tile of {size} (scale_d 0): only the last is left")
    for size in (step * tiles for tiles in STEPS[1:]):
        inside = weights[: len(weights) // size * size].reshape(-1, size)
        taken = int(inside[:1].sum())
        if len(inside) and 0 < taken < size and (inside == (np.arange(size) < taken)).all():
            narrow = f"the last {size - taken} of every tile of {size} along K are zeros in a, in b or in both"
            said.insert(0, f"{narrow} (a box or a copy that is too narrow)")
            break
    return list(found.values()), "; ".join(said[:_ALSO])


_NO_STEP = 5  # the rank of the first tile every time: two operands that do not advance say it more plainly
_MOST = 32  # blocks whose every range is tried


def count_name(times: npt.NDArray[Any]) -> str:
    """The mistake of taking each k so often."""
    missing, more = (times < 1).any(), (times > 1).any()
    return "K blocks miscounted" if missing and more else "K block missing" if missing else "K block repeated"


@dataclass(frozen=True, eq=False)
class Count:
    """How often each k is taken."""

    weights: Numbers  # (K,)
    rank: int
    step: int  # the instruction's K
    depth: int | None = None  # K, without what pads it

    @cached_property
    def mistake(self) -> str:
        """Its name."""
        return count_name(self.weights[: self.depth])

    @cached_property
    def detail(self) -> str:
        """Which k are taken otherwise."""
        given = self.weights[: self.depth]
        parts = [f"K {ranges(np.flatnonzero(given == 0))} not added"] if (given == 0).any() else []
        for times in sorted(set(given[given > 1].tolist())):
            parts.append(f"K {ranges(np.flatnonzero(given == times))} added {int(times)} times")
        return ", ".join(parts)

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
        if key not in seen and (weights != 1).any():
            seen.add(key)
            yield Count(weights, rank, step, depth)


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
