"""Which byte becomes which in an instruction that moves bytes: found by asking it again with bytes that carry their own numbers.

So nothing is written down twice: a box of TMA, a transposed ldmatrix, a swizzle or a fill are followed through the same code that did them.
Each byte carries seven bits of its number at a time (the eighth may be changed by a negation), so that a copy of 16384 bytes is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.model.effects import Access, Outcome, Write
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.stepping.log import Asked, Event, Work
from tcsim.ptx.stepping.matrices import operands_of, registers_of
from tcsim.ptx.stepping.places import Byte, taken_apart

DIGIT = 7
CHECK, WORDS = 50, 100
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
        found = digits(np.arange(self._at, self._at + count), self._digit)
        self._at += count
        shape = np.broadcast_shapes(access.address.shape, np.shape(access.cta) if access.cta is not None else ())
        found = found.reshape(*shape, event.size)
        return found if access.mask is None else np.where(access.mask, found, 0).astype(np.uint8)

    def held(self, name: str) -> Array:
        """Registers that are in flight: nothing of them is moved."""
        return np.zeros_like(self._asked.operands[name])


def digits(numbers: Array, digit: int) -> Array:
    """Seven bits of numbers, as bytes; CHECK: of something else that follows from them; from WORDS on: of words of four bytes.

    A word with a number is a float of moderate size with few bits, which no rounding changes.

    >>> digits(np.arange(1, 9), WORDS).tolist()
    [0, 0, 1, 64, 0, 0, 2, 64]
    """
    if digit >= WORDS:
        words, place = (numbers - 1) // 4 + 1, (numbers - 1) % 4
        own = words >> DIGIT * (digit - WORDS) & (1 << DIGIT) - 1
        return np.where(place == 2, own, np.where(place == 3, 64, 0)).astype(np.uint8)
    if digit == CHECK:
        return np.where(numbers > 0, (numbers * 2654435761 >> 16) & (1 << DIGIT) - 1, 0).astype(np.uint8)
    return (numbers >> DIGIT * digit & (1 << DIGIT) - 1).astype(np.uint8)


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
        found[name] = digits(np.arange(at, at + own.nbytes), digit).view(own.dtype).reshape(own.shape)
        at += own.nbytes
    return found
