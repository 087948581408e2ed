"""What is shown of a check: findings by severity, each in three lines; verbose, with all that is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tcsim.inspection.report import Facts, Lines, Report
from tcsim.inspection.three_lines import cause as said
from tcsim.inspection.three_lines import mend, place, thread, three_lines
from tcsim.launchers.check import Check, Finding, Place
from tcsim.launchers.launched import extents
from tcsim.ptx import HAZARDS
from tcsim.ptx.hazards.hazard import SEVERITIES

LONGEST_LINE = 130
"""Letters of a line of PTX or of a source that are shown: two lines of text."""
MOST_LINES = 12
"""Lines of findings of one cause that are named."""


def report(found: Check, every: bool = False, verbose: bool = False) -> Report:
    """What is shown of a check: one finding of each cause, or every one. verbose: with the rule, its section, where and how often it was seen."""
    parts: list[Any] = [Facts(tuple(_facts(found)))]
    for severity, meaning in SEVERITIES.items():
        causes = [item for item in found.causes if item[0].hazard.severity == severity]
        own = [left for item in causes if (left := [one for one in item if every or not found.is_gone(one)])]
        own.sort(key=lambda item: found.hang not in item)
        if own:
            style: Any = "bad" if severity == "error" else ""
            head = f"{severity} ({found.counts[severity]}{_of(len(causes), found.counts[severity])})"
            parts.append(Lines((f"{head}: {meaning}",), "", style))
        for cause in own:
            parts += findings(cause, every, verbose, found)
    for witness in found.witnesses:
        late, early = witness.schedules
        lines = [
            f"Under {late} and {early} {witness.comparison.name} is not the same: {witness.comparison.unequal} elements"
        ]
        lines += [
            line.replace("expected", f"{early}:").replace(" is ", f" {late}: ", 1)
            for line in witness.comparison.lines()[1:]
        ]
        parts.append(Lines(tuple(lines), "Bits depend on the order of completion", "bad", wrap=True))
    parts.append(Lines((verdict(found),), "", "good" if found.passed else "bad"))
    kernels = list(dict.fromkeys(run.kernel for _, run, _ in found.launches)) or [found.file]
    arch = found.launches[0][1].arch if found.launches else ""
    return Report(
        f"{', '.join(kernels[:3])}{' ...' if kernels[3:] else ''}" + (f" on {arch}" if arch else ""), tuple(parts)
    )


def findings(
    cause: Sequence[Finding], every: bool = False, verbose: bool = False, check: Check | None = None
) -> list[Facts | Lines]:
    """What is shown of the findings of one cause. check: that they are of."""
    shown = cause if every else cause[:1]
    rest = len(cause) - len(shown)
    more = f" (and {rest} more of this cause: --all shows them)" if rest else ""
    if check is not None and cause[0] is check.hang and not every:
        gone = sum(map(check.is_gone, check.findings))
        more = f" (and {gone} more that go with it: --all shows them)" if gone else ""
    if not verbose:
        lines = (
            three_lines(said(item.hazard), place(item.hazard, *item.quoted) + more, _mend(item, check))
            for item in shown
        )
        return [Lines(own) for own in lines]
    return [Facts(tuple(_finding(item, check) + _rest(cause[len(shown) :])), item.hazard.name) for item in shown]


def _mend(own: Finding, check: Check | None) -> str:
    """The mend that was tried, else what the rule advises."""
    hang = check.hang if check is not None else None
    if check is None or hang is None or (own is not hang and not check.is_gone(own)):
        return mend(own.hazard)
    if check.mended is not None:
        return check.mended.said if own is hang else f"None of its own: that of {hang.hazard.name} takes it away."
    tried = f"{check.unmended} other counts, bytes or parities tried, none is right. " if check.unmended else ""
    return tried + mend(own.hazard)


def verdict(found: Check) -> str:
    """All of it in a line, and what was not looked for."""
    causes = Counter(own[0].hazard.severity for own in found.causes)
    said = ", ".join(
        f"{count} {severity}{'s' * (severity == 'error' and count > 1)}{_of(causes[severity], count)}"
        for severity, count in found.counts.items()
        if count
    )
    incomplete = sum(not run.completed for _, run, _ in found.launches)
    if incomplete:
        said += f"; {incomplete} of {len(found.launches)} launches did not end"
    if found.status:
        said += f"; the script ended with status {found.status}"
    clean = f"clean: no fault, hang, missing fence or wait, or race{'' if found.races else ' in shared memory'}"
    left = "" if found.races else "races in global memory were not looked for (--races)"
    return "; ".join(filter(None, (said.removeprefix("; ") or clean, left, found.sampled)))


def _of(causes: int, findings: int) -> str:
    """In how many causes findings come, where that is fewer."""
    return f" with {causes} cause{'s' * (causes > 1)}" if causes < findings else ""


def _rest(more: Sequence[Finding]) -> list[tuple[str, str]]:
    """Findings of the same cause that are not shown."""
    if not more:
        return []
    lines = [str(own.hazard.line) for own in more if own.hazard.line]
    named = ", ".join(lines[:MOST_LINES]) + (", ..." if len(lines) > MOST_LINES else "")
    return [("more", f"{len(more)} of the same cause" + (f", lines {named}" if lines else "") + ": --all shows them")]


def _facts(found: Check) -> list[tuple[str, str]]:
    facts = []
    if len(found.launches) <= len(found.schedules) and found.launches:
        shape = found.launches[0][2]
        said = [
            f"{name} {extents(shape[name])}"
            for name in ("grid", "block", "cluster")
            if name != "cluster" or list(shape[name]) != [1, 1, 1]
        ]
        facts.append(("launch", ", ".join([*said, f"{shape['dynamic_smem']} dynamic shared bytes"])))
    instructions = sum(run.instructions for _, run, _ in found.launches)
    count = len(found.launches)
    facts.append(("checked", f"{count} launch{'es' if count != 1 else ''}, {instructions} instructions"))
    facts.append(("schedules", ", ".join(map(str, found.schedules))))
    return facts


def _finding(own: Finding, check: Check | None) -> list[tuple[str, str]]:
    hazard, rule = own.hazard, HAZARDS[own.hazard.name]
    facts = [("found", hazard.message), *_place(own.here)]
    if own.other is not None:
        facts += _place(own.other)
    seen = f"{hazard.count} time{'s' if hazard.count != 1 else ''}"
    seen += f", first in {thread(hazard)}" if hazard.block is not None else ""
    facts += [
        ("rule", rule.sentence),
        ("section", f"{rule.section} ({rule.source})"),
        ("fix", rule.fix if _mend(own, check) == mend(hazard) else _mend(own, check)),
    ]
    facts.append(("seen", f"{seen}; schedule {', '.join(map(str, own.schedules))}"))
    return facts if own.tried is None else [*facts, ("witness", own.tried.said)]


def _place(own: Place) -> list[tuple[str, str]]:
    facts = [(f"line {own.line}", _cut(own.text))] if own.line else []
    if own.source:
        facts += [("source", own.source.removeprefix(f"{Path.cwd()}/"))]
        facts += [("", _cut(own.source_text))] if own.source_text else []
        facts += (
            [("inlined", " > ".join(place.removeprefix(f"{Path.cwd()}/") for place in own.inlined))]
            if own.inlined
            else []
        )
    return facts


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."
