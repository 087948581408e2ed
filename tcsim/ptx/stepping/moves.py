"""Which byte becomes which in an instruction that moves bytes: found by asking it again with bytes that carry their own numbers.

So nothing is written down twice: a box of TMA, a transposed ldmatrix, a swizzle or a fill are followed through the same code that did them.
Each byte carries seven bits of its number at a time, so that a copy of 16384 bytes is asked twice. Products are followed in the same way: an element of
D to the bytes of its row of A, of its column of B, and of the accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.isa.mma.product import MatrixProduct
from tcsim.isa.tcgen05.multiply_operands import Multiplication
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.effects import Access, Outcome, Write
from tcsim.ptx.check.layout.tags import CHECK, DIGIT, digits
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.stepping.log import Asked, Byte, Event, Work, taken_apart
from tcsim.ptx.stepping.matrices import operands_of, registers_of

WORDS = 100
"""From this on digits are of words of four bytes."""
_VALUES = frozenset(("value", "registers", "a", "d"))
"""Operands of stores and moves whose registers are data; the others are addresses, sizes, numbers."""


@dataclass(eq=False)
class Numbered:
    """Bytes that are numbered from 1 on: those of reads in order, then those of registers."""

    reads: Sequence[Event]
    registers: Sequence[tuple[Array, Array, int]]  # registers of each word (threads, words), threads, bytes of a word
    block: int

    @property
    def sizes(self) -> list[int]:
        """Bytes of each."""
        registers = [own.size * size for own, _, size in self.registers]
        return [len(own.numbers) * own.size for own in self.reads] + registers

    def byte(self, number: int) -> Byte | None:
        """The byte with a number; None of 0, and of a number that came out of no byte."""
        rest, place, sizes = number - 1, 0, self.sizes
        while place < len(sizes) and rest >= sizes[place]:
            rest, place = rest - sizes[place], place + 1
        if rest < 0 or place == len(sizes):
            return None
        if place < len(self.reads):
            event = self.reads[place]
            return int(event.numbers[rest // event.size]) + rest % event.size
        numbers, threads, width = self.registers[place - len(self.reads)]
        word, at = divmod(rest, width)
        thread, column = divmod(word, numbers.shape[1])
        register, low = divmod(int(numbers[thread, column]), 2)  # the low or the high word of a register of 64 bits
        return (self.block, register, int(threads[thread]), at + 4 * low) if register >= 0 else None


class Tagged:
    """The machine as an instruction may look at it, with numbers of bytes in place of bytes."""

    def __init__(self, asked: Asked, events: Sequence[Event], digit: int) -> None:
        self._asked, self._events, self._digit = asked, list(events), digit
        self._next, self._at = 0, 1
        self.rank, self.warp = asked.rank, asked.warp

    def read(self, access: Access) -> Array:
        """The numbers of the bytes of an access."""
        event = self._events[self._next]
        self._next += 1
        count = len(event.numbers) * event.size
        found = coded(np.arange(self._at, self._at + count), self._digit)
        self._at += count
        shape = np.broadcast_shapes(access.address.shape, np.shape(access.cta) if access.cta is not None else ())
        found = found.reshape(*shape, event.size)
        return found if access.mask is None else np.where(access.mask, found, 0).astype(np.uint8)

    def held(self, name: str) -> Array:
        """Registers that are in flight: nothing of them is moved."""
        return np.zeros_like(self._asked.operands[name])


def coded(numbers: Array, digit: int) -> Array:
    """A digit of numbers, as bytes, or of words of four of them: a float of moderate size with few bits, which no rounding changes.

    >>> coded(np.arange(1, 9), WORDS).tolist()
    [0, 0, 1, 64, 0, 0, 2, 64]
    """
    if digit < WORDS:
        return digits(numbers, digit)
    place, own = (numbers - 1) % 4, digits((numbers - 1) // 4 + 1, digit - WORDS)
    return np.where(place == 2, own, np.where(place == 3, 64, 0)).astype(np.uint8)


@dataclass(eq=False)
class Moved:
    """Where every byte that was written came from: numbers, 0 for none."""

    numbered: Numbered
    registers: dict[str, Array]  # by operand: (threads, bytes)
    writes: list[tuple[Write, Array]]  # (accesses, size)

    def register(self, name: str, place: int, byte: int) -> Byte | None:
        """The source of a byte of an operand's registers: place of the thread among those that asked, byte of all its registers."""
        own = self.registers.get(name)
        return None if own is None or byte >= own.shape[1] else self.numbered.byte(int(own[place, byte]))

    def memory(self, byte: int) -> tuple[Byte | None, bool]:
        """The source of a byte of memory, and whether what was there before counts too."""
        place = taken_apart(byte)
        for write, sources in reversed(self.writes):
            addresses = write.at.address.reshape(-1)
            addresses = np.broadcast_to(addresses, (len(sources),)) if len(addresses) != len(sources) else addresses
            if place.space == "shared":
                addresses = addresses & 0xFFFFFF  # without the rank of the block, and the window of generic addresses
            found = np.flatnonzero((addresses <= place.offset) & (addresses + write.at.size > place.offset))
            for row in found[::-1].tolist():
                number = int(sources[row, place.offset - int(addresses[row])])
                if number or write.at.mask is None:
                    return self.numbered.byte(number), write.combine is not None
        return None, False


def moved_by(site: Site, asked: Asked, block: int, work: Work | None) -> Moved:
    """What an instruction, or its work in flight, moved. It is found once."""
    holder = asked if work is None else work
    if holder.moved is None:
        holder.moved = _followed(site, asked, block, work)
    found: Moved = holder.moved
    return found


def _followed(site: Site, asked: Asked, block: int, work: Work | None) -> Moved:
    if work is not None and work.reads:
        numbered = Numbered(work.reads, (), block)

        def ask(digit: int) -> Outcome:
            found: Outcome = work.pending.finish(work.pending.fetch(Tagged(asked, work.reads, digit)))
            return found
    else:
        numbered = Numbered(asked.reads if work is None else (), _registers(site, asked), block)

        def ask(digit: int) -> Outcome:
            view: Any = Tagged(asked, asked.reads, digit)
            effects = asked.bound.model.effects(asked.bound.form, _with_numbers(asked, numbered, digit), view)
            if work is None:
                return effects.now
            assert asked.effects is not None
            pending = effects.pending[asked.effects.pending.index(work.pending)]
            return pending.finish(pending.fetch(view))

    found = _collected(numbered, asked, ask, 1)
    if _changed(found, ask(CHECK)):  # the bytes of a word are not kept: the copy rounds to tf32
        found = _collected(numbered, asked, lambda digit: ask(digit + WORDS), 4)
    return found


def by_digits(total: int, ask: Callable[[int], Mapping[Any, Array]]) -> dict[Any, Array]:
    """The numbers of some bytes, by what came out of each of their digits; total: how many have a number."""
    found: dict[Any, Array] = {}
    for digit in range(max(1, -(-total.bit_length() // DIGIT))):
        for key, octets in ask(digit).items():
            found[key] = found.get(key, 0) + (octets.astype(np.int64) << DIGIT * digit)
    return found


def _collected(numbered: Numbered, asked: Asked, ask: Callable[[int], Outcome], unit: int) -> Moved:
    """What came out digit by digit; unit: bytes that have one number."""
    writes: tuple[Write, ...] = ()

    def octets(digit: int) -> Mapping[Any, Array]:
        nonlocal writes
        outcome = ask(digit)
        writes = writes or outcome.writes
        found = {name: octets_of(own).reshape(len(asked.threads), -1) for name, own in outcome.registers.items()}
        return found | {place: _written(own) for place, own in enumerate(outcome.writes)}

    numbers = by_digits(sum(numbered.sizes) // unit, octets)
    memory = [numbers.pop(place) for place in range(len(writes))]
    if unit > 1:
        memory = [_of_words(own, unit) for own in memory]
    return Moved(numbered, numbers, list(zip(writes, memory, strict=True)))


def _written(write: Write) -> Array:
    return np.asarray(write.data).reshape(-1, write.at.size)


def _of_words(numbers: Array, unit: int) -> Array:
    """The numbers of bytes, of words that have their number in the third of four bytes."""
    words = numbers.reshape(len(numbers), -1, unit)[..., 2]
    first = np.where(words > 0, (words - 1) * unit + 1, 0)
    return np.where(first[..., None] > 0, first[..., None] + np.arange(unit), 0).reshape(numbers.shape)


def _changed(found: Moved, outcome: Outcome) -> bool:
    """Whether some bytes came out changed: then another number of theirs does not fit."""
    pairs = ((own, _written(write)) for (_, own), write in zip(found.writes, outcome.writes, strict=True))
    return any((digits(own, CHECK)[own > 0] != seen[own > 0]).any() for own, seen in pairs)


def octets_of(values: Array) -> Array:
    """The bytes of an array."""
    return np.ascontiguousarray(values).view(np.uint8)


def _registers(site: Site, asked: Asked) -> list[tuple[Array, Array, int]]:
    """Of each operand that is data: the registers of its words, doubled, and one more for a high word."""
    found, operands = [], operands_of(site, asked.bound)
    for name in _data(asked):
        numbers = [-1 if own is None else own for own in registers_of(site, operands[name])]
        values = np.asarray(asked.operands[name])
        count = values.size // len(asked.threads)
        each = max(count // len(numbers), 1)  # words of a register
        words = np.array([2 * number + high for number in numbers for high in range(each)])
        found.append((np.broadcast_to(words, (len(asked.threads), count)), asked.threads, values.dtype.itemsize))
    return found


def _data(asked: Asked) -> list[str]:
    slots = [own for own in asked.bound.form.operands if own.name in asked.operands and own.role != "destination"]
    return [own.name for own in slots if own.kind == "vector" or (own.kind == "register" and own.name in _VALUES)]


def _with_numbers(asked: Asked, numbered: Numbered, digit: int) -> Mapping[str, Any]:
    """The operands, those that are data replaced by numbers of their bytes."""
    found = dict(asked.operands)
    at = 1 + sum(numbered.sizes[: len(numbered.reads)])
    for name in _data(asked):
        own = np.asarray(found[name])
        found[name] = coded(np.arange(at, at + own.nbytes), digit).view(own.dtype).reshape(own.shape)
        at += own.nbytes
    return found


# --- products: what an element was made of, the bytes of its row of A, of its column of B, and of the accumulator

Cell = tuple[int, int, int]
"""Unit (warp, warpgroup or instruction), row and column of D."""


Factors = tuple[str, tuple[tuple[str, tuple[tuple[Byte, ...], ...]], ...]]
"""Elements of D, "D[0, 1]", and those that they were made of: ("A[0, 0:16]", the bytes of each element in the order of K)."""


def is_product(asked: Asked, work: Work | None) -> bool:
    """Whether an instruction multiplies matrices in a way that is followed element by element."""
    return _in_flight(work) is not None or isinstance(asked.bound.model, MatrixProduct)


def _in_flight(work: Work | None) -> Multiplication | None:
    """The product of tcgen05.mma that work is."""
    own = None if work is None else getattr(work.pending.fetch, "__self__", None)
    return own if isinstance(own, Multiplication) else None


def factors(site: Site, asked: Asked, work: Work | None, block: int, bytes: Iterable[Byte]) -> Factors:
    """What the elements of D that hold some bytes were made of."""
    multiplication = _in_flight(work)
    if work is not None and multiplication is not None:
        return _in_tensor_memory(multiplication, asked, work, bytes)
    cells = _cells(site, asked, bytes)
    found: dict[str, list[tuple[Byte, ...]]] = {"A": [], "B": [], "C": []}
    rows, columns = _unique((unit, row) for unit, row, _ in cells), _unique((unit, column) for unit, _, column in cells)
    codes = None
    if work is not None and isinstance(asked.bound.model, WarpgroupMultiply):
        held = "a" in asked.bound.model.operands and asked.bound.form["a"].kind == "vector"
        codes = _fetched(asked, work, lambda taken: {name: getattr(taken, name) for name in ("b" if held else "ab")})
    depth = asked.bound.model.shape[2]
    kept = depth
    for name, label, lines in (("a", "A", rows), ("b", "B", columns)):
        if codes is not None and asked.bound.model.formats[name].kind == "bit":
            continue  # several elements in a byte
        for unit, line in lines:
            if codes is not None and name in codes:
                matrix = codes[name][int(np.searchsorted(asked.threads, unit * asked.bound.lanes)) // asked.bound.lanes]
                own = matrix[line] if name == "a" else matrix[:, line]
                assert work is not None
                elements = [_numbered(Numbered(work.reads, (), block), numbers) for numbers in own]
            else:
                layout = _layout(asked, name)
                extent = layout.columns if name == "a" else layout.rows
                places = [(line, k) if name == "a" else (k, line) for k in range(extent)]
                elements = [_held(site, asked, block, name, unit, *place) for place in places]
            kept = len(elements) if name == "a" else kept
            found[label] += elements
    accumulator = "c" if "c" in asked.bound.form else "d"
    adds = np.asarray(asked.operands.get("scale_d", True)).any()
    for unit, row, column in cells if adds else ():
        found["C"].append(_held(site, asked, block, accumulator, unit, row, column))
    return _named(cells, found, kept, depth)


def _named(cells: Sequence[Cell], found: Mapping[str, list[tuple[Byte, ...]]], width: int, depth: int) -> Factors:
    """The elements with the names of what they are of; width: columns of A, depth: rows of B."""
    rows, columns = _extent(row for _, row, _ in cells), _extent(column for _, _, column in cells)
    texts = {"A": f"A[{rows}, 0:{width}]", "B": f"B[0:{depth}, {columns}]", "C": f"C[{rows}, {columns}]"}
    parts = tuple((text, tuple(own for own in found[name] if own)) for name, text in texts.items())
    return f"D[{rows}, {columns}]", parts


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _extent(numbers: Iterable[int]) -> str:
    own = sorted(set(numbers))
    if len(own) == 1:
        return str(own[0])
    whole = own == list(range(own[0], own[-1] + 1))
    return f"{own[0]}:{own[-1] + 1}" if whole else ",".join(map(str, own[:4])) + ("..." if len(own) > 4 else "")


# --- registers


def _layout(asked: Asked, name: str) -> FragmentLayout:
    found: FragmentLayout = asked.bound.model.operands[name].layout
    return found


def _cells(site: Site, asked: Asked, bytes: Iterable[Byte]) -> list[Cell]:
    """The elements of D that registers hold."""
    numbers = registers_of(site, operands_of(site, asked.bound)["d"])
    layout, lanes = _layout(asked, "d"), max(asked.bound.lanes, LANES)
    wide = 2 if layout.element_bits > 32 else 1
    found = []
    for byte in bytes:
        if isinstance(byte, int) or byte[1] not in numbers:
            continue
        _, number, thread, at = byte
        unit, lane = divmod(thread, lanes)
        word = numbers.index(number) * wide + (at // 4 if wide > 1 else 0)
        row, column = layout(lane, word, at % 4 * 8 // layout.element_bits if wide == 1 else 0)
        matrix = 0 if layout.matrix is None else int(layout.matrix(lane))
        found.append((unit * layout.matrices + matrix, int(row), int(column)))
    return _unique(found)


def _held(site: Site, asked: Asked, block: int, name: str, unit: int, row: int, column: int) -> tuple[Byte, ...]:
    """The bytes of an element in registers; none where the operand is a number."""
    layout, lanes = _layout(asked, name), max(asked.bound.lanes, LANES)
    unit, matrix = divmod(unit, _layout(asked, "d").matrices)
    lane, word, slot = layout.where(row, column, matrix if layout.matrices > 1 else 0)
    wide = 2 if layout.element_bits > 32 else 1
    number = registers_of(site, operands_of(site, asked.bound)[name])[word // wide]
    if number is None:
        return ()
    first = slot * layout.element_bits // 8
    return tuple((block, number, unit * lanes + lane, first + at) for at in range(max(1, layout.element_bits // 8)))


# --- shared memory and Tensor Memory


def _fetched(asked: Asked, work: Work, codes: Callable[[Any], Mapping[Any, Array]]) -> dict[Any, Array]:
    """The numbers of the bytes of elements that come from memory: (..., bytes). codes: those of what work fetches."""
    if work.moved is None:

        def octets(digit: int) -> Mapping[Any, Array]:
            found = codes(work.pending.fetch(Tagged(asked, work.reads, digit)))
            return {key: _seven(own) for key, own in found.items()}

        work.moved = by_digits(sum(Numbered(work.reads, (), 0).sizes), octets)
    kept: dict[Any, Array] = work.moved
    return kept


def _seven(codes: Array) -> Array:
    """Codes as their bytes, of each seven bits."""
    return octets_of(codes).reshape(*codes.shape, codes.dtype.itemsize) & (1 << DIGIT) - 1


def _numbered(numbered: Numbered, numbers: Array) -> tuple[Byte, ...]:
    """The bytes of one element, from the number of the highest: of tf32 the lowest bits are not read."""
    top, size = int(numbers[-1]), len(numbers)
    found = [numbered.byte(number) for number in range(top - size + 1, top + 1) if top]
    return tuple(own for own in found if own is not None)


def _in_tensor_memory(own: Multiplication, asked: Asked, work: Work, bytes: Iterable[Byte]) -> Factors:
    places = _unique(cell for byte in bytes if isinstance(byte, int) for cell in _tensor_cell(own, byte))
    rows, columns = _unique(row for row, _ in places), _unique(column for _, column in places)
    banks = _fetched(asked, work, lambda parts: {(name, n): own[name] for n, own in enumerate(parts) for name in "abc"})
    width, numbered = own.desc.n // (len(banks) // 3), Numbered(work.reads, (), work.record.block)
    found: dict[str, list[tuple[Byte, ...]]] = {"A": [], "B": [], "C": []}
    whole = {name: own.plan.formats[name].bits >= 8 and not own.row.lookup for name in "ab"}
    for row in rows if whole["a"] else ():
        found["A"] += [_numbered(numbered, numbers) for numbers in banks["a", 0][row]]
    for column in columns if whole["b"] else ():
        found["B"] += [_numbered(numbered, numbers) for numbers in banks["b", column // width][:, column % width]]
    for row, column in places:
        found["C"].append(_numbered(numbered, banks["c", column // width][row, column % width]))
    cells = [(0, row, column) for row, column in places]
    return _named(cells, found, len(found["A"]) // max(len(rows), 1), len(found["B"]) // max(len(columns), 1))


def _tensor_cell(own: Multiplication, byte: int) -> Iterable[tuple[int, int]]:
    """The element of D in a cell."""
    desc, offset = own.desc, taken_apart(byte).offset
    places = np.arange(desc.m * desc.n, dtype=np.uint32).reshape(desc.m, desc.n) + 1
    for write in own.d.writes(places, own._disabled):
        addresses = write.at.address.reshape(-1)
        for row in np.flatnonzero((addresses <= offset) & (addresses + write.at.size > offset)).tolist():
            words = np.ascontiguousarray(write.data.reshape(-1, write.at.size)[row]).view("<u4")
            number = int(words[(offset - int(addresses[row])) // 4])
            if number:
                yield divmod(number - 1, desc.n)
