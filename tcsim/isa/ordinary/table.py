"""What an ordinary instruction is: one row for all that is said of it, from its spelling to how it becomes source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tcsim.model.emit import Emit, Emitter, Line, Lines, machine
from tcsim.model.grammar import Grammar, Rule, Since, Slot, since, some, words_of
from tcsim.model.statement import TYPE_BYTES, Instruction, Operand, Register, Sink

Path = Literal["compute", "move", "address", "load", "store", "atomic", "shuffle", "warp", "convert", "call"]

Carries = Literal["", "whole", "elements", "either", "bytes", "up", "down", "lanes"]
"""How a result has bytes of its sources as they are: all of them ("whole", a vector's parts side by side), each element in another format, one of
two sources ("either"), bytes that a number names, shifted by a number "up" or "down", those of another lane. Empty: it is computed."""

Control = Literal["", "branch", "leave", "trap", "break", "call"]
"""Where threads go that execute it, if not to the next instruction alone; it takes its predicate itself."""


@dataclass(frozen=True, kw_only=True)
class Ordinary:
    """The instructions with one stem."""

    stem: str
    grammar: Grammar | None = None  # its modifiers, versions and operands; None: other tables have them
    refusal: Callable[[tuple[str, ...]], str] | None = (
        None  # why a spelling that the grammar takes is none; "" if it is
    )
    emit: Emit | None = None  # None: it is scalar, or a call, which is linked
    instead: bool = False  # whether it is written so where the catalog has it too, which else runs through its effects
    catalogued: bool = False  # whether the rows of the catalog say all but how it is written
    waits: Callable[[Instruction], bool] | None = None  # whether threads may wait at one: a basic block ends there
    control: Control = ""
    heard: bool = False  # whether another thread may wait for what it does
    polls: bool = False  # whether it may tell what another thread did: a loop that asks it may wait
    writes: bool = True  # whether its first operand is a result, if it is no address
    members: bool = False  # whether the lanes of a member mask execute it as one
    path: Path = "compute"  # how the bytes of its operands become those of its result
    carries: Carries = ""
    cuts: bool = False  # whether the assembler begins a basic block behind it
    declared: bool = False  # whether a variable that it names has to lie in the state space that it says
    frames: bool = False  # whether it takes memory of the thread's stack


effect = partial(Ordinary, heard=True, writes=False)
"""A row of what has no result, and another thread may wait for."""

UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "b128"}
"""The unsigned type of a number of bytes."""
L1S = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
SHARED = "shared shared::cta shared::cluster"
SPACES = words_of(f"global {SHARED} local const param param::entry param::func")
"""The state spaces that loads, stores and atomics name."""
SCOPES = "cta cluster gpu sys"
SCOPE, HINT, VECTOR = some(SCOPES), some("L2::cache_hint"), some("v2 v4 v8")
_COMMON = (
    since("7.8", 0, "shared::cta"), since("7.8", 90, "shared::cluster cluster"), since("8.3", 0, "param::entry param::func"),
    since("6.0", 70, "weak relaxed acquire release acq_rel"), since("8.2", 70, "mmio"), since("9.3", 70, "mmio", "acquire release"), since("9.1", 0, "volatile", "local"),
    since("7.4", 70, L1S), since("7.4", 75, "L2::64B L2::128B"), since("7.4", 80, "L2::256B L2::cache_hint"),
    since("8.3", 70, "b128"), since("8.4", 70, "b128", "sys"),
)  # fmt: skip
"""Of every instruction."""
_FURTHER = words_of("L2::cache_hint cas")
"""Modifiers that bring one more operand."""


def grammar(
    *slots: Slot, operands: tuple[int, ...] = (), rules: tuple[Rule, ...] = (), since: tuple[Since, ...] = (), named: str = "",
    vectors: tuple[int, ...] = (),
) -> Grammar:  # fmt: skip
    """The syntax of one instruction: modifiers in the manual's order, how many operands it takes, which combine, from which version on.

    Sources: PTX ISA, the section of each instruction; which combine, the targets and the lowest versions are those of ptxas 13.5.37.
    """
    return Grammar(slots, rules, (*_COMMON, *since), named, operands, _FURTHER, vectors)


def type_of(emitter: Emitter, item: Instruction) -> str:
    """The type that a spelling ends with."""
    type = item.opcode.rpartition(".")[2]
    if type not in TYPE_BYTES:
        raise emitter.error(f"no type .{type}")
    return type


def space_in(opcode: str) -> str:
    """The state space that a spelling names; empty for a generic address."""
    return next((word for word in opcode.split(".")[1:] if word in SPACES), "")


def nothing(emitter: Emitter, item: Instruction) -> Lines:
    """What changes neither registers nor memory here, and orders nothing."""
    return [Line("pass")]


def whole(emitter: Emitter, operand: Operand, type: str) -> str:
    """The source of an operand as bits of a type's width, which may be 128."""
    if type == "b128":
        return _wide(emitter, operand)
    return emitter.value(operand, {2: "b16", 4: "b32", 8: "b64"}[TYPE_BYTES[type]])


def put_whole(emitter: Emitter, operand: Operand, source: str, type: str, calls_machine: bool = True) -> Line:
    """The statement that assigns bits of a type's width."""
    if type == "b128" and not isinstance(operand, Sink):
        return machine(f"T.assign({_wide(emitter, operand)}, {source}, w)")
    return emitter.put(operand, source, type, calls_machine)


def _wide(emitter: Emitter, operand: Operand) -> str:
    if not isinstance(operand, Register) or emitter.type_of(operand) != "b128":
        raise emitter.error("128 bits; valid: a register of type .b128")
    return emitter.register(operand)


def wanted(operands: Iterable[Operand]) -> Iterator[tuple[int, Operand]]:
    """Destinations that are registers, each with its place among them."""
    return ((place, own) for place, own in enumerate(operands) if not isinstance(own, Sink))
