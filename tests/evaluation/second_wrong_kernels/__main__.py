"""`python -m tests.evaluation.second_wrong_kernels --each N -n PROCESSES`: how `tcsim.diagnose` judges N cases of every kind."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tcsim
from tests.evaluation.second_wrong_kernels.cases import (
    CORRECT,
    EIGHTH,
    EIGHTH_CORRECT,
    ELEVENTH,
    ELEVENTH_CORRECT,
    EVERY,
    FIFTH,
    FIFTH_CORRECT,
    FOURTH,
    FOURTH_CORRECT,
    HELD_OUT,
    NINTH,
    NINTH_CORRECT,
    SEVENTH,
    SEVENTH_CORRECT,
    SIXTH,
    SIXTH_CORRECT,
    TENTH,
    TENTH_CORRECT,
    TWELFTH,
    TWELFTH_CORRECT,
    WRONG,
    Case,
    make,
)
from tests.evaluation.second_wrong_kernels.judge import JUDGEMENTS, RIGHT, UNEXPLAINED, judge


def ask(case: Case) -> dict[str, Any]:
    """`tcsim.diagnose` of a case, as a dictionary; an exception is a report that explains nothing."""
    arithmetic = case.problem.arithmetic
    start = time.perf_counter()
    try:
        told = tcsim.diagnose(
            arithmetic.mnemonic, arch=arithmetic.arch, observed=case.observed, **case.problem.operands()
        )
        report: dict[str, Any] = {**told.as_dict(), "lines": list(told.lines())}
    except Exception as error:
        report = {"verdict": "not explained", "lines": [f"{type(error).__name__}: {error}"], "raised": True}
    return {**report, "seconds": time.perf_counter() - start}


def run(job: tuple[str, int]) -> dict[str, Any]:
    """One case, judged."""
    name, seed = job
    case = make(EVERY[name], seed)
    report = ask(case)
    p = case.problem
    return {
        "kind": name,
        "seed": seed,
        "says": case.says,
        "mnemonic": p.arithmetic.mnemonic,
        "arch": p.arithmetic.arch,
        "m, n, k": [p.m, p.n, p.k],
        "tiling": str(case.tiling),
        "observed": str(case.observed.dtype),
        "c": p.c is not None,
        "judgement": judge(case, report),
        "verdict": report["verdict"],
        "lines": report["lines"],
        "explanations": report.get("explanations", []),
        "mistake": report.get("mistake"),
        "nearest": report.get("nearest"),
        "raised": report.get("raised", False),
        "seconds": round(report["seconds"], 3),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: a line for each kind, then the sums."""
    lines = ["| kind | cases | " + " | ".join(JUDGEMENTS) + " |", "| --- |" + " ---: |" * (len(JUDGEMENTS) + 1)]
    groups: dict[str, list[str]] = {}
    for result in results:
        groups.setdefault(result["kind"], []).append(result["judgement"])
    groups["all wrong kernels"] = [r["judgement"] for r in results if not EVERY[r["kind"]].correct]
    groups["all right kernels"] = [r["judgement"] for r in results if EVERY[r["kind"]].correct]
    for name, judgements in groups.items():
        count = Counter(judgements)
        lines.append(f"| {name} | {len(judgements)} | " + " | ".join(str(count[j] or "") for j in JUDGEMENTS) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; write every report on request."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.second_wrong_kernels", description=__doc__)
    parser.add_argument("--each", type=int, default=4, help="cases of each kind of mistake")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("-n", "--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--held-out", action="store_true", help="the held-out kinds alone")
    parser.add_argument("--fourth", action="store_true", help="the kinds of kinds_fourth_*.py alone")
    parser.add_argument("--fifth", action="store_true", help="the kinds of kinds_fifth_*.py alone")
    parser.add_argument("--sixth", action="store_true", help="the kinds of kinds_sixth_*.py alone")
    parser.add_argument("--seventh", action="store_true", help="the kinds of kinds_seventh_*.py alone")
    parser.add_argument("--eighth", action="store_true", help="the kinds of kinds_eighth_*.py alone")
    parser.add_argument("--ninth", action="store_true", help="the kinds of kinds_ninth_*.py alone")
    parser.add_argument("--tenth", action="store_true", help="the kinds of kinds_tenth_*.py alone")
    parser.add_argument("--eleventh", action="store_true", help="the kinds of kinds_eleventh_*.py alone")
    parser.add_argument("--twelfth", action="store_true", help="the kinds of kinds_twelfth_*.py alone")
    parser.add_argument("--json", type=Path, help="write every report, one line a case, as they come")
    parser.add_argument("--verbose", action="store_true", help="print the reports that are not right")
    options = parser.parse_args(arguments)
    chosen = [*WRONG, *CORRECT]
    if options.held_out:
        chosen = [*HELD_OUT]
    elif options.fourth:
        chosen = [*FOURTH, *FOURTH_CORRECT]
    elif options.fifth:
        chosen = [*FIFTH, *FIFTH_CORRECT]
    elif options.sixth:
        chosen = [*SIXTH, *SIXTH_CORRECT]
    elif options.seventh:
        chosen = [*SEVENTH, *SEVENTH_CORRECT]
    elif options.eighth:
        chosen = [*EIGHTH, *EIGHTH_CORRECT]
    elif options.ninth:
        chosen = [*NINTH, *NINTH_CORRECT]
    elif options.tenth:
        chosen = [*TENTH, *TENTH_CORRECT]
    elif options.eleventh:
        chosen = [*ELEVENTH, *ELEVENTH_CORRECT]
    elif options.twelfth:
        chosen = [*TWELFTH, *TWELFTH_CORRECT]
    names = options.only.split(",") if options.only else chosen
    jobs = [(name, options.seed + i) for i in range(options.each) for name in names]
    results = []
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(options.processes))
        lines = stack.enter_context(options.json.open("w")) if options.json else None
        for result in pool.map(run, jobs):
            results.append(result)
            if lines:
                print(json.dumps(result), file=lines, flush=True)
    results.sort(key=lambda result: names.index(result["kind"]))
    if options.verbose:
        for result in results:
            if result["judgement"] != RIGHT:
                print(f"{result['kind']}/{result['seed']}: {result['judgement']}: {result['says']}")
                print("\n".join("    " + line for line in result["lines"]))
    print(table(results))
    unexplained = sum(result["judgement"] == UNEXPLAINED for result in results)
    slowest = max(result["seconds"] for result in results)
    print(
        f"\n{len(results)} cases; {unexplained} not explained; {sum(r['raised'] for r in results)} raised; the slowest report took {slowest:.1f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
