"""`python -m tests.evaluation.golden record FILE`, or `compare FILE [--texts]`: what this tree answers, written down, or held against a file."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.evaluation.golden.asking import KINDS, asked, raised
from tests.evaluation.golden.kind import Schedule, Scope
from tests.evaluation.golden.store import Answer, Store, difference, read, unified, write


def _schedule(word: str) -> Schedule:
    return int(word) if word.isdigit() else word


def told(before: Store, after: Store, texts: bool, most: int) -> tuple[list[str], bool]:
    """What differs, kind after kind, of the kinds that `after` has; and whether anything does."""
    lines, differs = [], False
    for kind, own in after.answers.items():
        was: dict[str, Answer] = before.answers.get(kind, {})
        found = difference(was, own)
        differs |= bool(found)
        lines.append(
            f"{kind}: {found.same} same, {len(found.changed)} changed, {len(found.gone)} gone, {len(found.new)} new"
        )
        for name in found.changed:
            lines += [f"  changed {name}", *(unified(name, was[name], own[name], most) if texts else ())]
        lines += [f"  {what} {name}" for what in ("gone", "new") for name in getattr(found, what)]
    return lines, differs


def main(arguments: list[str] | None = None) -> int:
    """The exit status of `compare` says whether anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.golden", description=__doc__)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--kind",
        action="append",
        choices=tuple(KINDS),
        help="only this kind; may stand several times; record: others that the file has stay",
    )
    parser.add_argument("--only", default="", help="only names in which this regular expression is found")
    parser.add_argument(
        "--schedule",
        action="append",
        type=_schedule,
        help="of recorded launches: late, early or a seed; else the file's, late and 1 for a new one",
    )
    parser.add_argument(
        "--reports", type=int, help="record: one kind of wrong kernels in this many; else the file's, 12 for a new one"
    )
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("--texts", action="store_true", help="compare: print what changed in texts")
    parser.add_argument("--most", type=int, default=60, help="lines of the diff of one text")
    parser.add_argument(
        "--with", dest="other", type=Path, help="compare: with this store instead of what the tree answers"
    )
    given = parser.parse_args(arguments)
    if given.reports and given.what == "compare":
        parser.error("--reports: as the file has it")
    if given.what == "compare" and not given.file.exists():
        parser.error(f"no file {given.file}")
    kept = read(given.file) if given.file.exists() else Store()
    schedules = tuple(given.schedule) if given.schedule else kept.scope.schedules
    scope = Scope(schedules, given.reports or kept.scope.reports)
    kinds = given.kind or [kind for kind in KINDS if given.what == "record" or kind in kept.answers]
    if given.what == "record" and kept.scope != scope and not set(kept.answers) <= set(kinds):
        parser.error(f"{given.file} was recorded with {kept.scope}; valid: the same, or another file")
    if given.other:
        other = read(given.other)
        now, seconds = Store(other.scope, {kind: other.answers.get(kind, {}) for kind in kinds}), {}
    else:
        now, seconds = asked(kinds, scope, given.only, given.j)
    for kind, took in seconds.items():
        print(f"{kind}: {len(now.answers[kind])} answers, {took:.0f} s, {len(raised(now.answers[kind]))} raised")
    if given.what == "record":
        write(given.file, Store(scope, kept.answers | now.answers))
        print(f"{given.file}: {given.file.stat().st_size:,} bytes")
        return 0
    if given.schedule or given.only:
        _narrow(kept, given.only, tuple(given.schedule or ()))
    lines, differs = told(kept, now, given.texts, given.most)
    print("\n".join(lines))
    return int(differs)


def _narrow(kept: Store, pattern: str, schedules: tuple[Schedule, ...]) -> None:
    """Take out what was not asked for."""
    left_out = [f" {own}" for own in kept.scope.schedules if schedules and own not in schedules]
    for kind, found in kept.answers.items():
        for name in list(found):
            of_a_schedule = kind == "launches" and not name.startswith("gemm ")
            if not re.search(pattern, name) or (of_a_schedule and name.endswith(tuple(left_out))):
                del found[name]


if __name__ == "__main__":
    sys.exit(main())
