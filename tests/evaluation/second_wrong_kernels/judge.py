"""The rules by which a report is judged. They were written, and committed, before any report was seen.

A report is read through `Diagnosis.as_dict()`: its verdict, and its explanations with all their text.

- right and alone: the mistake is explained, by one explanation, and its text has all patterns of the kind, or all of its equal.
- right among equals: several explanations, or explanations listed beneath the first as equivalent; one of them has all patterns.
- half: what is explained has the place right and not the mistake (a `half` pattern), or it is the right mistake, of a part of the outputs.
- not explained: the verdict says so, or what is named is neither.
- confident and wrong: every output is said to be explained, or right, and nothing of it is true; or a right kernel is said to be wrong.
- a right kernel is right if the verdict is "correct", whatever else is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.evaluation.second_wrong_kernels.cases import Case

RIGHT, EQUALS, HALF, UNEXPLAINED, WRONG = (
    "right and alone",
    "right among equals",
    "half",
    "not explained",
    "confident and wrong",
)
JUDGEMENTS = (RIGHT, EQUALS, HALF, UNEXPLAINED, WRONG)


def strings(value: Any, skipped: tuple[str, ...] = ()) -> Iterator[str]:
    """All text in a JSON value, but what stands under the skipped keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in skipped:
                yield from strings(inner, skipped)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner, skipped)


def has(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether the text has every pattern."""
    return all(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def named(text: str, case: Case) -> bool:
    """Whether the text names the mistake, or what equals it on this case."""
    return has(text, case.needs) or bool(case.equal and has(text, case.equal))


def judge(case: Case, report: dict[str, Any]) -> str:
    """One of JUDGEMENTS."""
    verdict = str(report["verdict"])
    if case.kind.correct:
        return RIGHT if verdict == "correct" else UNEXPLAINED if verdict.startswith("not") else WRONG
    if verdict == "correct":
        return WRONG
    explanations = list(report.get("explanations") or [])
    mains = ["\n".join(strings(explanation, ("also",))) for explanation in explanations]
    whole = ["\n".join(strings(explanation)) for explanation in explanations]
    complete = verdict in ("explained", "ambiguous") and bool(explanations)
    if verdict.startswith("not"):
        return UNEXPLAINED
    if not complete:
        nearest = "\n".join(strings([report.get(key) for key in ("mistake", "explanations", "nearest")]))
        return HALF if nearest and (named(nearest, case) or has(nearest, case.kind.half)) else UNEXPLAINED
    if named(mains[0], case):
        return RIGHT if len(mains) == 1 else EQUALS
    if any(named(text, case) for text in whole):
        return EQUALS
    return HALF if any(has(text, case.kind.half) for text in whole) else WRONG
