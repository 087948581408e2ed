"""From recorded answers to the table that `tcsim.plan` reads: sweeps, rules and trees, and what held-out shapes say of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hwkernels.plans.cases import RANKED, SHORT, Case, Sweep
from hwkernels.plans.grow import Shapes, grown
from tcsim.plans.kernels import order_of
from tcsim.plans.packed import AXES, Decision, Sweeps, Table, pack, unpack
from tcsim.plans.ranking import Ranking
from tcsim.plans.record import Kind
from tcsim.plans.trees import Machine, Tree

LEAVES = {"mm": 9000, "addmm": 6000, "scaled": 6000}
"""Of the tree of a call, at most."""
OWN_LEAVES, MOST = {"mm f32": 3000, "mm tf32": 2400, "addmm f32": 1200, "addmm tf32": 600}, 256
"""Of the tree of a kind whose kernels have orders of their own; and decisions that it knows, the most frequent ones."""
OF_SWEEP = 340
"""Shapes of each sweep from which such a tree learns, short ones as often as long ones."""
SHARED = (
    ("addmm bf16 NT", "addmm bf16 TT", "addmm f16 NT", "addmm f16 TT"),
    *((f"scaled e4m3 {out}TN", f"scaled e4m3 {out}TN accurate") for out in ("", "f16 ", "f32 ")),
)  # fmt: skip
"""Kinds that are cut alike in nearly all shapes: they share a tree."""
PARTS = 2 * 4
"""Bytes of a result in the two parts in f32 that the fewest cuts leave."""
UNIT = 8
"""N and K below which no rule speaks."""
ENOUGH = 1000
"""Shapes with which a tree is grown."""


class Answer(NamedTuple):
    """What was recorded for a case; no decision where the library takes no such product."""

    case: Case
    decision: Decision | None


def key(case: Case) -> str:
    """A case's kind as tables spell it."""
    return Kind(case.op, case.format, case.out, case.layout, bool(case.fast)).key


def swept(recorded: Iterable[tuple[Sweep, npt.NDArray[np.int64]]]) -> list[Sweeps]:
    """The parts of a file from sweeps and the numbers of their decisions, -1 where the library takes no such product."""
    rows: dict[tuple[str, str, int, int], dict[tuple[int, int, int], npt.NDArray[np.int64]]] = defaultdict(dict)
    for sweep, numbers in recorded:
        first = sweep.first
        still = [x for i, x in enumerate((first.m, first.n, first.k)) if i not in AXES[sweep.axis]]
        row = (still[0], still[1] if len(still) > 1 else 0, first.batch)
        rows[key(first), sweep.axis, sweep.step, sweep.length][row] = numbers
    return [
        Sweeps(name, axis, step, sorted(each), np.stack([each[row] for row in sorted(each)]))
        for (name, axis, step, _), each in sorted(rows.items())
    ]


def rule(answers: Sequence[Answer], workspace: int) -> dict[str, Any] | None:
    """What of a kind is never cut: K up to a length, and results of which two parts in f32 exceed the workspace, if no recorded product in whole rows contradicts it.

    None where the first does not hold; the second is left out where it does not.
    """
    case = answers[0].case
    if case.format not in SHORT:
        return None
    most = max(x.case.k for x in answers) if case.op == "scaled_row" else SHORT[case.format]
    short = [x for x in answers if x.case.k <= most]
    if not short or any(x.decision is None or x.decision.split != 1 for x in short):
        return None
    said = "no recorded product of its kind in whole rows of 16 bytes is cut {}: {} of {}"
    least = max(UNIT, min(min(x.case.n, x.case.k) for x in short))
    found: dict[str, Any] = {
        "most_k": most,
        "least": least,
        "step": 128 if case.format == "e4m3" else 64,
        "kernel": "nvjet",
        "words": said.format(f"at K up to {most}", len(short), len(short)),
    }
    results = workspace // PARTS
    many = [x for x in answers if x.case.m * x.case.n > results and x.case.k > most]
    if case.op in LEAVES and many and all(x.decision is not None and x.decision.split == 1 for x in many):
        found["results"] = results
        found["extents"] = [[f(getattr(x.case, name) for x in many) for f in (min, max)] for name in "mnk"]
        found["fits"] = said.format(f"into parts that exceed the workspace of {workspace} bytes", len(many), len(many))
    return found


def tree(
    answers: Sequence[Sequence[Answer]], numbers: Mapping[Decision, int], processors: int, workspace: int
) -> tuple[Tree, list[int]]:
    """How K is cut where no rule speaks, or which decision is likeliest, of kernels with orders of their own; answers: of each kind that shares the tree."""
    case = answers[0][0].case
    own = case.format not in SHORT
    seen = Counter(numbers[x.decision] for each in answers for x in each if x.decision is not None) if own else {}
    places = {number: place for place, (number, _) in enumerate(Counter(seen).most_common(MOST))}
    rows = [
        (x.case.m, x.case.n, x.case.k, places.get(numbers[x.decision], MOST) if own else x.decision.split, number)
        for number, each in enumerate(answers)
        for x in each
        if x.decision is not None
    ]
    columns = np.array([row for row in rows if not own or row[3] < MOST], np.int64)
    machine = Machine(processors, workspace, 128 if case.format == "e4m3" else 64)
    return grown(Shapes(*columns.T), machine, OWN_LEAVES[f"{case.op} {case.format}"] if own else LEAVES[case.op]), list(
        places
    )


def along(
    recorded: Iterable[tuple[Sweep, npt.NDArray[np.int64]]], decisions: Sequence[Decision]
) -> dict[str, list[Answer]]:
    """Of kinds whose kernels have orders of their own, shapes of their sweeps."""
    found: dict[str, list[Answer]] = defaultdict(list)
    generator = np.random.default_rng(0)
    for sweep, numbers in recorded:
        if sweep.first.format not in SHORT and sweep.first.op in LEAVES:
            places = (sweep.length ** generator.random(OF_SWEEP)).astype(int).tolist()
            known = [(x, numbers[x - 1]) for x in places if numbers[x - 1] >= 0]
            found[key(sweep.first)] += [Answer(sweep.case(x), decisions[number]) for x, number in known]
    return found


def judged(table: Table, answers: Iterable[Answer]) -> dict[str, Counter[str]]:
    """Of held-out shapes by kind, how many each source answers right and wrong."""
    from tcsim.plans.lookup import decided

    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case, decision in answers:
        kind = Kind(case.op, case.format, case.out, case.layout, bool(case.fast))
        said, source, _ = decided(table, kind, case.m, case.n, case.k, case.batch)
        if said is None or decision is None:
            found[kind.key]["unknown"] += 1
            continue
        same = said == decision or _sum(said, kind, case) == _sum(decision, kind, case)
        found[kind.key][f"{source} {'right' if same else 'wrong'}"] += 1
    return dict(found)


def _sum(decision: Decision, kind: Kind, case: Case) -> Any:
    """What fixes the bits of a decision: two of equal sums are one plan."""
    if decision.split:
        return decision.chunk(case.k)
    order = order_of(decision.kernel, decision.cuts, decision.reduction, kind, case.m, case.n, case.k, case.batch)
    return decision if order is None else order


def built(
    recorded: Iterable[tuple[Sweep, npt.NDArray[np.int64]]], decisions: Sequence[Decision], drawn: Iterable[Answer], profile: Mapping[str, Any],
    processors: int, workspaces: Mapping[str, int], ranking: Ranking | None = None,
) -> tuple[bytes, Table]:  # fmt: skip
    """The file from sweeps with the numbers of their decisions and from random answers, in an order drawn by a hash; and its table.

    Decisions that only random answers have come after `decisions`.

    workspaces: bytes that each call of torch gives. ranking: of the tiles of RANKED, which need no tree then.
    """
    recorded = list(recorded)
    parts, drawn, swept_over = swept(recorded), list(drawn), along(recorded, decisions)
    decisions = list(dict.fromkeys([*decisions, *(x.decision for x in drawn if x.decision is not None)]))
    numbers = {decision: i for i, decision in enumerate(decisions)}
    by_kind: dict[str, list[Answer]] = defaultdict(list)
    for answer in drawn:
        by_kind[key(answer.case)].append(answer)
    rules: dict[str, Any] = {}
    long: dict[str, list[Answer]] = {}
    for name, answers in sorted(by_kind.items()):
        about, some = rule(answers, workspaces[answers[0].case.op]), answers
        if about is not None:
            rules[name] = about
            some = [
                x
                for x in answers
                if x.case.k > about["most_k"] and x.case.m * x.case.n <= about.get("results", x.case.m * x.case.n)
            ]
        elif answers[0].case.format in SHORT:
            continue
        if len(some) >= ENOUGH and some[0].case.op in LEAVES:
            long[name] = [*some, *swept_over.get(name, ())]
    ranked: dict[tuple[str, ...], tuple[Tree | Ranking, list[int]]] = {}
    if ranking is not None:
        ranked[tuple(" ".join((x[0], x[1], x[3])) for x in RANKED)] = (ranking, [])
    long = {name: some for name, some in long.items() if not any(name in names for names in ranked)}
    sets = {tuple(x for x in next((each for each in SHARED if name in each), (name,)) if x in long) for name in long}
    trees = ranked | {
        names: tree([long[x] for x in names], numbers, processors, workspaces[long[names[0]][0].case.op])
        for names in sorted(sets)
    }
    fields = [[x.kernel, x.split, x.step, x.cuts, x.reduction] for x in decisions]
    data = pack({"profile": dict(profile), "decisions": fields, "rules": rules}, parts, trees)
    return data, unpack(data)
