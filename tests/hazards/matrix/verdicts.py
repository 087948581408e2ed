"""What a run says of a mutant: which hazards it names, whether bits change, and whether all conflicting accesses stay in their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from tcsim.core.errors import TcsimError
from tcsim.ptx import HAZARDS, Limits, Module, parse
from tests.hazards.matrix.history import Lines, Recorder
from tests.hazards.matrix.mutants import Mutant, mutants
from tests.hazards.matrix.statements import Text
from tests.hazards.matrix.subjects import Layout, Ran, Schedule, Subject
from tests.kernels.corpora import recording
from tests.kernels.corpora.replay import DEFECTS

SCHEDULES: tuple[Schedule, ...] = ("late", "early", 7)
SLOWER = 4  # a mutant may execute this many times the instructions of the original,
MORE = 20_000  # and this many on top
REFUSED, NAMED, CHANGED, EQUIVALENT, SILENT = "refused", "named", "changed", "equivalent", "silent"
VERDICTS = (NAMED, CHANGED, EQUIVALENT, SILENT, REFUSED)
"""named: a hazard. changed: none, but other bits, the same ones in every schedule. equivalent: none, the same bits, and the same pairs of
conflicting accesses. silent: none, and neither of the two. refused: the machine does not take the PTX."""


@dataclass(frozen=True)
class Verdict:
    """What was found of a mutant."""

    subject: str
    kind: str
    line: int
    what: str
    verdict: str  # one of VERDICTS
    names: tuple[str, ...] = ()  # hazards, in all schedules
    changed: int = 0  # schedules in which it ran to its end with other bits
    ended: bool = True  # in every schedule

    @property
    def key(self) -> str:
        """Which mutant it is."""
        return f"{self.subject} {self.line} {self.kind}: {self.what}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Observed:
    """A launch and the order of its accesses."""

    ran: Ran
    signature: tuple[Any, ...]


def observed(
    subject: Subject, module: Module, schedule: Schedule, at: Layout, limits: Limits | None = None
) -> Observed:
    """Launch a module, and write down the order of its accesses."""
    recorders: list[Recorder] = []

    def observe(cluster: Any) -> Recorder:
        recorders.append(Recorder(cluster))
        return recorders[-1]

    ran = subject.ran(module, schedule, at, observe, limits)
    return Observed(ran, tuple(own.signature for own in recorders))


@cache
def originals(subject: Subject) -> dict[Schedule, Observed]:
    """The kernel itself, in each schedule. Raises ValueError if it has errors that it is not known to have."""
    known = DEFECTS.get(recording.name_of(subject.case.name, subject.target), set())
    module, at = parse(subject.compiled.ptx), subject.laid_out()
    found = {schedule: observed(subject, module, schedule, at) for schedule in SCHEDULES}
    for own in found.values():
        if not own.ran.run.completed or {error.name for error in own.ran.run.errors} != known:
            raise ValueError(f"{subject.name} is not right: {own.ran.run.hazards[:3]}")
    return found


@cache
def text_of(subject: Subject) -> Text:
    """The text that is mutated."""
    return Text(subject.compiled.ptx, parse(subject.compiled.ptx).kernel(subject.entry).function)


@cache
def executed(subject: Subject) -> frozenset[int]:
    """The lines of the instructions that its launch executes."""
    watching: list[Lines] = []

    def observe(cluster: Any) -> Lines:
        watching.append(Lines())
        return watching[-1]

    subject.ran(parse(subject.compiled.ptx), "late", subject.laid_out(), observe)
    return frozenset().union(*(own.lines for own in watching))


@cache
def every(subject: Subject) -> list[Mutant]:
    """The mutants of a kernel."""
    return list(mutants(text_of(subject), executed(subject)))


def judged(subject: Subject, mutant: Mutant) -> Verdict:
    """Run a mutant in each schedule."""
    base = originals(subject)

    def verdict(name: str, **more: Any) -> Verdict:
        return Verdict(subject.name, mutant.kind, mutant.line, mutant.what, name, **more)

    def refused(error: TcsimError) -> Verdict:
        return verdict(REFUSED, names=(str(error).split("\n")[0][:120],))

    names: Counter[str] = Counter()
    changed, ended, same = 0, True, True
    runs: list[Ran] = []
    try:
        module, at = parse(mutant.text), subject.laid_out()
    except TcsimError as error:
        return refused(error)
    for schedule in SCHEDULES:
        before = base[schedule].ran
        limits = Limits(instructions=before.run.instructions * SLOWER + MORE, processes=1)
        try:
            own = observed(subject, module, schedule, at, limits)
        except TcsimError as error:
            return refused(error)
        known = {hazard.name for hazard in before.run.hazards}
        names.update({hazard.name for hazard in own.ran.run.hazards} - known)
        ended &= own.ran.run.completed
        changed += own.ran.run.completed and not subject.same(before, own.ran)
        runs.append(own.ran)
        same &= own.signature == base[schedule].signature
    told = tuple(sorted(names, key=lambda name: (_order(name), name)))
    steady = all(subject.same(runs[0], own) for own in runs)
    found = NAMED if told else CHANGED if changed and steady else EQUIVALENT if same and not changed else SILENT
    return verdict(found, names=told, changed=changed, ended=ended)


def _order(name: str) -> int:
    return list(HAZARDS).index(name)
