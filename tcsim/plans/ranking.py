"""A ranking of tiles: how K is most likely cut where nothing was recorded, as the tile and the cluster that a library prefers.

Of a tile of the result a decision tree says the cluster and the cut, which hardly depend on anything else. Which tile is taken, a library decides by a model of
the time that each takes. A network of two layers stands in for that model: its features are the parts of such a time (steps of K in a block, waves of blocks, rows
of the operands that clusters load, partial sums that are added), and the tile that it puts first is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.plans.trees import LEAF, LEAST, Machine, Tree, packed_size, unpacked

CLUSTERS = ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (4, 4))
"""Blocks along N and along M, in the order of cublasLtClusterShape_t from 2 on."""
CUTS = 25
"""The most chunks of a leaf, which has cluster * CUTS + chunks - 1."""
COVER = 11
"""Times the result's size that its tiles may cover."""
LAYOUTS = 4
"""Kinds are in the order of their layouts, format by format."""
_PAIR, _MORE = 132, 120
"""Multiprocessors of an H200 that clusters of at most two blocks, and larger ones, can fill at once."""
_POWERS = ((16, 32, 64, 128), (8, 16, 32, 64), (16, 32, 64))
"""Sizes that may divide n, m and k."""
COLUMNS, FEATURES = 22, 58
"""What the tree looks at, and the network besides the kind."""
Array = npt.NDArray[Any]


def columns(shape: Any, tile: Any, kind: Any, machine: Machine, xp: Any = np) -> list[Any]:
    """What the tree of clusters and cuts looks at, of tiles (along N, along M) of shapes (m, n, k); arrays of floats of the module `xp`, NumPy or torch."""
    (m, n, k), (a, b) = shape, tile

    def up(x: Any, size: int) -> Any:
        return xp.ceil(x / size) * size

    def low(x: Any) -> Any:
        return sum((x % size == 0) * (size // 2) for size in (2, 4, 8, 16, 32, 64)) + 1

    across, down, count = xp.ceil(n / a), xp.ceil(m / b), xp.ceil(k / machine.step)
    tiles, limit = across * down, xp.clip(xp.floor((count - 1) / LEAST), 1, None)
    often = xp.floor(machine.processors / tiles)
    return [
        tiles, limit, count, a, b, across, down, tiles * limit, often, xp.floor(m * n / 1024), xp.minimum(often, limit), up(across, 4) * down, across * up(down, 4),
        up(across, 2) * down, across * up(down, 2), up(across, 4) * up(down, 2), up(across, 2) * up(down, 4), low(m), low(n), low(k), kind % LAYOUTS, kind,
    ]  # fmt: skip


def parts(shape: Any, tile: Any, cluster: Any, split: Any, step: int, xp: Any = np) -> list[Any]:
    """What the network looks at, of tiles of shapes, in clusters of blocks (along N, along M), with K cut into `split`."""
    (m, n, k), (a, b), (x, y) = shape, tile, cluster
    log = xp.log2
    across, down, count, rows = xp.ceil(n / a), xp.ceil(m / b), xp.ceil(k / step), xp.ceil(m / 8) * 8
    limit, tiles = xp.clip(xp.floor((count - 1) / LEAST), 1, None), across * down
    wide, high, fill = xp.ceil(across / x), xp.ceil(down / y), xp.where(x * y > 2, _MORE, _PAIR)
    blocks, taken = tiles * split, wide * x * high * y * split
    waves, chunk = xp.ceil(taken / fill), xp.ceil(count / split)
    loads, inside = high * across * a + wide * down * b, high * n + wide * rows
    numbers = [
        log(n), log(rows), log(count), log(across), log(down), log(blocks), log(taken), log(waves), log(chunk), log(split), log(a), log(b), log(x), log(y),
        log(loads), log(inside), log(loads * count), log(split * rows * n), log(waves * chunk * a * b), log(waves * chunk * (a + b)),
        log(waves * chunk * (a / y + b / x)), log(blocks * chunk * (a + b)), log(blocks * a * b / (rows * n)), log(loads / (rows + n)),
        taken / (fill * waves), blocks / _PAIR, blocks / (_PAIR * waves), n / (across * a), rows / (down * b), split / limit, chunk * split / count - 1, blocks / taken,
        log(xp.clip(taken / _PAIR, 0.05, None)), (rows + n) * 64 / (rows * n), split / count * 10, rows * n * split / (count * loads),
    ]  # fmt: skip
    signs = [
        across * a == n, down * b == rows, split == 1, split == limit, across == 1, down == 1, waves == 1, x * y == 1, x * y == 2, x * y == 8, waves == 2,
    ]  # fmt: skip
    signs += [value % size == 0 for value, sizes in zip((n, m, k), _POWERS, strict=True) for size in sizes]
    return numbers + signs


def walked(tree: Tree, columns: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """What the leaves of samples have; columns: the features of each, along the second axis."""
    node, sample = np.zeros(columns.shape[1], np.int64), np.arange(columns.shape[1])
    while (inner := tree.features[node] != LEAF).any():
        where, at = sample[inner], node[inner]
        small = columns[tree.features[at], where] <= tree.thresholds[at]
        node[where] = np.where(small, at + 1, tree.right[at])
    return tree.thresholds[node].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Of kinds that share it: tiles, a tree that says the cluster and the cut of each, and the network."""

    choices: Tree
    tiles: Array  # (tiles, 2): along N and along M
    mean: Array  # (features,), and one for each kind: 1 for its own
    deviation: Array
    known: Array  # (tiles, length): what is learnt of each tile
    first: Array  # (width, features + length), int8
    second: Array  # (width, width), int8
    scales: Array  # (4, width): of the first layer's weights, its bias; the second's
    last: Array  # (width,)
    favoured: Array  # (kinds, tiles): added to the result

    @property
    def kinds(self) -> int:
        """How many share it."""
        return len(self.favoured)

    def candidates(self, m: int, n: int, k: int, number: int = 0) -> tuple[Array, Array, Array]:
        """The tiles that do not cover the result too often, how K is cut with each, and how good the network finds it."""
        covered = np.ceil(n / self.tiles[:, 0]) * np.ceil(m / self.tiles[:, 1]) * self.tiles.prod(axis=1)
        some = np.flatnonzero(covered <= COVER * (-(-m // 8) * 8 * n))
        tile = self.tiles[some].T.astype(np.float64)
        shape, which = [np.full(len(some), float(x)) for x in (m, n, k)], np.full(len(some), number)
        chosen = walked(self.choices, np.stack(columns(shape, tile, which, self.choices.machine)))
        cluster, splits = np.array(CLUSTERS, float)[chosen // CUTS].T, chosen % CUTS + 1
        found = parts(shape, tile, cluster, splits, self.choices.machine.step)
        found += [np.full(len(some), number == kind) for kind in range(self.kinds)]
        x = ((np.stack(found, axis=1) - self.mean) / self.deviation).astype(np.float32)
        scale, bias, following, shift = self.scales
        x = np.maximum(np.concatenate([x, self.known[some]], axis=1) @ (self.first * scale[:, None]).T + bias, 0)
        x = np.maximum(x @ (self.second * following[:, None]).T + shift, 0)
        return some, splits, x @ self.last + self.favoured[number, some]

    @lru_cache(4096)  # noqa: B019
    def answer(self, m: int, n: int, k: int, number: int = 0) -> int:
        """The cut of the tile that comes first; number: of the kind."""
        _, splits, good = self.candidates(m, n, k, number)
        return int(splits[good.argmax()]) if len(good) else 1

    def packed(self) -> bytes:
        """The tree, and the arrays as `ranked` reads them."""
        arrays = (np.asarray(x, kind).tobytes() for (_, kind), x in zip(self._layout(), self._arrays(), strict=True))
        return self.choices.packed() + b"".join(arrays)

    def sizes(self) -> tuple[int, int, int, int, int]:
        """Nodes of the tree, tiles, what is learnt of a tile, the network's width, and kinds."""
        return len(self.choices.features), len(self.tiles), self.known.shape[1], len(self.last), self.kinds

    def _arrays(self) -> tuple[Array, ...]:
        return (
            self.tiles,
            self.mean,
            self.deviation,
            self.known,
            self.first,
            self.second,
            self.scales,
            self.last,
            self.favoured,
        )

    def _layout(self) -> list[tuple[tuple[int, ...], str]]:
        return _layout(*self.sizes()[1:])


def _layout(tiles: int, length: int, width: int, kinds: int) -> list[tuple[tuple[int, ...], str]]:
    """The shape of each array, and its type in a file."""
    features = FEATURES + kinds
    return [
        ((tiles, 2), "<u2"), ((features,), "<f4"), ((features,), "<f4"), ((tiles, length), "<f2"), ((width, features + length), "i1"), ((width, width), "i1"),
        ((4, width), "<f4"), ((width,), "<f4"), ((kinds, tiles), "<f2"),
    ]  # fmt: skip


def packed_extent(nodes: int, *sizes: int) -> int:
    """Bytes of a ranking's `packed`, from its `sizes`."""
    return packed_size(nodes) + sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in _layout(*sizes))


def ranked(data: bytes, machine: Machine, nodes: int, *sizes: int) -> Ranking:
    """The ranking of bytes that `Ranking.packed` made.

    Raises ValueError for others.
    """
    if len(data) != packed_extent(nodes, *sizes):
        raise ValueError(f"a ranking of {len(data)} bytes; valid: {packed_extent(nodes, *sizes)}")
    start = packed_size(nodes)
    layout = _layout(*sizes)
    extents = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in layout]
    arrays = [
        np.frombuffer(data, kind, int(np.prod(shape)), first).reshape(shape).astype(np.float32)
        for (shape, kind), first in zip(layout, accumulate(extents, initial=start), strict=False)
    ]
    tree = unpacked(data[:start], nodes, machine)
    if (tree.features[tree.features != LEAF] >= COLUMNS).any() or tree.thresholds[
        tree.features == LEAF
    ].max() >= CUTS * len(CLUSTERS):
        raise ValueError("a ranking whose tree asks for what does not exist")
    return Ranking(tree, *arrays)
