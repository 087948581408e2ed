"""A ranking of tiles: how K is most likely cut where nothing was recorded, as the tile and the cluster that a library prefers.

Of a tile of the result a decision tree says the cluster and the cut, which hardly depend on anything else. Which tile is taken, a library decides by a model of
the time that each takes. Networks stand in for that model: their features are the parts of such a time (steps of K in a block, waves of blocks, rows of the
operands that clusters load, partial sums that are added). A small one keeps a few tiles, a larger one says which of them comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.plans.trees import LEAF, LEAST, Machine, Tree, packed_size, unpacked

KEPT = 24
"""Tiles that the small network keeps."""
LAYOUTS = 4
"""Kinds are in the order of their layouts, format by format."""
_PAIR, _MORE = 132, 120
"""Multiprocessors of an H200 that clusters of at most two blocks, and larger ones, can fill at once."""
_POWERS = ((16, 32, 64, 128), (8, 16, 32, 64), (4, 16, 32, 64))
"""Sizes that may divide n, m and k."""
COLUMNS, FEATURES = 27, 60
"""What the tree looks at, and the networks besides the kind."""
Array = npt.NDArray[Any]


def columns(shape: Any, tile: Any, number: Any, kind: Any, machine: Machine, xp: Any = np) -> list[Any]:
    """What the tree of clusters and cuts looks at, of tiles (along N, along M) for shapes (m, n, k); arrays of floats of the module `xp`, NumPy or torch."""
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
        number, m, n, k, xp.floor(k * 64 / tiles),
    ]  # fmt: skip


def parts(shape: Any, tile: Any, way: Any, step: int, xp: Any = np) -> list[Any]:
    """What the networks look at, of tiles of shapes, in clusters of blocks (along N, along M), with K cut; way: (along N, along M, cuts)."""
    (m, n, k), (a, b), (x, y, split) = shape, tile, way
    log = xp.log2
    across, down, count, rows = xp.ceil(n / a), xp.ceil(m / b), xp.ceil(k / step), xp.ceil(m / 8) * 8
    split = xp.clip(split, 1, None)
    limit, tiles = xp.clip(xp.floor((count - 1) / LEAST), 1, None), across * down
    wide, high, fill = xp.ceil(across / x), xp.ceil(down / y), xp.where(x * y > 2, _MORE, _PAIR)
    blocks, taken = tiles * split, wide * x * high * y * split
    waves, chunk = xp.ceil(taken / fill), xp.ceil(count / split)
    loads, inside = high * across * a + wide * down * b, high * n + wide * rows
    numbers = [
        log(n), log(rows), log(count), log(across), log(down), log(blocks), log(taken), log(waves), log(chunk), log(split), log(a), log(b), log(x), log(y),
        log(loads), log(inside), log(loads * count), log(split * rows * n), log(waves * chunk * a * b), log(waves * chunk * (a + b)),
        log(waves * chunk * (a / y + b / x)), log(blocks * chunk * (a + b)), log(blocks * a * b / (rows * n)), log(loads / (rows + n)),
        taken / (fill * waves), xp.clip(blocks / _PAIR, None, 64), blocks / (_PAIR * waves), n / (across * a), rows / (down * b), split / limit, chunk * split / count - 1,
        blocks / taken, log(xp.clip(taken / _PAIR, 0.05, None)), (rows + n) * 64 / (rows * n), split / count * 10, rows * n * split / (count * loads), log(m),
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


def _rows(values: list[Any], count: int) -> Array:
    """Numbers and arrays of `count` numbers as the rows of an array."""
    found = np.empty((len(values), count))
    for row, value in zip(found, values, strict=True):
        row[:] = value
    return found


@dataclass(frozen=True, eq=False)
class Network:
    """Layers of which all but the last are followed by max(0, x)."""

    known: Array  # (tiles, length), int8: what is learnt of each tile
    unit: Array  # (length,): of `known`
    layers: tuple[tuple[Array, Array, Array], ...]  # weights (outputs, inputs), int8; the unit of each row; bias
    last: Array  # (width,)
    favoured: Array  # (kinds, tiles), int8: times `own` added to the result
    own: Array  # ()

    @cached_property
    def _weights(self) -> list[tuple[Array, Array]]:
        return [((weights * unit[:, None]).T, bias) for weights, unit, bias in self.layers]

    def good(self, x: Array, some: Array, number: int) -> Array:
        """How good tiles are; x: their features; number: of the kind."""
        x = np.concatenate([x, self.known[some] * self.unit], axis=1)
        for weights, bias in self._weights:
            x = np.maximum(x @ weights + bias, 0)
        return x @ self.last + self.favoured[number, some] * self.own


@dataclass(frozen=True, eq=False)
class Ranking:
    """Of kinds that share it: tiles, a tree that says the cluster and the cut of each, and the networks."""

    choices: Tree
    ways: Array  # (classes of leaves, 3): blocks of a cluster along N and along M, and parts of K
    tiles: Array  # (tiles, 2): along N and along M
    mean: Array  # (features,)
    deviation: Array
    networks: tuple[Network, Network]

    @property
    def kinds(self) -> int:
        """How many share it."""
        return len(self.networks[0].favoured)

    def candidates(self, m: int, n: int, k: int, number: int = 0) -> tuple[Array, Array, Array]:
        """The tiles that are kept, how K is cut with each, and how good it is; number: of the kind."""
        count, machine = len(self.tiles), self.choices.machine
        shape, tile = [np.float64(x) for x in (m, n, k)], self.tiles.T.astype(np.float64)
        seen = _rows(columns(shape, tile, np.arange(count), number, machine), count)
        way = self.ways[walked(self.choices, seen)].T.astype(np.float64)
        x = np.zeros((count, FEATURES + self.kinds), np.float32)
        x[:, :FEATURES] = (_rows(parts(shape, tile, way, machine.step), count).T - self.mean) / self.deviation
        x[:, FEATURES + number] = 1
        small, large = self.networks
        some = np.argsort(-small.good(x, np.arange(count), number), kind="stable")[:KEPT]
        return some, way[2][some], large.good(x[some], some, number)

    @lru_cache(4096)  # noqa: B019
    def answer(self, m: int, n: int, k: int, number: int = 0) -> int:
        """The cut of the tile that comes first; number: of the kind."""
        _, splits, good = self.candidates(m, n, k, number)
        return int(splits[good.argmax()])

    def packed(self) -> bytes:
        """The tree, and the arrays as `ranked` reads them."""
        arrays = [self.ways, self.tiles, self.mean, self.deviation]
        for each in self.networks:
            arrays += [
                each.known,
                each.unit,
                *(x for layer in each.layers for x in layer),
                each.last,
                each.favoured,
                each.own,
            ]
        layout = _layout(*self.sizes()[1:])
        return self.choices.packed() + b"".join(
            np.asarray(x, kind).tobytes() for (_, kind), x in zip(layout, arrays, strict=True)
        )

    def sizes(self) -> tuple[int, ...]:
        """Nodes of the tree, ways, tiles and kinds; of each network how much is learnt of a tile, layers, and their width."""
        each = (x for net in self.networks for x in (net.known.shape[1], len(net.layers), len(net.last)))
        return len(self.choices.features), len(self.ways), len(self.tiles), self.kinds, *each


def _layout(ways: int, tiles: int, kinds: int, *networks: int) -> list[tuple[tuple[int, ...], str]]:
    """The shape of each array, and its type in a file."""
    found: list[tuple[tuple[int, ...], str]] = [
        ((ways, 3), "u1"),
        ((tiles, 2), "<u2"),
        ((FEATURES,), "<f4"),
        ((FEATURES,), "<f4"),
    ]
    for length, layers, width in (networks[:3], networks[3:]):
        found += [((tiles, length), "i1"), ((length,), "<f4")]
        for inputs in (FEATURES + kinds + length, *(layers - 1) * [width]):
            found += [((width, inputs), "i1"), ((width,), "<f4"), ((width,), "<f4")]
        found += [((width,), "<f4"), ((kinds, tiles), "i1"), ((), "<f4")]
    return found


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
    arrays = iter([
        np.frombuffer(data, kind, int(np.prod(shape)), first).reshape(shape).astype(np.float32)
        for (shape, kind), first in zip(layout, accumulate(extents, initial=start), strict=False)
    ])  # fmt: skip
    tree = unpacked(data[:start], nodes, machine)
    ways, tiles, mean, deviation = (next(arrays) for _ in range(4))
    networks = []
    for layers in (sizes[4], sizes[7]):
        known, unit = next(arrays), next(arrays)
        each = tuple((next(arrays), next(arrays), next(arrays)) for _ in range(layers))
        networks.append(Network(known, unit, each, next(arrays), next(arrays), next(arrays)))
    leaf = tree.features == LEAF
    if (tree.features[~leaf] >= COLUMNS).any() or tree.thresholds[leaf].max() >= len(ways):
        raise ValueError("a ranking whose tree asks for what does not exist")
    return Ranking(tree, ways, tiles, mean, deviation, (networks[0], networks[1]))
