"""An instruction as a program has it: its spelling, its operands, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TYPE_BYTES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
    "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}  # fmt: skip
"""Bytes of a value of each fundamental type; a predicate takes one in our arrays."""


class Register(NamedTuple):
    """A declared register; of an inner scope its name has the scope's number behind a "#", of a vector the component: "%v.x"."""

    name: str


class Special(NamedTuple):
    """A special register, without its percent sign: "tid.x"."""

    name: str


class Immediate(NamedTuple):
    """A number: an integer as it is written, a floating-point number as its bits."""

    value: int
    kind: str = "int"  # or "f32", "f64"


class Symbol(NamedTuple):
    """A variable, function or label, and an offset in bytes; what it is follows from the declarations."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """Memory at a base and an offset in bytes: [%rd1+16], [shared_data], [4096]."""

    base: Operand
    offset: int = 0


class Tensor(NamedTuple):
    """A tensor map's address and coordinates: [%rd1, {%r1, %r2}]."""

    base: Operand
    coordinates: tuple[Operand, ...]


class Vector(NamedTuple):
    """Several operands in braces."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """Two destinations of one instruction: %p|%q."""

    first: Operand
    second: Operand


class Negated(NamedTuple):
    """A predicate of which the negation is taken: !%p."""

    register: Register


class Sink(NamedTuple):
    """The underscore: a result that is not wanted."""


class Group(NamedTuple):
    """Several operands in parentheses: the results or arguments of a call."""

    items: tuple[Operand, ...]


Operand = Register | Special | Immediate | Symbol | Address | Tensor | Vector | Pair | Negated | Sink | Group


_LEAVES = frozenset((Register, Special, Immediate, Symbol, Sink))


def leaves(operand: tuple[Any, ...]) -> list[Any]:
    """The operands in an operand that have none in them: registers, numbers, symbols.

    >>> leaves(Tensor(Register("%rd1"), (Register("%r1"), Immediate(0))))
    [Register(name='%rd1'), Register(name='%r1'), Immediate(value=0, kind='int')]
    """
    if type(operand) in _LEAVES:
        return [operand]
    found: list[Any] = []
    for part in operand:
        if type(part) in _LEAVES:
            found.append(part)
        elif isinstance(part, tuple):
            found += leaves(part)
    return found


def registers_in(operand: tuple[Any, ...]) -> list[str]:
    """The names of the registers in an operand, or in several.

    >>> registers_in(Pair(Register("%p"), Negated(Register("%q"))))
    ['%p', '%q']
    """
    return [own.name for own in leaves(operand) if type(own) is Register]


_DEEPEST = 64
"""Functions inlined in one another that are told."""


class Location(NamedTuple):
    """A line of the source that PTX was compiled from (.loc). Files may be declared behind it."""

    files: Mapping[int, str]
    number: int
    line: int
    column: int
    caller: Location | None = None  # where the function that it is in was inlined

    @property
    def file(self) -> str:
        """The file's name, or its number if there is no .file with that."""
        return self.files.get(self.number, str(self.number))

    @property
    def chain(self) -> tuple[Location, ...]:
        """The line of the kernel, and those of the functions that were inlined there, down to this one."""
        found = [self]
        while found[-1].caller is not None and len(found) < _DEEPEST:
            found.append(found[-1].caller)
        return tuple(found[::-1])

    @property
    def places(self) -> tuple[str, ...]:
        """The chain as "file:line", each once in a row."""
        every = [str(own) for own in self.chain]
        return tuple(own for own, before in zip(every, ["", *every], strict=False) if own != before)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Instruction(NamedTuple):
    """One instruction of a function's body."""

    opcode: str  # with its modifiers in the manual's order, however they are written
    operands: tuple[Operand, ...]
    line: int  # of the PTX text, from 1
    column: int
    predicate: Register | None = None
    negated: bool = False  # executed where the predicate is false
    source: Location | None = None
