"""Rankings of tiles: what they look at, the tile that comes first, and bytes that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.plans import record
from tcsim.plans.ranking import CLUSTERS, CUTS, FEATURES, Ranking, columns, packed_extent, parts, ranked, walked
from tcsim.plans.trees import LEAF, LEAST, Machine, Tree

MACHINE = Machine(132, 32 << 20, 64)
TILES, WIDTH, LENGTH, KINDS = 3, 4, 2, 4
LOADS, CLUSTER = 14, CLUSTERS.index((2, 1)) * CUTS
"""The place of the rows that clusters load among what the network looks at."""


def made() -> Ranking:
    """64 x 64, 128 x 64 and 128 x 128 in clusters of two: cut in three if at most 16 tiles are the result, else whole; the fewest rows loaded come first."""
    tree = Tree(MACHINE, np.array([0, LEAF, LEAF], np.uint8), np.array([16, CLUSTER + 2, CLUSTER], np.uint32))
    features = FEATURES + KINDS
    first = np.zeros((WIDTH, features + LENGTH), np.int8)
    first[0, LOADS] = 127
    second = np.eye(WIDTH, dtype=np.int8) * 100
    scales = np.array([[1 / 127], [9], [1 / 100], [0]], np.float32) * np.ones(WIDTH, np.float32)
    favoured = np.zeros((KINDS, TILES), np.float32)
    favoured[3, 0] = 50  # the last kind takes the smallest tile
    tiles = np.array([[64, 64], [128, 64], [128, 128]], np.float32)
    zeros, last = np.zeros(features, np.float32), np.array([-1, 0, 0, 0], np.float32)
    return Ranking(tree, tiles, zeros, zeros + 1, np.zeros((TILES, LENGTH)), first, second, scales, last, favoured)


def test_the_tile_that_comes_first_says_the_cut() -> None:
    """512 x 256: 64 x 64 tiles are 32, 128 x 128 are 8; the kind counts, and tiles that cover 16 rows too often do not."""
    ranking = made()
    tiles, splits, good = ranking.candidates(256, 512, 8192)
    assert tiles.tolist() == [0, 1, 2] and splits.tolist() == [1, 3, 3] and good.argmax() == 2
    loads = [4 * 512 + 4 * 256, 4 * 512 + 2 * 256, 2 * 512 + 2 * 256]
    assert np.allclose(good, -9 - np.log2(loads), atol=1e-4)
    assert [ranking.answer(256, 512, 8192, number) for number in (0, 3)] == [3, 1]
    assert ranking.candidates(1, 64, 8192)[0].tolist() == [0]  # the others cover it 16 times and more
    assert ranking.candidates(8, 1 << 20, 8192)[0].tolist() == [0, 1] and ranking.answer(1, 1, 4096) == 1


def test_what_is_looked_at() -> None:
    """Arrays give what single shapes do; 10 x 2 tiles in clusters of 4 x 1 are 12 x 2 blocks, cut in five 120 of 120."""
    shape, tile = [np.array([100.0]), np.array([640.0]), np.array([6400.0])], [np.array([64.0]), np.array([64.0])]
    found = [float(x[0]) for x in parts(shape, tile, [np.array([4.0]), np.array([1.0])], np.array([5.0]), 64)]
    assert len(found) == FEATURES and np.isfinite(found).all()
    assert np.allclose(2 ** np.array(found[5:10]), [100, 120, 1, 20, 5]) and found[24] == 1
    assert 2 ** found[LOADS] == pytest.approx(2 * 640 + 3 * 128)
    seen = np.stack([x * np.ones(1) for x in columns(shape, tile, np.array([5.0]), MACHINE)])
    assert seen[:8, 0].tolist() == [20, (100 - 1) // LEAST, 100, 64, 64, 10, 2, 80] and seen[-5:, 0].tolist() == [
        4,
        64,
        64,
        1,
        5,
    ]
    assert walked(made().choices, seen).tolist() == [CLUSTER]


def test_bytes_come_back() -> None:
    """The file's arrays give the same answers; others are refused."""
    ranking = made()
    data, sizes = ranking.packed(), ranking.sizes()
    assert sizes == (3, TILES, LENGTH, WIDTH, KINDS) and len(data) == packed_extent(*sizes)
    again = ranked(data, MACHINE, *sizes)
    assert all(
        np.array_equal(x, y)
        for x, y in zip(again.candidates(256, 512, 8192), ranking.candidates(256, 512, 8192), strict=True)
    )
    with pytest.raises(ValueError, match="valid: "):
        ranked(data[:-1], MACHINE, *sizes)
    for features, leaf in ((22, 1), (0, CUTS * len(CLUSTERS))):
        tree = Tree(MACHINE, np.array([features, LEAF, LEAF], np.uint8), np.array([1, leaf, 0], np.uint32))
        with pytest.raises(ValueError, match="does not exist"):
            ranked(tree.packed() + data[len(tree.packed()) :], MACHINE, *sizes)


def test_the_recorded_ranking() -> None:
    """Of f16 and bf16 on an H200: the answer is one of the tiles' cuts, and the same for the same shape."""
    trees = record.table("h200").trees
    found = {key: grown for key, grown in trees.items() if isinstance(grown.tree(), Ranking)}
    assert sorted(found) == sorted(
        f"mm {format} {layout}" for format in ("bf16", "f16") for layout in ("TN", "NN", "NT", "TT")
    )
    assert [found[f"mm {format} TT"].number for format in ("bf16", "f16")] == [3, 7]
    ranking = found["mm bf16 TN"].tree()
    assert isinstance(ranking, Ranking)
    for shape in ((1, 64, 2568), (100, 1000, 6000), (4096, 1024, 32768), (8, 1 << 18, 1 << 20)):
        splits = ranking.candidates(*shape)[1]
        assert splits.min() >= 1 and splits.max() <= CUTS and ranking.answer(*shape) in splits
