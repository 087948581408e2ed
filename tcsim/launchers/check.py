"""A launch, or all launches of a script, under several schedules: every hazard once, with the two lines, the rule and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.core.errors import OperandError, listing, shortened
from tcsim.inspection.timeline_page import timeline_page
from tcsim.launchers.hangs import Hang, Mended, hangs
from tcsim.launchers.job import Execution, Job, execute, prepared
from tcsim.launchers.launched import Launched, extents, watched
from tcsim.launchers.witnesses import ORDERS, SCHEDULES, Key, Search, Tried, Witness, compared, key_of
from tcsim.ptx import HAZARDS, Hazard, Run
from tcsim.ptx.hazards.hazard import SEVERITIES, cause_of
from tcsim.ptx.hazards.sarif import Checked, sarif
from tcsim.ptx.kernel import sampled_of
from tcsim.ptx.launch.grid import Progress
from tcsim.ptx.timeline import Timeline

if TYPE_CHECKING:
    from tcsim.launchers.session import Session

SCHEMA = 1
"""Of `Check.as_dict`, which check.schema.json describes: raised when a key goes or changes its meaning."""
LARGEST_SOURCE = 4 << 20
"""Bytes of a source file of which lines are quoted."""


@dataclass(frozen=True)
class Place:
    """One of the two lines of a hazard."""

    line: int | None  # of the PTX
    text: str
    source: str | None  # "file:line"
    source_text: str
    inlined: tuple[str, ...] = ()  # lines of the functions that were inlined there, the innermost last

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        own = {name: value for name, value in vars(self).items() if name != "inlined"}
        return own | ({"inlined": list(self.inlined)} if self.inlined else {})


@dataclass(frozen=True, eq=False)
class Finding:
    """A hazard of one kernel, seen in some launches."""

    kernel: str
    ptx: str
    hazard: Hazard  # the first; its count is that of all launches
    schedules: tuple[str | int, ...]  # under which it was seen
    here: Place
    other: Place | None
    tried: Tried | None = None  # of an error of a launch that was run again

    @property
    def quoted(self) -> tuple[tuple[str, str], ...]:
        """Both lines, of the source and the PTX."""
        return tuple((own.source_text, own.text) for own in (self.here, self.other) if own is not None)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        own, rule = self.hazard, HAZARDS[self.hazard.name]
        return {
            "name": own.name, "severity": own.severity, "message": own.message, "sentence": rule.sentence, "section": rule.section,
            "document": rule.source, "fix": rule.fix, "kernel": self.kernel, "here": self.here.as_dict(),
            "other": None if self.other is None else self.other.as_dict(), "block": own.block, "thread": own.thread, "count": own.count,
            "schedules": list(self.schedules), "detail": dict(own.detail),
            **(self.tried or Tried((), None)).as_dict(),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Shown:
    """A launch, and the block of it whose timeline says most."""

    job: Job
    block: Sequence[int] = (0, 0, 0)


MAY_ALIAS = ("BARRIER_PHASE_ALIAS", "MBAR_PHASE_ALIAS")
"""Errors of another order of threads: they say less of a hang than what threads wait for."""


@dataclass(frozen=True, eq=False)
class Check:
    """What was found. The same input, schedules and version give the same findings in the same order."""

    file: str
    schedules: tuple[str | int, ...]
    launches: tuple[tuple[str | int, Run, dict[str, Any]], ...]  # schedule, run, shape
    witnesses: tuple[Witness, ...] = ()
    status: int = 0  # of a script
    shown: Shown | None = None  # of a session that keeps one (`timeline=True`)
    tried: Mapping[Key, Tried] = field(default_factory=dict)  # of errors
    races: bool = False  # whether races in global memory were looked for
    mended: Mended | None = None  # of a launch that hangs
    unmended: int = 0  # changes of it that were tried

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every hazard once, the worst first, then in the order in which they were found; where a launch hangs, those that may happen after those that did."""
        found: dict[tuple[Any, ...], Finding] = {}
        quotes = Quotes(self.file)
        for schedule, run, _ in self.launches:
            for own in run.hazards:
                key = run.kernel, run.text, own.name, own.line, own.other_line
                if key not in found:
                    other = (
                        quotes.place(run.text, own.other_line, own.other_source, own.other_inlined)
                        if own.other_line
                        else None
                    )
                    here = quotes.place(run.text, own.line, own.source, own.inlined)
                    found[key] = Finding(run.kernel, run.text, own, (schedule,), here, other)
                    continue
                before = found[key]
                hazard = replace(before.hazard, count=before.hazard.count + own.count)
                schedules = tuple(dict.fromkeys((*before.schedules, schedule)))
                found[key] = replace(before, hazard=hazard, schedules=schedules)
        rank = {severity: place for place, severity in enumerate(SEVERITIES)}
        hangs = any(own.hazard.name == "DEADLOCK" for own in found.values())
        every = sorted(
            found.values(), key=lambda own: (rank[own.hazard.severity], hangs and own.hazard.name in MAY_ALIAS)
        )
        return tuple(
            replace(own, tried=self.tried.get(key_of(own.kernel, own.ptx, own.hazard)))
            if own.hazard.severity == "error"
            else own
            for own in every
        )

    @cached_property
    def causes(self) -> tuple[tuple[Finding, ...], ...]:
        """The findings, those of one kernel and one cause together (`tcsim.ptx.hazards.hazard.cause_of`); a deadlock with the error at its line."""
        found: dict[tuple[Any, ...], list[Finding]] = {}
        lines: dict[str, list[str]] = {}
        whole = {
            (own.kernel, own.ptx, own.hazard.line): own.hazard
            for own in reversed(self.findings)
            if own.hazard.severity == "error"
        }
        for own in self.findings:
            text = lines.setdefault(own.ptx, own.ptx.splitlines())
            hazard = whole[own.kernel, own.ptx, own.hazard.line] if own.hazard.name == "DEADLOCK" else own.hazard
            found.setdefault((own.kernel, own.ptx, cause_of(hazard, text)), []).append(own)
        return tuple(map(tuple, found.values()))

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity."""
        counts = Counter(own.hazard.severity for own in self.findings)
        return {severity: counts[severity] for severity in SEVERITIES}

    @property
    def passed(self) -> bool:
        """Whether every launch ran to its end and nothing that was found is an error."""
        return not self.counts["error"] and not self.status and all(run.completed for _, run, _ in self.launches)

    @property
    def sampled(self) -> str:
        """How many blocks were watched, where not all were; else empty."""
        return sampled_of(run for _, run, _ in self.launches)

    @cached_property
    def hang(self) -> Finding | None:
        """The error that the mend of a hang is for; of one without, the deadlock."""
        errors = [own for own in self.findings if own.hazard.severity == "error"]
        names = "" if self.mended is None else self.mended.hazard.name, "DEADLOCK"
        return next((own for name in names for own in errors if own.hazard.name == name), None)

    def is_gone(self, own: Finding) -> bool:
        """Whether it is a consequence of a hang, which the mend takes away with it."""
        return self.mended is not None and own is not self.hang and self.mended.takes_away(own.hazard)

    def _tried(self, own: Finding) -> dict[str, str]:
        return {"fix": self.mended.said} if self.mended is not None and own is self.hang else {}

    def failures(self, severity: str = "error", allow: Iterable[str] = ()) -> tuple[Finding, ...]:
        """The findings that are at least so severe, but for those of rules that are allowed.

        Raises OperandError for a severity or a rule that there is not.
        """
        allowed = frozenset(allow)
        if severity not in SEVERITIES or not allowed <= set(HAZARDS):
            wrong = shortened(severity if severity not in SEVERITIES else sorted(allowed - set(HAZARDS)))
            raise OperandError(f"no severity or rule {wrong}; valid: {listing(SEVERITIES)}; names of tcsim.ptx.HAZARDS")
        worst = list(SEVERITIES)[: list(SEVERITIES).index(severity) + 1]
        return tuple(own for own in self.findings if own.hazard.severity in worst and own.hazard.name not in allowed)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON (check.schema.json)."""
        launches = [
            {"kernel": run.kernel, "arch": run.arch, **shape, "schedule": schedule, "completed": run.completed, "instructions": run.instructions,
             **watched(run)}
            for schedule, run, shape in self.launches
        ]  # fmt: skip
        return {
            "schema": SCHEMA, "file": self.file, "passed": self.passed, "schedules": list(self.schedules), "counts": self.counts,
            "findings": [own.as_dict() | self._tried(own) for own in self.findings], "witnesses": [own.as_dict() for own in self.witnesses],
            "launches": launches,
        }  # fmt: skip

    def sarif(self) -> dict[str, Any]:
        """The findings as a SARIF 2.1.0 log (`tcsim.ptx.hazards.sarif`)."""
        every = [
            Checked(
                self.file,
                own.kernel,
                own.ptx,
                [own.hazard],
                *(() if own.tried is None else (own.tried.said, own.tried.as_dict())),
            )
            for own in self.findings
        ]
        return sarif(every, self.sampled)


class Quotes:
    """Lines of PTX and of source files, as far as they may be quoted: what lies below the current folder or that of the checked file.

    PTX names its sources, and nobody vouches for PTX.
    """

    def __init__(self, file: str) -> None:
        self._folders = [Path.cwd().resolve(), Path(file).resolve().parent]
        self._lines: dict[str, list[str]] = {}

    def place(self, ptx: str, line: int | None, source: str | None, inlined: tuple[str, ...] = ()) -> Place:
        """A line of PTX, and the line of its source."""
        path, _, number = (source or "").rpartition(":")
        quoted = self._line(self._source(path), int(number)) if path and number.isdigit() else ""
        return Place(line, self._line(self._split(ptx), line or 0), source, quoted, inlined)

    def _split(self, ptx: str) -> list[str]:
        if ptx not in self._lines:
            self._lines[ptx] = ptx.splitlines()
        return self._lines[ptx]

    @staticmethod
    def _line(lines: Sequence[str], number: int) -> str:
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _source(self, path: str) -> list[str]:
        if path not in self._lines:
            self._lines[path] = []
            with suppress(OSError, ValueError, RuntimeError):
                real = Path(path).resolve()
                inside = any(real.is_relative_to(folder) for folder in self._folders)
                if inside and real.is_file() and real.stat().st_size <= LARGEST_SOURCE:
                    self._lines[path] = real.read_text(encoding="utf-8", errors="replace").splitlines()
        return self._lines[path]


def check(
    job: Job, file: str, schedules: Sequence[str | int] = SCHEDULES, progress: Progress | None = None, orders: int = ORDERS
) -> Check:  # fmt: skip
    """Run a launch under each schedule; for witnesses of its errors up to `orders` more.

    Raises what `tcsim.launchers.job.execute` raises.
    """
    ran = [execute(replace(job, schedule=own, origins=True), progress) for own in schedules]
    found = checked(job, file, ran, orders)
    if not any(hangs(own.run.hazards) for own in ran):
        return found
    hang = Hang(ran, progress)
    return replace(found, mended=hang.mended(), unmended=len(hang.tried))


def checked(job: Job, file: str, ran: Sequence[Execution], orders: int = 0) -> Check:
    """What was found in a launch that ran under some schedules, its elements followed."""
    shape = _shape(job)
    launches = tuple((own.job.schedule, own.run, shape) for own in ran)
    search = Search(orders)
    if orders:
        search.of(job, ran)
    return Check(
        file,
        tuple(own.job.schedule for own in ran),
        launches,
        tuple(_witnesses(ran)),
        tried=search.found,
        races=job.races,
    )


def page(shown: Shown) -> str:
    """The page of a timeline. Raises as `timeline` does."""
    return timeline_page(*timeline(shown.job, shown.block))


def timeline(job: Job, block: Sequence[int] = (0, 0, 0)) -> tuple[Timeline, Run]:
    """A launch once more, with the timeline of a block.

    Raises OperandError for a block that the grid does not have, and what `tcsim.launchers.job.execute` raises.
    """
    x, y, z = (*block, 0, 0, 0)[:3]
    if len(block) > 3 or not all(0 <= at < size for at, size in zip((x, y, z), job.grid, strict=True)):
        raise OperandError(
            f"no block {tuple(block)} in a grid of {extents(job.grid)}; valid: x, y, z below that, from 0"
        )
    own, made = prepared(job), Timeline((x, y, z), races=job.races)
    if own.before is not None and not own.before.completed:
        return made, own.before
    options = {**own.options, "limits": replace(job.limits, processes=1)}
    return made, own.kernel.launch(own.memory, own.params, **options, observe=made.observer, origins=True)


def of_session(session: Session, file: str = "", search: Search | None = None) -> Check:
    """The launches of a session, as `tcsim.launchers.triton` gives it; file: the program, beside which source lines may be quoted.

    Witnesses are looked for in launches that the session kept (`witnesses=True`); search: what they may cost, and what is known of them.
    """
    search = search or Search()
    search.allow(sum(own.run.instructions for own in session.launches))
    for kept, run in session.kept if search.orders else ():
        job = kept.job(session.arch, session.schedule, session.limits)
        search.of(job, [Execution(job, "", run, {own.name: own.after for own in kept.buffers}, {}, (), 0.0)])
    launches = tuple((session.schedule, own.run, _shape(own)) for own in session.launches)
    shown = None
    if session.shown is not None:
        launch, run = session.shown
        job = replace(launch.job(session.arch, session.schedule, session.limits), races=session.races)
        shown = Shown(job, run.hazard_block or (0, 0, 0))
    return Check(file, (session.schedule,), launches, shown=shown, tried=search.found, races=session.races)


def _shape(own: Job | Launched) -> dict[str, Any]:
    return {
        "grid": list(own.grid), "block": list(own.block), "cluster": list(own.cluster), "dynamic_smem": own.dynamic_smem
    }  # fmt: skip


def _witnesses(ran: Sequence[Execution]) -> Iterable[Witness]:
    """Arrays of which a later schedule leaves bits that the first one does not."""
    first, *others = ran
    for region in first.job.regions:
        found = (compared(region, own, first) for own in others)
        yield from islice((own for own in found if own.comparison.unequal), 1)
