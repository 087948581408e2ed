"""Instructions of the catalog in a program: bound to the form that their operands fit, and run through their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.isa.scalar.table import CONTAINERS, Array
from tcsim.model.emit import Line, Lines, machine
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction as Model
from tcsim.model.operand import Operand as Slot
from tcsim.model.registers import RegisterInstruction
from tcsim.ptx.compile.convergence import lanes_of, waits
from tcsim.ptx.compile.writer import Writer
from tcsim.ptx.text.fitting import apart, fitting
from tcsim.ptx.text.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Tensor,
    Vector,
)


@dataclass(frozen=True, eq=False)
class Bound:
    """An instruction, the form that it is written in, and where its results go."""

    model: Model
    form: Form
    results: tuple[tuple[str, Array], ...]  # by operand: the registers, negative for a sink
    lanes: int  # that execute together: 32, 128, or each thread by itself
    item: Instruction  # as it stands in the program
    sources: tuple[tuple[str, Any], ...] = ()  # by operand: Rows, or the number of an immediate; of those known here
    inexact: bool = False  # whether its bits on the arch are not known

    @property
    def line(self) -> int:
        """Of the PTX."""
        return self.item.line

    @cached_property
    def written(self) -> frozenset[int]:
        """The registers of its results."""
        return frozenset(number for _, numbers in self.results for number in numbers.tolist())

    @cached_property
    def held(self) -> frozenset[int]:
        """The registers of the vectors that it reads."""
        return frozenset(number for _, own in self.sources if isinstance(own, Rows) for number in own.numbers.tolist())

    @property
    def static(self) -> bool:
        """Whether all that it reads are registers in vectors, and numbers: then several can be computed together."""
        known = {name for name, _ in self.sources}
        computes = isinstance(self.model, RegisterInstruction) and not self.model.moves
        return computes and self.lanes == 32 and known == set(self.form.sources)

    def follows(self, earlier: Sequence[Bound]) -> bool:
        """Whether it can be computed together with earlier ones: the same instruction, on what they do not write."""
        first = earlier[0]
        if self.model.mnemonic != first.model.mnemonic or self.form.names != first.form.names:
            return False
        for (name, own), (other, numbers) in zip(self.sources, first.sources, strict=True):
            if name != other or (not isinstance(own, Rows) and own != numbers):
                return False
        return all(bound.written.isdisjoint(self.held | self.written) for bound in earlier)


@dataclass(frozen=True, eq=False)
class Rows:
    """Registers of one width that an operand's vector names."""

    numbers: Array


@dataclass(frozen=True, eq=False)
class Together:
    """Instructions that are computed in one call."""

    bound: Bound  # the first
    sources: tuple[tuple[str, Any], ...]  # by operand: registers (instructions, n), or a number
    results: tuple[tuple[str, Array], ...]

    @classmethod
    def of(cls, all: Sequence[Bound]) -> Together:
        """Instructions, each of which `follows` those before it."""
        first = all[0]
        sources = tuple(
            (name, np.stack([dict(bound.sources)[name].numbers for bound in all]) if isinstance(own, Rows) else own)
            for name, own in first.sources
        )
        results = tuple((name, np.stack([dict(bound.results)[name] for bound in all])) for name, _ in first.results)
        return cls(first, sources, results)


def grouped(writer: Writer, lines: Lines) -> Lines:
    """Lines of a basic block, with runs of independent instructions on registers alone as one; the others of a run are empty."""
    found: Lines = []
    run: list[Bound] = []
    start = 0

    def close() -> None:
        if len(run) > 1:
            found[start] = machine(f"fx.perform_together({writer.constant(Together.of(run))}, w)")
            found[start + 1 :] = [Line("")] * (len(run) - 1)
        run.clear()

    for line in lines:
        bound = line.bound
        if bound is None or not bound.static:
            close()
        elif not run or not bound.follows(run):
            close()
            start, run = len(found), [bound]
        else:
            run.append(bound)
        found.append(line)
    close()
    return found


def bind(writer: Writer, item: Instruction) -> Lines:
    """The source line that runs an instruction of the catalog."""
    try:
        model = catalog.instruction(item.opcode, writer.context.arch)
    except InstructionError as error:
        raise writer.error(str(error)) from None
    found = fitting(model.row.forms, item.operands, writer.function.registers)
    if found:
        writer.require(frozenset().union(*(form.targets for form in found)))
        operands = [operand for operand, _ in apart(item.operands)]
        return [_line(writer, item, model, found[0], operands)]
    valid = " or ".join(form.statement(item.opcode) for form in model.row.forms[:3])
    raise writer.error(f"no form takes these operands; valid: {valid}")


def _line(writer: Writer, item: Instruction, model: Model, form: Form, operands: list[Operand]) -> Line:
    given, results, head = [], [], writer.head.copy()
    sources: list[tuple[str, Any]] = []
    for slot, operand in zip(form.operands, operands, strict=False):
        if slot.kind == "sink":
            continue
        if slot.kind == "register" and isinstance(operand, Vector):  # {%r1} is %r1
            (operand,) = operand.items
        type = slot.type.removeprefix(".")
        if slot.role != "source" and slot.kind in ("vector", "register", "predicate"):
            registers = operand.items if isinstance(operand, Vector) else (operand,)
            numbers = tuple(writer.numbers[own.name] if isinstance(own, Register) else -1 for own in registers)
            results.append((slot.name, np.array(numbers)))
            if slot.role == "destination":
                continue
        rows = _rows(writer, operand, type) if slot.kind == "vector" else None
        moved = model.moves and slot.role == "source" and slot.kind in ("vector", "register")
        if moved and isinstance(operand, Register):
            sources.append((slot.name, Rows(np.array([writer.numbers[operand.name]]))))
        if rows is not None or slot.kind == "immediate":
            assert isinstance(operand, (Immediate, Vector))
            sources.append((slot.name, rows or operand.value))  # type: ignore[union-attr]
        source = writer.constant(rows) if rows else _source(writer, slot, operand, type)
        given.append(f"{writer.constant(slot.name)}: {source}")
    if model.changes_nothing and not writer.context.watched:
        writer.head = head  # nothing is fetched for it
        return Line("pass")
    writer.competes |= model.row.combines
    writer.async_proxy |= any(slot.proxy == "async" for slot in form.operands)
    lanes = lanes_of(model.row)
    bound = Bound(model, form, tuple(results), lanes, item, tuple(sources), model.inexact)
    call = f"{writer.constant(bound)}, {{{', '.join(given)}}}, w"
    if waits(item):
        return machine(f"fx.attempt({call}, {writer.after(writer.index)}, {writer.following})", ends=True)
    return Line(f"fx.perform({call})", calls_machine=True, bound=bound if item.predicate is None else None)


def _rows(writer: Writer, operand: Operand, type: str) -> Rows | None:
    """The registers of a vector that has nothing else, all as wide as the type says."""
    if not isinstance(operand, Vector):
        return None
    width = CONTAINERS[type].itemsize
    for own in operand.items:
        if not isinstance(own, Register) or CONTAINERS[writer.type_of(own)].itemsize != width:
            return None
    return Rows(np.array([writer.numbers[own.name] for own in operand.items if isinstance(own, Register)]))


def _source(writer: Writer, slot: Slot, operand: Operand, type: str) -> str:
    if isinstance(operand, Vector):
        return f"({', '.join(writer.value(own, type) for own in operand.items)},)"
    if slot.kind == "vector":
        return f"({writer.value(operand, type)},)"
    if slot.kind == "address":
        anywhere = slot.space in ("generic", "shared::cluster")
        return writer.place(operand, "" if anywhere else slot.space.split("::")[0])[0]
    if slot.kind == "tensor":
        assert isinstance(operand, Tensor)
        base = writer.place(Address(operand.base), "")[0]
        return f"({', '.join([base, *(writer.value(own, 'b32') for own in operand.coordinates)])},)"
    if slot.kind == "immediate":
        assert isinstance(operand, Immediate)
        return writer.constant(operand.value)
    if slot.kind == "predicate":
        return writer.value(operand, "pred")
    return writer.value(operand, type)


def gathered(bound: Bound, slot: Slot, value: Any, machine: Any, taken: Array, active: Array | None) -> Any:
    """An operand as effects take it: of warps (warps, 32[, registers]), of threads (threads[, registers]); a fragment has registers, if only one."""
    lead = (-1, bound.lanes) if bound.lanes > 1 else (-1,)
    if slot.kind == "immediate":
        return np.asarray(value)
    if slot.kind == "vector":
        return stacked(value, machine, taken, lead, slot.layout is not None)
    if slot.kind == "tensor":
        value = value[0]
    if taken is machine.threads.numbers and np.ndim(value):
        full = np.array(value)  # registers change
    else:
        full = machine.threads.each(value)[taken]
    if active is not None:  # the lanes of a member mask: what the others have does not count
        first = np.argmax(active.reshape(lead), axis=1)
        full = full.reshape(lead)
        full = np.where(active.reshape(lead), full, full[np.arange(len(full)), first][:, None])
        if slot.per == "member_mask":  # members that have exited are left out
            bits = active.reshape(lead).astype(np.uint64) << np.arange(bound.lanes, dtype=np.uint64)
            full = full & bits.sum(1).astype(full.dtype)[:, None]
    if slot.kind in ("address", "tensor"):
        full = full.view(np.int64) if full.dtype == np.uint64 else full.astype(np.int64)
    return full.reshape(lead if slot.layout is None else (*lead, 1))


def stacked(value: Any, machine: Any, taken: Array, lead: tuple[int, ...], fragment: bool) -> Any:
    """The registers of a vector, (..., registers); of a fragment a 64-bit register is two words."""
    if isinstance(value, Rows):
        found = machine.file.gather(value.numbers, None if len(taken) == machine.threads.count else taken)
    else:
        found = np.stack([machine.threads.each(part)[taken] for part in value], axis=-1)
    if found.dtype == np.uint64 and fragment:
        found = found.view(np.uint32)
    return found.reshape(*lead, found.shape[-1])


class Operands(Mapping[str, Any]):
    """The operands of an instruction, each gathered from the registers when it is asked for.

    A tensor is its map's address and, by a name of their own, its coordinates.
    """

    def __init__(self, bound: Bound, given: Mapping[str, Any], machine: Any, taken: Array, mask: Array) -> None:
        self._bound, self._given, self._machine, self._taken = bound, given, machine, taken
        members = bound.form.together == "member_mask" and not mask[taken].all()
        self._active = mask[taken] if members else None
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._gather(name)
        return self._found[name]

    def _gather(self, name: str) -> Any:
        bound = self._bound
        if name == "coordinates" and name not in self._given:
            tensor = next((slot.name for slot in bound.form.operands if slot.kind == "tensor"), name)
            lead = (-1, bound.lanes) if bound.lanes > 1 else (-1,)
            return stacked(self._given[tensor][1:], self._machine, self._taken, lead, False)
        return gathered(bound, bound.form[name], self._given[name], self._machine, self._taken, self._active)

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        if any(slot.kind == "tensor" for slot in self._bound.form.operands):
            yield "coordinates"

    def __len__(self) -> int:
        return sum(1 for _ in self)
