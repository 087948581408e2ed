"""Decision trees: features, walking them, and trees that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.plans import record
from tcsim.plans.trees import FEATURES, LEAF, LEAST, SIMPLE, TILES, Machine, Tree, feature, unpacked

MACHINE = Machine(132, 32 << 20, 64)


def made(features: list[int], thresholds: list[int], right: list[int]) -> Tree:
    return Tree(MACHINE, np.array(features, np.uint8), np.array(thresholds, np.uint32), np.array(right, np.uint16))


def test_features_are_what_their_names_say() -> None:
    """Tiles, how often they fit the processors, and the shortest chunk, of 100 x 1,000 x 6,000."""
    m, n, k = np.int64(100), np.int64(1000), np.int64(6000)
    simple = [int(feature(i, m, n, k, MACHINE)) for i in range(SIMPLE)]
    assert simple == [100, 1000, 6000, 94, 4, 4, 8, 16, 83, 100_000, 100]
    number = TILES.index((128, 64))
    assert [int(feature(SIMPLE + 4 * number + i, m, n, k, MACHINE)) for i in range(4)] == [16, 4, 64, 16]
    many = (np.array([100, 7]), np.array([1000, 64]), np.array([6000, 2568]))
    for index in range(FEATURES):
        both = feature(index, *many, MACHINE)
        assert [int(feature(index, many[0][i], many[1][i], many[2][i], MACHINE)) for i in (0, 1)] == both.tolist()


def test_leaves_of_shapes() -> None:
    """m <= 64 and k <= 4096, or not."""
    tree = made([0, 2, LEAF, LEAF, LEAF], [64, 4096, 2, 3, 1], [4, 3, 0, 0, 0])
    assert [tree.split(*x) for x in ((64, 8, 4096), (64, 8, 4097), (65, 8, 1))] == [2, 3, 1]
    again = unpacked(tree.packed(), 5, MACHINE)
    assert all((getattr(again, name) == getattr(tree, name)).all() for name in ("features", "thresholds", "right"))


@pytest.mark.parametrize(
    "nodes",
    [([], [], []), ([0], [1], [0]), ([0, LEAF, LEAF], [1, 1, 1], [1, 0, 0]), ([0, LEAF, LEAF], [1, 1, 1], [3, 0, 0]), ([FEATURES, LEAF, LEAF], [1, 1, 1], [2, 0, 0])],
)  # fmt: skip
def test_trees_that_do_not_end_are_refused(nodes: tuple[list[int], list[int], list[int]]) -> None:
    with pytest.raises(ValueError, match="tree"):
        made(*nodes)
    with pytest.raises(ValueError, match="valid: 7"):
        unpacked(b"123", 1, MACHINE)


def test_recorded_trees_answer_possible_splits() -> None:
    """Of the H200: every leaf cuts K into at least one chunk, into 25 at most."""
    trees = record.table("h200").trees
    assert len(trees) > 10
    for grown in trees.values():
        tree = grown()
        splits = tree.thresholds[tree.features == LEAF]
        assert splits.min() >= 1 and splits.max() <= 25


def test_tiles_that_fill_the_gpu_leave_nothing_to_cut() -> None:
    shapes = (np.array([64, 8, 8192]), np.array([64, 4096, 8192]), np.array([8192] * 3))
    tiles, split, both = (feature(SIMPLE + what, *shapes, MACHINE) for what in range(3))  # tiles of 64 x 8
    assert tiles.tolist() == [8, 64, 128 * 1024]
    assert split.tolist() == [(128 - 1) // LEAST, 132 // 64, 1] and both.tolist() == (tiles * split).tolist()
