"""A kernel compiled: what the machine runs, and what its functions share while they are compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from types import CodeType
from typing import Any

import numpy as np

from tcsim.isa.scalar.table import CONTAINERS
from tcsim.model.emit import Line
from tcsim.ptx.text.syntax import Function, Instruction, Module, Variable

SHARED_START = 1024
"""Where a block's first shared variable lies: the first KiB belongs to the system since sm_90."""
NAMES: dict[str, Any] = {"np": np, "copyto": np.copyto}
"""What generated source may call besides the machine and its constants."""
_CONSTANT = re.compile(r"k\d+")
SOURCE_NAME = "<ptx>"
"""The file name of generated source, by which a place in it is found again."""
COLLECTIVE = -1
"""In place of lanes: the block is one instruction whose lanes may stand at different ones."""
REGISTERS = 1 << 16
"""Registers of a multiprocessor, since sm_70 (CUDA C++ Programming Guide, Technical Specifications)."""

PARTS = {
    "block": "B", "registers": "R", "threads": "T", "accesses": "mem", "warps": "warp", "performer": "fx", "barriers": "bar",
    "stack": "stack", "calls": "calls", "inexact": "inexact", "reports": "tell",
}  # fmt: skip
"""The parts of a block that generated source is handed, in order, and what it calls them; the last parameter is the mask."""


@dataclass(frozen=True, eq=False)
class Site:
    """An instruction where a program executes it, as a stepped program tells its machine."""

    item: Instruction
    function: Function
    numbers: Mapping[str, int]  # of the function's registers, by name: which of the program's they are

    def name_of(self, number: int) -> str | None:
        """The name of a register of the program in the function; None if it is of another."""
        return next((name for name, own in self.numbers.items() if own == number), None)

    def type_of(self, number: int) -> str:
        """The declared type of a register of the program."""
        return self.function.registers.get(self.name_of(number) or "", ("b32",))[0]


@dataclass(frozen=True)
class BasicBlock:
    """A basic block: the source of one Python function."""

    number: int
    head: tuple[str, ...]  # what it fetches before its first line
    lines: Sequence[Line]
    items: Sequence[Instruction | None]  # that each line belongs to
    size: int = 1  # its instructions
    gathers: int = 0  # lanes of a warp (32) or warpgroup (128) that have to be there, or COLLECTIVE

    @property
    def text(self) -> str:
        """The source."""
        within = (*self.head, *(line.source for line in self.lines))
        return "\n".join([f"def b{self.number}({', '.join(PARTS.values())}, w):", *(f"    {line}" for line in within)])


@dataclass
class Took:
    """Seconds of a cluster in earlier launches of a program: in one process, and in several."""

    launches: int = 0  # in one process
    alone: float = inf  # the shortest of these
    shared: float = 0.0  # the last in several

    @property
    def expected(self) -> float:
        """In one process, where several may be faster: the first launches load and compile what later ones find."""
        return self.alone if self.launches > 1 and self.shared < self.alone else 0.0

    def note(self, seconds: float, shared: bool) -> None:
        """What a cluster took."""
        if shared:
            self.shared = seconds
        else:
            self.launches, self.alone = self.launches + 1, min(self.alone, seconds)


@dataclass(eq=False)
class Compiled:
    """A kernel and the functions that it may call, as the machine runs them."""

    function: Function  # the entry
    registers: list[tuple[str, np.dtype[Any], int]]  # of all functions: type, container, length of a vector
    entry: int  # the block in which threads start
    functions: dict[int, int]  # first blocks, by the address of the function
    local_bytes: int  # of a thread, the stack apart
    names: dict[str, Any] = field(repr=False)  # what the source may name
    sources: list[BasicBlock] = field(repr=False, default_factory=list)
    blocks: list[Callable[..., Any]] = field(
        repr=False, default_factory=list
    )  # (parts of a block, mask) -> where to go
    gathers: list[int] = field(repr=False, default_factory=list)  # of each block: what its source says of lanes
    lines: list[list[Instruction | None]] = field(
        repr=False, default_factory=list
    )  # of each block: the instruction of every source line
    code: CodeType | None = field(repr=False, default=None)  # of its source, without pieces
    shared_bytes: int = 0  # of the static ones, from SHARED_START
    shared_names: list[tuple[int, int, int, str]] = field(
        repr=False, default_factory=list
    )  # of static shared variables: where, bytes, bytes of an element, name
    waits: bool = False  # whether a loop asks one place again and again, and so may wait for other threads
    tells_order: bool = False  # whether atomics tell or leave what may depend on the order of threads
    competes: bool = False  # whether blocks may see in which order they come: by atomics outside of shared memory
    carried: Mapping[int, tuple[int, int]] = field(
        repr=False, default_factory=dict
    )  # by register: its rows (`tcsim.ptx.compile.carried`)
    traced: bool = False  # whether it tells what becomes of these
    async_proxy: bool = False  # whether anything is done through the async proxy
    narrowest: int = 4  # bytes of the narrowest ordinary access that may be one of shared memory, at most 4
    narrowest_global: int = 4  # the same of global memory
    pieces: dict[int, int] = field(
        repr=False, default_factory=dict
    )  # of blocks that were cut again: the first piece, or 0
    plain: bool = False  # whether it tells nobody of single instructions, so that several may be executed at once
    watched: bool = False  # whether an observer may look at registers
    lowered: int = 0  # of how many blocks regions were looked for
    done: dict[int, float] = field(repr=False, default_factory=dict)  # of blocks: instructions times threads so far
    temporaries: frozenset[int] | None = field(
        repr=False, default=None
    )  # registers of one basic block (`tcsim.ptx.compile.temporaries`), once they are asked for
    took: Took = field(repr=False, default_factory=Took)

    def add(self, sources: Sequence[BasicBlock], code: CodeType | None = None) -> None:
        """Make functions of blocks, which are numbered on from those that there are. code: their source, compiled."""
        code = code or compile("\n".join(own.text for own in sources), SOURCE_NAME, "exec")
        if self.code is None:
            self.code = code
        exec(code, self.names)
        for own in sources:
            self.sources.append(own)
            self.blocks.append(self.names[f"b{own.number}"])
            self.gathers.append(own.gathers)
            self.lines.append([own.items[0] if own.items else None] * (1 + len(own.head)) + [*own.items])

    def kept(self) -> dict[str, Any]:
        """All but its functions."""
        names = {name: value for name, value in self.names.items() if _CONSTANT.fullmatch(name)}
        made = ("names", "blocks", "gathers", "lines", "code", "done", "took", "temporaries", "lowered")
        return {"names": names} | {name: value for name, value in vars(self).items() if name not in made}

    @classmethod
    def of(cls, kept: dict[str, Any], code: CodeType) -> Compiled:
        """A program that was kept."""
        sources, names = kept.pop("sources"), kept.pop("names") | NAMES
        program = cls(**kept, names=names)
        program.add(sources, code)
        return program

    def worked(self, block: int, threads: int) -> float:
        """Count that threads execute a block; what it has done so far, in instructions times threads."""
        found = self.done[block] = self.done.get(block, 0.0) + self.sources[block].size * threads
        return found

    @property
    def opcodes(self) -> set[str]:
        """Those of its instructions."""
        return {item.opcode for lines in self.lines for item in lines if item is not None}

    @property
    def source(self) -> str:
        """The generated source of all blocks."""
        return "\n".join(own.text for own in self.sources)

    @property
    def registers_at_launch(self) -> int:
        """Registers of a thread, where the entry says enough to know them: else 0, and setmaxnreg does nothing.

        Source: ptxas, which gives a kernel with .maxntid what fits as many blocks as .minnctapersm says, in eights.
        """
        directives = self.function.directives
        if "maxnreg" in directives:
            return min(-(-directives["maxnreg"][0] // 8) * 8, 256)
        threads = prod(directives.get("reqntid", directives.get("maxntid", (0,))))
        if not threads:
            return 0
        fitting = REGISTERS // (threads * max(1, directives.get("minnctapersm", (1,))[0]))
        return max(24, min(fitting // 8 * 8, 256))

    def shared_name(self, address: int) -> str:
        """What lies at an offset in shared memory, as the PTX calls it: "full[2]", "smem + 16"; empty for what has no name."""
        for start, size, each, name in self.shared_names:
            if start <= address < start + size:
                name = plain_name(name)
                index, rest = divmod(address - start, each)
                if rest or each == 1:
                    return f"{name} + {address - start}" if address > start else name
                return f"{name}[{index}]" if size > each else name
        return ""

    def first_of(self, block: int) -> Instruction | None:
        """The instruction with which a block starts; None if it has none."""
        return next((item for item in self.lines[block] if item is not None), None) if block >= 0 else None

    def instruction_at(self, block: int, line: int) -> Instruction | None:
        """The instruction behind a line of a block's source, counted from its `def`; None if there is none."""
        places = self.lines[block] if block < len(self.lines) else []
        return places[line] if line < len(places) else None

    def size_of(self, block: int) -> int:
        """The instructions of a block."""
        return self.sources[block].size

    @property
    def mean_size(self) -> float:
        """The instructions of a block, on average."""
        return sum(own.size for own in self.sources) / len(self.sources)


@dataclass
class Context:
    """What the functions of a program share while they are compiled."""

    module: Module
    addresses: dict[str, int]  # of global and constant variables, and of functions
    framed: frozenset[str] = frozenset()
    arch: str = "sm_90"
    watched: bool = False  # whether each instruction says that it is executed, and fences are: an observer is attached
    stepped: bool = False  # whether blocks tell the machine of every instruction before they execute it
    traced: bool = False  # whether registers say where their elements come from
    carried: dict[int, tuple[int, int]] = field(default_factory=dict)
    optimized: bool = True  # whether the assembler fuses products with sums, and computes functions of constants
    handed: frozenset[str] = frozenset()  # types of products that functions hand to each other, or to local memory
    constants: list[Any] = field(default_factory=list)
    known: dict[Any, str] = field(default_factory=dict)
    registers: list[tuple[str, np.dtype[Any], int]] = field(default_factory=list)
    blocks: int = 0
    local_bytes: int = 0
    arguments: int = 0  # where in local memory the arguments of a call lie, and its results
    results: int = 0
    enters: dict[str, int] = field(default_factory=dict)  # the first block of each function that can be called

    def constant(self, value: Any) -> str:
        """The name of a constant in generated source."""
        key = (type(value), value) if isinstance(value, (int, str, np.generic)) else id(value)
        if key not in self.known:
            self.known[key] = f"k{len(self.constants)}"
            self.constants.append(value)
        return self.known[key]

    def new_register(self, type: str, length: int = 1) -> int:
        """The number of one more register."""
        self.registers.append((type, CONTAINERS.get(type, np.dtype(np.uint64)), length))
        return len(self.registers) - 1

    def new_block(self) -> int:
        """The number of one more basic block."""
        self.blocks += 1
        return self.blocks - 1


def offsets(variables: Sequence[Variable], start: int = 0) -> tuple[list[int], int]:
    """Offsets of variables one after the other, each aligned as it asks, and where they end."""
    places, at = [], start
    for variable in variables:
        at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
        places.append(at)
        at += variable.size
    return places, at


def layout(variables: Sequence[Variable], start: int = 0) -> tuple[dict[str, int], int]:
    """The same, by name."""
    places, end = offsets(variables, start)
    return {variable.name: place for variable, place in zip(variables, places, strict=True)}, end


def plain_name(name: str) -> str:
    """What C++ calls a variable of a function whose PTX name is mangled.

    >>> plain_name("_ZZ2wg11CUtensorMapS_PfiiE4full"), plain_name("tile")
    ('full', 'tile')
    """
    found = (own for own in re.finditer(r"(?=E(\d{1,3})([A-Za-z_]\w*)$)", name) if len(own[2]) == int(own[1]))
    own = next(found, None) if name.startswith("_ZZ") else None
    return own[2] if own is not None else name
