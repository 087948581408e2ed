"""A launch that hangs: changes of what its threads wait for, and the first with which it ends and is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tcsim.core.errors import TcsimError
from tcsim.launchers.job import Execution, execute
from tcsim.launchers.mends import Change, Mend, boxes, instead, with_operand
from tcsim.launchers.witnesses import SCHEDULES
from tcsim.model.statement import Address, Immediate, Instruction, Register
from tcsim.ptx import Hazard, parse
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.launch.grid import Progress
from tcsim.ptx.text.syntax import Function, place_of, statement, written

MOST = 24
"""Changes that are tried, at the most."""
MOST_AT_ONCE = 3
"""Changes that are tried together: of a launch that hangs elsewhere with the first."""
SHARE, LEAST = 10, 500_000
"""What all of them may execute: SHARE times the instructions of the launch as it is, or LEAST if that is more."""
_RING = ".reg .b32 %mended_known, %mended_parity; mov.b32 %mended_known, 0; mov.b32 %mended_parity, 0; "
"""In front of a kernel: by address of an mbarrier, whether the thread has waited there, and the parity that it waits for next."""
_FIRST = ".reg .b32 %mended_first{0}; mov.b32 %mended_first{0}, 2; "
"""The parity of the first wait of a line of the source; 2: there was none yet."""
_WAIT = (
    "{{ .reg .b32 %mended<5>; .reg .pred %mended_p; setp.eq.b32 %mended_p, {first}, 2; selp.b32 {first}, {parity}, {first}, %mended_p; {address} shr.u32 %mended0, %mended0, 3; and.b32 %mended0, %mended0, 31; "
    "mov.b32 %mended1, 1; shl.b32 %mended1, %mended1, %mended0; and.b32 %mended2, %mended_known, %mended1; setp.ne.b32 %mended_p, %mended2, 0; "
    "shr.u32 %mended3, %mended_parity, %mended0; and.b32 %mended3, %mended3, 1; selp.b32 %mended3, %mended3, {first}, %mended_p; {wait} "
    "selp.b32 %mended2, %mended1, 0, {done}; or.b32 %mended_known, %mended_known, %mended2; not.b32 %mended4, %mended2; "
    "and.b32 %mended_parity, %mended_parity, %mended4; xor.b32 %mended3, %mended3, 1; shl.b32 %mended3, %mended3, %mended0; "
    "and.b32 %mended3, %mended3, %mended2; or.b32 %mended_parity, %mended_parity, %mended3; }}"
)
"""A wait for the next phase of its mbarrier: the first time the parity of the first wait of its line, then the other one each time."""
_ENDS = ("DEADLOCK", "BARRIER_COUNT")
_ONCE = ".reg .pred %mended_once; setp.eq.b32 %mended_once, 0, 0; {}"
Right = Callable[[Sequence[Execution]], bool]


def ended_right(ran: Sequence[Execution]) -> bool:
    """Whether a launch ended without an error under every schedule, and what it left is what is expected, where that is known."""
    return all(own.run.completed and not own.run.errors and own.equal is not False for own in ran)


@dataclass(frozen=True, eq=False)
class Mended:
    """A mend with which a launch that hangs ends and is right."""

    hazard: Hazard  # that it is for
    mend: Mend
    ran: tuple[Execution, ...]

    @property
    def said(self) -> str:
        """What to change, and what came of it."""
        return f"{self.mend.said}: tried, and the launch ends and check finds no error"

    @property
    def strict(self) -> bool:
        """Whether rules are still broken."""
        return any(hazard.severity == "strict" for own in self.ran for hazard in own.run.hazards)

    def takes_away(self, hazard: Hazard) -> bool:
        """Whether a launch with it does not do this any more."""
        places = {(other.name, other.line, other.other_line) for own in self.ran for other in own.run.hazards}
        return (hazard.name, hazard.line, hazard.other_line) not in places


class Hang:
    """A launch that hangs, and how it ran. right: whether what executions leave is right."""

    def __init__(self, ran: Sequence[Execution], progress: Progress | None = None, right: Right = ended_right) -> None:
        self.hazards = next(own.run.hazards for own in ran if hangs(own.run.hazards))
        self.allowed = max(SHARE * sum(own.run.instructions for own in ran), LEAST)
        job = ran[0].job
        self.job, self.progress, self.right = job, progress, right
        self.text = job.ptx.rstrip(b"\0").decode("utf-8", "replace")
        self.function = parse(job.ptx, job.limits).kernel(job.kernel).function
        self.instructions = 0
        self.tried: list[str] = []

    def mended(self) -> Mended | None:
        """The mend with which the launch is right; single changes first, then those of which each lets the launch get further."""
        open, second = list(of_hang(self.hazards, self.function)), None
        for depth in range(MOST_AT_ONCE):
            further = list[tuple[Hazard, Mend]]()
            for own, mend in open:
                if len(self.tried) >= MOST or self.instructions > self.allowed:
                    return second
                self.tried.append(mend.said)
                ran = self._ran(mend)
                if len(ran) == len(SCHEDULES) and self.right(ran):
                    found = Mended(own, mend, tuple(ran))
                    if not found.strict:
                        return found
                    second = second or found
                if ran and hangs(ran[-1].run.hazards) and depth + 1 < MOST_AT_ONCE and _gone(own, ran[-1].run.hazards):
                    more = (other for _, other in of_hang(ran[-1].run.hazards, self.function))
                    further += [(own, both) for both in (_both(mend, other) for other in more) if both is not None]
            open = further if second is None else []
        return second

    def _ran(self, mend: Mend) -> list[Execution]:
        """A launch with it, under each schedule as long as it ends; none where it is not PTX, or not a launch."""
        ran = list[Execution]()
        try:
            job = replace(self.job, ptx=mend.applied(self.text).encode())
            for schedule in SCHEDULES:
                ran.append(execute(replace(job, schedule=schedule, origins=True), self.progress))
                self.instructions += ran[-1].run.instructions
                if not ran[-1].run.completed:
                    break
        except TcsimError:
            return []
        return ran


def hangs(hazards: Iterable[Hazard]) -> bool:
    """Whether nobody can go on, or threads that meet do not agree on how many they are."""
    return any(own.name in _ENDS for own in hazards)


def _gone(own: Hazard, hazards: Iterable[Hazard]) -> bool:
    return all((own.name, own.line, own.thread) != (one.name, one.line, one.thread) for one in hazards)


def _both(one: Mend, other: Mend) -> Mend | None:
    """Two mends of different statements."""
    if {own[:2] for own in one.changes} & {own[:2] for own in other.changes}:
        return None
    return Mend(f"{one.said}, and {other.said}", (*one.changes, *other.changes))


def of_hang(hazards: Sequence[Hazard], function: Function) -> Iterator[tuple[Hazard, Mend]]:
    """What may let threads go on, the likeliest first: counts and bytes that are known to be wrong, then parities and first arrivals."""
    body, seen = function.body, set[Any]()
    stuck = [own for own in hazards if "count" in own.detail or own.name == "BARRIER_COUNT"]
    repeated = [own for own in hazards if own.name == "MBAR_PARITY"]
    first = next(iter([*stuck, *repeated, *(own for own in hazards if own.name in _ENDS)]))
    by_line: dict[int, list[Instruction]] = {}
    for item in body:
        by_line.setdefault(item.line, []).append(item)
    found = [(own, mend) for own in hazards for mend in boxes(own, by_line)]
    found += [(own, mend) for own in stuck for mend in (*_counts(own, body), *_bytes(own, body), *_barriers(own, body))]
    found += [(own, mend) for own in repeated[:1] for mend in _next_phases(function)]
    found += [(first, mend) for mend in (*_parities(body), *_opening(stuck, body))]
    found += [] if repeated else [(first, mend) for mend in _next_phases(function)]
    for own, mend in found:
        if mend.changes not in seen:
            seen.add(mend.changes)
            yield own, mend


def _where(items: Sequence[Instruction]) -> str:
    """Lines of the source, or of the PTX."""
    lines = f"PTX line{'s' * (len(items) > 1)} {', '.join(str(own.line) for own in items[:4])}" + " ..." * (
        len(items) > 4
    )
    places = dict.fromkeys(place.rpartition("/")[2] for place in map(place_of, items) if place is not None)
    return f"{' and '.join(places)} ({lines})" if places else lines.removeprefix("PTX ")


def _together(items: Iterable[Instruction]) -> list[list[Instruction]]:
    """The copies of one line of the source, as loops that are unrolled have them; without source each alone."""
    found: dict[Any, list[Instruction]] = {}
    for own in items:
        found.setdefault((own.source.places, own.opcode) if own.source else own.line, []).append(own)
    return list(found.values())


def _alone(item: Instruction, at: int, new: Any) -> Change:
    return instead(item, with_operand(item, at, new))


# --- mbarriers


def _counts(own: Hazard, body: Sequence[Instruction]) -> Iterator[Mend]:
    """mbarrier.init with the number of arrivals that came; an arrival with the bytes, where nobody arrives."""
    detail = own.detail
    if own.name != "MBAR_ARRIVE_MISSING":
        return
    for line, *_ in detail["expected"]:
        for items in _together(item for item in body if _is(item, "mbarrier", "expect_tx")):
            if line in {item.line for item in items}:
                arriving = [_arriving(item) for item in items]
                said = f"`{arriving[0]}` instead of `{statement(items[0])}`, {_where(items)}"
                yield Mend(said, tuple(map(instead, items, arriving)))
    items = [item for item in body if item.line in detail["init"] and _is(item, "mbarrier", "init")]
    for group in _together(items) if detail["arrived"] else ():
        new = Immediate(detail["arrived"])
        said = f"`{with_operand(group[0], 1, new)}` ({detail['arrived']} arrivals instead of {detail['count']}), {_where(group)}"
        yield Mend(said, tuple(_alone(item, 1, new) for item in group))


def _is(item: Instruction, family: str, *does: str) -> bool:
    """Whether an instruction is one of a family that does one of some things, as its row says."""
    row = row_of(item.opcode)
    return row is not None and row.family == family and row.arithmetic in does


def _arriving(item: Instruction) -> str:
    """mbarrier.expect_tx that arrives, too."""
    space = ".shared::cluster" if ".shared::cluster" in item.opcode else ".shared::cta"
    sink = "" if space == ".shared::cluster" else "_, "
    guard, _, _ = statement(item).partition("mbarrier")
    return f"{guard}mbarrier.arrive.expect_tx{space}.b64 {sink}{', '.join(map(written, item.operands))};"


def _bytes(own: Hazard, body: Sequence[Instruction]) -> Iterator[Mend]:
    """The bytes that came are expected."""
    expected = own.detail.get("expected", ())
    total, came = sum(bytes for _, bytes, _ in expected), own.detail.get("delivered", 0)
    for line, bytes, times in expected if total != came else ():
        each, rest = divmod(bytes - total + came, max(times, 1))
        for items in _together(item for item in body if "expect_tx" in item.opcode) if each > 0 and not rest else ():
            if line in {item.line for item in items}:
                said = f"expect {each} bytes instead of {bytes // max(times, 1)} in {items[0].opcode}, {_where(items)}"
                yield Mend(said, tuple(_alone(item, len(item.operands) - 1, Immediate(each)) for item in items))


def _waits(body: Sequence[Instruction]) -> list[Instruction]:
    return [item for item in body if _is(item, "mbarrier", "try_wait.parity", "test_wait.parity")]


def _parities(body: Sequence[Instruction]) -> Iterator[Mend]:
    """The waits of a line for the other parity."""
    for items in _together(_waits(body)):
        said = f"wait for the other parity (`parity ^ 1`) in {_where(items)}"
        yield Mend(said, tuple(instead(item, _flipped(item)) for item in items))


def _flipped(item: Instruction) -> str:
    parity: Any = item.operands[2]
    if isinstance(parity, Immediate):
        return with_operand(item, 2, Immediate(parity.value ^ 1))
    changed = with_operand(item, 2, Register("%mended"))
    return f"{{ .reg .b32 %mended; xor.b32 %mended, {written(parity)}, 1; {changed} }}"


def _next_phases(function: Function) -> Iterator[Mend]:
    """The waits of a line, or all, for the phase after that of the wait before on the same mbarrier, whatever parity is written."""
    items = [item for item in _waits(function.body) if item.predicate is None and isinstance(item.operands[1], Address)]
    groups = _together(items) if items and items[0] is not function.body[0] else []
    said = "flip the parity each time a thread waits on the same mbarrier again (a ring: `(i / stages) & 1`), in"
    for chosen in [*([own] for own in groups), *([groups] if len(groups) > 1 else [])]:
        declared = _RING + "".join(_FIRST.format(group) for group in range(len(chosen)))
        changes = [instead(function.body[0], declared + "{}")]
        for group, own in enumerate(chosen):
            changes += [instead(item, _next_phase(item, f"%mended_first{group}", function)) for item in own]
        yield Mend(f"{said} {_where([item for own in chosen for item in own])}", tuple(changes))


def _next_phase(item: Instruction, first: str, function: Function) -> str:
    """A wait that takes the other parity each time."""
    base: Any = item.operands[1]
    wide = function.registers.get(getattr(base.base, "name", ""), ("b32", 1))[0].endswith("64")
    address = f"{'cvt.u32.u64' if wide else 'mov.b32'} %mended0, {written(base.base)}; add.s32 %mended0, %mended0, {base.offset};"
    parts = {"parity": written(item.operands[2]), "done": written(item.operands[0])}
    return _WAIT.format(first=first, address=address, wait=with_operand(item, 2, Register("%mended3")), **parts)


# --- named barriers


def _is_barrier(item: Instruction) -> bool:
    return _is(item, "barrier.cta", "sync", "arrive")


def _named(body: Iterable[Instruction], number: Any) -> list[Instruction]:
    """What counts threads at a named barrier."""
    return [own for own in body if _is_barrier(own) and own.operands[0] == number and own.operands[1:]]


def _barriers(own: Hazard, body: Sequence[Instruction]) -> Iterator[Mend]:
    """One number of threads for all that meet at a barrier."""
    here = [item.operands[0] for item in body if item.line == own.line and _is_barrier(item)]
    items = _named(body, here[0]) if here else []
    counts = {item.operands[1].value for item in items if isinstance(item.operands[1], Immediate)}
    for count in dict.fromkeys((*sorted(counts, reverse=True), own.detail.get("arrived", 0))):
        wrong = [item for item in items if item.operands[1] != Immediate(count)]
        if wrong and count:
            new = with_operand(wrong[0], 1, Immediate(count))
            said = f"`{new}` instead of `{statement(wrong[0])}`, {_where(wrong)}"
            yield Mend(said, tuple(_alone(item, 1, Immediate(count)) for item in wrong))


def _opening(stuck: Sequence[Hazard], body: Sequence[Instruction]) -> Iterator[Mend]:
    """Who waits at one barrier arrives once at that of the others before, the last threads first."""
    waits = [own for own in stuck if "barrier" in own.detail and own.detail["count"]]
    for own in sorted(waits, key=lambda one: -(one.thread or 0)):
        for item in (item for item in body[1:] if item.line == own.line):
            for other in (one for one in waits if one.detail["barrier"] != own.detail["barrier"]):
                opening = f"bar.arrive {other.detail['barrier']}, {other.detail['count']};"
                first = body[0]
                changes = (
                    instead(first, _ONCE),
                    instead(item, f"@%mended_once {opening} setp.ne.b32 %mended_once, 0, 0; {{}}"),
                )
                yield Mend(f"`{opening}` once before the first wait in {_where([item])}", changes)
