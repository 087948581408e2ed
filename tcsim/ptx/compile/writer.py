"""A function of a program while its source is written: names of registers and constants, places of variables, errors at an instruction.

No text of PTX reaches the generated source: registers are r0, r1, ...; everything else that an instruction needs is a constant k0, k1, ...
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import TARGETS
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import LOCAL_WINDOW, SHARED_WINDOW
from tcsim.model.emit import Line
from tcsim.model.statement import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Symbol,
    registers_in,
)
from tcsim.ptx.compile.compiled import Context, layout
from tcsim.ptx.compile.contraction import Choices, choices
from tcsim.ptx.compile.demand import Demand
from tcsim.ptx.text.syntax import Function, PtxError


@dataclass
class Head:
    """What a block fetches before its first line."""

    registers: set[int] = field(default_factory=set)
    places: set[str] = field(default_factory=set)  # "m_own", "m_all"

    def copy(self) -> Head:
        """One like it."""
        return Head(set(self.registers), set(self.places))

    @property
    def lines(self) -> tuple[str, ...]:
        """The source."""
        fetched = "; ".join(f"r{number} = R[{number}]" for number in sorted(self.registers))
        places = {"m_own": "m_own = T.own_everywhere", "m_all": "m_all = T.everywhere"}
        return (*([fetched] if fetched else []), *(line for name, line in places.items() if name in self.places))


class Places:
    """Where the variables of a function lie."""

    def __init__(self, function: Function, context: Context, shared: dict[str, int]) -> None:
        self.framed = function.name in context.framed  # whether they lie on the stack
        self.shared, self.everywhere = shared, context.addresses
        self.params, _ = layout(function.params if function.entry else ())
        passed = () if function.entry else (*function.params, *function.returns)
        own = [replace(variable, name=name) for name, variable in function.variables.items()]
        local = [variable for variable in passed if variable.space != "reg"]
        local += [variable for variable in own if variable.space in ("local", "param")]
        self.local, end = layout(local, 0 if self.framed else context.local_bytes)
        self.frame_bytes = end if self.framed else 0
        context.local_bytes = context.local_bytes if self.framed else end

    def find(self, name: str) -> tuple[str, int | None]:
        """The state space of a variable, and its address there; None if it has no place in memory."""
        for space, places in (("shared", self.shared), ("local", self.local), ("param", self.params)):
            if name in places:
                return space, places[name]
        return "global", self.everywhere.get(name)

    @property
    def names(self) -> list[str]:
        """All that have a place."""
        return [*self.shared, *self.everywhere, *self.params, *self.local]


class Writer:
    """What the parts of the compiler write one function through (`tcsim.model.emit.Emitter`)."""

    def __init__(self, function: Function, context: Context, shared: dict[str, int]) -> None:
        self.function, self.context, self.watched = function, context, context.watched
        self.instruction: Instruction | None = None
        self.index = self.block = 0
        self.head = Head()
        self.numbers = {name: context.new_register(*own) for name, own in function.registers.items()}
        self.places = Places(function, context, shared)
        self.frame = context.new_register("u64") if self.places.framed else -1  # that holds where the frame begins
        self.block_of: dict[int, int] = {}  # by the first instruction of a block: its number
        self.sites: dict[int, int] = {}  # of calls with results, by instruction: the block that takes them
        self.choices = choices(function, context.handed) if context.optimized else Choices()
        # By register that may hold a product: the two registers that keep its factors, and the one that says whether it does.
        self.factors: dict[str, tuple[int, int, int]] = {}
        self.demand = Demand(function)
        self.narrowest = 4  # bytes of the narrowest load, store or atomic that may be one of shared memory, at most 4
        self.narrowest_global = 4  # the same of global memory
        self.tells_order = self.competes = self.waits = self.async_proxy = False

    def narrow(self, space: str, size: int) -> None:
        """Count the bytes of an ordinary access, in a state space or, without one, in any."""
        if space.startswith("shared") or not space:
            self.narrowest = min(self.narrowest, size)
        if space == "global" or not space:
            self.narrowest_global = min(self.narrowest_global, size)

    # --- where threads go

    def after(self, index: int) -> int:
        """The block that begins with an instruction; -1 for none."""
        return self.block_of.get(index, -1)

    @property
    def following(self) -> int:
        """The block that begins behind the instruction; -1 for none."""
        return self.after(self.index + 1)

    @property
    def home(self) -> int:
        """The block in which the function returns; -1 where its end is that of the thread."""
        return -1 if self.function.entry else self.block_of[len(self.function.body)]

    @property
    def guard(self) -> str:
        """The source of the instruction's predicate; empty for none."""
        item = self.instruction
        if item is None or item.predicate is None:
            return ""
        return ("~" if item.negated else "") + self.register(item.predicate)

    def label(self, name: str) -> int:
        """The block at a label."""
        at = self.function.labels.get(name)
        if at is None:
            close = listing(nearest(name, self.function.labels)) or "the function has none"
            raise self.error(f"no label {shortened(name)}; nearest: {close}")
        return self.block_of[at]

    def targets(self, table: Operand | None) -> tuple[int, ...] | None:
        """The blocks of a list of branch targets; None for what is not one."""
        names = self.function.targets.get(table.name) if isinstance(table, Symbol) else None
        return None if names is None else tuple(map(self.label, names))

    # --- names

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        return self.context.constant(value)

    def array(self, number: int) -> str:
        """The array of a register by its number."""
        self.head.registers.add(number)
        return f"r{number}"

    def register(self, operand: Register) -> str:
        """The array of a register."""
        return self.array(self.numbers[operand.name])

    def type_of(self, operand: Register) -> str:
        """The declared type of a register."""
        return self.function.registers[operand.name][0]

    def is_read(self, to: Operand) -> bool:
        """Whether what the instruction writes to an operand may be read."""
        return any(True for name in registers_in(to) for _ in self.demand.flow.uses(self.index, name))

    def needed(self, to: Operand) -> int:
        """The bits that matter of what the instruction writes to an operand, of any of its registers."""
        needed = 0
        for name in registers_in(to):
            needed |= self.demand.bits(self.index, name)
        return needed

    # --- errors

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

    # --- operands

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
        if isinstance(operand, Immediate):
            return self.constant(code_of(operand, type))
        if not isinstance(operand, Symbol):
            raise self.error(f"an operand of type .{type} is a {operand.__class__.__name__.lower()}")
        address = self._address(operand)
        if self.places.framed and operand.name in self.places.local:
            return f"{self.stacked(address)}.astype({self.constant(container)})"
        return self.constant(container.type(address & ((1 << 8 * container.itemsize) - 1)))

    def put(self, operand: Operand, source: str, type: str, calls_machine: bool = False) -> Line:
        """The statement that assigns codes of a type to a destination."""
        if isinstance(operand, Sink):
            return Line(source, calls_machine)
        if not isinstance(operand, Register):
            raise self.error("a destination is a register")
        if CONTAINERS[self.type_of(operand)].itemsize < CONTAINERS[type].itemsize:
            raise self.error(f"{operand.name} is a .{self.type_of(operand)}, too narrow for .{type}")
        return Line(f"copyto({self.register(operand)}, {source}, where=w, casting='unsafe')", calls_machine)

    # --- places in memory

    def space_of(self, name: str) -> str:
        """The state space of a variable."""
        return self.places.find(name)[0]

    def _address(self, symbol: Symbol) -> int:
        """The address of a variable in its state space."""
        _, place = self.places.find(symbol.name)
        if place is None:
            close = listing(nearest(symbol.name, self.places.names))
            raise self.error(f"no variable {shortened(symbol.name)} with a place in memory; nearest: {close}")
        return place + symbol.offset

    def stacked(self, place: int) -> str:
        """The source of an address in the function's frame."""
        return f"({self.array(self.frame)}+{self.constant(np.uint64(place))})"

    def everywhere(self, place: int, own: bool = False) -> str:
        """The source of an address that all threads name alike; own: in the shared memory of their block."""
        name = "m_own" if own else "m_all"
        self.head.places.add(name)
        return f"{name}({self.constant(np.uint64(place))})"

    def variable(self, name: str) -> str:
        """The source of the address of a local variable or a parameter."""
        place = self.places.local[name]
        return self.stacked(place) if self.places.framed else self.everywhere(place)

    def place(self, operand: Operand, space: str) -> tuple[str, str]:
        """The source of an address as 64 bits, and its state space."""
        if not isinstance(operand, Address):
            raise self.error("an address stands in brackets")
        base = operand.base
        if not self.function.entry and space in ("param", "param::func"):
            space = "local"  # the parameters of a function lie there
        if isinstance(base, Register):
            return self._pointed(base, operand.offset, space), space
        if isinstance(base, Immediate):
            return self.everywhere(base.value + operand.offset, space in ("shared", "shared::cta")), space
        if not isinstance(base, Symbol):
            raise self.error("this cannot be an address")
        own, address = self.space_of(base.name), self._address(base) + operand.offset
        if not space:
            address += {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(own, 0)
        elif own == "local":
            space = "local"
        if self.places.framed and own == "local":
            return self.stacked(address), space
        return self.everywhere(address, own == "shared"), space

    def _pointed(self, base: Register, offset: int, space: str) -> str:
        """The source of what a register points to, and bytes behind it."""
        name, wide = self.register(base), CONTAINERS[self.type_of(base)].itemsize == 8
        pointed = name if wide else f"{name}.astype({self.constant(np.dtype(np.uint64))})"
        if offset:
            pointed = f"({pointed}+{self.constant(np.uint64(offset & (1 << 64) - 1))})"
            if space.startswith("shared") and CONTAINERS[self.type_of(base)].itemsize == 4 and offset < 0:
                pointed = f"({pointed}&{self.constant(np.uint64(0xFFFFFFFF))})"
        return pointed


def code_of(operand: Immediate, type: str) -> Any:
    """An immediate as a code of a type."""
    container = CONTAINERS[type]
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
