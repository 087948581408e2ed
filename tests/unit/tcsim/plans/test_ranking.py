"""Rankings of tiles: what they look at, the tile that comes first, and bytes that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.plans import record
from tcsim.plans.ranking import FEATURES, KEPT, Network, Ranking, columns, packed_extent, parts, ranked, walked
from tcsim.plans.trees import LEAF, LEAST, Machine, Tree

MACHINE = Machine(132, 32 << 20, 64)
WIDTH, LENGTH, KINDS = 4, 2, 4
LOADS = 14
"""The place of the rows that clusters load among what networks look at."""
WAYS = np.array([[2, 1, 1], [2, 1, 3]], np.float32)
TILES = [[64, 64], [128, 64], [128, 128]]


def made(tiles: list[list[int]]) -> Ranking:
    """Tiles of which the one comes first that loads the fewest rows; the last kind takes the first tile. The tree: cut in three if at most 16 tiles are the result."""
    tree = Tree(MACHINE, np.array([0, LEAF, LEAF], np.uint8), np.array([16, 1, 0], np.uint32))
    zeros, last = np.zeros(FEATURES, np.float32), np.array([-1, 0, 0, 0], np.float32)
    first, second = np.zeros((WIDTH, FEATURES + KINDS + LENGTH), np.int8), np.eye(WIDTH, dtype=np.int8) * 10
    first[0, LOADS] = 15
    each = ((first, 9), (second, 0))
    layers = tuple((x, np.full(WIDTH, 1 / x.max(), np.float32), np.full(WIDTH, bias, np.float32)) for x, bias in each)
    favoured = np.zeros((KINDS, len(tiles)), np.int8)
    favoured[3, 0] = 100
    known = np.zeros((len(tiles), LENGTH), np.int8)
    net = Network(known, np.ones(LENGTH, np.float32), layers, last, favoured, np.float32(0.5))
    return Ranking(tree, WAYS, np.array(tiles, np.float32), zeros, zeros + 1, (net, net))


def test_the_tile_that_comes_first_says_the_cut() -> None:
    """512 x 256: 64 x 64 tiles are 32, 128 x 128 are 8; the kind counts. Of more tiles than are kept, those beyond fall out."""
    ranking = made(TILES)
    some, splits, good = ranking.candidates(256, 512, 8192)
    assert some.tolist() == [2, 1, 0] and splits.tolist() == [3, 3, 1] and good.argmax() == 0
    loads = [2 * 512 + 2 * 256, 4 * 512 + 2 * 256, 4 * 512 + 4 * 256]
    assert np.allclose(good, -9 - np.log2(loads), atol=1e-4)
    assert [ranking.answer(256, 512, 8192, number) for number in (0, 3)] == [3, 1]
    many = made([*KEPT * [[8, 8]], [128, 128]])
    assert many.candidates(256, 512, 8192)[0].tolist() == [KEPT, *range(KEPT - 1)] and many.answer(256, 512, 8192) == 3


def test_what_is_looked_at() -> None:
    """Arrays give what single shapes do; 10 x 2 tiles in clusters of 4 x 1 are 12 x 2 blocks, cut in five 120 of 120."""
    shape, tile = [np.array([100.0]), np.array([640.0]), np.array([6400.0])], [np.array([64.0]), np.array([64.0])]
    found = [float(x[0]) for x in parts(shape, tile, [np.array([x]) for x in (4.0, 1.0, 5.0)], 64)]
    assert len(found) == FEATURES and np.isfinite(found).all()
    assert np.allclose(2 ** np.array(found[5:10]), [100, 120, 1, 20, 5]) and found[24] == 1
    assert 2 ** found[LOADS] == pytest.approx(2 * 640 + 3 * 128)
    seen = np.stack([x * np.ones(1) for x in columns(shape, tile, np.array([9.0]), np.array([5.0]), MACHINE)])[:, 0]
    assert seen[:8].tolist() == [20, (100 - 1) // LEAST, 100, 64, 64, 10, 2, 80]
    assert seen[-10:].tolist() == [4, 64, 64, 1, 5, 9, 100, 640, 6400, 20480]
    assert walked(made(TILES).choices, seen[:, None]).tolist() == [0]


def test_bytes_come_back() -> None:
    """The file's arrays give the same answers; others are refused."""
    ranking = made(TILES)
    data, sizes = ranking.packed(), ranking.sizes()
    assert sizes == (3, 2, 3, KINDS, *2 * (LENGTH, 2, WIDTH)) and len(data) == packed_extent(*sizes)
    again = ranked(data, MACHINE, *sizes)
    pairs = zip(again.candidates(256, 512, 8192), ranking.candidates(256, 512, 8192), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)
    with pytest.raises(ValueError, match="valid: "):
        ranked(data[:-1], MACHINE, *sizes)
    for features, leaf in ((27, 1), (0, len(WAYS))):
        tree = Tree(MACHINE, np.array([features, LEAF, LEAF], np.uint8), np.array([1, leaf, 0], np.uint32))
        with pytest.raises(ValueError, match="does not exist"):
            ranked(tree.packed() + data[len(tree.packed()) :], MACHINE, *sizes)


def test_the_recorded_ranking() -> None:
    """Of f16 and bf16 on an H200: the answer is one of the tiles' cuts, and the same for the same shape."""
    trees = record.table("h200").trees
    found = {key: grown for key, grown in trees.items() if isinstance(grown.tree(), Ranking)}
    keys = [f"mm {format} {layout}" for format in ("bf16", "f16") for layout in ("TN", "NN", "NT", "TT")]
    assert sorted(found) == sorted(keys) and [found[x].number for x in keys] == [*range(8)]
    ranking = found["mm bf16 TN"].tree()
    assert isinstance(ranking, Ranking)
    for shape in ((1, 64, 2568), (100, 1000, 6000), (4096, 1024, 32768), (8, 1 << 18, 1 << 20)):
        splits = ranking.candidates(*shape)[1]
        assert splits.min() >= 1 and splits.max() <= 25 and ranking.answer(*shape) in splits
