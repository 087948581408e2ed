"""The chain of instructions and elements that made some bytes, back to global memory: a tree that is made as far as it is looked at.

Executions of one instruction that made neighbouring bytes are one node, and so are the products that one accumulator went through: a
tree has about as many nodes as the kernel has instructions on the way, not as many as it executed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from tcsim.core.errors import shortened
from tcsim.ptx.machine.arrays import LANES
from tcsim.ptx.stepping import text
from tcsim.ptx.stepping.arrays import Named
from tcsim.ptx.stepping.log import Byte, Log, Record, Work, taken_apart
from tcsim.ptx.stepping.sources import Group, Reads, Sources, joined, sources
from tcsim.ptx.stepping.state import Shown, bytes_in_words, refused, valued
from tcsim.ptx.text.syntax import place_of, statement, unscoped

SCREEN = 22
"""Lines of a tree that are shown at once."""
_STEPS = 200  # that one element is followed at most
_WALK = 300  # nodes that are looked at for remarks
_ELEMENTS = 256  # that are followed one by one
_CHAIN = 4096  # products that one accumulator went through, at most
_FRESH = ("shared", "local", "tmem", "register")
"""What no launch finds written."""


@dataclass(eq=False)
class Trail:
    """What the questions of one session are asked of."""

    log: Log
    arrays: Mapping[str, Named]
    blocks: list[tuple[int, int, int]]  # by number
    params: list[tuple[str, int, int]]  # parameters: name, where it begins, where it ends
    initial: Any  # (address, size) -> bytes of global memory before the launch
    _kept: dict[tuple[int, Byte], Sources] = field(default_factory=dict)
    _flying: dict[int, list[Work]] = field(default_factory=dict)

    def one(self, record: Record, byte: Byte) -> Sources:
        """What one byte was made of; kept."""
        key = record.time, byte
        if key not in self._kept:
            self._kept[key] = sources(record, [byte])
        return self._kept[key]

    def origin(self, byte: Byte, before: int) -> Byte | Record | None:
        """Where a byte comes from: one that nothing wrote, the instruction that computed it, or None of a constant or a fill."""
        for _ in range(_STEPS):
            record = self.log.writer(byte, before)
            if record is None:
                return byte
            found = self.one(record, byte)
            if found.moved and not found.groups:
                return None
            if not found.moved or len(found.groups) != 1 or len(found.groups[0].bytes) != 1:
                return record
            (((byte,), before),) = found.groups[0].reads
        return byte

    def under_way(self, time: int) -> list[Work]:
        """The work that was in flight at a time; kept."""
        if time not in self._flying:
            self._flying[time] = self.log.under_way(time)
        return self._flying[time]

    def named(self, address: int) -> tuple[Named, tuple[int, ...]] | None:
        """The element of an array with a name that holds a byte of global memory."""
        for own in self.arrays.values():
            index = own.index(address)
            if index is not None:
                return own, index
        return None

    def bytes_text(self, bytes: Iterable[Byte]) -> str:
        """Bytes in words: elements of arrays in the order given, registers, ranges of memory."""
        registers: dict[str, list[int]] = {}
        memory: list[int] = []
        for byte in bytes:
            if isinstance(byte, int):
                memory.append(byte)
            else:
                registers.setdefault(self.register_name(byte[0], byte[1]), []).append(byte[2])
        found = [f"{name} {threads_text(own)}" for name, own in list(registers.items())[:3]]
        found += [f"{len(registers) - 3} more registers"] if len(registers) > 3 else []
        return ", ".join([*found, *self.memory_text(memory)])

    def memory_text(self, memory: list[int]) -> list[str]:
        """Bytes of memory in words."""
        elements: dict[str, list[tuple[int, ...]]] = {}
        rest: list[int] = []
        for number in memory:
            place = taken_apart(number)
            own = self.named(number) if place.space == "global" else None
            if own is not None:
                indices = elements.setdefault(own[0].name, [])
                indices += [own[1]] if not indices or indices[-1] != own[1] else []
            elif place.space == "param":
                name = next((name for name, first, last in self.params if first <= place.offset < last), "parameters")
                elements.setdefault(f"parameter {name}", [])
            else:
                rest.append(number)
        found = [self.arrays[name].text(own) if own else name for name, own in elements.items()]
        return found + list(bytes_in_words(rest, 2))

    def register_name(self, block: int, number: int) -> str:
        """The name of a register in the function that wrote it last."""
        names = (own.site.name_of(number) for own in reversed(self.log.writers.get((block, number), ())))
        return next((unscoped(name) for name in names if name), f"register {number}")

    def value(self, record: Record, byte: tuple[int, int, int, int]) -> str:
        """What a register held after a record."""
        _, number, thread, _ = byte
        if number not in record.values:
            return ""
        type = record.site.type_of(number)
        (value,) = valued(record.values[number][thread : thread + 1], type)
        return f"{value:#x}" if type[0] == "b" and isinstance(value, int) else text.number(value)


def threads_text(threads: Iterable[int]) -> str:
    """Threads by warp and lane.

    >>> threads_text([33, 34])
    'warp 1 lanes 1-2'
    """
    own = sorted(set(threads))
    return text.lanes(own) if own[0] // LANES == own[-1] // LANES else f"threads {text.ranges(own)}"


@dataclass(eq=False)
class Node:
    """Some bytes, and what made them: executions of one instruction, or nothing: then they were there before."""

    trail: Trail
    path: str  # "1.2": the second child of the first root
    label: str  # what the bytes are to what was made of them: "B[0:16, 1]", or empty
    reads: Reads
    records: tuple[Record, ...]  # the executions of one instruction that wrote them; none if nothing did
    several: bool = False  # whether several instructions made them, each of which is a node below

    @property
    def bytes(self) -> list[Byte]:
        """All bytes."""
        return [byte for element, _ in self.reads for byte in element]

    @cached_property
    def made(self) -> dict[Record, list[Byte]]:
        """The executions that made the bytes, in order; of products those that their accumulator went through before too."""
        found: dict[Record, list[Byte]] = {}
        if self.several or not self.records:
            return found
        for element, time in self.reads:
            for byte in element:
                record = self.trail.log.writer(byte, time)
                if record is not None:
                    found.setdefault(record, []).append(byte)
        for record in list(found):
            found.update(self._earlier(record, found))
        return dict(sorted(found.items(), key=lambda item: item[0].time))

    @property
    def last(self) -> Record | None:
        """The execution that made them last."""
        return next(reversed(self.made)) if self.made else None

    @property
    def lines(self) -> list[int]:
        """The lines of the instructions that made them."""
        return sorted({own.site.item.line for own in self.made})

    def _earlier(self, record: Record, known: Mapping[Record, list[Byte]]) -> dict[Record, list[Byte]]:
        """The products that an accumulator went through before one, of the same spelling."""
        found: dict[Record, list[Byte]] = {}
        own, bytes = record, known[record]
        while len(found) < _CHAIN:
            group = next((one for one in sources(own, bytes).groups if one.accumulates and one.reads), None)
            before = self._first_writer(group) if group is not None else None
            if group is None or before is None or before.site.item.opcode != own.site.item.opcode or before in known:
                break
            own, bytes = before, group.bytes
            found[own] = bytes
        return found

    def _first_writer(self, group: Group) -> Record | None:
        element, time = group.reads[0]
        return self.trail.log.writer(element[0], time)

    @cached_property
    def _sources(self) -> tuple[str, list[Group]]:
        """What they were made of: of all executions, groups of one label together."""
        what, groups = "", dict[str, list[Group]]()
        for record, bytes in self.made.items():
            found = sources(record, bytes)
            what = found.what
            for group in found.groups:
                if not (group.accumulates and self._first_writer(group) in self.made):
                    groups.setdefault(group.label, []).append(group)
        return what, [joined(own) for own in groups.values()]

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """What the bytes were made of: a node for each purpose, or for each instruction that made a part."""
        if self.several:
            return nodes(self.trail, self.path, self.reads)
        groups = self._sources[1]
        if len(groups) == 1 and not groups[0].label:
            return nodes(self.trail, self.path, groups[0].reads)
        return tuple(self._operand(number, group) for number, group in enumerate(groups, 1))

    def _operand(self, number: int, group: Group) -> Node:
        own = parts(self.trail, group.reads)
        reads, records = own[0] if len(own) == 1 else (group.reads, ())
        return Node(self.trail, f"{self.path}.{number}", group.label, reads, records, len(own) != 1)

    # --- words

    @cached_property
    def origin(self) -> str:
        """Where the elements come from if they were only moved, in their order; empty if they were computed."""
        own, constant = list[Byte](), 0
        for element, time in self.reads[:_ELEMENTS]:
            found = self.trail.origin(element[0], time)
            if isinstance(found, Record):
                return ""
            if found is None:
                constant += 1
            else:
                own.append(found)
        if not own:
            return ""
        return self.trail.bytes_text(own) + (f", {constant} constant or filled" if constant else "")

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is suspicious: memory that nothing wrote, or that work in flight was about to write."""
        found = [
            f"line {work.record.site.item.line} was in flight to these bytes: nothing waited for it"
            for (byte, *_), time in self.reads[:_ELEMENTS]
            if isinstance(byte, int)
            for work in self.trail.under_way(time)
            if any(event.entry(byte) is not None for event in work.planned)
        ]
        if self.last is not None and self.last.work is not None and not self._sources[1]:
            found.append(f"line {self.last.site.item.line} filled these bytes: what it copies ends before them")
        if not self.several and not self.records and self.bytes and _kind(self.bytes[0]) in _FRESH:
            lost = "nothing that the log still has wrote these bytes: Kernel.session(log=) keeps more"
            found.append(lost if self.trail.log.first else "nothing wrote these bytes before: zeros")
        return tuple(dict.fromkeys(found))

    def head(self) -> str:
        """The bytes and, if they were only moved, where they come from."""
        place = self.trail.bytes_text(self.bytes)
        name = f"{self.label}: {place}" if self.label else place
        first = self.bytes[0] if self.bytes else None
        if self.records and isinstance(first, tuple) and len({byte[:3] for byte in self.bytes}) == 1:  # type: ignore[index]
            value = self.trail.value(self.records[-1], first)
            name += f" = {value}" if value else ""
        if not self.records and not self.several:
            return name + self._constants()
        if self.label and self.origin:
            name = f"{self.label} <- {self.origin}"
        return name

    def _constants(self) -> str:
        """The numbers that elements of global memory were before the launch, if there are few."""
        found = [self.trail.named(element[0]) if isinstance(element[0], int) else None for element, _ in self.reads]
        own = list(dict.fromkeys(item for item in found if item is not None))
        if not own or len(own) > 4 or None in found:
            return ""
        values = [item.value(self.trail.initial(item.address(index), item.size)) for item, index in own]
        return f" = {', '.join(map(text.number, values))}"

    @property
    def instruction(self) -> str:
        """The instruction that wrote the bytes, with its line."""
        if self.last is None:
            return ""
        item, count, lines = self.last.site.item, len(self.made), self.lines
        source = f" {text.place(own)}" if (own := place_of(item)) else ""
        times = f" x{count}" if count > 1 else ""
        what = f" {self._sources[0]}" if self._sources[0] else ""
        shown = f"lines {lines[0]}-{lines[-1]}" if len(lines) > 1 else f"line {lines[0]}"
        return f"{shown}{times}{source}:{what} {statement(item)}"

    def as_dict(self, depth: int = 4) -> dict[str, Any]:
        """As plain data; children down to a depth."""
        record = self.last
        item = record.site.item if record else None
        return {
            "path": self.path, "label": self.label, "bytes": self.trail.bytes_text(self.bytes), "origin": self.origin or None,
            "instruction": statement(item) if item else None, "line": item.line if item else None, "lines": self.lines,
            "source": place_of(item) if item else None, "block": list(self.trail.blocks[record.block]) if record else None,
            "executions": len(self.made), "notes": list(self.notes), "text": self.head(),
            "children": [own.as_dict(depth - 1) for own in self.children] if depth > 0 else [],
            "more": len(self.children) if depth <= 0 else 0,
        }  # fmt: skip


def parts(trail: Trail, reads: Reads) -> list[tuple[Reads, tuple[Record, ...]]]:
    """Elements by the instruction that wrote them, at whatever execution of it, or by the memory that nothing wrote."""
    found: dict[Any, tuple[list[tuple[tuple[Byte, ...], int]], dict[Record, None]]] = {}
    for element, time in reads:
        writers: dict[Record | None, list[Byte]] = {}
        for byte in element:
            writers.setdefault(trail.log.writer(byte, time), []).append(byte)
        for record, bytes in writers.items():
            own, records = found.setdefault(_kind(bytes[0]) if record is None else record.site, ([], {}))
            own.append((tuple(bytes), time))
            if record is not None:
                records.setdefault(record)
    return [(tuple(own), tuple(sorted(records, key=lambda one: one.time))) for own, records in found.values()]


def nodes(trail: Trail, path: str, reads: Reads) -> tuple[Node, ...]:
    """A node for each part."""
    below = f"{path}." if path else ""
    return tuple(Node(trail, f"{below}{number}", "", *part) for number, part in enumerate(parts(trail, reads), 1))


def nearest_first(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, then those below them, as far as they are asked for."""
    pending = deque(nodes)
    while pending:
        node = pending.popleft()
        yield node
        pending.extend(node.children)


def _kind(byte: Byte) -> str:
    return taken_apart(byte).space if isinstance(byte, int) else "register"


@dataclass(eq=False)
class Why(Shown):
    """The answer to `Session.why`: what was asked for, and the tree of what made it."""

    asked: str
    nodes: tuple[Node, ...]

    @cached_property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """(path, what is suspicious there), of the nodes nearest to the root."""
        found: dict[str, str] = {}
        for node in islice(nearest_first(self.nodes), _WALK):
            for note in node.notes:
                found.setdefault(note, node.path)
        return tuple((path, note) for note, path in found.items())

    def node(self, path: str) -> Node:
        """A node by its path. Raises OperandError for one that there is not."""
        own: tuple[Node, ...] = self.nodes
        found: Node | None = None
        for part in str(path).split("."):
            if not part.isdigit() or not 1 <= int(part) <= len(own):
                valid = ", ".join(item.path for item in own) or "none below"
                raise refused(f"why: no node {shortened(path)}", valid)
            found = own[int(part) - 1]
            own = found.children
        assert found is not None
        return found

    def expand(self, path: str) -> Why:
        """The tree below a node. Raises OperandError for a path that there is not."""
        node = self.node(path)
        return Why(f"{self.asked}, {path}", (node,))

    def lines(self, most: int = SCREEN) -> list[str]:
        """The tree, as much of it as fits on a screen; what is left out is named by its path."""
        said = [text.cut(f"! {path}: {note}") for path, note in self.remarks[:4]]
        for room in range(most, 3, -1):
            drawn = _all_drawn(self.nodes, self._shown(room), "")
            if 1 + len(drawn) + len(said) <= most:
                break
        return [text.cut(self.asked), *drawn, *said]

    def _shown(self, most: int) -> set[Node]:
        """The nodes that are drawn: those nearest to the root."""
        found, left = set[Node](), most
        for node in nearest_first(self.nodes):
            left -= 2 if node.made else 1
            if left < 0:
                break
            found.add(node)
        return found

    def as_dict(self, depth: int = 12) -> dict[str, Any]:
        """As plain data."""
        return {
            "asked": self.asked, "remarks": [{"path": path, "note": note} for path, note in self.remarks],
            "tree": [node.as_dict(depth) for node in self.nodes],
        }  # fmt: skip


def _all_drawn(nodes: Sequence[Node], shown: set[Node], margin: str) -> list[str]:
    """Nodes beside each other; those that are left out by their paths."""
    seen = [node for node in nodes if node in shown]
    found = [line for node in seen for line in _drawn(node, shown, margin, node is nodes[-1])]
    left = [node.path for node in nodes if node not in shown]
    return found + ([text.cut(f"{margin}`- ... {', '.join(left)}")] if left else [])


def _drawn(node: Node, shown: set[Node], margin: str, last: bool) -> list[str]:
    inner = margin + ("   " if last else "|  ")
    found = [text.cut(f"{margin}{'`-' if last else '|-'} {node.head()}")]
    if node.made:
        found.append(text.cut(f"{inner}{node.instruction}"))
    return found + _all_drawn(node.children, shown, inner)
