"""A ranking of tiles (tcsim.plans.ranking) learnt from what cuBLASLt chose: tile, cluster and cut. It needs torch, numba, and a GPU if it shall be good.

First the small network learns from all tiles, then the large one from those that the small one keeps. Steps are counted and nothing is added in an order that
varies, so that one GPU with one torch gives the same bytes again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hwkernels.plans.grow import learnt
from tcsim.plans.ranking import FEATURES, KEPT, LAYOUTS, Network, Ranking, columns, parts
from tcsim.plans.trees import LEAF, Machine, Tree

Array = npt.NDArray[Any]
CLUSTERS = ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (4, 4))
"""Blocks along N and along M, in the order of cublasLtClusterShape_t from FIRST on."""
FIRST = 2
"""cublasLtClusterShape_t of one block."""
OFTEN = 300
"""Choices of a tile that is ranked."""
LEAVES, SAMPLES = 6400, 3_000_000
"""Of the tree; and the choices from which it is learnt, at most."""


class Size(NamedTuple):
    """Of a network, and how long it learns."""

    width: int
    layers: int
    length: int  # of what is learnt of each tile
    bits: int  # of a weight
    batch: int  # products of a step
    steps: int


SMALL = Size(32, 2, 4, 8, 256, 17_000)
LARGE = Size(224, 3, 8, 5, 2048, 150_000)
RATE, RISE, ROUNDED, SETTLED, LATE = 2e-3, 500, 0.4, 0.6, 0.15
"""A step's greatest length, steps until it has that length; the parts of the steps after which weights are rounded, and after which the tile counts LATE and the cut
the rest."""
SPREAD = 4.2
"""The largest weight, in mean weights of its row."""
AVERAGED = 0.0005
"""The part of a step's weights in their average."""


class Choices(NamedTuple):
    """What was chosen for products: arrays with one entry for each."""

    kind: Array  # numbers
    shape: Array  # (products, 3): m, n, k
    tile: Array  # cublasLtMatmulTile_t
    cluster: Array  # cublasLtClusterShape_t
    split: Array
    blocks: Array  # tiles of the result, as the heuristic's waves say

    @classmethod
    def of(cls, rows: Array, machine: Machine) -> Choices:
        """From what `hwkernels.plans.ask.chosen` says."""
        tile, cluster, split = rows[:, 4:7].T
        return cls(rows[:, 0], rows[:, 1:4], tile, cluster, split, np.rint(rows[:, 7] * machine.processors / 1e6))

    def some(self, which: Array) -> Choices:
        """Those of a mask or of places."""
        return Choices(*(x[which] for x in self))


def sizes(made: Choices) -> dict[int, tuple[int, int]]:
    """Of tiles that are chosen often, their extents along N and M: those that give most often as many blocks as the heuristic says."""
    found = {}
    for tile, count in zip(*np.unique(made.tile, return_counts=True), strict=True):
        if count < OFTEN:
            continue
        each = made.some(np.flatnonzero(made.tile == tile)[:400])
        pairs = [(a, b) for a in range(8, 769, 8) for b in range(8, 769, 8) if a % 64 == 0 or b % 64 == 0]
        a, b = np.array(pairs).T[..., None]
        fits = (-(-each.shape[:, 1] // a) * -(-each.shape[:, 0] // b) == each.blocks).mean(axis=1)
        found[int(tile)] = pairs[int(fits.argmax())]
    return found


def tree_of(made: Choices, tiles: Array, own: Array, machine: Machine) -> tuple[Tree, Array]:
    """The tree that says cluster and cut of the tiles that were chosen, and what its leaves' numbers mean; own: of each product the place of its tile."""
    ways, labels = np.unique(np.stack([made.cluster, made.split], axis=1), axis=0, return_inverse=True)
    some = np.random.default_rng(1).permutation(len(own))[:SAMPLES]
    shape, tile = made.shape[some].T.astype(float), tiles[own[some]].T.astype(float)
    values = np.stack(columns(shape, tile, own[some].astype(float), made.kind[some].astype(float), machine))
    tree = learnt(values.astype(np.uint32), labels.ravel()[some], machine, LEAVES)
    return tree, np.array([(*CLUSTERS[cluster - FIRST], split) for cluster, split in ways.tolist()])


class Learner:
    """A network that learns; inputs are normalised features, kinds and tiles as ones among zeros."""

    def __init__(self, kinds: int, tiles: int, size: Size, device: str) -> None:
        import torch

        def parameter(*shape: int, scale: float = 0.0) -> Any:
            return torch.nn.Parameter(scale * torch.randn(*shape, device=device))

        self.size, self.spans = size, (FEATURES, kinds, size.length)
        self.known, self.favoured = parameter(tiles, size.length, scale=0.3), parameter(kinds, tiles)
        widths = [sum(self.spans), *[size.width] * size.layers, 1]
        layers = [torch.nn.Linear(a, b, device=device) for a, b in pairwise(widths)]
        self.layers = [(layer.weight, layer.bias) for layer in layers]
        self.weights = [self.known, self.favoured, *(x for layer in self.layers for x in layer)]
        self.whole = torch.tensor(0.0, device=device)  # 1: weights are rounded

    def rounded(self, weight: Any) -> Any:
        """The weights as their bits hold them; gradients pass."""
        most, exact = 2 ** (self.size.bits - 1) - 1, weight.detach()
        unit = exact.abs().mean(1, keepdim=True) * SPREAD / most + 1e-12
        return weight + self.whole * ((exact / unit).round().clamp(-most, most) * unit - exact)

    def __call__(self, x: Any, kind: Any, tile: Any | None) -> Any:
        """How good tiles are; without `tile`, all of them."""
        import torch

        of_shape, of_kind, of_tile = self.rounded(self.layers[0][0]).split(self.spans, 1)
        own, favoured = self.known @ of_tile.T, kind @ self.favoured
        if tile is not None:
            own, favoured = tile @ own, (tile * favoured[:, None]).sum(-1)
        x = x @ of_shape.T + (kind @ of_kind.T)[:, None] + own + self.layers[0][1]
        for weight, bias in self.layers[1:-1]:
            x = torch.nn.functional.linear(torch.relu(x), self.rounded(weight), bias)
        return torch.nn.functional.linear(torch.relu(x), *self.layers[-1]).squeeze(-1) + favoured

    def learnt(self) -> Network:
        """As a file has it."""
        known, favoured, *rest = (x.detach().cpu().numpy() for x in self.weights)
        unit, own = np.abs(known).max(axis=0) / 127 + 1e-12, np.abs(favoured).max() / 127 + 1e-12
        most, layers = 2 ** (self.size.bits - 1) - 1, []
        for weight, bias in zip(rest[:-2:2], rest[1:-2:2], strict=True):
            each = np.abs(weight).mean(axis=1) * SPREAD / most + 1e-12
            layers.append((np.rint(weight / each[:, None]).clip(-most, most), each, bias))
        return Network(np.rint(known / unit), unit, tuple(layers), rest[-2][0], np.rint(favoured / own), own)


class Products:
    """The products that are learnt from, and all tiles of each, on a device."""

    def __init__(self, made: Choices, machine: Machine, device: str) -> None:
        import torch

        def tensor(x: Any, kind: Any = torch.float32) -> Any:
            return torch.tensor(np.asarray(x), dtype=kind, device=device)

        found, self.machine, self.device = sizes(made), machine, device
        made = made.some(
            np.isin(made.tile, list(found)) & (made.cluster >= FIRST) & (made.cluster < FIRST + len(CLUSTERS))
        )
        names, own = np.unique(made.tile, return_inverse=True)
        self.tiles = np.array([found[x] for x in names.tolist()])
        self.tree, self.ways = tree_of(made, self.tiles, own, machine)
        self.nodes = [
            tensor(x.astype(np.int64), torch.int64) for x in (self.tree.features, self.tree.thresholds, self.tree.right)
        ]
        self.number = int(made.kind.max()) + 1
        assert self.number % LAYOUTS == 0
        self.shapes, self.kinds, self.splits = tensor(made.shape), tensor(made.kind, torch.int64), tensor(made.split)
        self.own, self.pair, self.way = tensor(own, torch.int64), tensor(self.tiles).T, tensor(self.ways)
        self.all, self.every_kind = (torch.arange(x, device=device) for x in (len(names), self.number))
        self.codes = torch.cat([self._coded(some) for some in self.split(1 << 13)])
        self.mean, self.deviation = torch.zeros((), device=device), torch.ones((), device=device)
        first = self.features(torch.randint(0, len(own), (2000,), device=device), None).flatten(0, 1)
        self.mean, self.deviation = first.mean(0), first.std(0) + 1e-2

    def split(self, size: int) -> Sequence[Any]:
        """Places of products."""
        import torch

        return torch.arange(len(self.shapes), device=self.device).split(size)

    def _coded(self, some: Any) -> Any:
        """Of each tile the number of its way."""
        import torch

        found = columns(
            self.shapes[some].T.unsqueeze(-1),
            self.pair,
            self.all.float(),
            self.kinds[some, None].float(),
            self.machine,
            torch,
        )
        values = torch.stack([x.float().expand(len(some), len(self.all)).reshape(-1) for x in found])
        return _walked(values, *self.nodes).reshape(len(some), -1).to(torch.int16)

    def ways_of(self, some: Any, which: Any) -> Any:
        """(products, tiles, 3): the cluster of each, and its parts of K; which: numbers of tiles, or all."""
        return self.way[(self.codes[some] if which is None else self.codes[some].gather(1, which)).long()]

    def right(self, some: Any, which: Any) -> tuple[Any, Any]:
        """The tile that was chosen, and those whose cut was."""
        own = (self.all if which is None else which) == self.own[some, None]
        return own, own | (self.ways_of(some, which)[..., 2] == self.splits[some, None])

    def features(self, some: Any, which: Any) -> Any:
        """What the networks look at, normalised."""
        import torch

        tile, way = self.pair if which is None else (x[which] for x in self.pair), self.ways_of(some, which)
        found = parts(self.shapes[some].T.unsqueeze(-1), tile, way.unbind(-1), self.machine.step, torch)
        return (torch.stack([x.expand(way.shape[:-1]).float() for x in found], -1) - self.mean) / self.deviation

    def ones(self, some: Any, which: Any) -> tuple[Any, Any]:
        """Kinds and tiles as ones among zeros."""
        kind = (self.kinds[some, None] == self.every_kind).float()
        return kind, None if which is None else (which[..., None] == self.all).float()

    def kept(self, sieve: Learner, some: Any) -> Any:
        """The tiles that the small network keeps; the chosen one is among them."""
        import torch

        good = sieve(self.features(some, None), *self.ones(some, None))
        which, own = good.topk(min(KEPT, good.shape[1]), 1).indices, self.own[some]
        last = torch.where((which == own[:, None]).any(1), which[:, -1], own)
        return torch.cat([which[:, :-1], last[:, None]], 1)


def trained(made: Choices, machine: Machine, small: Size = SMALL, large: Size = LARGE) -> Ranking:
    """The ranking of kinds in the order of their layouts, format by format."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    torch.manual_seed(0)
    products = Products(made, machine, "cuda" if torch.cuda.is_available() else "cpu")
    sieve, judge = (Learner(products.number, len(products.tiles), size, products.device) for size in (small, large))
    learn(sieve, products, None, 0.5)
    with torch.no_grad():
        kept = torch.cat([products.kept(sieve, some) for some in products.split(1 << 12)])
    learn(judge, products, kept, LATE)
    torch.backends.cuda.matmul.allow_tf32 = before
    mean, deviation = (x.cpu().numpy() for x in (products.mean, products.deviation))
    return Ranking(products.tree, products.ways, products.tiles, mean, deviation, (sieve.learnt(), judge.learnt()))


def learn(net: Learner, products: Products, kept: Any | None, late: float) -> None:
    """Steps of a network; kept: of each product the tiles that it learns from, or all."""
    import torch

    on_gpu, size = products.device == "cuda", net.size
    rate, joint, mixed = (torch.tensor(x, device=products.device) for x in (RATE, 0.5, 0.01))
    optimizer = torch.optim.AdamW(net.weights, lr=rate, weight_decay=1e-5, capturable=on_gpu, foreach=on_gpu)
    averages = [x.detach().clone() for x in net.weights]
    at = torch.zeros(size.batch, dtype=torch.int64, device=products.device)

    def step() -> None:
        at.random_(0, len(products.own))
        which = None if kept is None else kept[at]
        own, same = products.right(at, which)
        likely = torch.log_softmax(net(products.features(at, which), *products.ones(at, which)), 1)
        tile, cuts = (torch.logsumexp(torch.where(mask, likely, -1e9), 1) for mask in (own, same))
        loss = -(joint * tile + (1 - joint) * cuts).mean()
        for each in net.weights:
            each.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.weights, 1.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            for average, each in zip(averages, net.weights, strict=True):
                average.add_((each - average) * mixed)

    replay = _captured(step) if on_gpu else step
    for done in range(0, size.steps, 20):
        gone = done / size.steps
        rate.fill_(RATE * min(1, (done + 1) / RISE) * 0.5 * (1 + math.cos(math.pi * gone)) + 5e-6)
        net.whole.fill_(float(gone > ROUNDED))
        joint.fill_(0.5 if gone < SETTLED else late)
        mixed.fill_(max(1 / (done + 10), AVERAGED))
        for _ in range(20):
            replay()
    with torch.no_grad():
        for average, each in zip(averages, net.weights, strict=True):
            each.copy_(average)
    net.whole.fill_(1.0)


def _walked(values: Any, features: Any, thresholds: Any, right: Any) -> Any:
    """`walked` with torch."""
    import torch

    node, sample = (
        torch.zeros(values.shape[1], dtype=torch.int64, device=values.device),
        torch.arange(values.shape[1], device=values.device),
    )
    while (inner := features[node] != LEAF).any():
        small = values[torch.where(inner, features[node], 0), sample] <= thresholds[node]
        node = torch.where(inner, torch.where(small, node + 1, right[node]), node)
    return thresholds[node]


def _captured(step: Any) -> Any:
    """The step as one CUDA graph, after a few of its own."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
