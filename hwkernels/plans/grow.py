"""Decision trees (CART, Gini's impurity, the best leaf first) over the features of tcsim.plans.trees."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.plans.trees import FEATURES, KIND, LEAF, Machine, Tree, feature


class Shapes(NamedTuple):
    """Shapes with the split that was recorded."""

    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    split: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]  # numbers, of kinds that share the tree


class _Cut(NamedTuple):
    gain: float
    feature: int
    threshold: int


def _best(values: npt.NDArray[np.uint32], labels: npt.NDArray[np.int64]) -> _Cut | None:
    """The cut of values (features, samples) whose halves are purest; None where no cut helps.

    Of a sorted feature, moving one sample to the left adds 2 c + 1 to the sum of squared class counts there, if c of its class are there already.
    """
    total = np.bincount(labels)
    size = len(labels)
    if size < 2 or total.max() == size:
        return None
    order = np.argsort(values, axis=1, kind="stable")
    sorted_, classes = np.take_along_axis(values, order, 1), labels[order]
    by_class = np.argsort(classes, axis=1, kind="stable")
    starts = np.concatenate([[0], np.cumsum(total)[:-1]])
    rank = np.arange(size) - np.repeat(starts, total)
    seen = np.empty_like(classes)
    np.put_along_axis(seen, by_class, np.broadcast_to(rank, classes.shape), 1)
    left = np.cumsum(2 * seen + 1, axis=1)[:, :-1]
    right = (total.astype(np.int64) ** 2).sum() - np.cumsum(2 * (total[classes] - seen) - 1, axis=1)[:, :-1]
    count = np.arange(1, size)
    score = left / count + right / (size - count)
    score[sorted_[:, 1:] == sorted_[:, :-1]] = -1.0
    at = int(np.argmax(score))
    row, place = divmod(at, size - 1)
    gain = float(score[row, place] - (total.astype(float) ** 2).sum() / size)
    return None if gain < 1e-9 else _Cut(gain, row, rounded(int(sorted_[row, place]), int(sorted_[row, place + 1])))


def rounded(last: int, next: int) -> int:
    """The multiple of the largest power of two from `last` up to, not including, `next`: thresholds of few bits take little room.

    >>> rounded(999, 1100), rounded(64, 65)
    (1024, 64)
    """
    multiples = ((next - 1) >> shift << shift for shift in range((last ^ (next - 1)).bit_length() + 1))
    return max((x for x in multiples if x >= last), key=lambda x: x & -x)


def grown(shapes: Shapes, machine: Machine, leaves: int) -> Tree:
    """A tree grown greedily, with at most `leaves` leaves."""
    columns = [np.clip(feature(i, *shapes[:3], machine), 0, 2**32 - 1) for i in range(FEATURES)]
    values = np.stack([*columns, shapes.kind]).astype(np.uint32)
    assert len(values) == KIND + 1
    labels = shapes.split
    samples: dict[int, Any] = {0: np.arange(len(labels))}
    children: dict[int, tuple[_Cut, int, int]] = {}
    queue: list[tuple[float, int, _Cut]] = []

    def consider(node: int) -> None:
        if (cut := _best(values[:, samples[node]], labels[samples[node]])) is not None:
            heapq.heappush(queue, (-cut.gain, node, cut))

    consider(0)
    while queue and len(children) + 1 < leaves:
        _, node, cut = heapq.heappop(queue)
        some = samples[node]
        small = values[cut.feature, some] <= cut.threshold
        left = len(samples)
        samples[left], samples[left + 1] = some[small], some[~small]
        children[node] = (cut, left, left + 1)
        consider(left)
        consider(left + 1)
    return _written(children, {node: labels[some] for node, some in samples.items()}, machine)


def _written(children: dict[int, tuple[_Cut, int, int]], labels: dict[int, Any], machine: Machine) -> Tree:
    """The tree in preorder; branches that lead to one answer are one leaf."""
    features: list[int] = []
    thresholds: list[int] = []

    def answers(node: int) -> set[int]:
        if node not in children:
            return {int(np.bincount(labels[node]).argmax())}
        return answers(children[node][1]) | answers(children[node][2])

    stack = [0]
    while stack:
        node = stack.pop()
        said = answers(node)
        cut = children[node][0] if len(said) > 1 else None
        features.append(LEAF if cut is None else cut.feature)
        thresholds.append(min(said) if cut is None else cut.threshold)
        if cut is not None:
            stack += children[node][:0:-1]
    return Tree(machine, np.array(features, np.uint8), np.array(thresholds, np.uint32))
