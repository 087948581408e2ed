"""The syntax of PTX as data: modules, functions, variables, instructions and their operands, each with its place in the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tcsim.core.errors import TcsimError
from tcsim.model.statement import (
    TYPE_BYTES,
    Address,
    Group,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Tensor,
    Vector,
)

LONGEST_MESSAGE = 1000
"""Characters of an error's text: a name that it quotes may be as long as the PTX."""


def without_middle(message: str) -> str:
    """A message of at most LONGEST_MESSAGE characters: names in PTX may have thousands."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = (LONGEST_MESSAGE - 5) // 2
    return f"{message[:half]} ... {message[half - LONGEST_MESSAGE + 5 :]}"


class PtxError(TcsimError):
    """PTX text that cannot be read: where, and what is not known there. A long message loses its middle.

    >>> PtxError("no such directive", 3, 7).line
    3
    >>> len(str(PtxError("no directive ." + "9" * 5000)))
    1000
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(without_middle(f"line {line}, column {column}: {message}" if line else message))
        self.line, self.column = line, column


class Initial(NamedTuple):
    """The initial bytes of a variable: numbers already as bytes, and addresses of symbols to be put in later. All else is zero."""

    runs: tuple[tuple[int, bytes], ...]  # offsets in the variable, ascending, and the bytes from there on
    addresses: tuple[Relocation, ...] = ()


class Relocation(NamedTuple):
    """An address that is put into a variable when memory is laid out: all of it, or one byte."""

    offset: int  # in the variable
    symbol: str
    addend: int
    width: int  # bytes
    shift: int = 0  # bits of the address below those that are kept


@dataclass(frozen=True)
class Variable:
    """A variable in a state space, or a parameter."""

    name: str
    space: str  # "global", "const", "shared", "local", "param"
    type: str  # "b8", "u64", ...
    count: int | None = 1  # elements of all dimensions and of the vector; None: an extern array without a size
    align: int = 1  # bytes
    initial: Initial | None = None
    linkage: str = ""  # "extern", "visible", "weak", "common"
    line: int = 0
    shape: tuple[int | None, ...] = ()  # the extents, and the length of the vector if there is one

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return TYPE_BYTES[self.type]

    @property
    def size(self) -> int:
        """Bytes; 0 for an extern array without a size."""
        return self.element_bytes * (self.count or 0)


@dataclass
class Function:
    """An entry or a device function."""

    name: str
    entry: bool
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)  # "reqntid": (128,)
    registers: dict[str, tuple[str, int]] = field(default_factory=dict)  # by unique name: type, and length of a vector
    variables: dict[str, Variable] = field(default_factory=dict)  # declared inside, by unique name
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # by unique name: index of the instruction that follows
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # .branchtargets and .calltargets by their label
    prototypes: dict[str, tuple[tuple[Variable, ...], tuple[Variable, ...]]] = field(default_factory=dict)
    linkage: str = ""
    line: int = 0
    defined: bool = False  # whether it has a body


@dataclass
class Module:
    """A PTX module."""

    version: str = ""
    target: str = ""
    target_options: tuple[str, ...] = ()
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


# --- operands and instructions as a whole


def rebuilt(operand: Any, change: Callable[[Any], Operand]) -> Any:
    """An operand with its leaves changed.

    >>> rebuilt(Vector((Register("%a"), Sink())), lambda own: Symbol("b") if own == Register("%a") else own)
    Vector(items=(Symbol(name='b', offset=0), Sink()))
    """
    if type(operand) is tuple:
        return tuple(rebuilt(part, change) for part in operand)
    if not any(isinstance(part, tuple) for part in operand):
        return change(operand)
    return operand._make(rebuilt(part, change) if isinstance(part, tuple) else part for part in operand)


def unscoped(name: str) -> str:
    """A name as the text has it, without the number of its scope."""
    return name.partition("#")[0]


def _listed(operands: tuple[Operand, ...]) -> str:
    return ", ".join(map(written, operands))


def _behind(offset: int) -> str:
    return f"+{offset}" if offset else ""


_WRITTEN: dict[type, Callable[[Any], str]] = {
    Register: lambda own: unscoped(own.name),
    Special: lambda own: f"%{own.name}",
    Immediate: lambda own: (
        f"{own.value}" if own.kind == "int" else f"0{own.kind[0]}{own.value:0{int(own.kind[1:]) // 4}X}"
    ),
    Symbol: lambda own: unscoped(own.name) + _behind(own.offset),
    Address: lambda own: f"[{written(own.base)}{_behind(own.offset)}]",
    Tensor: lambda own: f"[{written(own.base)}, {{{_listed(own.coordinates)}}}]",
    Vector: lambda own: f"{{{_listed(own.items)}}}",
    Pair: lambda own: f"{written(own.first)}|{written(own.second)}",
    Negated: lambda own: f"!{written(own.register)}",
    Sink: lambda own: "_",
    Group: lambda own: f"({_listed(own.items)})",
}


def written(operand: Operand) -> str:
    """An operand as PTX writes it.

    >>> written(Address(Register("%rd1"), 16)), written(Immediate(0x3F800000, "f32"))
    ('[%rd1+16]', '0f3F800000')
    """
    return _WRITTEN[type(operand)](operand)


def statement(item: Instruction) -> str:
    """An instruction as PTX writes it.

    >>> statement(Instruction("mov.u32", (Register("%r1"), Special("tid.x")), 1, 1, Register("%p"), True))
    '@!%p mov.u32 %r1, %tid.x;'
    """
    guard = f"@{'!' if item.negated else ''}{unscoped(item.predicate.name)} " if item.predicate else ""
    return f"{guard}{' '.join(filter(None, (item.opcode, _listed(item.operands))))};"


def place_of(item: Instruction) -> str | None:
    """The line of the kernel's source that an instruction is of, "file:line"; None where there is no .loc."""
    return item.source.places[0] if item.source else None


def line_in_words(item: Instruction) -> str:
    """The line of an instruction, and that of its source by the file's name.

    >>> line_in_words(Instruction("ret", (), 7, 1))
    'line 7'
    """
    place = place_of(item)
    return f"line {item.line}" + (f", {place.rpartition('/')[2]}" if place else "")


__all__ = [
    "TYPE_BYTES", "Address", "Group", "Immediate", "Instruction", "Negated", "Operand", "Pair", "Register", "Sink", "Symbol",
    "Tensor", "Vector",
]  # fmt: skip
"""What others take from here of `tcsim.model.statement`."""
