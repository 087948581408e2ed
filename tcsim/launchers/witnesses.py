"""Witnesses of errors: an order of completion that changes an array, looked for by running a launch once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from tcsim.launchers.comparison import Comparison, compare
from tcsim.launchers.job import Execution, Job, Region, execute, prepared
from tcsim.ptx import Hazard, Run
from tcsim.ptx.observer import Observer

if TYPE_CHECKING:
    from tcsim.ptx.machine.flights import Flight

SCHEDULES: tuple[str | int, ...] = ("late", "early")
"""The two extremes of when asynchronous work completes: what orders are compared with."""
ORDERS = 8
"""Orders of completion, at the most, that are tried for the errors of a check: launches that are run once more."""
SHARE, LEAST = 2, 10_000_000
"""What these launches may execute for a script: SHARE times the instructions of its own launches, or LEAST instructions if that is more."""

Key = tuple[str, str, int | None, int | None]


@dataclass(frozen=True, eq=False)
class Witness:
    """An array that two schedules leave with different bits: what asynchronous work, or its waits, decide."""

    schedules: tuple[str | int, str | int]
    comparison: Comparison

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        own = self.comparison
        first = own.as_dict()["first"]
        return {"array": own.name, "schedules": list(self.schedules), "unequal": own.unequal, "first": first}


@dataclass(frozen=True, eq=False)
class Tried:
    """Orders of completion in which only the work of one line of a hazard moves, and what the first of them changed.

    untried: why there are not more, or none.
    """

    orders: tuple[str, ...]
    witness: Witness | None
    untried: str = ""

    @property
    def said(self) -> str:
        """The order that changes an element, or which orders change nothing."""
        if self.witness is None:
            tried = f"{len(self.orders)} orders of completion tried ({', '.join(self.orders)})" if self.orders else ""
            return f"not reproduced: {'; '.join(filter(None, (tried, self.untried)))}"
        compared, (order, base) = self.witness.comparison, self.witness.schedules
        first = compared.first
        if first is None:
            return f"{order}: {compared.unequal} elements of {compared.name} differ from {base}"
        place, elements = ", ".join(map(str, first.index)), compared.elements
        got, want = (f"{elements.code_text(code)} = {elements.value_text(code)}" for code in (first.got, first.want))
        return f"{order}: {compared.name}[{place}] is {got}, under {base} {want}"

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "orders": list(self.orders), "witness": None if self.witness is None else self.witness.as_dict(), "untried": self.untried
        }  # fmt: skip


def key_of(kernel: str, ptx: str, hazard: Hazard) -> Key:
    """What has one witness: the errors of a kernel at the same lines."""
    return kernel, ptx, hazard.line, hazard.other_line


@dataclass
class Search:
    """What is left of the launches and the instructions that witnesses may cost, and what was found with them."""

    orders: int = ORDERS
    instructions: float = inf
    found: dict[Key, Tried] = field(default_factory=dict)

    def allow(self, instructions: int) -> None:
        """Limit what may be executed, for a script that executed so much itself."""
        self.instructions = max(SHARE * instructions, LEAST)

    def of(self, job: Job, ran: Sequence[Execution]) -> None:
        """Look for witnesses of all errors of a launch that ran, one for each; those at lines that are known are left.

        Raises what `tcsim.launchers.job.execute` raises.
        """
        errors = [key_of(own.run.kernel, own.run.text, hazard) for own in ran for hazard in own.run.errors]
        new = [key for key in dict.fromkeys(errors) if key not in self.found]
        if any(hazard.name == "LIMIT" for own in ran for hazard in own.run.errors):
            self.found |= dict.fromkeys(new, Tried((), None, "the launch reached a limit"))
            return
        launch = _Again(self, job, {own.job.schedule: own for own in ran})
        asynchronous = launch.issuing() if new else set()
        for key in new:
            self.found[key] = launch.tried(sorted(asynchronous.intersection(line for line in key[2:] if line)))

    def left(self) -> str:
        """What is used up; empty if nothing is."""
        if self.orders <= 0:
            return "no more launches may be tried"
        return "" if self.instructions > 0 else "no more instructions may be executed for it"


class _Again:
    """A launch, run again under other orders."""

    def __init__(self, search: Search, job: Job, known: dict[str | int, Execution]) -> None:
        self.search, self.job, self.known = search, job, known
        self.untried = ""

    def issuing(self) -> set[int]:
        """The lines that issue work that completes later."""
        self.untried = self.search.left()
        lines = set[int]()
        if self.untried:
            return lines
        own = prepared(self.job)
        if own.before is None or own.before.completed:
            options = {**own.options, "limits": replace(self.job.limits, processes=1), "check": False}
            run = own.kernel.launch(own.memory, own.params, **options, observe=lambda _: _Issuing(lines))
            self._executed(run)
        return lines

    def tried(self, lines: Iterable[int]) -> Tried:
        """Move the work of each line, until an array changes."""
        orders = list[str]()
        for line in lines:
            for base in SCHEDULES:
                before, after = self._run(str(base)), self._run(f"{base}:{line}")
                if before is None or after is None:
                    return Tried(tuple(orders), None, self.search.left())
                orders.append(f"{base}:{line}")
                if before.run.completed and after.run.completed:
                    every = (compared(region, after, before) for region in self.job.regions)
                    witness = next((own for own in every if own.comparison.unequal), None)
                    if witness is not None:
                        return Tried(tuple(orders), witness)
        return Tried(
            tuple(orders), None, self.untried if orders or self.untried else "neither instruction is asynchronous"
        )

    def _run(self, schedule: str) -> Execution | None:
        if schedule not in self.known and not self.search.left():
            self.search.orders -= 1
            self.known[schedule] = execute(replace(self.job, schedule=schedule, check=False))
            self._executed(self.known[schedule].run)
        return self.known.get(schedule)

    def _executed(self, run: Run) -> None:
        self.search.instructions -= run.instructions


class _Issuing(Observer):
    """Which lines issue work that completes later."""

    def __init__(self, lines: set[int]) -> None:
        self.lines = lines

    def issued(self, flight: Flight) -> None:
        """Work begins."""
        self.lines.add(flight.bound.line)


def compared(region: Region, own: Execution, other: Execution) -> Witness:
    """What two schedules leave in an array."""
    got, want = own.after[region.name], other.after[region.name]
    found = compare(region.name, region.elements, region.shape, got, want, None)
    return Witness((own.job.schedule, other.job.schedule), found)
