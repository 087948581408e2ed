"""Decision trees over the shape of a product: how K is most likely cut, or which decision is likeliest, where nothing was recorded.

A node asks whether a feature of the shape is at most a threshold. The features are what a library has to weigh: the tiles of the result for tiles of a size, how
often they fit the GPU if K is cut, the shortest chunk that is worth it, the alignment, and the workspace that the partial sums need. Kinds that are cut alike
share a tree, in which the number of the kind is a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64] | np.int64
"""One integer, or an array of them."""

LEAF = 255
"""Instead of a feature: the node is a leaf, its threshold the split of K, or the place of a decision."""
LEAST = 20
"""Steps of K in the shortest chunk: no recorded product of f16, bf16 or FP8 in whole rows of 16 bytes is cut into shorter ones."""
TILES = (
    (64, 8), (64, 16), (64, 24), (64, 32), (64, 40), (64, 48), (64, 64), (64, 96), (64, 128), (128, 8), (128, 16), (128, 32), (192, 8), (256, 8), (384, 8),
    (512, 8), (8, 64), (16, 64), (32, 64), (128, 64), (128, 96), (96, 128), (128, 128), (192, 128), (128, 192), (256, 128), (128, 256),
)  # fmt: skip
"""Tiles of the result, N x M, as kernels have them."""
SIMPLE = 16
FEATURES = SIMPLE + 4 * len(TILES)
KIND = FEATURES
"""The feature that is a kind's number, of those that share the tree."""
_MOST = 64


@dataclass(frozen=True)
class Machine:
    """What the features need to know."""

    processors: int  # multiprocessors of the GPU
    workspace: int  # bytes for partial sums
    step: int  # elements of K in a step


def feature(index: int, m: Ints, n: Ints, k: Ints, machine: Machine) -> Ints:
    """One feature of shapes, integers or arrays of them.

    >>> feature(SIMPLE, np.int64(16), np.int64(4096), np.int64(4096), Machine(132, 32 << 20, 64))  # tiles of 64 x 8
    np.int64(128)
    """
    steps = -(-k // machine.step)
    limit = np.maximum((steps - 1) // LEAST, 1)
    if index < SIMPLE:
        return (
            m, n, k, steps, limit, np.minimum(m & -m, _MOST), np.minimum(n & -n, _MOST), np.minimum(k & -k, _MOST),
            np.minimum(machine.workspace // (4 * m * n), 99), m * n, m * 1000 // n, k * 1000 // m, k * 1000 // n, m * n // k, (m + n) * 1000 // k, m * n * k >> 10,
        )[index]  # fmt: skip
    number, what = divmod(index - SIMPLE, 4)
    across, down = TILES[number]
    tiles = -(-n // across) * -(-m // down)
    split = np.clip(machine.processors // tiles, 1, limit)
    return (tiles, split, tiles * split, tiles % machine.processors)[what]


def after_left(features: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """Of nodes in preorder, where the right branch of each begins; 0 for a leaf.

    Raises ValueError for nodes that are not one whole tree.

    >>> after_left(np.array([0, LEAF, 1, LEAF, LEAF], np.uint8)).tolist()
    [2, 0, 4, 0, 0]
    """
    right = np.zeros(len(features), np.uint16)
    roots: list[int] = []  # of the whole branches behind a node, the nearest last
    for node in range(len(features) - 1, -1, -1):
        if features[node] != LEAF:
            if len(roots) < 2:
                raise ValueError("a tree that does not end")
            roots.pop()
            right[node] = roots.pop()
        roots.append(node)
    if len(roots) != 1:
        raise ValueError(f"{len(roots)} trees instead of one")
    return right


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder: behind a node that is not a leaf come its left branch, for features up to the threshold, and its right one."""

    machine: Machine
    features: npt.NDArray[np.uint8]
    thresholds: npt.NDArray[np.uint32]
    right: npt.NDArray[np.uint16] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.features[self.features != LEAF] > KIND).any():
            raise ValueError("a tree with a feature that does not exist")
        object.__setattr__(self, "right", after_left(self.features))

    def answer(self, m: int, n: int, k: int, number: int = 0) -> int:
        """What the leaf of a shape has; number: of the kind, among those that share the tree."""
        node, shape = 0, (np.int64(m), np.int64(n), np.int64(k))
        while (index := int(self.features[node])) != LEAF:
            value = number if index == KIND else feature(index, *shape, machine=self.machine)
            node = node + 1 if value <= self.thresholds[node] else int(self.right[node])
        return int(self.thresholds[node])

    def packed(self) -> bytes:
        """The features of the nodes, the splits of the leaves, and the thresholds by feature."""
        leaf = self.features == LEAF
        order = np.argsort(self.features[~leaf], kind="stable")
        words = self.thresholds[~leaf][order].astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes()
        return self.features.tobytes() + self.thresholds[leaf].astype(np.uint8).tobytes() + words


def packed_size(nodes: int) -> int:
    """Bytes of a tree's `packed`."""
    return nodes + (nodes + 1) // 2 + 4 * (nodes // 2)


def unpacked(data: bytes, nodes: int, machine: Machine) -> Tree:
    """The tree of bytes that `Tree.packed` made.

    Raises ValueError for others.
    """
    features = np.frombuffer(data, np.uint8, min(nodes, len(data)))
    leaf = features == LEAF
    leaves = int(leaf.sum())
    if len(data) != packed_size(nodes) or 2 * leaves != nodes + 1:
        raise ValueError(
            f"a tree of {len(data)} bytes with {leaves} leaves; valid: {packed_size(nodes)} bytes, {nodes // 2 + 1} leaves"
        )
    words = (
        np.frombuffer(data, np.uint8, 4 * (nodes - leaves), nodes + leaves).reshape(4, -1).T.copy().view("<u4").ravel()
    )
    thresholds = np.empty(nodes, np.uint32)
    thresholds[leaf] = np.frombuffer(data, np.uint8, leaves, nodes)
    thresholds[np.flatnonzero(~leaf)[np.argsort(features[~leaf], kind="stable")]] = words
    return Tree(machine, features, thresholds)
