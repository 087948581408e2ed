"""Decision trees (CART, Gini's impurity, the best leaf first) over the features of tcsim.plans.trees. It needs numba."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.engines.loops import loop
from tcsim.plans.trees import FEATURES, KIND, LEAF, Machine, Tree, feature


class Shapes(NamedTuple):
    """Shapes with the answer that was recorded: the split, or the number of a decision."""

    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    answer: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]  # numbers, of kinds that share the tree


class _Cut(NamedTuple):
    gain: float
    feature: int
    last: int  # its greatest value in the left half
    next: int  # its least in the right half


@loop(nogil=True, error_model="numpy")
def _best(values: Any, order: Any, labels: Any, first: Any, last: Any, classes: Any) -> Any:
    """Of the samples at [first, last) of each feature's order, the cut whose halves are purest: gain, feature, the values on its two sides.

    Of a sorted feature, moving one sample to the left adds 2 c + 1 to the sum of squared class counts there, if c of its class are there already.
    """
    size = last - first
    total = np.zeros(classes, np.int64)
    for i in range(first, last):
        total[labels[order[0, i]]] += 1
    whole = 0
    for c in range(classes):
        whole += total[c] * total[c]
    best, where, low, high = whole / size, -1, 0, 0
    left = np.empty(classes, np.int64)
    for f in range(len(order)):
        left[:] = 0
        here, there = 0, whole
        for i in range(first, last - 1):
            sample, following = order[f, i], order[f, i + 1]
            c = labels[sample]
            here += 2 * left[c] + 1
            there -= 2 * (total[c] - left[c]) - 1
            left[c] += 1
            if values[f, sample] != values[f, following]:
                count = i + 1 - first
                score = here / count + there / (size - count)
                if score > best:
                    best, where, low, high = score, f, values[f, sample], values[f, following]
    return best - whole / size, where, low, high


def _parted(order: npt.NDArray[np.int32], first: int, last: int, small: npt.NDArray[np.bool_]) -> int:
    """Put the small samples of [first, last) before the others in every feature's order; where the others begin."""
    some = order[:, first:last]
    left = small[some]
    order[:, first:last] = np.concatenate([some[x].reshape(len(order), -1) for x in (left, ~left)], axis=1)
    return first + int(left[0].sum())


def rounded(last: int, next: int) -> int:
    """The multiple of the largest power of two from `last` up to, not including, `next`: thresholds of few bits take little room.

    >>> rounded(999, 1100), rounded(64, 65)
    (1024, 64)
    """
    multiples = ((next - 1) >> shift << shift for shift in range((last ^ (next - 1)).bit_length() + 1))
    return max((x for x in multiples if x >= last), key=lambda x: x & -x)


def grown(shapes: Shapes, machine: Machine, leaves: int) -> Tree:
    """A tree of shapes grown greedily, with at most `leaves` leaves."""
    columns = [np.clip(feature(i, *shapes[:3], machine), 0, 2**32 - 1) for i in range(FEATURES)]
    values = np.stack([*columns, shapes.kind]).astype(np.uint32)
    assert len(values) == KIND + 1
    return learnt(values, shapes.answer, machine, leaves)


def learnt(values: npt.NDArray[np.uint32], labels: npt.NDArray[np.int64], machine: Machine, leaves: int) -> Tree:
    """A tree of samples grown greedily; values: of each feature the samples'."""
    classes = int(labels.max()) + 1
    order = np.stack([np.argsort(row, kind="stable").astype(np.int32) for row in values])
    spans: dict[int, tuple[int, int]] = {0: (0, len(labels))}
    children: dict[int, tuple[int, int, int, int]] = {}  # feature, threshold, left and right
    majority: dict[int, int] = {}
    queue: list[tuple[float, int, _Cut]] = []

    def consider(node: int) -> None:
        first, last = spans[node]
        majority[node] = int(np.bincount(labels[order[0, first:last]]).argmax())
        if last - first > 1 and (cut := _Cut(*_best(values, order, labels, first, last, classes))).gain >= 1e-9:
            heapq.heappush(queue, (-cut.gain, node, cut))

    consider(0)
    while queue and len(children) + 1 < leaves:
        _, node, cut = heapq.heappop(queue)
        (first, last), left = spans[node], len(spans)
        threshold = rounded(int(cut.last), int(cut.next))
        middle = _parted(order, first, last, values[cut.feature] <= threshold)
        spans[left], spans[left + 1] = (first, middle), (middle, last)
        children[node] = (int(cut.feature), threshold, left, left + 1)
        consider(left)
        consider(left + 1)
    return _written(children, majority, machine)


def _written(children: dict[int, tuple[int, int, int, int]], majority: dict[int, int], machine: Machine) -> Tree:
    """The tree in preorder; branches that lead to one answer are one leaf."""
    features: list[int] = []
    thresholds: list[int] = []
    answers: dict[int, set[int]] = {}
    for node in sorted(majority, reverse=True):  # children have greater numbers
        cut = children.get(node)
        answers[node] = {majority[node]} if cut is None else answers[cut[2]] | answers[cut[3]]
    stack = [0]
    while stack:
        node = stack.pop()
        said = answers[node]
        cut = children[node] if len(said) > 1 else None
        features.append(LEAF if cut is None else cut[0])
        thresholds.append(min(said) if cut is None else cut[1])
        if cut is not None:
            stack += [cut[3], cut[2]]
    return Tree(machine, np.array(features, np.uint8), np.array(thresholds, np.uint32))
