"""From bytes that an instruction wrote to the bytes that it made them of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tcsim.isa.matrix.semantics import MatrixMove
from tcsim.isa.wmma.tile import FragmentMove
from tcsim.model.statement import TYPE_BYTES, Address, Operand, Vector, registers_in
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.machine.arrays import LANES
from tcsim.ptx.stepping.log import Asked, Byte, Event, Record
from tcsim.ptx.stepping.matrices import items_of, registers_of
from tcsim.ptx.stepping.moves import Moved, factors, is_product, moved_by

Reads = tuple[tuple[tuple[Byte, ...], int], ...]
"""Elements, as their bytes, and when each was read."""


@dataclass(eq=False)
class Group:
    """Elements that were read for one purpose."""

    label: str  # "A[0, 0:16]"; empty: there is one purpose
    reads: Reads
    accumulates: bool = False  # what a product is added to

    @property
    def bytes(self) -> list[Byte]:
        """All bytes."""
        return [byte for element, _ in self.reads for byte in element]


def joined(groups: list[Group]) -> Group:
    """Groups of one label of several executions, in their order."""
    label = groups[0].label
    times = f" x{len(groups)}" if len(groups) > 1 and label else ""
    return Group(label + times, tuple(read for own in groups for read in own.reads), groups[0].accumulates)


def _alone(bytes: Iterable[Byte], before: int) -> tuple[Group, ...]:
    """One group of elements of one byte; none without any."""
    reads = tuple(((own,), before) for own in bytes)
    return (Group("", reads),) if reads else ()


@dataclass(eq=False)
class Sources:
    """What a record's bytes were made of."""

    what: str  # "D[0, 1]" of a product, else empty
    groups: tuple[Group, ...]
    moved: bool  # whether every byte is a copy of one other


def sources(record: Record, bytes: Iterable[Byte]) -> Sources:
    """What the bytes that a record wrote were made of."""
    wanted, work = list(bytes), record.work
    before = record.time if work is None or work.fetched is None else work.fetched
    for asked in [work.asked] if work is not None else record.asked:
        whole = work is not None or len(record.asked) == 1
        own = wanted if whole else [one for one in wanted if isinstance(one, int) or one[2] in asked.threads]
        if not own:
            continue
        if is_product(asked, work):
            what, factored = factors(record.site, asked, work, record.block, own)
            parts = ((label, tuple((own, before) for own in elements)) for label, elements in factored if elements)
            return Sources(what, tuple(Group(label, reads, label[0] == "C") for label, reads in parts), False)
        if work is not None or isinstance(asked.bound.model, (MatrixMove, FragmentMove)):
            return _moved(record, asked, own, before)
    return _plain(record, wanted)


def _moved(record: Record, asked: Asked, bytes: list[Byte], before: int) -> Sources:
    found, moved = list[Byte](), moved_by(record.site, asked, record.block, record.work)
    for byte in bytes:
        source, combined = moved.memory(byte) if isinstance(byte, int) else (_of_register(asked, moved, byte), False)
        found += [own for own in (source, byte if combined else None) if own is not None]
    return Sources("", _alone(found, before), True)


def _of_register(asked: Asked, moved: Moved, byte: tuple[int, int, int, int]) -> Byte | None:
    _, number, thread, at = byte
    for name, numbers in asked.bound.results:
        own = numbers.tolist()
        if number in own and thread in asked.threads:
            table = moved.registers.get(name)
            width = 0 if table is None else table.shape[1] // len(own)
            if at < width:
                return moved.register(name, asked.threads.tolist().index(thread), own.index(number) * width + at)
    return None


# --- instructions that are not the catalog's


def _plain(record: Record, bytes: list[Byte]) -> Sources:
    found: list[Byte] = []
    moved = True
    for byte in bytes:
        own, copied = _of_memory(record, byte) if isinstance(byte, int) else _of_thread(record, byte)
        found += own
        moved = moved and copied
    return Sources("", _alone(dict.fromkeys(found), record.time), moved)


def _last(events: list[Event], byte: int) -> tuple[int, int] | None:
    """(event, access) that touched a byte last."""
    for place in range(len(events) - 1, -1, -1):
        entry = events[place].entry(byte)
        if entry is not None:
            return place, entry
    return None


def _of_memory(record: Record, byte: int) -> tuple[list[Byte], bool]:
    """A byte that a store, an atomic or a call wrote."""
    item, found = record.site.item, _last(record.writes, byte)
    if found is None or record.writes[found[0]].threads is None:
        return [], False
    event = record.writes[found[0]]
    at = byte - int(event.numbers[found[1]])
    thread = int(event.threads[found[1]])  # type: ignore[index]
    path = ordinary(item.opcode).path
    if path == "call":  # an argument or a result: it was loaded before it was stored
        source = record.reads[found[0]] if found[0] < len(record.reads) else None
        known = source is not None and found[1] < len(source.numbers)
        return ([int(source.numbers[found[1]]) + at], True) if source is not None and known else ([], False)
    if path == "store" and len(item.operands) > 1:
        return _part(record, item.operands[1], thread, event.size, at), True
    values = [own for own in item.operands if not isinstance(own, Address)]
    first = 1 if ordinary(item.opcode).writes else 0
    return [*(one for own in values[first:] for one in _bytes(record, own, thread)), byte], False


def _of_thread(record: Record, byte: tuple[int, int, int, int]) -> tuple[list[Byte], bool]:
    """A byte of a register."""
    block, number, thread, at = byte
    item = record.site.item
    path, words = ordinary(item.opcode).path, item.opcode.split(".")
    place, parts = _place(record, number)
    if path in ("load", "atomic") and record.reads:
        return _loaded(record, parts if path == "load" else 1, thread, place, at), path == "load"
    if path == "shuffle" and record.sources is not None and len(item.operands) > 1:
        return _bytes(record, item.operands[1], int(record.sources[thread]), (at,)), True
    given = item.operands[1:]
    if path == "move" and given:
        return _unpacked(record, item.operands[0], given[0], thread, place, at), True
    width = TYPE_BYTES.get(record.site.type_of(number), 4)
    halves = [word for word in words if word.endswith("x2") and word[0] in "fbe"]
    if path == "convert" and halves and len(given) == 2:  # the first source goes into the upper half
        return _bytes(record, given[0 if at >= width // 2 else 1], thread), False
    if halves and path != "convert":
        half = range(width // 2) if at < width // 2 else range(width // 2, width)
        return [one for own in given for one in _bytes(record, own, thread, half)], False
    threads = range(thread // LANES * LANES, thread // LANES * LANES + LANES) if path == "warp" else (thread,)
    lanes = [own for own in threads if record.executed_by(own)]
    return [one for own in given for lane in lanes for one in _bytes(record, own, lane)], False


def _place(record: Record, number: int) -> tuple[int, int]:
    """Which of the registers of a destination one is, and how many it has."""
    operands = record.site.item.operands
    numbers: list[int | None] = registers_of(record.site, operands[0]) if operands else [None]
    return numbers.index(number) if number in numbers else 0, len(numbers)


def _loaded(record: Record, parts: int, thread: int, place: int, at: int) -> list[Byte]:
    for event in reversed(record.reads):
        rows = (event.threads == thread).nonzero()[0] if event.threads is not None else []
        if len(rows):
            width = max(event.size // max(parts, 1), 1)
            return [int(event.numbers[rows[-1]]) + place * width + min(at, width - 1)]
    return []


def _unpacked(record: Record, to: Operand, what: Operand, thread: int, place: int, at: int) -> list[Byte]:
    """mov, which may put registers into one or take one apart."""
    if isinstance(to, Vector) and isinstance(what, Vector):
        return _bytes(record, what.items[place], thread, (at,))
    size = TYPE_BYTES.get(record.site.item.opcode.rpartition(".")[2], 4)
    return _part(record, what, thread, size, place * (size // len(items_of(to))) + at)


def _part(record: Record, operand: Operand, thread: int, size: int, at: int) -> list[Byte]:
    """A byte of a register, or of those of a vector, which have some bytes in all."""
    parts = items_of(operand)
    width = max(size // len(parts), 1)
    place = min(at // width, len(parts) - 1)
    return _bytes(record, parts[place], thread, (at - place * width,))


def _bytes(record: Record, operand: Operand, thread: int, which: Iterable[int] | None = None) -> list[Byte]:
    """The bytes of the registers of an operand; none of a number."""
    found = list[Byte]()
    for name in () if isinstance(operand, Address) else registers_in(operand):
        width = TYPE_BYTES.get(record.site.function.registers[name][0], 4)
        wanted = range(width) if which is None else which
        found += [(record.block, record.site.numbers[name], thread, at) for at in wanted if at < width]
    return found
