"""`python -m tests.kernels.corpora.readers [--json FILE] FOLDER ...`: what `tcsim.ptx` makes of PTX files, without running them.

Each folder is a project. For every kernel of every .ptx file: whether the module was parsed, every instruction bound to a form, and code
generated for the target's arch; where not, the reason. Totals by project, and the reasons by their number, come last; --json puts the totals into a file, beside what else it says of a project.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tcsim.core.targets import TARGETS
from tcsim.ptx import Memory, parse

STAGES = ("parsed", "generated")  # binding is a part of generating


@dataclass(frozen=True)
class Verdict:
    """What became of a kernel: how far it came, and why no further."""

    kernel: str
    stage: str  # "", "parsed" or "generated"
    reason: str = ""
    seconds: float = 0.0


def read(path: Path) -> list[Verdict]:
    """The verdict on each kernel of a file; on the file if it could not be parsed."""
    start, text = time.perf_counter(), path.read_bytes()
    try:
        module = parse(text)
    except Exception as error:  # whatever it is, it is this file's fault alone, and is reported
        names = re.findall(rb"\.entry\s+([\w$]+)", text) or [path.stem.encode()]
        reason = f"{type(error).__name__}: {error}"
        return [Verdict(name.decode(), "", reason, time.perf_counter() - start) for name in names]
    found, memory = [], Memory()
    for name in module.kernels:
        start = time.perf_counter()
        kernel = module.kernel(name)
        try:
            kernel.compiled(memory, TARGETS[kernel.target].arch)
        except Exception as error:
            found.append(Verdict(name, "parsed", f"{type(error).__name__}: {error}", time.perf_counter() - start))
        else:
            found.append(Verdict(name, "generated", "", time.perf_counter() - start))
    return found


def subject(reason: str) -> str:
    """A reason without the line and the names that only this file has."""
    return re.sub(r"%?\b[\w$]*\d{2,}[\w$]*\b|line \d+, column \d+: |\S+ on sm_\w+: ", "", reason)[:120]


def keep(file: Path, totals: dict[str, Counter[str]]) -> None:
    """Put the totals into a file of JSON; other entries of it stay."""
    known = json.loads(file.read_text()) if file.exists() else {"projects": {}}
    for name, own in totals.items():
        counts = {key: own[key] for key in ("files", "kernels", *STAGES)}
        known["projects"][name] = known["projects"].get(name, {}) | counts
    file.write_text(json.dumps(known, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """Read every file below the folders; the exit status says whether a kernel stopped short."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.corpora.readers", description=read.__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="a project each: all .ptx files below it")
    parser.add_argument("--json", type=Path, help="a file for the totals")
    asked = parser.parse_args(arguments)
    totals: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for folder in asked.folders:
        own = totals.setdefault(folder.name, Counter())
        for path in sorted(folder.rglob("*.ptx")):
            own["files"] += 1
            for verdict in read(path):
                own["kernels"] += 1
                own["seconds"] += verdict.seconds  # type: ignore[assignment]
                for stage in STAGES[: STAGES.index(verdict.stage) + 1 if verdict.stage else 0]:
                    own[stage] += 1
                if verdict.reason:
                    reasons[subject(verdict.reason)] += 1
                    print(f"{path}: {verdict.kernel[:60]}: {verdict.reason[:300]}", flush=True)
    if asked.json is not None:
        keep(asked.json, totals)
    for reason, count in reasons.most_common(40):
        print(f"{count:5d} {reason}")
    print("| project | files | kernels | parsed | code generated | s |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    whole: Counter[str] = sum(totals.values(), Counter())
    for name, own in [*totals.items(), ("all", whole)]:
        print(
            f"| {name} | {own['files']} | {own['kernels']} | {own['parsed']} | {own['generated']} | {own['seconds']:.0f} |"
        )
    return int(whole["generated"] < whole["kernels"] or not whole["kernels"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
