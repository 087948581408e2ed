"""Decision trees: features, walking them, and trees that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.plans import record
from tcsim.plans.ranking import Ranking
from tcsim.plans.trees import FEATURES, KIND, LEAF, LEAST, SIMPLE, TILES, Machine, Tree, feature, packed_size, unpacked

MACHINE = Machine(132, 32 << 20, 64)


def made(features: list[int], thresholds: list[int]) -> Tree:
    return Tree(MACHINE, np.array(features, np.uint8), np.array(thresholds, np.uint32))


def test_features_are_what_their_names_say() -> None:
    """Tiles, how often they fit the processors, and the shortest chunk, of 100 x 1,000 x 6,000."""
    m, n, k = np.int64(100), np.int64(1000), np.int64(6000)
    simple = [int(feature(i, m, n, k, MACHINE)) for i in range(SIMPLE)]
    assert simple[:11] == [100, 1000, 6000, 94, 4, 4, 8, 16, 83, 100_000, 100]
    assert simple[11:] == [60_000, 6000, 16, 183, 585_937]
    number = TILES.index((128, 64))
    assert [int(feature(SIMPLE + 4 * number + i, m, n, k, MACHINE)) for i in range(4)] == [16, 4, 64, 16]
    many = (np.array([100, 7]), np.array([1000, 64]), np.array([6000, 2568]))
    for index in range(FEATURES):
        both = feature(index, *many, MACHINE)
        assert [int(feature(index, many[0][i], many[1][i], many[2][i], MACHINE)) for i in (0, 1)] == both.tolist()


def test_leaves_of_shapes() -> None:
    """m <= 64 and k <= 4096, or not; of the second of two kinds that share the tree a split of 7 where k is short."""
    tree = made([0, 2, KIND, LEAF, LEAF, LEAF, LEAF], [64, 4096, 0, 2, 7, 3, 1])
    shapes = (64, 8, 4096), (64, 8, 4097), (65, 8, 1)
    assert [[tree.answer(*x, number) for x in shapes] for number in (0, 1)] == [[2, 3, 1], [7, 3, 1]]
    again = unpacked(tree.packed(), 7, MACHINE)
    assert all((getattr(again, name) == getattr(tree, name)).all() for name in ("features", "thresholds", "right"))
    assert len(tree.packed()) == packed_size(7)


@pytest.mark.parametrize("features", [[], [0], [0, LEAF], [LEAF, LEAF], [0, LEAF, LEAF, LEAF], [KIND + 1, LEAF, LEAF]])
def test_what_is_not_a_tree_is_refused(features: list[int]) -> None:
    with pytest.raises(ValueError, match="tree"):
        made(features, [1] * len(features))
    packed = made([0, LEAF, LEAF], [1, 2, 3]).packed()
    for data, nodes in ((b"123", 1), (packed, 1), (packed, 5), (packed[:-1], 3), (bytes(len(packed)), 3)):
        with pytest.raises(ValueError, match="valid: "):
            unpacked(data, nodes, MACHINE)


def test_recorded_trees_answer_possible_splits() -> None:
    """Of the H200: every leaf cuts K into at least one chunk, into 25 at most, or has the place of a decision."""
    trees = record.table("h200").trees
    assert len(trees) > 30 and sum(bool(x.answers) for x in trees.values()) == 16
    for grown, number, answers in trees.values():
        tree = grown()
        if isinstance(tree, Ranking):
            continue
        assert number == 0 or (tree.features == KIND).any()
        leaves = tree.thresholds[tree.features == LEAF]
        assert leaves.max() < len(answers) if answers else leaves.min() >= 1 and leaves.max() <= 25


def test_tiles_that_fill_the_gpu_leave_nothing_to_cut() -> None:
    shapes = (np.array([64, 8, 8192]), np.array([64, 4096, 8192]), np.array([8192] * 3))
    tiles, split, both = (feature(SIMPLE + what, *shapes, MACHINE) for what in range(3))  # tiles of 64 x 8
    assert tiles.tolist() == [8, 64, 128 * 1024]
    assert split.tolist() == [(128 - 1) // LEAST, 132 // 64, 1] and both.tolist() == (tiles * split).tolist()
