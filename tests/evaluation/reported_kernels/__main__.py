"""`python -m tests.evaluation.reported_kernels --each 3`: how `tcsim.diagnose` judges cases of every kind."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import tcsim
from tests.evaluation.kept import keep
from tests.evaluation.reported_kernels.kinds import KINDS, case
from tests.evaluation.second_wrong_kernels.judge import HALF, JUDGEMENTS, RIGHT, WRONG, judge


def judged(asked: Any, report: dict[str, Any]) -> str:
    """One of JUDGEMENTS. What no mistake explains must not be explained, nor called correct."""
    if asked.kind.what != "noise":
        return judge(asked, report)
    verdict = str(report["verdict"])
    return RIGHT if verdict.startswith("not") else HALF if verdict.startswith("part") else WRONG


def ask(name: str, seed: int) -> dict[str, Any]:
    """One case, diagnosed and judged; an exception is a report that explains nothing."""
    asked = case(KINDS[name], seed)
    run, start = asked.run, time.perf_counter()
    try:
        told = tcsim.diagnose(run.how.mnemonic, arch=run.how.arch, observed=run.observed, **run.operands)
        report: dict[str, Any] = {**told.as_dict(), "lines": list(told.lines())}
    except Exception as error:
        report = {"verdict": "not explained", "lines": [f"{type(error).__name__}: {error}"], "raised": True}
    return {
        "kind": name,
        "what": asked.kind.what,
        "seed": seed,
        "says": asked.says,
        "needs": asked.needs,
        "mnemonic": run.how.mnemonic,
        "shape": run.observed.shape,
        "judgement": judged(asked, report),
        "verdict": report["verdict"],
        "lines": report["lines"],
        "explanations": report.get("explanations", []),
        "raised": report.get("raised", False),
        "seconds": round(time.perf_counter() - start, 2),
    }


def counts(results: list[dict[str, Any]]) -> list[int]:
    """How many cases have each judgement."""
    count = Counter(result["judgement"] for result in results)
    return [count[judgement] for judgement in JUDGEMENTS]


def main(arguments: list[str] | None = None) -> int:
    """Ask, print a line for each kind, and write or keep what came out on request."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.reported_kernels", description=__doc__)
    parser.add_argument("--each", type=int, default=3, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--json", type=Path, help="write every report, one line a case, as they come")
    parser.add_argument("--keep", metavar="RUN", help="the figures into docs/measurements/diagnosis.json, as this run")
    options = parser.parse_args(arguments)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for name in options.only.split(",") if options.only else KINDS:
        by_kind[name] = [ask(name, options.seed + i) for i in range(options.each)]
        said = ", ".join(f"{each['judgement']} ({each['seconds']} s)" for each in by_kind[name])
        print(f"{name}: {said}", flush=True)
        if options.json:
            with options.json.open("a") as lines:
                lines.writelines(json.dumps(each) + "\n" for each in by_kind[name])
    of = {
        what: counts([each for them in by_kind.values() for each in them if each["what"] == what])
        for what in ("wrong", "right", "noise")
    }
    for what, count in of.items():
        print(
            f"{what}:", ", ".join(f"{number} {judgement}" for number, judgement in zip(count, JUDGEMENTS, strict=True))
        )
    if options.keep:
        kinds = [
            [
                name,
                " ".join((KINDS[name].make.__doc__ or "").split()).replace("{", "*").replace("}", "*"),
                KINDS[name].source,
                counts(them),
            ]
            for name, them in by_kind.items()
        ]
        keep("reported", options.keep, of["wrong"], of["right"], kinds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
