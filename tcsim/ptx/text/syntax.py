"""The syntax of PTX as data: modules, functions, variables, instructions and their operands, each with its place in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tcsim.core.errors import TcsimError

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


class Initial(NamedTuple):
    """The initial bytes of a variable: numbers already as bytes, and addresses of symbols to be put in later."""

    data: bytes
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


TYPE_BYTES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
    "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}  # fmt: skip
"""Bytes of a value of each fundamental type; a predicate takes one in our arrays."""


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
    address_size: int = 64
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


# --- operands and instructions as a whole


def leaves(operand: tuple[Any, ...]) -> Iterator[Any]:
    """The operands in an operand that have none in them: registers, numbers, symbols.

    >>> list(leaves(Tensor(Register("%rd1"), (Register("%r1"), Immediate(0)))))
    [Register(name='%rd1'), Register(name='%r1'), Immediate(value=0, kind='int')]
    """
    inner = [part for part in operand if isinstance(part, tuple)]
    if not inner and type(operand) is not tuple:
        yield operand
    for part in inner:
        yield from leaves(part)


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
    guard = f"@{'!' if item.negated else ''}{item.predicate.name} " if item.predicate else ""
    return f"{guard}{' '.join(filter(None, (item.opcode, _listed(item.operands))))};"


def place_of(item: Instruction) -> str | None:
    """The line of the kernel's source that an instruction is of, "file:line"; None where there is no .loc."""
    return item.source.places[0] if item.source else None
