"""A function compiled: basic blocks of PTX as Python functions on NumPy arrays, one entry of an array for each thread of a block.

A line of source is one PTX instruction, or a part of one. `w` is the mask of the threads that execute: True for all, else an array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from tcsim.core.errors import shortened
from tcsim.isa.ordinary.catalog import of_stem
from tcsim.isa.ordinary.special_registers import VARYING
from tcsim.model.emit import Line, Lines, machine
from tcsim.model.statement import Instruction, Special
from tcsim.ptx.compile import calls, contractions, families, scalars
from tcsim.ptx.compile.carried import Carriers
from tcsim.ptx.compile.compiled import BasicBlock, Context, Site
from tcsim.ptx.compile.convergence import MEMBERS, meeting, meetings, set_once, waits
from tcsim.ptx.compile.landing import Held, Landings
from tcsim.ptx.compile.ordinary import ordinary, row_of
from tcsim.ptx.compile.spins import Spins
from tcsim.ptx.compile.writer import Head, Writer
from tcsim.ptx.text.spellings import known
from tcsim.ptx.text.syntax import Function, PtxError


class Compiler:
    """Makes the Python source of one function."""

    def __init__(self, function: Function, context: Context, shared: dict[str, int]) -> None:
        self.function, self.body, self.context = function, function.body, context
        self.writer = Writer(function, context, shared)
        self.carriers = Carriers(function, self.writer.numbers, context.carried) if context.traced else None
        self.writer.factors = contractions.registers(self.writer)
        self.numbers = set_once(function)
        self.landings, self.held = Landings(function), Held(function)

    @cached_property
    def spins(self) -> Spins:
        """The loops that wait."""
        return Spins(self.function)

    # --- basic blocks

    def partition(self) -> None:
        """Cut the body into basic blocks and give them numbers."""
        starts, sites = {0, *self.function.labels.values()}, list[int]()
        for index, item in enumerate(self.body):
            row = of_stem(item.opcode)
            if row is not None and (row.control or (row.waits is not None and row.waits(item))):
                starts.add(index + 1)
            if waits(item):
                starts |= {index, index + 1}
            if row is not None and row.control == "call" and calls.returns_values(item):
                sites.append(index)
        if not self.function.entry:
            starts.add(len(self.body))  # where it returns
            self.context.enters[self.function.name] = self.context.new_block()
        starts, self.gathers = meetings(self.function, starts, self.numbers)
        order = sorted(start for start in starts if start <= len(self.body))
        self.writer.block_of = {start: self.context.new_block() for start in order}
        self.writer.sites = {index: self.context.new_block() for index in sites}

    def generate(self) -> Iterator[BasicBlock]:
        """The blocks, in order."""
        writer = self.writer
        if not self.function.entry:
            self._begin(self.context.enters[self.function.name])
            lines = calls.begin(writer)
            yield self._finished(lines, [None] * len(lines))
        order = list(writer.block_of)
        for start, end in zip(order, [*order[1:], len(self.body)], strict=True):
            yield self._block(start, end)
        for index, number in writer.sites.items():
            self._begin(number)
            item = writer.instruction = self.body[index]
            lines = calls.site(writer, item, index)
            yield self._finished(lines, [item] * len(lines))

    def _begin(self, number: int) -> None:
        """Begin a block."""
        self.writer.block, self.writer.head = number, Head()

    def _finished(
        self, lines: Lines, items: Sequence[Instruction | None], size: int = 1, gathers: int = 0
    ) -> BasicBlock:
        """The block that was begun; items: that its lines belong to."""
        if self.carriers is None:
            lines = families.grouped(self.writer, lines)
        return BasicBlock(self.writer.block, self.writer.head.lines, lines, items, size, gathers)

    def _block(self, start: int, end: int) -> BasicBlock:
        """A basic block."""
        lines, items = Lines(), list[Instruction | None]()
        landed: set[int] = set()
        self._begin(self.writer.block_of[start])
        for index in range(start, end):
            item = self.writer.instruction = self.body[index]
            self.writer.index = index
            found = self._instruction(item, landed)
            if index == start and (members := self._members(item)):
                missing = machine(f"x_ = warp.missing({members}, w, {self.writer.block})")
                found = [missing, Line("if x_ is not None: return x_"), *found]
            lines += found
            items += [item] * len(found)
        if not lines or not lines[-1].ends:
            found = (
                calls.end_of(self.writer) if start == len(self.body) else [Line(str(self.writer.after(end)), ends=True)]
            )
            lines += found
            items += [self.writer.instruction] * len(found)
        return self._finished(lines, items, max(end - start, 1), self.gathers.get(start, 0))

    def _members(self, item: Instruction) -> str:
        """The source of the lanes that have to be there, where only running can tell."""
        if meeting(item, self.numbers) != MEMBERS:
            return ""
        mask, guard = self.writer.value(item.operands[-1], "b32"), self.writer.guard
        return f"np.where({guard}, {mask}, warp.alone)" if guard else mask

    # --- instructions

    def _instruction(self, item: Instruction, landed: set[int]) -> Lines:
        """An instruction with what is told of it, and what has to land before it."""
        writer = self.writer
        late = self.landings.before(writer.index, item, landed)
        try:
            lines = self._statement(item)
        except PtxError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise writer.error(f"its operands do not fit: {shortened(str(error), 120)}") from error
        if self.context.watched:
            lines = self._told(item, lines)
        if late:
            who = f"T.narrow(w, {writer.guard})" if item.predicate is not None else "w"
            numbers = frozenset(writer.numbers[name] for name in late)
            lines = [machine(f"fx.land({writer.constant(numbers)}, {who})"), *lines]
        if self.context.stepped:
            site = Site(item, self.function, writer.numbers)
            lines = [machine(f"tell.executing({writer.constant(site)}, w)"), *lines]
        return lines

    def _told(self, item: Instruction, lines: Lines) -> Lines:
        """The source of an instruction that is reported to an observer."""
        touched = self.held.touched(item)
        if touched is not None:
            numbers = (frozenset(self.writer.numbers[name] for name in names) for names in touched)
            lines = [machine(f"tell.touched({', '.join(map(self.writer.constant, numbers))}, w)"), *lines]
        if touched is None and not self._says(item, lines):
            return lines
        return [machine(f"tell.here = {self.writer.constant(item)}"), *lines]

    def _says(self, item: Instruction, lines: Lines) -> bool:
        """Whether an instruction is reported to an observer: it asks the machine, and is not one of several that may be computed together."""
        bound = lines[0].bound if self.carriers is None and len(lines) == 1 else None
        together = bound is not None and bound.static
        return not together and not ordinary(item.opcode).control and any(line.calls_machine for line in lines)

    def _statement(self, item: Instruction) -> Lines:
        """An instruction for the threads that its predicate leaves."""
        writer, index = self.writer, self.writer.index
        spelled = known(item.opcode)
        writer.require(spelled.targets, spelled.number)
        if ordinary(item.opcode).control:
            return [*self._turns(item), *self._plain(item)]
        guard = "" if scalars.selecting(item) else writer.guard
        lines = [*contractions.followed(writer, item, index), *self._plain(item)]
        if self.carriers is not None:
            lines = self.carriers.lines(writer, item, lines)
        varying = next((own.name for own in item.operands if isinstance(own, Special) and own.name in VARYING), "")
        if varying:
            lines.insert(0, self._note(f"{item.opcode} %{varying}"))
        if index in self.spins.told:
            lines.insert(0, self._note(item.opcode))
        if guard and lines[-1].ends:
            guarded = f"B.guarded(w, {guard}, {writer.following}, lambda w: {lines[-1].text})"
            return [*lines[:-1], machine(guarded, ends=True)]
        if guard:
            return [machine(f"w_ = w; w = T.narrow(w, {guard})"), *lines, Line("w = w_")]
        return lines

    def _turns(self, item: Instruction) -> Iterator[Line]:
        """What is told of the loops that an instruction ends."""
        index = self.writer.index
        self.writer.waits |= index in self.spins.polling
        if index in self.spins.waiting:
            yield machine("B.turned()")
        if index in self.spins.visible:
            yield self._note(f"{item.opcode.partition('.')[0]} of a loop that waits")

    def _note(self, text: str) -> Line:
        """That bits may not be those of the hardware."""
        return machine(f"inexact.note({self.writer.constant(text)}, w)")

    def _plain(self, item: Instruction) -> Lines:
        """An instruction, whoever executes it."""
        line = scalars.statement(self.writer, item)
        if line is not None:
            return [line]
        row = of_stem(item.opcode)
        if row is None or row.emit is None or (not row.instead and row_of(item.opcode) is not None):
            call = row is not None and row.control == "call"
            return calls.call(self.writer, item) if call else families.bind(self.writer, item)
        return row.emit(self.writer, item)
