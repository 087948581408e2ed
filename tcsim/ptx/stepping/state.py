"""Where a stopped launch stands: threads, registers, mbarriers, work in flight. Plain data, each with its lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, TcsimError, listing, nearest, shortened
from tcsim.memory.mbarrier_bits import counts
from tcsim.model.statement import Instruction
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.deadlock import waiting_for
from tcsim.ptx.stepping import text
from tcsim.ptx.stepping.log import Log, runs, taken_apart
from tcsim.ptx.text.syntax import place_of, statement, unscoped

_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def refused(what: str, valid: str) -> OperandError:
    """Wrong use: what it was, and what is valid."""
    return OperandError(f"{what}; valid: {valid}")


class Shown:
    """Plain data with a text form."""

    def lines(self) -> list[str]:
        """Lines of at most 80 columns."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)  # type: ignore[call-overload]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class Standing(Shown):
    """Threads of a block that stand at one place."""

    block: tuple[int, int, int]
    threads: tuple[int, ...]
    line: int
    source: str | None
    text: str  # the instruction
    waits: str | None  # what they wait for; None: they can go on
    next: bool  # whether it is they whose instruction comes next

    def lines(self) -> list[str]:
        """The place, then who is there."""
        source = f", {text.place(self.source)}" if self.source else ""
        return text.fitted(
            f"{'=>' if self.next else '  '} line {self.line:<5} {self.text}",
            f"   {text.block(self.block)}, {text.threads(self.threads)}{source}",
            f"   {self.waits}" if self.waits else "",
        )


@dataclass(frozen=True)
class Where(Shown):
    """All threads that live."""

    position: int  # instructions begun
    ended: bool
    reason: str  # why the launch stands still
    threads: tuple[Standing, ...]

    def lines(self) -> list[str]:
        """The reason, then the places."""
        head = f"{self.reason}, {self.position} instructions begun"
        return [text.cut(head), *(line for own in self.threads for line in own.lines())]


def standing(block: Block, site: Site | None, mask: Array | None) -> list[Standing]:
    """The threads of a block; site and mask: those whose instruction comes next, if they are of this block."""
    places: list[tuple[Array, Instruction | None, str | None, bool]] = []
    if site is not None and mask is not None:
        places.append((mask, site.item, None, True))
    for fiber in sorted((*block.fibers.ready.values(), *block.fibers.waiting), key=lambda own: int(own.mask.argmax())):
        item = next((own for own in block.program.lines[fiber.block] if own is not None), None)
        places.append((fiber.mask, item, waiting_for(block, fiber) if fiber.waits else None, False))
    return [
        Standing(
            block.index, tuple(np.flatnonzero(own).tolist()), item.line if item else 0, place_of(item) if item else None,
            statement(item) if item else "(the end)", waits, next,
        )
        for own, item, waits, next in places
    ]  # fmt: skip


@dataclass(frozen=True)
class Registers(Shown):
    """A register of the lanes of a warp."""

    name: str
    type: str
    block: tuple[int, int, int]
    warp: int
    codes: tuple[int, ...]  # the bits, lane by lane
    values: tuple[Any, ...]  # what the type says that they are

    def lines(self) -> list[str]:
        """Eight lanes a line."""
        head = f"{self.name} (.{self.type}), {text.block(self.block)}, warp {self.warp}"
        cells = [text.number(value) for value in self.values]
        if max(map(len, cells)) > 7 and self.type[0] == "b":
            cells = [f"{code:x}" for code in self.codes]
        rows = range(0, LANES, 8)
        table = [cells[first : first + 8] for first in rows]
        return [head, *text.matrix(table, [f"lane {first}" for first in rows], [f"+{i}" for i in range(8)])]


def registers(block: Block, site: Site, name: str, warp: int, type: str | None) -> Registers:
    """A register by name. Raises OperandError for one that the function does not have, and for a warp that there is not."""
    own = name if name in site.numbers else next((key for key in site.numbers if unscoped(key) == name), None)
    if own is None:
        close = listing(nearest(str(name), site.numbers)) or "it has none"
        raise OperandError(f"registers: no register {shortened(name)} in {site.function.name}; nearest: {close}")
    if not 0 <= warp < block.threads.warps:
        raise refused(f"registers: warp {warp}", f"0 to {block.threads.warps - 1}")
    declared = site.function.registers[own][0]
    codes = block.registers[site.numbers[own]][warp * LANES : (warp + 1) * LANES]
    kind = type or declared
    return Registers(name, kind, block.index, warp, _integers(codes), valued(codes, kind))


def _integers(codes: Array) -> tuple[int, ...]:
    return tuple(int.from_bytes(own.tobytes(), "little") for own in codes)


def valued(codes: Array, type: str) -> tuple[Any, ...]:
    """Codes as numbers of a PTX type: a float, a signed integer, else the bits.

    >>> valued(np.array([0x3F800000], np.uint32), "f32"), valued(np.array([0xFFFF], np.uint16), "s16")
    ((1.0,), (-1,))
    """
    if type in _FLOATS and codes.dtype.itemsize == np.dtype(_FLOATS[type]).itemsize:
        return tuple(float(own) for own in codes.view(_FLOATS[type]))
    if type[0] == "s" and codes.dtype.kind == "u":
        return tuple(int(own) for own in codes.view(codes.dtype.str.replace("u", "i")))
    return tuple(bool(own) for own in codes) if type == "pred" else _integers(codes)


@dataclass(frozen=True)
class Barrier(Shown):
    """An mbarrier object in shared memory."""

    block: tuple[int, int, int]
    address: int
    phase: int  # of the phase under way: its parity
    expected: int  # arrivals of a phase
    pending: int  # arrivals that the phase under way lacks
    bytes: int  # bytes that it lacks

    def lines(self) -> list[str]:
        """One line."""
        said = f"{self.pending} of {self.expected} arrivals and {self.bytes} bytes missing"
        return [f"{self.address:#07x}  {text.block(self.block)}  phase {self.phase}  {said}"]


def barriers(block: Block) -> Iterator[Barrier]:
    """The objects that were initialised and not invalidated, by address."""
    for offset in sorted(block.mbarriers.live):
        try:
            fields = counts(block.mbarriers.word(block.rank << 24 | offset), block.arch)
        except TcsimError:
            continue
        numbers = (fields.get(name, 0) for name in ("phase", "expected", "pending", "tx_count"))
        yield Barrier(block.index, offset, *numbers)


@dataclass(frozen=True)
class InFlight(Shown):
    """Work that was issued and is not complete."""

    kind: str  # "cp.async", "bulk", "wgmma", "tcgen05", ...; "": only an mbarrier tells
    block: tuple[int, int, int]
    threads: tuple[int, ...]
    line: int
    source: str | None
    text: str
    group: int | None  # groups committed after and with it: a wait for fewer waits for it; None: not committed
    read: bool  # whether it has read what it reads
    writes: tuple[str, ...]  # the bytes that it will write

    def lines(self) -> list[str]:
        """The instruction, then its group and bytes."""
        group = "not committed" if self.group is None else f"group {self.group} from the newest"
        state = f"{self.kind}: {group}" if self.kind else "an mbarrier tells"
        return text.fitted(
            f"line {self.line:<5} {self.text}",
            f"   {text.threads(self.threads)}; {state}, {'has read' if self.read else 'has not read'}",
            f"   writes {', '.join(self.writes)}" if self.writes else "",
        )


def in_flight(block: Block, log: Log) -> Iterator[InFlight]:
    """The work in flight that a block issued, the oldest first."""
    for flight in (own for own in block.performer.queue.flights if own.block is block):
        work, groups = log.work_of(flight.pending), block.performer.groups.get(flight.kind)
        item = work.record.site.item
        later = int(groups[flight.threads[0]]) - int(flight.groups[0]) if groups is not None else 0
        yield InFlight(
            flight.kind, block.index, tuple(flight.threads.tolist()), item.line, str(item.source) if item.source else None,
            statement(item), later - 1 if later else None, flight.fetched,
            bytes_in_words(byte for event in work.planned for byte in event.bytes()),
        )  # fmt: skip


def bytes_in_words(numbers: Iterable[int], most: int = 4) -> tuple[str, ...]:
    """Bytes as ranges of their memory.

    >>> bytes_in_words([1024, 1025])
    ('global 0x400 to 0x401',)
    """
    found = [(taken_apart(first), count) for first, count in runs(numbers)]
    if len(found) > most:
        first, (last, count) = found[0][0], found[-1]
        total = sum(own for _, own in found)
        return (f"{total} bytes of {first.space} {first.offset:#x} to {last.offset + count - 1:#x}",)
    return tuple(f"{place.space} {place.offset:#x} to {place.offset + count - 1:#x}" for place, count in found)
