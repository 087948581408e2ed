"""`python -m tests.evaluation.second_wrong_kernels.keep SET REPORTS [--run "first sight"]`: the figures of a run into docs/measurements/diagnosis.json.

REPORTS is what `python -m tests.evaluation.second_wrong_kernels --fourth --json REPORTS` (or `--fifth`, ...) wrote; SET is the set's name there, as `fourth`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.evaluation.kept import keep
from tests.evaluation.second_wrong_kernels.cases import EVERY, make
from tests.evaluation.second_wrong_kernels.judge import JUDGEMENTS, judge

Results = list[dict[str, Any]]


def read(path: Path) -> Results:
    """The reports of a run, judged by the rules and patterns as they are now."""
    results = [json.loads(line) for line in path.read_text().splitlines()]
    for result in results:
        result["judgement"] = judge(make(EVERY[result["kind"]], result["seed"]), result)
    return results


def counts(results: Results) -> list[int]:
    """How many cases have each judgement."""
    count = Counter(result["judgement"] for result in results)
    return [count[judgement] for judgement in JUDGEMENTS]


def kinds(results: Results) -> list[list[Any]]:
    """Each kind of the run: its name, what it does, where it was met, and its counts."""
    ran = {result["kind"] for result in results}
    return [
        [
            name,
            re.sub(r"\{(\w+)\}", r"*\1*", (kind.__doc__ or "").strip()),
            getattr(kind, "source", getattr(kind, "thread", "textbook")),
            counts([result for result in results if result["kind"] == name]),
        ]
        for name, kind in EVERY.items()
        if name in ran
    ]


def main(arguments: list[str] | None = None) -> int:
    """Keep a run."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.second_wrong_kernels.keep", description=__doc__)
    parser.add_argument("set")
    parser.add_argument("reports", type=Path)
    parser.add_argument("--run", default="later", help="its name")
    options = parser.parse_args(arguments)
    results = read(options.reports)
    mistakes, right = ([own for own in results if EVERY[own["kind"]].correct is wanted] for wanted in (False, True))
    keep(options.set, options.run, counts(mistakes), counts(right), kinds(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
