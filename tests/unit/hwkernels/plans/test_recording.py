"""What is asked of a library, along sweeps and at random, and how a table comes from the answers; without a GPU."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from hwkernels.plans.ask import NVJET, TOGETHER, _along, _chosen, decision
from hwkernels.plans.cases import CUT, RANKED, Case, Sweep, drawn, long, score, sweeps, weights
from hwkernels.plans.grow import Shapes, grown
from hwkernels.plans.pack import Answer, built, judged, rule
from hwkernels.plans.rank import Choices, sizes, tree_of
from hwkernels.plans.sweep import DENSE, answered
from tcsim.plans.packed import AXES, Decision, Grown, Table, replanted, unpack
from tcsim.plans.ranking import FEATURES, Network, Ranking, columns, walked
from tcsim.plans.trees import LEAF, Machine, Tree

RNG = np.random.default_rng(38)


@pytest.mark.parametrize("count", [256, 1024, 4096, 8192])
def test_sweeps_find_every_change(count: int) -> None:
    """Steps anywhere, classes of alignment, single odd answers among the first: far fewer are asked than answered."""
    for changes in (0, 1, 3):
        at = np.sort(RNG.integers(1, 1000, changes))
        x = np.arange(1, count + 1)
        expected = np.searchsorted(at, x) + 10 * ((x % 8 == 0) & (x < 700)) + 100 * (x == 77)
        asked: list[int] = []
        found = answered(partial(noted, asked, expected), count)
        assert len(asked) == len(set(asked)) <= max(DENSE, 0.7 * count)
        assert found.tolist() == expected.tolist()


def noted(asked: list[int], answers: Any, x: int) -> int:
    asked.append(x)
    return int(answers[x - 1])


def test_cases_are_layers_and_attention() -> None:
    """Each sweep once; its axis grows and nothing else."""
    listed = list(sweeps())
    assert len(set(listed)) == len(listed) > 10_000 and len(weights()) > 300
    assert set(Counter(x.axis for x in listed)) == set(AXES)
    sweep = next(x for x in listed if x.axis == "mk")
    assert sweep.case(5) == sweep.first._replace(m=5, k=5)
    assert drawn("a", 2) == drawn("a", 2) != drawn("b", 2) and 0 <= score(("x",)) < 1


def test_trees_learn_what_decides() -> None:
    """A split that a few features decide is learnt; what is drawn by lot is not, and a tree of one answer is a leaf."""
    m, n, k = (RNG.integers(low, high, 4000) for low, high in ((1, 999), (64, 9999), (2568, 30000)))
    split = np.where(m <= 64, np.where(k > 9000, 3, 2), 1) + (RNG.random(4000) < 0.5) * (m > 900)
    shapes, machine = Shapes(m, n, k, split, m * 0), Machine(132, 1 << 20, 64)
    tree = grown(Shapes(*(x[:3000] for x in shapes)), machine, 50)
    right = np.array([tree.answer(*x) for x in np.stack([m, n, k], 1).tolist()]) == split
    assert right[m <= 900].mean() > 0.99 and right[3000:][m[3000:] > 900].mean() < 0.8
    assert int((tree.features == LEAF).sum()) <= 50
    assert len(grown(Shapes(m, n, k, np.ones_like(m), m * 0), machine, 50).features) == 1
    two = Shapes(
        *(np.tile(x, 2) for x in shapes[:3]),
        np.concatenate([split, np.where(m > 900, 9, split)]),
        np.repeat([0, 1], 4000),
    )
    assert [grown(two, machine, 400).answer(950, 64, 9000, number) == 9 for number in (0, 1)] == [False, True]


def test_answers_of_a_sweep_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process gives the numbers of decisions, what they mean, and how many it asked for; what does not matter to the order is dropped."""
    about = {"id": 66, "split": 3, "reduction": 2, "stages": 35, "custom": 1, "workspace": 1 << 20}
    assert decision(about, "bf16") == Decision("nvjet", 3, 64) and decision(about, "e4m3") == Decision("nvjet", 3, 128)
    assert decision(about | {"id": 24}, "bf16") == Decision("cublasLt 24.35.0", 0, 1, 3, 2)
    assert decision(about | {"id": 13}, "f32") == Decision("cublasLt 13.0.1", 0, 1, 3, 0) != decision(about, "f32")
    parts = about | {"id": 43, "split": -1}
    assert [decision(parts | {"workspace": size}, "tf32").cuts for size in (4096, 4097)] == [1, -1]
    monkeypatch.setattr("hwkernels.plans.ask.ask", lambda case: None if case.m > 200 else decision(about, "bf16"))
    runs, meant, asked = _along(Sweep(Case("mm", "bf16", "bf16", "TN", 1, 64, 4096), "m", 1, 256))
    assert [meant[i] for i in runs[[0, 199, 200]]] == [decision(about, "bf16")] * 2 + [None] and asked == 256


def test_a_table_comes_from_answers() -> None:
    """Sweeps, a rule for short K, a tree for long K: the file answers held-out shapes by each."""

    def library(case: Case) -> Decision:
        return Decision("nvjet", 1 if case.k <= 2560 or case.m > 128 else 2, 64)

    decisions = [Decision("nvjet", 1, 64), Decision("nvjet", 2, 64)]
    sweep = Sweep(Case("mm", "bf16", "bf16", "TN", 1, 64, 4096), "m", 1, 256)
    numbers = np.array([decisions.index(library(sweep.case(x))) for x in range(1, 257)])
    kinds = [("mm", "bf16", "bf16", "TN", 1)]
    answers = [Answer(x, library(x)) for x in sorted(drawn("learn", 4000, kinds), key=score)]
    data, table = built([(sweep, numbers)], decisions, answers, {}, 132, {"mm": 32 << 20})
    assert data == built([(sweep, numbers)], decisions, answers, {}, 132, {"mm": 32 << 20})[0]
    assert set(table.trees) == set(table.rules) == {"mm bf16 TN"} and table.parts["mm bf16 TN"][0].known == 256
    fresh = [Answer(x, library(x)) for x in drawn("fresh", 600, kinds)] + [
        Answer(sweep.case(x), library(sweep.case(x))) for x in (1, 128, 129)
    ]
    counts = judged(table, fresh)["mm bf16 TN"]
    assert (
        counts["table right"] == 3 and counts["rule right"] > 200 and not counts["table wrong"] + counts["rule wrong"]
    )
    wrong = [
        Answer(x.case, Decision("nvjet", 2, 64)) if i == 7 else x
        for i, x in enumerate(a for a in answers if a.case.k <= 2560)
    ]
    cut = [*answers, Answer(Case("mm", "bf16", "bf16", "TN", 4096, 4096, 8000), decisions[1])]
    found, other = rule(answers, 64 << 20), rule(cut, 64 << 20)
    assert found is not None and other is not None and rule(wrong, 64 << 20) is None
    assert found["results"] == 8 << 20 and found["extents"][0][0] > 256 and "results" not in other


def test_results_that_do_not_fit_twice_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cuts wherever two parts fit into its workspace: a rule beyond, a tree below; kinds share a tree."""

    def library(case: Case) -> Decision:
        cut = case.k > 2560 and case.m * case.n <= 1 << 17
        return Decision("nvjet", 2 + (case.format == "f16") if cut else 1, 64)

    names = {"addmm bf16 NT", "addmm f16 NT"}
    kinds = [("addmm", format, format, "NT", 1) for format in ("bf16", "f16")]
    answers, fresh = (
        [Answer(x, library(x)) for x in drawn(salt, count, kinds)] for salt, count in (("learn", 3000), ("fresh", 500))
    )
    monkeypatch.setattr("hwkernels.plans.pack.ENOUGH", 300)
    table = built([], [], answers, {}, 132, {"addmm": 1 << 20})[1]
    assert (
        set(table.trees) == names
        and {table.trees[x][1] for x in names} == {0, 1}
        and len({table.trees[x][0] for x in names}) == 1
    )
    for counts in judged(table, fresh).values():
        assert counts["rule right"] > 300 and counts["rule wrong"] == 0
        assert counts["assumed right"] > 60 > 20 * counts["assumed wrong"]


def test_kernels_with_orders_of_their_own_have_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose kernel of f32 is a matter of M and of N: likeliest where nothing was recorded, never a rule."""
    chosen = [Decision("cublasLt 20.0.0", 0, 1, 33, 2), Decision("cublasLt 55.0.0", 0, 1, 1, 0)]

    def library(case: Case) -> Decision:
        return chosen[case.m > 300 and case.n > 1000]

    kinds = [("mm", "f32", "f32", "TN", 1)]
    answers, fresh = (
        [Answer(x, library(x)) for x in drawn(salt, count, kinds)] for salt, count in (("learn", 1000), ("fresh", 200))
    )
    monkeypatch.setattr("hwkernels.plans.pack.ENOUGH", 300)
    table = built([], chosen[:1], answers, {}, 132, {"mm": 32 << 20})[1]
    assert not table.rules and [table.decisions[x] for x in table.trees["mm f32 TN"].answers] == chosen
    counts = judged(table, fresh)["mm f32 TN"]
    assert counts["assumed right"] > 190 and counts["assumed right"] + counts["assumed wrong"] == 200


def test_a_plan_is_right_where_its_sum_is() -> None:
    """64 elements of K cut in three are parts of 32 elements, as cut in two; 4,096 are not."""
    said, right = (Decision("cublasLt 21.7.0", 0, 1, cuts, 2) for cuts in (3, 2))
    leaf = Tree(Machine(132, 1 << 25, 64), np.array([LEAF], np.uint8), np.array([0], np.uint32))
    table = Table({}, (said,), {}, {}, {"mm tf32 TN": Grown(lambda: leaf, 0, [0])})
    for k, judgement in ((64, "right"), (4096, "wrong")):
        answer = Answer(Case("mm", "tf32", "f32", "TN", 64, 64, k), right)
        assert judged(table, [answer]) == {"mm tf32 TN": {f"assumed {judgement}": 1}}


def test_ranked_kinds_have_no_trees() -> None:
    """Products that may be cut, drawn with a seed; their kinds share the ranking, whatever else was drawn."""
    cases = list(long(RANKED[3], 50, 1))
    assert cases == list(long(RANKED[3], 50, 1)) != list(long(RANKED[3], 50, 2)) and len(cases) == 50
    assert all(x.k > 2560 and x.m * x.n <= CUT and x.m % 8 == 0 and x.layout == "TT" for x in cases)
    answers = [Answer(x, Decision("nvjet", 4, 64)) for x in cases]
    data, table = built([], [], answers, {}, 132, {"mm": 32 << 20}, of_one_tile(4))
    assert {(x.number, x.tree().answer(64, 64, 8192)) for x in table.trees.values()} == {(i, 4) for i in range(8)}
    keys = tuple(table.trees)
    assert replanted(data, {keys: (of_one_tile(4), [])}) == data
    again = unpack(replanted(data, {keys[:1]: (of_one_tile(5), [])}))
    assert (
        again.trees[keys[0]].tree().answer(64, 64, 8192) == 5
        and set(again.trees) == {keys[0]}
        and again.rules == table.rules
    )
    more = unpack(replanted(data, {("addmm f16 TN",): (of_one_tile(6), [])}))
    assert [more.trees[x].tree().answer(64, 64, 8192) for x in (keys[7], "addmm f16 TN")] == [4, 6]


def of_one_tile(cuts: int) -> Ranking:
    """A ranking of eight kinds."""
    leaf = Tree(Machine(132, 1 << 25, 64), np.array([LEAF], np.uint8), np.array([0], np.uint32))
    flat, layer = np.zeros(FEATURES, np.float32), (np.zeros((4, FEATURES + 9)), np.ones(4), np.zeros(4))
    net = Network(np.zeros((1, 1)), np.ones(1), (layer,), np.zeros(4), np.zeros((8, 1)), np.ones(()))
    return Ranking(leaf, np.array([[1, 1, cuts]]), np.array([[64, 64]]), flat, flat + 1, (net, net))


def test_what_is_chosen_for_ranked_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row for each product that the library takes with the kernels that are ranked; multiprocessors times waves are blocks."""
    about = {"id": NVJET, "tile": 20, "cluster": 3, "split": 2, "waves": np.float32(44 / 132)}
    answers = [None if i == 3 else about | {"id": 24} if i == 5 else about for i in range(TOGETHER)]
    left = iter(answers)
    monkeypatch.setattr("hwkernels.plans.ask._about", lambda case: next(left))
    rows = _chosen((1, 9))
    assert rows.shape == (TOGETHER - 2, 8) and set(rows[:, 0].tolist()) == {1}
    made = Choices.of(rows, Machine(132, 1 << 25, 64))
    assert set(zip(*(x.tolist() for x in (made.tile, made.cluster, made.split, made.blocks)), strict=True)) == {
        (20, 3, 2, 44)
    }
    assert made.shape[0].tolist() == [getattr(next(long(RANKED[1], 1, 9)), name) for name in "mnk"]


def test_tiles_are_found_from_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiles of which only the number of blocks is known, and what cuts them: a third of the products in clusters of two, those of few blocks in four parts."""
    monkeypatch.setattr("hwkernels.plans.rank.OFTEN", 10)
    extents, count = {7: (64, 8), 20: (128, 256)}, 400
    shape = np.stack([RNG.integers(1, 4000, count), RNG.integers(64, 9999, count), RNG.integers(2568, 30000, count)], 1)
    tile = RNG.choice([7, 20], count)
    a, b = np.array([extents[x] for x in tile.tolist()]).T
    blocks = -(-shape[:, 1] // a) * -(-shape[:, 0] // b)
    cluster, split = 2 + (shape[:, 2] > 20000), np.where(blocks < 100, 4, 1)
    machine = Machine(132, 1 << 25, 64)
    rows = np.concatenate(
        [
            np.zeros((count, 1), int),
            shape,
            np.stack([tile, cluster, split, np.rint(blocks * 1e6 / 132)], 1).astype(int),
        ],
        1,
    )
    made = Choices.of(rows, machine)
    assert (made.blocks == blocks).all() and sizes(made) == extents
    tiles, own = np.array([*extents.values()]), np.array([[*extents].index(x) for x in tile.tolist()])
    tree, ways = tree_of(made, tiles, own, machine)
    seen = columns(shape.T.astype(float), tiles[own].T.astype(float), own.astype(float), made.kind, machine)
    said = ways[walked(tree, np.stack(seen))]
    assert (said == np.stack([cluster - 1, np.ones(count), split], axis=1)).all(axis=1).mean() > 0.98
