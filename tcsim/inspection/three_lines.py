"""A finding in three lines: the cause, the place, the mend. `check`, `exec` and `diagnose` say it alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tcsim.ptx import HAZARDS, Hazard
from tcsim.ptx.hazards.rules import GRID, RACES

LONGEST = 240
"""Letters of a cause; of a deadlock, which says who waits for what, twice as many."""
_WIDE = 70
"""Letters of a line that are quoted."""
_LABEL = re.compile(r"^\s*(?:[{]\s*)?(?:\w+:\s*)?(?:@!?%?\w+\s+)?")
"""What stands before the spelling of an instruction: a label, a guard."""
_NAMES = "async|bulk|tensor|tensormap|commit_group|wait_group"
"""What is part of an instruction's name behind its first two words."""
_OPCODE = re.compile(rf"\b([a-z][a-z0-9_]*[.][a-z0-9_]+(?:[.](?:{_NAMES})\b)*)(?:[.:]+[a-zA-Z0-9_]+){{2,}}")
_LINE = re.compile(r"(?P<open> \(|, )line (?P<line>\d+)(?:, (?P<source>[^():,;]+:\d+))?(?P<close>\)?)")
"""A line of PTX in a message, with that of its source."""
_IN_ORDER = frozenset(rule.name for rule in (*RACES, *GRID))
"""Rules whose second line is that of the access that came first."""


def short(message: str) -> str:
    """A message with the names of instructions for long spellings.

    >>> short("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 reads what cp.async.bulk.global.shared::cta wrote")
    'wgmma.mma_async reads what cp.async.bulk wrote'
    """
    return _OPCODE.sub(r"\1", message)


def cause(own: Hazard) -> str:
    """The rule and what happened: without the lines that the place names, with those of the source for others.

    >>> cause(Hazard("DEADLOCK", "block (0, 0, 0), thread 0, line 9, k.cu:4: waits for st.async.weak.shared (line 7)", 8))
    'DEADLOCK: block (0, 0, 0), thread 0, k.cu:4: waits for st.async (line 7)'
    """

    def said(found: re.Match[str]) -> str:
        if found["close"] and int(found["line"]) in (own.line, own.other_line):
            return ""
        return f"{found['open']}{found['source'] or 'line ' + found['line']}{found['close']}"

    text = short(_LINE.sub(said, own.detail.get("found", own.message)))
    most = LONGEST * (1 + (own.name == "DEADLOCK"))
    if len(text) > most:
        text = text[: max(text.rfind("; ", 0, most), text.rfind(", ", 0, most), most // 2)] + " ..."
    return f"{own.name}{' (ptxas repairs it)' if own.severity == 'repaired' else ''}: {text}"


def at(line: int, source: str | None, quoted: str = "", instruction: str = "", who: str = "") -> str:
    """A place: the line of the source, of assembly in it the instruction; without source the line of PTX. who: was there."""
    more = [f"PTX line {line}"] * bool(source) + [who] * bool(who)
    where = source.replace(f"{Path.cwd()}/", "") if source else f"line {line}"
    where += f" ({', '.join(more)})" if more else ""
    if source and (not quoted or quoted.startswith("asm")):
        return f"{where}: {short(_LABEL.sub('', instruction).split()[0].rstrip(';'))}" if instruction else where
    quoted = (quoted if source else instruction).rstrip(";")
    if not quoted:
        return where
    return f"{where}: {quoted if len(quoted) <= _WIDE else quoted[: _WIDE - 3] + '...'}"


Quoted = tuple[str, str]
"""A line of the source and one of the PTX; empty where they are not known."""


def place(own: Hazard, here: Quoted = ("", ""), other: Quoted = ("", "")) -> str:
    """Both lines, of a race the one that came first last; of one line the first thread, too."""
    if own.other_line is None:
        return _at(own.line, (own.source, *own.inlined), here, thread(own)) or thread(own)
    first = _at(own.line, (own.source, *own.inlined), here)
    join = "after" if own.name in _IN_ORDER else "and"
    if own.source is not None and (own.source, own.inlined) == (own.other_source, own.other_inlined):
        return first.replace(f"(PTX line {own.line})", f"(PTX line {own.line} {join} {own.other_line})", 1)
    return f"{first}, {join} {_at(own.other_line, (own.other_source, *own.other_inlined), other)}"


def thread(own: Hazard) -> str:
    """The first block and thread that did it."""
    where = [f"block {','.join(map(str, own.block))}"] if own.block is not None else []
    where += [f"warp {own.thread // 32} lane {own.thread % 32}"] if own.thread is not None else []
    return " ".join(where)


def _at(line: int | None, sources: Sequence[str | None], quoted: Quoted, who: str = "") -> str:
    return at(line, " > ".join(filter(None, sources)), *quoted, who) if line else ""


def mend(own: Hazard) -> str:
    """The change that a check found, else what the rule advises."""
    if "mend" in own.detail:
        return f"{own.detail['operand'].upper()}: {own.detail['mend']}"
    return HAZARDS[own.name].fix


def three_lines(cause: str, place: str, mend: str) -> tuple[str, ...]:
    """Each behind its name; one of which nothing is known is left out."""
    return tuple(f"{name:7}{said}" for name, said in (("cause", cause), ("place", place), ("mend", mend)) if said)


def lines_of(own: Hazard, *quoted: Quoted) -> tuple[str, ...]:
    """A hazard in three lines."""
    return three_lines(cause(own), place(own, *quoted), mend(own))
