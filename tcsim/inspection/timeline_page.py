"""One self-contained HTML page of what a block did: lanes of warps, copies, tensor core and barriers; hazards link their two instructions."""

from __future__ import annotations

from typing import Any

from tcsim.inspection.page_file import filled
from tcsim.ptx import HAZARDS, Run
from tcsim.ptx.timeline import KINDS, Span, Timeline, rows

LONGEST_LINE = 160
"""Letters of a line of PTX in a page."""
_WORDS = {
    "compute": "instruction", "read": "reads shared memory", "write": "writes shared memory", "atomic": "atomic", "global": "global memory",
    "fence": "fence", "issue": "issues work", "signal": "signals", "wait": "waits", "work": "work in flight (its number: the stage of shared memory)",
    "phase": "phase (even, odd)", "exit": "ends",
}  # fmt: skip
_HINT = "Point at something. A hazard marks both of its instructions."
_FORMS = "find a line (12), a lane (warp 3) or a word (wgmma)"


def timeline_page(timeline: Timeline, run: Run) -> str:
    """The page of a timeline, and the hazards of the run that it was made in.

    >>> from tcsim.ptx import Memory, parse
    >>> text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { bar.sync 0; ret; }"
    >>> timeline = Timeline()
    >>> run = parse(text).kernel().launch(Memory(), [], block=(64, 1, 1), observe=timeline.observer)
    >>> page = timeline_page(timeline, run)
    >>> page[:15], len(page) < 500_000, "https://" in page
    ('<!doctype html>', True, False)
    """
    lanes, spans, texts = [], [], dict[str, int]()
    elsewhere = _elsewhere(timeline, run)
    for number, name in enumerate((*timeline.lanes, *dict.fromkeys(span.lane for span in elsewhere))):
        own = sorted(
            (span for span in (*timeline.spans, *elsewhere) if span.lane == name),
            key=lambda span: (span.start, span.kind == "signal"),
        )
        wide = [span for span in own if span.kind != "signal" or not _is_barrier(name)]
        places, height = rows(wide)
        lanes.append({"name": name, "rows": height, "barrier": _is_barrier(name)})
        place = dict(zip(map(id, wide), places, strict=True))
        spans += [
            [
                number, place.get(id(span), 0), span.start, span.end, KINDS.index(span.kind), span.line,
                texts.setdefault(span.text, len(texts)), -1 if span.stage is None else span.stage, -1 if span.read is None else span.read,
            ]
            for span in own
        ]  # fmt: skip
    hazards: list[dict[str, Any]] = [
        {"name": own.name, "severity": own.severity, "message": own.message, "line": own.line or 0, "other": own.other_line or 0, "fix": HAZARDS[own.name].fix}
        for own in run.hazards
    ]  # fmt: skip
    used = {span.line for span in (*timeline.spans, *elsewhere)} | {
        own[key] for own in hazards for key in ("line", "other")
    } - {0}
    text = run.text.splitlines()
    block = ",".join(map(str, timeline.block))
    facts = [
        ("kernel", f"{run.kernel} on {run.arch}"), ("block", f"{block}, {timeline.threads} threads"),
        ("time", f"{timeline.ticks} events of this block, in the order in which the model did them; it has no clock"),
    ]  # fmt: skip
    return filled(
        {
            "title": f"{run.kernel} on {run.arch}: block {block}", "hint": _HINT, "forms": _FORMS, "lanes": lanes, "spans": spans,
            "kinds": KINDS, "words": _WORDS, "texts": list(texts), "stages": [hex(own.start) for own in timeline.stages], "hazards": hazards,
            "lines": {line: text[line - 1].strip()[:LONGEST_LINE] for line in sorted(used) if 0 < line <= len(text)},
            "ticks": timeline.ticks + 1, "left_out": timeline.left_out, "facts": [{"title": "What it is", "rows": facts}],
        },
        ("page", "timeline"), "timeline",
    )  # fmt: skip


def _elsewhere(timeline: Timeline, run: Run) -> list[Span]:
    """Of hazards between this block and another one the instruction of that, in a lane of its own: at the beginning if the model ran it before, else at the end."""
    found = []
    for own in run.hazards:
        before, after = own.detail.get("other_block"), own.block
        if before is None or after is None or tuple(before) == after or timeline.block not in (after, tuple(before)):
            continue
        block, line, at = (before, own.other_line, 0) if after == timeline.block else (after, own.line, timeline.ticks)
        lane = f"block {','.join(map(str, block))}"
        found.append(Span(lane, at, at + 1, "global", line or 0, "in another block, whose time is not this one's"))
    return found


def _is_barrier(lane: str) -> bool:
    return lane.startswith(("mbarrier", "barrier", "cluster"))
