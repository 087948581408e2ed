"""From recorded answers to the table that `tcsim.plan` reads: decisions, held-out shapes, and the rules that these confirm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hwkernels.plans.cases import Case, score
from tcsim.plans.packed import ABSENT, Decision, Kind, pack

HELD_OUT = 0.05
"""The share of shapes kept out of the table, by a hash of the shape: they judge the rules."""
TILES = (1, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
ALIGN = 8
ENOUGH = 100
"""Held-out shapes that a rule needs to speak of."""


class Answer(NamedTuple):
    """What was recorded for a case."""

    case: Case
    decision: Decision


def held_out(case: Case) -> bool:
    """Whether a shape is kept out of the table."""
    return score(case, "held out") < HELD_OUT


def key(case: Case) -> str:
    """A case's kind as tables spell it."""
    return f"{case.op} {case.format} {case.out} {case.layout} {case.fast}"


def tiles(case: Case) -> int:
    """Tiles of 64 x 64 of the result."""
    return -(-case.m // 64) * -(-case.n // 64)


def aligned(case: Case) -> bool:
    """Whether each row of the operands, as the layout stores them, and of the result is a multiple of ALIGN elements."""
    return case.n % ALIGN == 0 and case.k % ALIGN == 0 and (case.layout[1] == "N" or case.m % ALIGN == 0)


def rule(answers: list[Answer]) -> tuple[dict[str, Any] | None, dict[str, int]]:
    """No split where there are enough tiles: the least number of them above which no shape of the table is split, judged on held-out shapes.

    A kind without a modelled kernel has a rule of a kernel and words alone. The rule is None where a held-out shape contradicts it, or too few speak of it. The counts say how it went.
    """
    if not any(x.decision.split for x in answers):
        kernel = Counter(x.decision.kernel for x in answers).most_common(1)[0][0]
        return {"kernel": kernel, "words": "no recorded shape of its kind runs a modelled kernel"}, {
            "judged": 0,
            "wrong": 0,
        }
    spoken = [x for x in answers if aligned(x.case) and x.case.m > 1]
    seen = [x for x in spoken if not held_out(x.case)]
    against = [tiles(x.case) for x in seen if x.decision.split != 1]
    least = next((t for t in TILES if t > max(against, default=0)), None)
    if not seen or least is None:
        return None, {"judged": 0, "wrong": 0}
    most = max((x.case.k for x in seen if tiles(x.case) >= least), default=0)
    judged = [x for x in spoken if held_out(x.case) and tiles(x.case) >= least and x.case.k <= most]
    wrong = sum(x.decision.split != 1 for x in judged)
    counts = {"judged": len(judged), "wrong": wrong}
    if wrong or len(judged) < ENOUGH:
        return None, counts
    words = f"no recorded shape of at least {least} tiles of 64 x 64 with K up to {most} is split; {len(judged)} held-out shapes agree"
    about = {"tile": 64, "tiles": least, "most_k": most, "align": ALIGN, "least_m": 2, "words": words}
    about["align_m"] = ALIGN if seen[0].case.layout[1] == "T" else 1
    families = Counter(x.decision.kernel for x in seen if tiles(x.case) >= least)
    return about | {"kernel": families.most_common(1)[0][0]}, counts


def table(answers: Iterable[Answer], profile: Mapping[str, Any]) -> tuple[bytes, dict[str, dict[str, int]]]:
    """The file, and how the rule of each kind was judged."""
    by_kind: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_kind[key(answer.case)].append(answer)
    decisions: dict[Decision, int] = {}
    kinds, rules, judged = {}, {}, {}
    for name in sorted(by_kind):
        kept = [x for x in by_kind[name] if not held_out(x.case)]
        rows = sorted({(x.case.n, x.case.k, x.case.batch) for x in kept})
        columns = sorted({x.case.m for x in kept})
        matrix = np.full((len(rows), len(columns)), ABSENT, np.uint8)
        row_of, column_of = {r: i for i, r in enumerate(rows)}, {m: i for i, m in enumerate(columns)}
        for case, decision in sorted(kept, key=lambda x: x.case):
            number = decisions.setdefault(decision, len(decisions))
            if number >= ABSENT:
                raise ValueError(f"more than {ABSENT} decisions")
            matrix[row_of[case.n, case.k, case.batch], column_of[case.m]] = number
        kinds[name] = Kind(rows, columns, matrix)
        about, judged[name] = rule(by_kind[name])
        if about is not None:
            rules[name] = about
    found = [[d.kernel, d.split, d.step] for d in decisions]
    return pack({"profile": dict(profile), "decisions": found, "rules": rules}, kinds), judged
