"""From recorded answers to the table that `tcsim.plan` reads: sweeps, rules and trees, and what held-out shapes say of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hwkernels.plans.cases import SHORT, Case, Sweep
from hwkernels.plans.grow import Shapes, grown
from tcsim.plans.packed import AXES, Decision, Sweeps, Table, pack, unpack
from tcsim.plans.record import Kind
from tcsim.plans.trees import Machine, Tree

LEAVES = {"mm": 3000, "addmm": 1500, "scaled": 1500}
"""Of the tree of a call, at most."""
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


def rule(answers: Sequence[Answer]) -> dict[str, Any] | None:
    """That nothing of a kind is cut up to a length of K, if no recorded product in whole rows contradicts it."""
    case = answers[0].case
    if case.format not in SHORT:
        return None
    most = max(x.case.k for x in answers) if case.op == "scaled_row" else SHORT[case.format]
    short = [x for x in answers if x.case.k <= most]
    if not short or any(x.decision is None or x.decision.split != 1 for x in short):
        return None
    words = f"no recorded product of its kind in whole rows of 16 bytes is cut at K up to {most}: {len(short)} of {len(short)}"
    least = max(UNIT, min(min(x.case.n, x.case.k) for x in short))
    return {
        "most_k": most,
        "least": least,
        "step": 128 if case.format == "e4m3" else 64,
        "kernel": "nvjet",
        "words": words,
    }


def tree(answers: Sequence[Answer], processors: int, workspace: int) -> Tree:
    """How K is cut where no rule speaks."""
    case = answers[0].case
    columns = np.array(
        [(x.case.m, x.case.n, x.case.k, x.decision.split) for x in answers if x.decision is not None], np.int64
    )
    return grown(
        Shapes(*columns.T), Machine(processors, workspace, 128 if case.format == "e4m3" else 64), LEAVES[case.op]
    )


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
        same = said == decision if not said.split else (said.split, said.step) == (decision.split, decision.step)
        found[kind.key][f"{source} {'right' if same else 'wrong'}"] += 1
    return dict(found)


def built(
    recorded: Iterable[tuple[Sweep, npt.NDArray[np.int64]]], decisions: Sequence[Decision], drawn: Iterable[Answer], profile: Mapping[str, Any],
    processors: int, workspaces: Mapping[str, int],
) -> tuple[bytes, Table]:  # fmt: skip
    """The file from sweeps with the numbers of their decisions and from random answers, in an order drawn by a hash; and its table.

    workspaces: bytes that each call of torch gives.
    """
    parts = swept(recorded)
    by_kind: dict[str, list[Answer]] = defaultdict(list)
    for answer in drawn:
        by_kind[key(answer.case)].append(answer)
    rules, trees = {}, {}
    for name, answers in sorted(by_kind.items()):
        about = rule(answers)
        if about is None:
            continue
        rules[name] = about
        long = [x for x in answers if x.case.k > about["most_k"]]
        if len(long) >= ENOUGH and long[0].case.op in LEAVES:
            trees[name] = tree(long, processors, workspaces[long[0].case.op])
    fields = [[x.kernel, x.split, x.step, x.cuts, x.reduction] for x in decisions]
    data = pack({"profile": dict(profile), "decisions": fields, "rules": rules}, parts, trees)
    return data, unpack(data)
