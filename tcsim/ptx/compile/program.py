"""A function compiled: basic blocks of PTX as Python functions on NumPy arrays, one entry of an array for each thread of a block.

No text of PTX reaches the generated source: registers are r0, r1, ...; everything else that an instruction needs is a constant
k0, k1, ... A line of source is one PTX instruction. `m` is the mask of the threads that execute: True for all, else an array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import TARGETS
from tcsim.isa.scalar.catalog import scalars as spelled
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from tcsim.model.statement import registers_in
from tcsim.ptx.compile import contractions, scalars
from tcsim.ptx.compile.carried import Carriers
from tcsim.ptx.compile.compiled import SHARED_START, Compiled, Context, Site, layout
from tcsim.ptx.compile.contraction import Choices, choices
from tcsim.ptx.compile.control import TERMINATORS, begin, end_of, returns_values, site
from tcsim.ptx.compile.convergence import MEMBERS, meeting, meetings, row_of, set_once, waits
from tcsim.ptx.compile.demand import Demand
from tcsim.ptx.compile.exactness import VARYING
from tcsim.ptx.compile.landing import Held, Landings
from tcsim.ptx.compile.spins import Spins
from tcsim.ptx.text.spellings import known
from tcsim.ptx.text.syntax import (
    TYPE_BYTES,
    Address,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    PtxError,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

Array = npt.NDArray[Any]

NAMES: dict[str, Any] = {"np": np, "copyto": np.copyto, **{name: ufunc for ufunc, name in scalars.UFUNCS.items()}}
"""What generated source may call besides the machine and its constants."""


class Compiler:
    """Makes the Python source of one function."""

    def __init__(
        self, function: Function, context: Context, shared: dict[str, int], handlers: dict[str, Any], families: Any = None
    ) -> None:  # fmt: skip
        self.function, self.context = function, context
        self.families = families  # binds instructions of the catalog
        self.handlers = handlers
        self.symbols, self.shared = context.addresses, shared
        self.constants, self.known = context.constants, context.known
        first = len(context.registers)
        self.numbers = {name: first + index for index, name in enumerate(function.registers)}
        context.registers += [
            (type, CONTAINERS.get(type, np.dtype(np.uint64)), length) for type, length in function.registers.values()
        ]
        self.framed = function.name in context.framed
        self.carriers = Carriers(function, self.numbers, context.carried) if context.traced else None
        self.base = ""  # the register that holds where the frame begins
        if self.framed:
            self.base = f"r{len(context.registers)}"
            context.registers.append(("u64", np.dtype(np.uint64), 1))
        self.params, _ = layout(function.params if function.entry else ())
        passed = [] if function.entry else [own for own in (*function.params, *function.returns) if own.space != "reg"]
        pieces = [_named(own, name) for name, own in function.variables.items() if own.space in ("local", "param")]
        self.local, end = layout([*passed, *pieces], 0 if self.framed else context.local_bytes)
        self.frame_bytes = end if self.framed else 0
        context.local_bytes = context.local_bytes if self.framed else end
        self.instruction: Instruction | None = None
        self.index = 0
        self.number_of_block = 0
        self.bounds: dict[
            str, Any
        ] = {}  # of lines of source: the instruction of the catalog that they run, and nothing else
        self.block_of: dict[int, int] = {}
        self.choices = choices(function, context.handed) if context.optimized else Choices()
        self.factors = contractions.registers(self)
        self.sites: dict[int, int] = {}  # of calls with results, by instruction: the block that takes them
        self.narrowest = 4  # bytes of the narrowest load, store or atomic that may be one of shared memory, at most 4
        self.narrowest_global = 4  # the same of global memory

    def narrow(self, space: str, size: int) -> None:
        """Count the bytes of an ordinary access, in a state space or, without one, in any."""
        if space.startswith("shared") or not space:
            self.narrowest = min(self.narrowest, size)
        if space == "global" or not space:
            self.narrowest_global = min(self.narrowest_global, size)

    # --- names in the source

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        key = (type(value), value) if isinstance(value, (int, str, np.generic)) else id(value)
        if key not in self.known:
            self.known[key] = f"k{len(self.constants)}"
            self.constants.append(value)
        return self.known[key]

    def register(self, operand: Register) -> str:
        """The array of a register."""
        return f"r{self.numbers[operand.name]}"

    def type_of(self, operand: Register) -> str:
        """The declared type of a register."""
        return self.function.registers[operand.name][0]

    def error(self, message: str) -> PtxError:
        """An error at the instruction that is compiled."""
        at = self.instruction
        return PtxError(f"{at.opcode if at else ''}: {message}", at.line if at else 0, at.column if at else 0)

    def require(self, targets: frozenset[str], number: int = 0) -> None:
        """Raise PtxError if the module's target is not one of those that have an instruction, or, before sm_70, is older than a compute capability."""
        target = self.context.module.target
        has = target in targets if target in TARGETS else int(target.removeprefix("sm_")) >= number
        if not has:
            valid = listing(name for name in TARGETS if name in targets)
            raise self.error(f".target {target} does not have this instruction; valid: {valid}")

    def value(self, operand: Operand, type: str) -> str:
        """The source of an operand's codes as a type."""
        container = CONTAINERS[type]
        if isinstance(operand, Register):
            name, own = self.register(operand), CONTAINERS[self.type_of(operand)]
            if own.itemsize == container.itemsize or type == "pred":
                return name
            if own.itemsize > container.itemsize:
                return f"{name}.astype({self.constant(container)})"
            raise self.error(f"{operand.name} is a .{self.type_of(operand)}, too narrow for .{type}")
        if isinstance(operand, Negated):
            return f"~{self.register(operand.register)}"
        if self.framed and isinstance(operand, Symbol) and operand.name in self.local:
            return f"({self.base}+{self.constant(np.uint64(self.address(operand)))}).astype({self.constant(container)})"
        return self.constant(self.number(operand, type))

    @cached_property
    def spins(self) -> Spins:
        """The loops that wait."""
        return Spins(self.function)

    @cached_property
    def demand(self) -> Demand:
        """Which bits of registers matter."""
        return Demand(self.function)

    def needed(self, to: Operand) -> int:
        """The bits that matter of what an instruction writes to an operand, of any of its registers."""
        found = 0
        for name in registers_in(to):
            found |= self.demand.bits(self.index, name)
        return found

    def number(self, operand: Operand, type: str) -> Any:
        """An immediate or an address known now, as a code of a type."""
        container = CONTAINERS[type]
        if isinstance(operand, Immediate):
            if type == "pred":
                return np.bool_(operand.value != 0)
            if operand.kind == "f64" and type == "f32":
                with np.errstate(over="ignore"):
                    return np.uint64(operand.value).view(np.float64).astype(np.float32).view(np.uint32)
            if operand.kind == "f32" and type == "f64":
                return np.uint32(operand.value).view(np.float32).astype(np.float64).view(np.uint64)
            if operand.kind == "int" and type in ("f32", "f64"):
                return np.array(operand.value, np.float32 if type == "f32" else np.float64).view(container)[()]
            return container.type(operand.value & ((1 << 8 * container.itemsize) - 1))
        if isinstance(operand, Symbol):
            return container.type(self.address(operand) & ((1 << 8 * container.itemsize) - 1))
        raise self.error(f"an operand of type .{type} is a {_kind(operand)}")

    def address(self, symbol: Symbol) -> int:
        """The address of a variable in its state space."""
        name = symbol.name
        for places in (self.shared, self.local, self.params, self.symbols):
            if name in places:
                return places[name] + symbol.offset
        raise self.error(
            f"no variable {shortened(name)} with a place in memory; nearest: "
            f"{listing(nearest(name, [*self.shared, *self.symbols, *self.params, *self.local]))}"
        )

    def space_of(self, name: str) -> str:
        """The state space of a variable."""
        for space, places in (
            ("shared", self.shared),
            ("local", self.local),
            ("param", self.params),
        ):
            if name in places:
                return space
        return "global"

    def place(self, operand: Operand, space: str) -> tuple[str, str]:
        """The source of an address as 64 bits, and its state space."""
        if not isinstance(operand, Address):
            raise self.error("an address stands in brackets")
        base = operand.base
        if not self.function.entry and space in ("param", "param::func"):
            space = "local"  # the parameters of a function lie there
        if isinstance(base, Register):
            name = self.register(base)
            wide = (
                name
                if CONTAINERS[self.type_of(base)].itemsize == 8
                else f"{name}.astype({self.constant(np.dtype(np.uint64))})"
            )
            if operand.offset:
                narrow = space.startswith("shared") and CONTAINERS[self.type_of(base)].itemsize == 4
                wide = f"({wide}+{self.constant(np.uint64(operand.offset & (1 << 64) - 1))})"
                if narrow and operand.offset < 0:
                    wide = f"({wide}&{self.constant(np.uint64(0xFFFFFFFF))})"
            return wide, space
        if isinstance(base, Immediate):
            own = "m_own" if space in ("shared", "shared::cta") else "m_all"
            return f"{own}({self.constant(np.uint64(base.value + operand.offset))})", space
        if isinstance(base, Symbol):
            own = self.space_of(base.name)
            address = self.address(base) + operand.offset
            if not space and own == "shared":
                address += SHARED_WINDOW
            elif not space and own == "local":
                address += LOCAL_WINDOW
            elif own == "local":
                space = "local"
            elif own == "shared":
                space = space or "shared"
            if self.framed and own == "local":
                return f"({self.base}+{self.constant(np.uint64(address))})", space
            return f"{'m_own' if own == 'shared' else 'm_all'}({self.constant(np.uint64(address))})", space
        raise self.error("this cannot be an address")

    def put(self, operand: Operand, source: str, type: str) -> str:
        """The statement that assigns codes of a type to a destination."""
        if isinstance(operand, Sink):
            return source
        if not isinstance(operand, Register):
            raise self.error("a destination is a register")
        own, container = CONTAINERS[self.type_of(operand)], CONTAINERS[type]
        if own.itemsize != container.itemsize and not (own.itemsize > container.itemsize):
            raise self.error(f"{operand.name} is a .{self.type_of(operand)}, too narrow for .{type}")
        return f"copyto({self.register(operand)}, {source}, where=w, casting='unsafe')"

    # --- basic blocks

    def partition(self) -> None:
        """Cut the body into basic blocks and give them numbers."""
        body, context = self.function.body, self.context
        self.constants_of = set_once(self.function)
        self.landings = Landings(self.function)
        self.held = Held(self.function)
        starts = {0, *self.function.labels.values()}
        for index, item in enumerate(body):
            stem = item.opcode.partition(".")[0]
            if stem in TERMINATORS or ((ends := self.handler(item.opcode, "ends")) and ends(item)):
                starts.add(index + 1)
            if waits(item):
                starts |= {index, index + 1}
            if stem == "call" and returns_values(item):
                self.sites[index] = -1
        if not self.function.entry:
            starts.add(len(body))  # where it returns
            context.enters[self.function.name] = context.blocks
            context.blocks += 1
        starts, self.gathers = meetings(self.function, starts, self.constants_of)
        order = sorted(start for start in starts if start <= len(body))
        self.block_of = {start: context.blocks + number for number, start in enumerate(order)}
        context.blocks += len(order)
        self.sites = {index: context.blocks + number for number, index in enumerate(self.sites)}
        context.blocks += len(self.sites)

    def generate(self) -> Iterator[tuple[str, list[Instruction | None], int, int]]:
        """Of each block, in order: its source, the instruction of every line, its instructions and the lanes it needs."""
        body = self.function.body
        if not self.function.entry:
            self.instruction = None
            yield self._function(self.context.enters[self.function.name], begin(self), None)
        order = list(self.block_of)
        for start, end in zip(order, [*order[1:], len(body)], strict=True):
            yield self._block(self.block_of[start], start, end)
        for index, number in self.sites.items():
            self.instruction = body[index]
            yield self._function(number, site(self, body[index], index), body[index])

    def _function(
        self, number: int, lines: list[str], item: Instruction | None
    ) -> tuple[str, list[Instruction | None], int, int]:
        """A block that belongs to no instruction, or only to a call."""
        text, places = self._framed(number, lines, [item] * len(lines))
        return text, places, 1, 0

    def handler(self, opcode: str, kind: str) -> Any:
        """What a family of instructions does at compile time, or None."""
        found = self.handlers.get(opcode.split(".")[0])
        return getattr(found, kind, None) if found else None

    def _block(self, number: int, start: int, end: int) -> tuple[str, list[Instruction | None], int, int]:
        """A basic block."""
        lines: list[str] = []
        own: list[Instruction | None] = []
        terminated = False
        landed: set[int] = set()
        self.number_of_block = number
        for index in range(start, end):
            self.index, self.instruction = index, self.function.body[index]
            late = self.landings.before(index, self.instruction, landed)
            try:
                found = self._statement(self.instruction, index)
            except PtxError:
                raise
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
                raise self.error(f"its operands do not fit: {shortened(str(error), 120)}") from error
            if self.context.watched:
                found = self._told(self.instruction, found)
            if late:
                numbers = frozenset(self.numbers[name] for name in late)
                found = [f"M.land({self.constant(numbers)}, {self._who(self.instruction)})", *found]
            if self.context.stepped:
                found = [f"M.at({self.constant(Site(self.instruction, self.function, self.numbers))}, w)", *found]
            if index == start and (members := self._members(self.instruction)):
                found = [f"x_ = M.missing({members}, w, {number})", "if x_ is not None: return x_", *found]
            lines += found
            own += [self.instruction] * len(found)
            terminated = lines[-1].startswith("return ") if lines else False
        if not terminated:
            found = end_of(self) if start == len(self.function.body) else [f"return {self.after(end)}"]
            lines += found
            own += [self.instruction] * len(found)
        text, places = self._framed(number, lines, own)
        return text, places, max(end - start, 1), self.gathers.get(start, 0)

    def _framed(
        self, number: int, lines: list[str], own: list[Instruction | None]
    ) -> tuple[str, list[Instruction | None]]:
        """The source of a block's function, and of each of its lines the instruction that it belongs to."""
        if self.families is not None and self.carriers is None:
            lines = self.families.grouped(self, lines)
        body = "\n".join(lines)
        head = [f"def b{number}(M, R, w):"]
        used = set(re.findall(r"\br(\d+)\b", body))
        if used:
            head.append("    " + "; ".join(f"r{name} = R[{name}]" for name in sorted(used, key=int)))
        if "m_own(" in body:
            head.append("    m_own = M.own_everywhere")
        if "m_all(" in body:
            head.append("    m_all = M.everywhere")
        first = own[0] if own else None
        return "\n".join([*head, *(f"    {line}" for line in lines)]), [first] * len(head) + own

    def _members(self, item: Instruction) -> str:
        """The source of the lanes that have to be there, where only running can tell."""
        if meeting(item, self.constants_of) != MEMBERS:
            return ""
        mask = self.value(item.operands[-1], "b32")
        return (
            mask
            if item.predicate is None
            else f"np.where({'~' if item.negated else ''}{self.register(item.predicate)}, {mask}, 0)"
        )

    def _told(self, item: Instruction, lines: list[str]) -> list[str]:
        """The source of an instruction that is reported to an observer."""
        touched = self.held.touched(item)
        if touched is not None:
            numbers = [self.constant(frozenset(self.numbers[name] for name in names)) for names in touched]
            lines = [f"M.touched({', '.join(numbers)}, w)", *lines]
        return [f"M.here = {self.constant(item)}", *lines] if touched or self._says(item, lines) else lines

    def _says(self, item: Instruction, lines: list[str]) -> bool:
        """Whether an instruction is reported to an observer: it asks the machine, and is not one of several that may be computed together."""
        together = (
            self.carriers is None
            and len(lines) == 1
            and (bound := self.bounds.get(lines[0])) is not None
            and bound.static
        )
        return not together and item.opcode.split(".")[0] not in TERMINATORS and any("M." in line for line in lines)

    def after(self, index: int) -> int:
        """The block that begins with an instruction; -1 for none."""
        return self.block_of.get(index, -1)

    def _guard(self, item: Instruction) -> str:
        """An instruction's predicate; empty for none."""
        if item.predicate is None:
            return ""
        return ("~" if item.negated else "") + self.register(item.predicate)

    def _who(self, item: Instruction) -> str:
        """The threads that execute an instruction."""
        guard = self._guard(item)
        return f"M.narrow(w, {guard})" if guard else "w"

    def _statement(self, item: Instruction, index: int) -> list[str]:
        stem = item.opcode.split(".")[0]
        spelled = known(item.opcode)
        self.require(spelled.targets, spelled.number)
        guard = self._guard(item)
        if stem in TERMINATORS:
            turns = ["M.turned()"] if index in self.spins.waiting else []
            if index in self.spins.visible:
                turns.append(f"M.note({self.constant(f'{stem} of a loop that waits')}, w)")
            return [*turns, *TERMINATORS[stem](self, item, guard, index)]
        lines = [*contractions.followed(self, item, index), *self._plain(item, index)]
        if self.carriers is not None:
            lines = self.carriers.lines(self, item, lines)
        if any(isinstance(own, Special) and own.name in VARYING for own in item.operands):
            lines.insert(0, f"M.note({self.constant(f'{item.opcode} %{self._varying(item)}')}, w)")
        if index in self.spins.told:
            lines.insert(0, f"M.note({self.constant(item.opcode)}, w)")
        if guard and lines[-1].startswith("return "):
            after = self.after(index + 1)
            return [
                *lines[:-1],
                f"return M.guarded(w, {guard}, {after}, lambda w: {lines[-1].removeprefix('return ')})",
            ]
        if guard:
            return [f"w_ = w; w = M.narrow(w, {guard})", *lines, "w = w_"]
        return lines

    @staticmethod
    def _varying(item: Instruction) -> str:
        return next(own.name for own in item.operands if isinstance(own, Special) and own.name in VARYING)

    def _plain(self, item: Instruction, index: int) -> list[str]:
        line = scalars.statement(self, item)
        if line is not None:
            return [line]
        stem = item.opcode.split(".")[0]
        own = self.handlers.get(stem)
        if self.families is not None and not getattr(own, "instead", False) and row_of(item.opcode) is not None:
            found_lines: list[str] = self.families(self, item)
            return found_lines
        if own is None:
            close = nearest(item.opcode, [*spelled(), *self.handlers])
            raise self.error(f"this instruction is not known; nearest: {listing(close)}")
        lines: list[str] = own(self, item)
        return lines


def _kind(operand: Operand) -> str:
    return type(operand).__name__.lower()


def _named(variable: Variable, name: str) -> Variable:
    return replace(variable, name=name)


__all__ = ["PARAM_WINDOW", "SHARED_START", "TYPE_BYTES", "Compiled", "Compiler", "Special", "Vector", "layout"]
