"""A ranking of tiles (tcsim.plans.ranking) learnt from what cuBLASLt chose: tile, cluster and cut. It needs torch, numba, and a GPU if it shall be good.

Training for a time does not repeat bit for bit: another run gives another network.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hwkernels.plans.grow import learnt
from tcsim.plans.ranking import CLUSTERS, COVER, CUTS, LAYOUTS, Ranking, columns, parts
from tcsim.plans.trees import Machine

Array = npt.NDArray[Any]
FIRST = 2
"""cublasLtClusterShape_t of one block, the first of CLUSTERS."""
OFTEN = 300
"""Choices of a tile that is ranked."""
LEAVES, WIDTH, LENGTH = 6000, 192, 8
"""Of the tree; of the network's layers; and of what is learnt of each tile."""
BATCH, RATE, RISE, SETTLED = 512, 2e-3, 500, 0.6
"""Shapes of a step, its greatest length, steps until it has that length, and the part of the time after which the cut counts more than the tile."""


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


def tree_of(made: Choices, tiles: dict[int, tuple[int, int]], machine: Machine) -> Any:
    """The tree that says cluster and cut of the tiles that were chosen."""
    each = np.array([tiles[x] for x in made.tile.tolist()], float).T
    values = np.stack(columns(made.shape.T.astype(float), each, made.kind, machine))
    labels = (made.cluster - FIRST) * CUTS + made.split - 1
    return learnt(values.astype(np.uint32), labels, machine, LEAVES)


def trained(made: Choices, machine: Machine, seconds: float) -> Ranking:
    """The ranking of kinds in the order of their layouts, format by format."""
    import torch

    tiles = sizes(made)
    made = made.some(np.isin(made.tile, list(tiles)) & (made.cluster >= FIRST) & (made.cluster < FIRST + len(CLUSTERS)))
    names, kinds = list(tiles), int(made.kind.max()) + 1
    assert kinds % LAYOUTS == 0
    tree = tree_of(made, tiles, machine)
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)

    def tensor(x: Any, kind: Any = torch.float32) -> Any:
        return torch.tensor(x, dtype=kind, device=device)

    pair = tensor([tiles[x] for x in names]).T
    groups = tensor(CLUSTERS)
    shapes, kind, split = tensor(made.shape), tensor(made.kind), tensor(made.split)
    own = tensor([names.index(x) for x in made.tile.tolist()], torch.int64)
    nodes = [tensor(x.astype(np.int64), torch.int64) for x in (tree.features, tree.thresholds, tree.right)]
    codes = torch.cat([
        _walked(torch.stack([x.expand(len(some), len(names)).reshape(-1) for x in columns(_spread(shapes[some]), pair, kind[some, None], machine, torch)]), *nodes)
        .reshape(-1, len(names)).byte()
        for some in torch.arange(len(shapes), device=device).split(1 << 15)
    ])  # fmt: skip

    def features(some: Any) -> tuple[Any, Any, Any]:
        """What the network looks at, the cuts, and which tiles count."""
        shape, (a, b) = _spread(shapes[some]), pair
        code = codes[some].long()
        cluster, cut = groups[code // CUTS], code % CUTS + 1.0
        found = parts(shape, pair, cluster.unbind(-1), cut, machine.step, torch)
        found += [kind[some, None] == x for x in range(kinds)]
        m, n, _ = shape
        fits = torch.ceil(n / a) * a * torch.ceil(m / b) * b <= COVER * torch.ceil(m / 8) * 8 * n
        return torch.stack([x.expand(cut.shape).float() for x in found], -1), cut, fits

    first, _, fits = features(torch.randint(0, len(shapes), (2000,), device=device))
    mean, deviation = first[fits].mean(0), first[fits].std(0) + 1e-2
    width = len(mean) + LENGTH
    known = torch.nn.Parameter(0.3 * torch.randn(len(names), LENGTH, device=device))
    favoured = torch.nn.Parameter(torch.zeros(kinds, len(names), device=device))
    layers = [torch.nn.Linear(*x, device=device) for x in ((width, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))]
    weights = [known, favoured, *(x for layer in layers for x in (layer.weight, layer.bias))]
    rate = torch.tensor(RATE, device=device)
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=1e-5, capturable=on_gpu, foreach=on_gpu)
    mixed, joint = torch.tensor(0.01, device=device), torch.tensor(0.5, device=device)
    averages = [x.detach().clone() for x in weights]
    some = torch.zeros(BATCH, dtype=torch.int64, device=device)

    def step() -> None:
        some.random_(0, len(shapes))
        x, cut, fits = features(some)
        w, tile = _rounded(layers[0].weight), own[some, None]
        x = torch.relu(((x - mean) / deviation) @ w[:, :-LENGTH].T + (known @ w[:, -LENGTH:].T + layers[0].bias))
        x = torch.relu(torch.nn.functional.linear(x, _rounded(layers[1].weight), layers[1].bias))
        good = layers[2](x).squeeze(-1) + (kind[some, None] == torch.arange(kinds, device=device)).float() @ favoured
        likely = torch.log_softmax(torch.where(fits.scatter(1, tile, True), good, -1e9), 1)
        same = (cut == split[some, None]).scatter(1, tile, True)
        cuts = torch.logsumexp(torch.where(same, likely, -1e9), 1)
        loss = -(joint * likely.gather(1, tile).squeeze(1) + (1 - joint) * cuts).mean()
        for each in weights:
            each.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            for average, each in zip(averages, weights, strict=True):
                average.add_((each - average) * mixed)

    replay, done, begun = _captured(step) if on_gpu else step, 0, time.monotonic()
    while (gone := (time.monotonic() - begun) / seconds) < 1:
        rate.fill_(RATE * min(1, (done + 1) / RISE) * 0.5 * (1 + np.cos(np.pi * gone)) + 5e-6)
        joint.fill_(0.5 if gone < SETTLED else 0.15)
        mixed.fill_(max(1 / (done + 10), 0.0005))
        for _ in range(20):
            replay()
        done += 20
        if on_gpu:
            torch.cuda.synchronize()
    learnt_, prefer, w1, b1, w2, b2, last, _ = (x.cpu().numpy() for x in averages)
    (first_, scale), (second, following) = _whole(w1), _whole(w2)
    return Ranking(
        tree, np.array([tiles[x] for x in names], np.float32), mean.cpu().numpy(), deviation.cpu().numpy(), learnt_, first_, second,
        np.stack([scale, b1, following, b2]), last[0], prefer,
    )  # fmt: skip


def _spread(shapes: Any) -> Any:
    """m, n and k, each with one column."""
    return shapes.T.unsqueeze(-1)


def _walked(values: Any, features: Any, thresholds: Any, right: Any) -> Any:
    """`walked` with torch."""
    import torch

    node, sample = (
        torch.zeros(values.shape[1], dtype=torch.int64, device=values.device),
        torch.arange(values.shape[1], device=values.device),
    )
    while (inner := features[node] != 255).any():
        small = values[torch.where(inner, features[node], 0), sample] <= thresholds[node]
        node = torch.where(inner, torch.where(small, node + 1, right[node]), node)
    return thresholds[node]


def _rounded(weight: Any) -> Any:
    """The weights as 8 bits hold them; gradients pass."""
    unit = weight.detach().abs().amax(1, keepdim=True) / 127 + 1e-12
    return weight + ((weight.detach() / unit).round() * unit - weight.detach())


def _whole(weight: Array) -> tuple[Array, Array]:
    """Weights in 8 bits, and the unit of each row."""
    unit = np.abs(weight).max(axis=1) / 127 + 1e-12
    return np.rint(weight / unit[:, None]), unit


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
