"""`python -m tests.evaluation.reported_kernels --each 3`: how `tcsim.diagnose` judges cases of every kind."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tcsim
from tests.evaluation.kept import keep
from tests.evaluation.reported_kernels.kinds import SETS, case
from tests.evaluation.second_wrong_kernels.judge import HALF, JUDGEMENTS, RIGHT, WRONG, judge

KINDS = {name: kind for kinds in SETS.values() for name, kind in kinds.items()}


def judged(given: Any, report: dict[str, Any]) -> str:
    """One of JUDGEMENTS. What no mistake explains must not be explained, nor called correct."""
    if given.kind.what != "noise":
        return judge(given, report)
    verdict = str(report["verdict"])
    return RIGHT if verdict.startswith("not") else HALF if verdict.startswith("part") else WRONG


def ask(name: str, seed: int) -> dict[str, Any]:
    """A case, diagnosed and judged; an exception is a report that explains nothing."""
    given = case(KINDS[name], seed)
    run, start = given.run, time.perf_counter()
    try:
        told = tcsim.diagnose(run.how.mnemonic, arch=run.how.arch, observed=run.observed, **run.operands)
        report: dict[str, Any] = {**told.as_dict(), "lines": list(told.lines())}
    except Exception as error:
        report = {"verdict": "not explained", "lines": [f"{type(error).__name__}: {error}"], "raised": True}
    return {
        "kind": name,
        "what": given.kind.what,
        "seed": seed,
        "says": given.says,
        "needs": given.needs,
        "mnemonic": run.how.mnemonic,
        "shape": run.observed.shape,
        "judgement": judged(given, report),
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


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The reports of a run, as they were judged."""
    yield from map(json.loads, path.read_text().splitlines())


def asked(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The reports of the chosen kinds, one after another."""
    for name in options.only.split(",") if options.only else SETS[options.set]:
        for seed in range(options.seed, options.seed + options.each):
            result = ask(name, seed)
            if options.json:
                with options.json.open("a") as lines:
                    lines.write(json.dumps(result) + "\n")
            yield result


def main(arguments: list[str] | None = None) -> int:
    """Ask, print a line for each case, and write or keep what came out on request."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.reported_kernels", description=__doc__)
    parser.add_argument("--set", choices=list(SETS), default="reported", help="which of the sets")
    parser.add_argument("--each", type=int, default=3, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--json", type=Path, help="write every report, one line a case, as they come")
    parser.add_argument(
        "--read", type=Path, help="the reports of an earlier run, which --json wrote, instead of asking"
    )
    parser.add_argument("--keep", metavar="RUN", help="the figures into docs/measurements/diagnosis.json, as this run")
    options = parser.parse_args(arguments)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for result in read(options.read) if options.read else asked(options):
        by_kind.setdefault(result["kind"], []).append(result)
        print(f"{result['kind']}/{result['seed']}: {result['judgement']} ({result['seconds']} s)", flush=True)
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
        keep(options.set, options.keep, of["wrong"], of["right"], kinds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
