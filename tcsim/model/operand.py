"""One operand of an instruction as PTX writes it: what it is, who reads or writes it, and what it looks like in a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Literal

from tcsim.layouts.layout import FragmentLayout
from tcsim.numbers.formats import Format

Role = Literal["destination", "source", "both"]
"""Whether the instruction writes the operand (or the memory that it addresses), reads it, or does both."""

Kind = Literal[
    "vector",  # registers in braces: {%a0, %a1}; braces also around a single one
    "register",  # one register: %a0
    "address",  # memory at the address in a register: [%smem]
    "tensor",  # a tensor map and coordinates: [%map, {%c0, %c1}]
    "immediate",  # a number in the statement
    "predicate",  # one predicate register, %p, or its negation
    "sink",  # the underscore: a result that is not wanted
]

Space = Literal[
    "",
    "generic",
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "tensor",
    "param",
    "param::entry",
    "const",
    "local",
    "tmem",
]
"""State spaces, as PTX spells them; "tensor" is Tensor Memory as an operand, "tmem" its bytes; empty: not an address."""

Proxy = Literal["generic", "async", "tensormap", "alias"]
"""By which path memory is accessed (PTX ISA, section Proxies)."""

Scope = Literal["thread", "member_mask", "warp", "warpgroup", "cta", "cluster", "gpu", "sys"]
"""Who executes an instruction together, or whose order and groups count."""


@dataclass(frozen=True)
class Operand:
    """One operand of a form. Operands of a form stand in PTX's order."""

    name: str  # "d", "address", "count"; of its registers in a statement: %name, or %name0, %name1, ... in a vector
    role: Role = "source"
    kind: Kind = "register"
    _: KW_ONLY
    type: str = ".b32"  # of one register, as PTX declares it
    count: int = 1  # PTX registers of a vector, coordinates of a tensor
    format: Format | None = None  # of the elements, where they have one
    layout: FragmentLayout | None = None  # where the elements lie in the registers of the lanes
    space: Space = ""  # of an address
    proxy: Proxy = "generic"  # of an address
    within: tuple[Space, ...] = ()  # where a generic address may point to; empty: anywhere
    boundary: int = 1  # of which the address of an object has to be a multiple, besides what its accesses need
    bracket: tuple[Operand, ...] = ()  # of a tensor: what its brackets hold if not the map and coordinates alone
    values: tuple[int, ...] = ()  # of an immediate: what it may be, the one of a plain example first; empty: any number
    per: Scope = "thread"  # who has one: each thread, or all that execute together have the same
    optional: bool = False  # may be left out, with all that follow it
    parts: tuple[str, ...] = ()  # what each register of a vector is called, where it means something by itself
    joined: bool = False  # written behind the operand before it and "|": %p|%q

    @property
    def named(self) -> bool:
        """Whether it is a register or a number: neither memory nor a sink."""
        return self.kind not in ("address", "tensor", "sink")

    @property
    def names(self) -> tuple[str, ...]:
        """The registers of a statement that gives them no other names."""
        if self.bracket:
            return tuple(name for part in self.bracket for name in part.names)
        if self.kind == "vector":
            return tuple(f"%{part}" for part in self.parts or (f"{self.name}{index}" for index in range(self.count)))
        if self.kind == "tensor":
            return (f"%{self.name}", *(f"%c{index}" for index in range(self.count)))
        if self.kind == "immediate":
            return (str(self.values[0] if self.values else 0),)
        return ("_",) if self.kind == "sink" else (f"%{self.name}",)

    def text(self, names: tuple[str, ...] | None = None) -> str:
        """The operand in a statement, its registers named as given, else after the operand.

        >>> Operand("a", kind="vector", count=2).text()
        '{%a0, %a1}'
        >>> Operand("smem", kind="address", space="shared").text(("%r5",))
        '[%r5]'
        >>> Operand("map", kind="tensor", count=2).text()
        '[%map, {%c0, %c1}]'
        >>> Operand("map", kind="tensor", bracket=(Operand("a"), Operand("c", kind="vector", count=2))).text()
        '[%a, {%c0, %c1}]'
        """
        own = self.names if names is None else names
        if self.bracket:
            left = iter(own)
            return f"[{', '.join(part.text(tuple(islice(left, len(part.names)))) for part in self.bracket)}]"
        if self.kind == "vector":
            return "{" + ", ".join(own) + "}"
        if self.kind == "tensor":
            return f"[{own[0]}, {{{', '.join(own[1:])}}}]"
        return f"[{own[0]}]" if self.kind == "address" else own[0]


@dataclass(frozen=True)
class Fragment(Operand):
    """A register operand whose elements have a format and a place: the registers of all lanes that execute together hold a matrix."""

    kind: Kind = "vector"
    _: KW_ONLY
    format: Format
    layout: FragmentLayout

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", self.registers // (2 if self.layout.element_bits == 64 else 1))

    @property
    def lanes(self) -> int:
        """Lanes that hold the operand: 32 for a warp."""
        return self.layout.lanes

    @property
    def registers(self) -> int:
        """32-bit registers per lane: the last axis of the register array; an f64 register counts two."""
        return self.layout.registers

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        return self.layout.rows, self.layout.columns


def fragment(
    name: str, format: Format, layout: FragmentLayout, type: str = ".b32", role: Role | None = None
) -> Fragment:
    """A fragment in a vector; without a role, one named d is written and the others are read."""
    own: Role = "destination" if name == "d" else "source"
    return Fragment(name, role or own, type=type, format=format, layout=layout)


Names = Mapping[str, str | tuple[str, ...]]
"""Registers or numbers by the name of an operand: one, or all of a vector or tensor."""
