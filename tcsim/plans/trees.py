"""Decision trees over the shape of a product: how K is most likely cut where nothing was recorded.

A node asks whether a feature of the shape is at most a threshold. The features are what a library has to weigh: the tiles of the result for tiles of a size, how
often they fit the GPU if K is cut, the shortest chunk that is worth it, the alignment, and the workspace that the partial sums need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64] | np.int64
"""One integer, or an array of them."""

LEAF = 255
"""Instead of a feature: the node is a leaf, its threshold the split of K."""
LEAST = 20
"""Steps of K in the shortest chunk: no recorded product of f16, bf16 or FP8 in whole rows of 16 bytes is cut into shorter ones."""
TILES = (
    (64, 8), (64, 16), (64, 24), (64, 32), (64, 40), (64, 48), (64, 64), (64, 96), (64, 128), (128, 8), (128, 16), (128, 32), (192, 8), (256, 8), (384, 8),
    (512, 8), (8, 64), (16, 64), (32, 64), (128, 64), (128, 96), (96, 128), (128, 128), (192, 128), (128, 192), (256, 128), (128, 256),
)  # fmt: skip
"""Tiles of the result, N x M, as kernels have them."""
SIMPLE = 11
FEATURES = SIMPLE + 4 * len(TILES)
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
            np.minimum(machine.workspace // (4 * m * n), 99), m * n, m * 1000 // n,
        )[index]  # fmt: skip
    number, what = divmod(index - SIMPLE, 4)
    across, down = TILES[number]
    tiles = -(-n // across) * -(-m // down)
    split = np.clip(machine.processors // tiles, 1, limit)
    return (tiles, split, tiles * split, tiles % machine.processors)[what]


@dataclass(frozen=True)
class Tree:
    """Nodes in preorder: of a node that is not a leaf the left one follows, the right one is at `right`."""

    machine: Machine
    features: npt.NDArray[np.uint8]
    thresholds: npt.NDArray[np.uint32]
    right: npt.NDArray[np.uint16]

    def __post_init__(self) -> None:
        inner = np.flatnonzero(self.features != LEAF)
        if not len(self.features) or self.features[-1] != LEAF or (self.features[inner] >= FEATURES).any():
            raise ValueError("a tree that does not end")
        if (self.right[inner] <= inner + 1).any() or (self.right[inner] >= len(self.features)).any():
            raise ValueError("a tree with a branch to nowhere")

    def split(self, m: int, n: int, k: int) -> int:
        """How a shape's K is cut."""
        node, shape = 0, (np.int64(m), np.int64(n), np.int64(k))
        while self.features[node] != LEAF:
            small = feature(int(self.features[node]), *shape, machine=self.machine) <= self.thresholds[node]
            node = node + 1 if small else int(self.right[node])
        return int(self.thresholds[node])

    def packed(self) -> bytes:
        """The nodes, field by field."""
        words = self.thresholds.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes()
        return self.features.tobytes() + words + self.right.astype("<u2").tobytes()


def unpacked(data: bytes, nodes: int, machine: Machine) -> Tree:
    """The tree of bytes that `Tree.packed` made.

    Raises ValueError for others.
    """
    if len(data) != 7 * nodes:
        raise ValueError(f"a tree of {len(data)} bytes; valid: {7 * nodes}")
    words = np.frombuffer(data, np.uint8, 4 * nodes, nodes).reshape(4, -1).T.copy().view("<u4").ravel()
    return Tree(machine, np.frombuffer(data, np.uint8, nodes), words, np.frombuffer(data, "<u2", nodes, 5 * nodes))
