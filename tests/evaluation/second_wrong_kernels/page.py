"""`python -m tests.evaluation.second_wrong_kernels.page REPORTS [REPORTS] --into PAGE`: figures, table and examples of a set in a page.

REPORTS is what `python -m tests.evaluation.second_wrong_kernels --fourth --json` (or `--fifth`, ...) wrote. With two of them, the second is the later run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.evaluation.second_wrong_kernels.cases import EVERY, make
from tests.evaluation.second_wrong_kernels.judge import JUDGEMENTS, RIGHT, judge

Results = list[dict[str, Any]]
GROUPS = {
    "common mistakes": [name for name, kind in EVERY.items() if not kind.correct and not getattr(kind, "rare", True)],
    "rare mistakes": [name for name, kind in EVERY.items() if not kind.correct and getattr(kind, "rare", False)],
    "all mistakes": [name for name, kind in EVERY.items() if not kind.correct],
    "right kernels": [name for name, kind in EVERY.items() if kind.correct],
}


def read(path: Path) -> Results:
    """The reports of a run, judged by the rules and patterns as they are now."""
    results = [json.loads(line) for line in path.read_text().splitlines()]
    for result in results:
        result["judged first"] = result["judgement"]
        result["judgement"] = judge(make(EVERY[result["kind"]], result["seed"]), result)
    return results


def counts(results: Results, names: list[str], by: str = "judgement") -> list[int]:
    """How many cases of these kinds have each judgement."""
    count = Counter(result[by] for result in results if result["kind"] in names)
    return [count[judgement] for judgement in JUDGEMENTS]


def figures(runs: list[Results]) -> str:
    """A line for each group, run and set of patterns: cases, and the judgements with the first one in percent."""
    lines = [
        "| run | patterns | kernels | cases | " + " | ".join(JUDGEMENTS) + " |",
        "| --- | --- | --- |" + " ---: |" * (len(JUDGEMENTS) + 1),
    ]
    readings = [(runs[0], "first", "as committed", "judged first")]
    readings += [(results, ("first", "later")[i], "corrected", "judgement") for i, results in enumerate(runs)]
    for results, run, patterns, by in readings:
        for group, names in GROUPS.items():
            found = counts(results, names, by)
            if not (total := sum(found)):
                continue
            cells = [f"{found[0]} ({100 * found[0] / total:.0f} %)", *map(str, found[1:])]
            lines.append(f"| {run} | {patterns} | {group} | {total} | {' | '.join(cells)} |")
    return "\n".join(lines)


def where(source: str) -> str:
    """A link to a source."""
    if source == "textbook":
        return source
    if "forums." in source:
        return f"[forum](https://{source})"
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}{'/issues/' + number if number else ''})"


def table(results: Results) -> str:
    """A line for each kind of the run."""
    ran = {result["kind"] for result in results}
    lines = [
        "| kind | met in | " + " | ".join(JUDGEMENTS) + " |",
        "| --- | --- |" + " ---: |" * len(JUDGEMENTS),
    ]
    for name, kind in EVERY.items():
        if name not in ran:
            continue
        said = re.sub(r"\{(\w+)\}", r"*\1*", (kind.__doc__ or "").strip())
        source = getattr(kind, "source", "textbook")
        found = " | ".join(str(count or "") for count in counts(results, [name]))
        lines.append(f"| `{name}` {said} | {where(source)} | {found} |")
    return "\n".join(lines)


def examples(results: Results, most: int = 7) -> str:
    """What a user reads, for the first case of every kind that is not right."""
    shown: list[str] = []
    seen = set()
    for result in sorted(results, key=lambda result: ([*EVERY].index(result["kind"]), result["seed"])):
        if result["judgement"] == RIGHT or result["kind"] in seen:
            continue
        seen.add(result["kind"])
        lines = [line[:150].rstrip() for line in result["lines"][:most]]
        title = f"`{result['kind']}`, seed {result['seed']}: {result['judgement']}. {result['says']}"
        shown.append("\n".join([title, "", "```text", *lines, "```"]))
    return "\n\n".join(shown)


def main(arguments: list[str] | None = None) -> int:
    """Write what stands between the page's marks."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.second_wrong_kernels.page", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args(arguments)
    runs = [read(path) for path in options.reports]
    parts = {"figures": figures(runs), "table": table(runs[-1]), "examples": examples(runs[-1])}
    page = options.into.read_text()
    for name, text in parts.items():
        marked = re.compile(rf"(<!-- {name} of the runs -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        page, written = marked.subn(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)
        if written != 1:
            raise SystemExit(f"{options.into} has no marks for {name}")
    options.into.write_text(page)
    for results in runs:
        moved = [r for r in results if r["judgement"] != r["judged first"]]
        for r in moved:
            print(f"{r['kind']}/{r['seed']}: {r['judged first']} is now {r['judgement']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
