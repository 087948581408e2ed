"""Regions: stretches of a basic block's source that compute, load, shuffle or store, as compiled code.

A basic block that has executed much is looked at again: its lines are called with recorded arrays in place of the registers (`tcsim.lowering`), and
what could be recorded becomes a loop over the threads. So the NumPy functions of the instructions' rows are what is compiled; lines that reach for
other lanes or the machine's state stay as they are, between the regions.

A region completes, or stops after the first threads. Then NumPy runs its lines for the others and raises the fault, if there is one. The result is the
same, because a region that loads does not store, and a region that stores checks all addresses first. While an observer hears every access, only
arithmetic is compiled. TCSIM_REGIONS: "auto" (blocks that have executed much), "all" (each when it is first executed), "off".
Without llvmlite there are none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from tcsim.isa.ordinary.warp import partners
from tcsim.lowering.calls import Calls
from tcsim.lowering.loop import Loop, Recording
from tcsim.lowering.objects import llvm
from tcsim.lowering.strip import Stored
from tcsim.lowering.traced import Node, Traced, Untraceable, traced
from tcsim.memory.windows import in_bank
from tcsim.model.emit import Line
from tcsim.model.registers import RegisterInstruction
from tcsim.ptx.compile.compiled import PARTS, SOURCE_NAME, BasicBlock, Compiled
from tcsim.ptx.compile.contraction import differ
from tcsim.ptx.compile.families import Bound, Rows
from tcsim.ptx.compile.temporaries import left

VARIABLE = "TCSIM_REGIONS"
_WORK = {"auto": 4_000_000, "all": 0, "off": float("inf")}
"""Instructions times threads that a basic block executes before it is looked at: about as long as compiling takes."""
WAYS = tuple(_WORK)
_LEAST = 2
"""Instructions of a region that is worth a call."""


def asked_way() -> str:
    """What the environment asks for."""
    return os.environ.get(VARIABLE) or "auto"


def work() -> float:
    """After how much work a basic block is looked at."""
    return _WORK[asked_way()] if llvm() is not None else float("inf")


@dataclass(eq=False)
class Region:
    """Lines that one call executes. counted: of what is not known how many threads executed it: in words."""

    loop: Loop
    counted: tuple[str, ...]
    reaches: bool  # whether it loads, stores, or reads registers of other lanes
    stores: bool
    lines: Callable[[], Callable[..., Any]] = field(repr=False)  # the same without compiled loads and stores

    @cached_property
    def rest(self) -> Callable[..., Any]:
        """What executes it where loads and stores are to be told, or may not go well."""
        return self.lines()

    def __call__(self, *parts: Any) -> None:
        """Execute it for the threads of a mask. parts: those of a block, and the mask."""
        _, registers, threads, accesses, *_, inexact, _, w = parts
        mask = threads.everyone if w is True else w
        if self.reaches and not accesses.reach.begin():
            self.rest(*parts)
            return
        done, counts = self.loop(registers.table, mask.ctypes.data, threads.count, accesses.reach.world)
        for text, count in zip(self.counted, counts, strict=True):
            if count:
                inexact.counts[text] += count
        if self.reaches:
            accesses.reach.end(self.stores)
        if done < threads.count:
            self.rest(*parts[:-1], mask & (threads.numbers >= done))


def lower(program: Compiled, number: int) -> None:
    """Let a basic block execute regions."""
    program.lowered += 1
    block = program.sources[number]
    own = _lowered(program, block, 0, len(block.lines), memory=True)
    if own is not None:
        program.blocks[number] = own


_CALL = ", ".join((*PARTS.values(), "w"))


def _lowered(program: Compiled, block: BasicBlock, start: int, end: int, memory: bool) -> Callable[..., Any] | None:
    """Some lines of a basic block with regions, at their places; None without any. memory: whether these may reach memory."""
    lines, found = list(block.lines), dict[str, Any]()
    lines[:start] = [Line("")] * start
    lines[end:] = []
    for place, (first, behind, region) in enumerate(_regions(program, block, start, end, memory)):
        name = f"region{place}"
        found[name] = region
        lines[first:behind] = [Line(f"{name}({_CALL})"), *[Line("")] * (behind - first - 1)]
    if not found and memory:
        return None
    own = BasicBlock(block.number, block.head, lines, block.items)
    names = program.names | found
    exec(compile(own.text, SOURCE_NAME, "exec"), names)
    made: Callable[..., Any] = names[f"b{block.number}"]
    return made


def _regions(
    program: Compiled, block: BasicBlock, start: int, end: int, memory: bool
) -> Iterator[tuple[int, int, Region]]:
    """The first line of each region, the line behind it, and what executes it."""
    recorded, first, behind, size = Recorded(program, memory), 0, 0, 0
    kinds = [(id(item), line.ends) for item, line in zip(block.items, block.lines, strict=False)]
    groups = [list(own) for _, own in groupby(range(start, min(end, len(kinds))), key=kinds.__getitem__)]
    for lines in [*groups, []]:
        sources = [block.lines[line] for line in lines]
        taken = bool(lines) and recorded.take(sources)
        if not taken and size:
            if recorded.worth(size):
                with suppress(Exception):  # whatever is wrong with it: these lines run in NumPy
                    rest = _others(program, block, first, behind)
                    yield first, behind, recorded.region(rest, left(program, block, behind))
            recorded, size = Recorded(program, memory), 0
            taken = bool(lines) and recorded.take(sources)
        if taken:
            first, size = (first if size else lines[0]), size + 1
            behind = lines[-1] + 1
        else:
            recorded = Recorded(program, memory)


def _others(program: Compiled, block: BasicBlock, first: int, behind: int) -> Callable[[], Callable[..., Any]]:
    """What makes the lines of a region without loads and stores of its own."""

    def make() -> Callable[..., Any]:
        made = _lowered(program, block, first, behind, memory=False)
        assert made is not None
        return made

    return make


class Recorded:
    """The registers of a program while lines are recorded: what the source of a basic block sees in place of the machine.

    memory: whether loads and stores are recorded too.
    """

    def __init__(self, program: Compiled, memory: bool) -> None:
        self.program, self.memory, self.calls = program, memory, Calls()
        self.values: dict[int, Traced] = {}  # of registers that were read or written
        self.made = Recording()
        self.texts: list[str] = []  # of what is counted
        self.long = False  # whether anything took a function of its own
        self.names = _Names(self)

    def take(self, lines: list[Line]) -> bool:
        """Record the lines of an instruction; False, and nothing has changed, if that cannot be."""
        kept = dict(self.values), list(self.texts), self.made.copy()
        self.names.assigned = {"w": True}
        try:
            for line in lines:
                if line.ends:
                    raise Untraceable("the end of a block")
                with np.errstate(all="ignore"):
                    exec(line.text, {"np": np, "__builtins__": {}}, self.names)
        except Exception:  # whatever NumPy code makes of arrays without values: the line runs in NumPy
            self.values, self.texts, self.made = kept
            return False
        return True

    def worth(self, size: int) -> bool:
        """Whether what was recorded of some instructions is worth a call."""
        return self.made.reaches or bool(self.made.results and (size >= _LEAST or self.long))

    def region(self, lines: Callable[[], Callable[..., Any]], left: frozenset[int]) -> Region:
        """What was recorded. left: registers that nobody reads afterwards. Raises Untraceable."""
        self.made.results = {number: node for number, node in self.made.results.items() if number not in left}
        return Region(Loop(self.made), tuple(self.texts), self.made.reaches, bool(self.made.stores), lines)

    # --- registers

    def register(self, number: int) -> Traced:
        """What a register holds now."""
        if number not in self.values:
            container = self.program.registers[number][1]
            node = Node("register", f"{container.kind}{container.itemsize}", (), number)
            if container.kind not in "bu" or self.program.registers[number][0] == "b128":
                raise Untraceable("a wide register")
            self.values[number] = Traced(np.array([node], object), container, number)
        return self.values[number]

    def put(self, to: Traced, value: Any, where: Any = True, casting: str = "") -> None:
        """`np.copyto` into a register, of the threads of a mask."""
        if to.register is None:
            raise Untraceable("an array that is no register")
        if to.register in self.made.given:
            raise Untraceable("a register that other lanes read")
        before = self.register(to.register)
        made: Any = traced(value, to.dtype).view(before.dtype)
        if made.size != 1:
            raise Untraceable("several values for one register")
        made = made.reshape(1)
        if where is not True:
            made = np.where(where, made, before)
        self.values[to.register] = Traced(made.nodes, before.dtype, to.register)
        self.made.results[to.register] = made.nodes[0]

    # --- memory

    def place(self, space: str, address: Any, size: int, w: Any) -> Node:
        """Where threads of a mask access some bytes."""
        kind = {
            "global": "global",
            "const": "global",
            "": "global",
            "shared": "shared",
            "shared::cluster": "shared",
        }.get(space)
        if kind is None or not self.memory or size > 16:
            raise Untraceable(f"an access of {size} bytes in state space {space!r}")
        whole = traced(address, np.uint64)
        (where,) = (in_bank(whole) if space == "const" else whole).nodes.reshape(-1)
        guard = () if w is True else (w.nodes.flat[0],)
        return Node("place", "u8", (where, *guard), (kind, size))

    def load(self, space: str, address: Any, size: int, w: Any) -> Any:
        """As `Accesses.load`: of 16 bytes words of 8."""
        if self.made.stores or self.made.given:
            raise Untraceable("a load behind a store or an exchange")
        place, unit = self.place(space, address, size, w), min(size, 8)
        self.made.places.append(place)
        words = [Node("loaded", f"u{unit}", (place, *place.args[1:]), at) for at in range(0, size, unit)]
        return Traced(np.array(words, object), np.dtype(f"u{unit}"))

    def store(self, space: str, address: Any, values: Any, size: int, w: Any) -> None:
        """As `Accesses.store`, of shared memory: who writes global memory is told apart by block."""
        if self.made.places or not space.startswith("shared"):
            raise Untraceable("a store behind a load, or elsewhere")
        unit = min(size, 8)
        words = traced(values, values.dtype).view(f"u{unit}") if size > 8 else traced(values, np.dtype(f"u{unit}"))
        nodes = tuple(words.nodes.reshape(-1))
        if len(nodes) * unit != size:
            raise Untraceable("values of another width")
        self.made.stores.append(Stored(self.place(space, address, size, w), nodes, size))

    def shuffle(self, mode: str, a: Any, b: Any, c: Any, w: Any) -> tuple[Any, Any]:
        """As `Warps.shuffle`, of a register that nothing before it has written."""
        (node,) = traced(a, np.uint32).nodes.reshape(-1)
        if (
            node.op != "register"
            or node.extra in self.made.results
            or self.made.places
            or w is not True
            or not self.memory
        ):
            raise Untraceable("an exchange of values that are in no register, or behind a load")
        lane = Traced(np.array([Node("lane", "i8")], object), np.int64)
        source, inside = partners(
            mode, lane, traced(b, np.uint32).astype(np.int64), traced(c, np.uint32).astype(np.int64)
        )
        self.made.given.add(node.extra)
        (place,) = source.astype(np.uint64).nodes.reshape(-1)
        return Traced(np.array([Node("other", node.type, (place,), node.extra)], object), np.uint32), inside

    # --- the machine

    def called(self, function: Any) -> Any:
        """A function of an instruction's row."""

        def call(*args: Any) -> Any:
            found = self.calls.call(function, *args)
            for own in found if isinstance(found, tuple) else (found,):
                self.long |= isinstance(own, Traced) and own.nodes.flat[0].op == "call"
            return found

        return call

    def perform(self, bound: Bound, given: Mapping[str, Any], w: Any) -> None:
        """An instruction of the catalog that each thread executes by itself, and that computes registers."""
        model, form = bound.model, bound.form
        if bound.lanes != 1 or not isinstance(model, RegisterInstruction) or form.together == "member_mask":
            raise Untraceable("an instruction of several threads")
        if bound.inexact:
            self.note(model.mnemonic, w)
        names, operands = list(given), []
        for name in names:
            value = given[name]
            if form[name].kind == "vector":
                parts = [self.register(own) for own in value.numbers.tolist()] if isinstance(value, Rows) else value
                value = np.stack([traced(own, own.dtype).reshape(1) for own in parts], -1)
            operands.append(value)
        results = self.called(_computing(model, form, tuple(names)))(*operands)
        for (_, numbers), values in zip(bound.results, results, strict=True):
            columns = values.reshape(1, -1)
            if columns.shape[1] != len(numbers):
                raise Untraceable("registers of another width")
            for place, number in enumerate(numbers.tolist()):
                if number >= 0:
                    self.put(self.register(number), columns[:, place], w)

    def note(self, text: str, w: Any) -> None:
        """Count the threads of a mask."""
        everyone = Traced(np.array([Node("const", "b1", (), 1)], object), bool)
        self._count(text, everyone if w is True else w)

    def _count(self, text: str, condition: Traced) -> None:
        self.texts.append(text)
        self.made.counted.append(condition.nodes.reshape(-1)[0])

    def contracted(self, instruction: str, type: str, own: Any, others: Any, w: Any) -> None:
        """Count the threads of a mask in which results differ."""
        wrong = None
        for other in others:
            one = differ(type, own, other)
            wrong = one if wrong is None else wrong | one
        if isinstance(wrong, Traced):
            self._count(f"mul + {instruction}", wrong if w is True else wrong & w)


_COMPUTING: dict[tuple[Any, ...], Any] = {}
"""Functions of instructions of the catalog, by instruction, form and the operands that they take."""


def _computing(model: RegisterInstruction, form: Any, names: tuple[str, ...]) -> Any:
    """What an instruction computes, as a function of its operands in order, with a tuple of results."""

    def compute(*operands: Any) -> tuple[Any, ...]:
        return tuple(model.compute(form, dict(zip(names, operands, strict=True))).values())

    return _COMPUTING.setdefault((id(model), id(form), names), compute)


class _Names(dict[str, Any]):
    """The names of generated source, as lines that are recorded find them."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self.recorded, self.assigned = recorded, dict[str, Any]()
        self._parts = {
            "copyto": recorded.put,
            "T": SimpleNamespace(
                narrow=lambda w, p: p if w is True else w & p,
                own_shared=_own,
                split=_split,
                unpack=_split,
                join=_join,
                pack=_join,
            ),
            "mem": SimpleNamespace(load=recorded.load, store=recorded.store),
            "warp": SimpleNamespace(shuffle=recorded.shuffle),
            "m_own": lambda address: _own(np.dtype(np.uint64)) + address,
            "m_all": lambda address: np.uint64(address),
            "fx": SimpleNamespace(perform=recorded.perform),
            "inexact": SimpleNamespace(note=recorded.note, contracted=recorded.contracted),
        }

    def __getitem__(self, name: str) -> Any:
        if name in self.assigned:
            return self.assigned[name]
        if name in self._parts:
            return self._parts[name]
        if name[0] == "r" and name[1:].isdigit():
            return self.recorded.register(int(name[1:]))
        value = self.recorded.program.names[name]
        return self.recorded.called(value) if callable(value) and not isinstance(value, (type, np.dtype)) else value

    def __setitem__(self, name: str, value: Any) -> None:
        self.assigned[name] = value


def _own(container: Any) -> Traced:
    """What addresses of the block's own shared memory have above the offset."""
    return Traced(np.array([Node("own", f"u{container.itemsize}")], object), container)


def _split(found: Any, size: int) -> Traced:
    """As `Threads.split`."""
    parts: Traced = traced(found, found.dtype).reshape(-1).view(f"u{size}").reshape(1, -1)
    return parts


def _join(parts: Sequence[Any], size: int) -> Traced:
    """As `Threads.join`, of at most 16 bytes."""
    kind = np.dtype(f"u{size}")
    joined = Traced(np.concatenate([traced(own, kind).nodes.reshape(-1) for own in parts]), kind)
    return joined.view(f"u{min(size * len(parts), 8)}")
