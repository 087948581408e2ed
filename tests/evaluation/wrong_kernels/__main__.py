"""How `tcsim.diagnose` names the mistakes of kernels: `python -m tests.evaluation.wrong_kernels [--each N] [--kind TEXT] [--write]`.

It prints a table by kind; `--write` keeps the figures in docs/measurements/diagnosis.json.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import tcsim
from tests.evaluation.kept import keep
from tests.evaluation.wrong_kernels.cases import OUTCOMES, Case, Kind, cases, outcome
from tests.evaluation.wrong_kernels.places import PLACES
from tests.evaluation.wrong_kernels.results import RESULTS
from tests.evaluation.wrong_kernels.right import CORRECT

KINDS = (*PLACES, *RESULTS, *CORRECT)


def asked(case: Case) -> tuple[str, str]:
    """The outcome of a case, and a line about it if it is not right."""
    found = tcsim.diagnose(case.instruction, **case.arguments)
    how = outcome(case, found)
    names = [str(item) for item in (*found.explanations, *found.nearest)][:2]
    family = case.target.mnemonic.split(".")[0]
    return how, f"{how}: {case.kind.name} [{family}, seed {case.seed}]: {found.verdict} {names}"


def of_kind(number: int, each: int, first: int) -> tuple[int, dict[str, Counter[str]], list[str], float]:
    """The outcomes of a kind by family, what is to be said of those that are not right, and the seconds of one question."""
    counts: dict[str, Counter[str]] = {}
    lines = []
    start = time.process_time()
    for case in cases((KINDS[number],), each, first):
        how, line = asked(case)
        counts.setdefault(case.target.family, Counter())[how] += 1
        if how != "right":
            lines.append(line)
    return number, counts, lines, (time.process_time() - start) / max(1, sum(own.total() for own in counts.values()))


HEAD = ["| {} | cases | right | half | not explained | wrong |", "| --- | ---: | ---: | ---: | ---: | ---: |"]


def table(found: dict[int, dict[str, Counter[str]]]) -> list[str]:
    """A line for each kind, in Markdown, and the sums: of all, and by family."""
    sums: dict[bool, dict[str, Counter[str]]] = {False: {}, True: {}}
    lines = []
    for number, counts in sorted(found.items()):
        kind: Kind = KINDS[number]
        for family, own in counts.items():
            sums[kind.correct].setdefault(family, Counter()).update(own)
        lines.append(_line(kind.name, _total(counts)))
    by_family = [
        _line(f"{family}: {what}", own)
        for kind, what in ((False, "mistakes"), (True, "correct"))
        for family, own in sorted(sums[kind].items())
    ]
    ends = [_line("**all mistakes**", _total(sums[False])), _line("**all correct kernels**", _total(sums[True]))]
    return [HEAD[0].format("family"), HEAD[1], *by_family, *ends, "", HEAD[0].format("kind"), HEAD[1], *lines]


def _total(counts: dict[str, Counter[str]]) -> Counter[str]:
    return sum(counts.values(), Counter())


def _line(name: str, counts: Counter[str]) -> str:
    return f"| {name} | {counts.total()} | " + " | ".join(str(counts[how]) for how in OUTCOMES) + " |"


def main() -> None:
    """Ask all, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=8, help="cases of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", default="", help="only kinds whose name holds this")
    parser.add_argument("-n", type=int, default=1, help="processes")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    given = parser.parse_args()
    numbers = [number for number, kind in enumerate(KINDS) if given.kind in kind.name]
    found = {}
    with ProcessPoolExecutor(given.n) as pool:
        for number, counts, lines, seconds in pool.map(
            of_kind, numbers, [given.each] * len(numbers), [given.first] * len(numbers)
        ):
            found[number] = counts
            print(f"{KINDS[number].name}: {dict(_total(counts))} {seconds:.2f} s", *lines[:8], sep="\n  ", flush=True)
    print("\n".join(table(found)))
    if given.write:
        kinds = [[KINDS[number].name, "", "", _five(_total(counts))] for number, counts in sorted(found.items())]
        mistakes, right = (_of(found, correct) for correct in (False, True))
        keep("first", "latest", _five(mistakes), _five(right), kinds)


def _of(found: dict[int, dict[str, Counter[str]]], correct: bool) -> Counter[str]:
    """The outcomes of all mistakes, or of all right kernels."""
    return sum((_total(own) for number, own in found.items() if KINDS[number].correct is correct), Counter())


def _five(counts: Counter[str]) -> list[int]:
    """As the other sets are counted: this one does not tell "right among equals" apart."""
    return [counts["right"], 0, *(counts[how] for how in ("half", "not explained", "wrong"))]


if __name__ == "__main__":
    main()
