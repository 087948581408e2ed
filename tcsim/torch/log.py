"""What was computed under emulation: by operation how often, for how long, and how its bits are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from tcsim.core.errors import NotModelledError, OperandError
from tcsim.core.texts import markup

Status = Literal["exact", "assumed", "not modelled"]
MEANING: dict[Status, str] = {
    "exact": "its rule gave every bit that the GPU returned",
    "assumed": "a stated rule that was not compared with this GPU here: its own bits may differ",
    "not modelled": "computed by torch's own kernel",
}
"""What each status promises."""
_NAMED = 4
"""Operations of a status that are named."""


@dataclass
class Entry:
    """Calls of one operation of one status."""

    op: str
    status: Status
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Step:
    """One operation that was computed, in its turn."""

    op: str
    shape: tuple[int, ...]  # of its result
    digest: str  # of the bits
    plan: str  # of a product the order of summation

    def __str__(self) -> str:
        return f"{self.op} {'x'.join(map(str, self.shape))}"


class Run:
    """The operations of one emulation, `gpu` the product that was asked for, `arch` its own; `steps` one by one, if they are to be kept."""

    def __init__(self, gpu: str, arch: str, strict: bool, engine: str | None, steps: bool = False) -> None:
        self.gpu, self.arch, self.strict, self.engine = gpu, arch, strict, engine
        self.steps: list[Step] | None = [] if steps else None
        self.plan = ""  # of the product that was computed last
        self._entries: dict[tuple[str, Status], Entry] = {}
        self._inside = 0.0  # seconds of calls within the one that is timed

    def note(self, op: str, status: Status) -> None:
        """An operation is about to be computed. Raises NotModelledError, if strict, unless it is exact."""
        if self.strict and status != "exact":
            raise NotModelledError(f"{op} on {self.gpu}: {status} ({MEANING[status]}); valid: strict=False")
        self._entry(op, status).calls += 1

    def _entry(self, op: str, status: Status) -> Entry:
        return self._entries.setdefault((op, status), Entry(op, status))

    def keep(self, op: str, shape: tuple[int, ...], digest: str) -> None:
        """Add a step, if steps are kept."""
        if self.steps is not None:
            self.steps.append(Step(op, shape, digest, self.plan))
        self.plan = ""

    @contextmanager
    def timed(self, op: str, status: Status) -> Iterator[None]:
        """Count a call, and its time without that of calls within it."""
        self.note(op, status)
        begin, before, self._inside = perf_counter(), self._inside, 0.0
        try:
            yield
        finally:
            took = perf_counter() - begin
            self._entry(op, status).seconds += took - self._inside
            self._inside = before + took

    def ops(self) -> list[dict[str, Any]]:
        """Operations, slowest first: op, calls, seconds and status."""
        found = sorted(self._entries.values(), key=lambda own: (-own.seconds, own.op, own.status))
        return [{"op": own.op, "calls": own.calls, "seconds": own.seconds, "status": own.status} for own in found]

    @property
    def exact(self) -> bool:
        """Whether something was computed, and everything is exact."""
        return bool(self._entries) and all(own.status == "exact" for own in self._entries.values())

    def as_dict(self) -> dict[str, Any]:
        """What JSON holds."""
        return {"gpu": self.gpu, "arch": self.arch, "exact": self.exact, "ops": self.ops()}

    def __str__(self) -> str:
        counts = {
            status: sum(own.calls for own in self._entries.values() if own.status == status) for status in MEANING
        }
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing computed"
        lines = [f"{self.gpu} ({self.arch}): {said}"]
        lines += [f"  {own['op']:36} {own['calls']:7} {own['seconds']:9.3f} s  {own['status']}" for own in self.ops()]
        return "\n".join([*lines, *self.not_exact()])

    def not_exact(self) -> list[str]:
        """What is not exact, and what that means: a line for each such status."""
        found: dict[Status, list[str]] = {}
        for own in self._entries.values():
            found.setdefault(own.status, []).append(own.op)
        order = (status for status in MEANING if status != "exact" and status in found)
        return [f"  {status} on {self.gpu} ({_some(found[status])}): {MEANING[status]}" for status in order]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{markup(own['op'])}</td><td>{own['calls']}</td><td>{own['seconds']:.3f}</td><td>{own['status']}</td></tr>"
            for own in self.ops()
        )
        head = "".join(f"<th>{own}</th>" for own in ("op", "calls", "seconds", "status"))
        return f"<table><caption>{markup(self.gpu)}</caption><tr>{head}</tr>{rows}</table>"


def _some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def first_difference(one: Run, other: Run) -> str:
    """The first operation of which two runs with steps=True have different bits, from 1 on: its inputs were equal, so it is the cause of all that follow.

    Then how either summed, of a product, and what is not exact in the runs.

    Raises OperandError for runs without steps, or of other operations.
    """
    if one.steps is None or other.steps is None:
        raise OperandError("first_difference of runs without steps; valid: runs of emulate(..., steps=True)")
    unknown = list(dict.fromkeys(one.not_exact() + other.not_exact()))
    for place, (own, its) in enumerate(zip(one.steps, other.steps, strict=False), 1):
        if (own.op, own.shape) != (its.op, its.shape):
            raise OperandError(
                f"step {place} is {own} on {one.gpu} and {its} on {other.gpu}; valid: two runs of one model"
            )
        if own.digest != its.digest:
            said = [f"step {place} of {len(one.steps)}: {own} has different bits on {one.gpu} and {other.gpu}"]
            said += [f"  {step.plan}" for step in (own, its) if step.plan]
            return "\n".join(said + unknown)
    if len(one.steps) != len(other.steps):
        raise OperandError(f"{len(one.steps)} steps and {len(other.steps)}; valid: two runs of one model")
    same = f"all {len(one.steps)} steps have the same bits on {one.gpu} and {other.gpu}"
    return "\n".join([same + ", as modelled" * bool(unknown), *unknown])
