"""Regions: stretches of a basic block's source that compute registers from registers, as compiled code.

A basic block that has executed much is looked at again: its lines are called with recorded arrays in place of the registers (`tcsim.lowering`), and
what could be recorded becomes a loop over the threads. So the NumPy functions of the instructions' rows are what is compiled; lines that reach for
memory, other lanes or the machine's state stay as they are, between the regions. TCSIM_REGIONS: "auto" (blocks that have executed much), "all" (each
when it is first executed), "off". Without llvmlite there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from tcsim.lowering.calls import Calls
from tcsim.lowering.loop import Loop
from tcsim.lowering.objects import llvm
from tcsim.lowering.traced import Node, Traced, Untraceable, traced
from tcsim.model.emit import Line
from tcsim.model.registers import RegisterInstruction
from tcsim.ptx.compile.compiled import SOURCE_NAME, BasicBlock, Compiled
from tcsim.ptx.compile.contraction import differ
from tcsim.ptx.compile.families import Bound, Rows

VARIABLE = "TCSIM_REGIONS"
_WORK = {"auto": 4_000_000, "all": 0}
"""Instructions times threads that a basic block executes before it is looked at: about as long as compiling takes."""
_LEAST = 2
"""Instructions of a region that is worth a call."""


def work() -> float:
    """After how much work a basic block is looked at."""
    asked = os.environ.get(VARIABLE, "auto")
    return _WORK.get(asked, float("inf")) if llvm() is not None else float("inf")


@dataclass(frozen=True, eq=False)
class Region:
    """Lines that one call executes. counted: of what is not known how many threads executed it: in words."""

    loop: Loop
    counted: tuple[str, ...]

    def __call__(self, registers: Any, threads: Any, inexact: Any, w: Any) -> None:
        """Execute it for the threads of a mask."""
        mask = threads.everyone if w is True else w
        counts = self.loop(registers.table, mask.ctypes.data, threads.count)
        for text, count in zip(self.counted, counts, strict=True):
            if count:
                inexact.counts[text] += count


def lower(program: Compiled, number: int) -> None:
    """Let a basic block execute regions."""
    block = program.sources[number]
    lines, found = list(block.lines), dict[str, Any]()
    for place, (first, behind, region) in enumerate(_regions(program, block)):
        name = f"region{place}"
        found[name] = region
        lines[first:behind] = [Line(f"{name}(R, T, inexact, w)"), *[Line("")] * (behind - first - 1)]
    if not found:
        return
    own = BasicBlock(block.number, block.head, lines, block.items)
    names = program.names | found
    exec(compile(own.text, SOURCE_NAME, "exec"), names)
    program.blocks[number] = names[f"b{number}"]


def _regions(program: Compiled, block: BasicBlock) -> Iterator[tuple[int, int, Region]]:
    """The first line of each region, the line behind it, and what executes it."""
    recorded, first, size = Recorded(program), 0, 0
    kinds = [(id(item), line.ends) for item, line in zip(block.items, block.lines, strict=False)]
    groups = [list(own) for _, own in groupby(range(len(kinds)), key=kinds.__getitem__)]
    for lines in [*groups, []]:
        if lines and recorded.take([block.lines[line] for line in lines]):
            first, size = (first if size else lines[0]), size + 1
            behind = lines[-1] + 1
            continue
        if size and recorded.results and (size >= _LEAST or recorded.long):
            with suppress(Exception):  # whatever is wrong with it: these lines run in NumPy
                yield first, behind, recorded.region()
        recorded, size = Recorded(program), 0


class Recorded:
    """The registers of a program while lines are recorded: what the source of a basic block sees in place of the machine."""

    def __init__(self, program: Compiled) -> None:
        self.program, self.calls = program, Calls()
        self.values: dict[int, Traced] = {}  # of registers that were read or written
        self.results: dict[int, Node] = {}  # of those that were written
        self.counted: list[tuple[str, Node]] = []
        self.long = False  # whether anything took a function of its own
        self.names = _Names(self)

    def take(self, lines: list[Line]) -> bool:
        """Record the lines of an instruction; False, and nothing has changed, if that cannot be."""
        kept = dict(self.values), dict(self.results), list(self.counted)
        self.names.assigned = {"w": True}
        try:
            for line in lines:
                if line.ends:
                    raise Untraceable("the end of a block")
                with np.errstate(all="ignore"):
                    exec(line.text, {"np": np, "__builtins__": {}}, self.names)
        except Exception:  # whatever NumPy code makes of arrays without values: the line runs in NumPy
            self.values, self.results, self.counted = kept
            return False
        return True

    def region(self) -> Region:
        """What was recorded. Raises Untraceable."""
        texts = tuple(text for text, _ in self.counted)
        return Region(Loop(self.results, [node for _, node in self.counted]), texts)

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
        before = self.register(to.register)
        made: Any = traced(value, to.dtype).view(before.dtype)
        if made.size != 1:
            raise Untraceable("several values for one register")
        made = made.reshape(1)
        if where is not True:
            made = np.where(where, made, before)
        self.values[to.register] = Traced(made.nodes, before.dtype, to.register)
        self.results[to.register] = made.nodes[0]

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
        self.counted.append((text, (everyone if w is True else w).nodes.flat[0]))

    def contracted(self, instruction: str, type: str, own: Any, others: Any, w: Any) -> None:
        """Count the threads of a mask in which results differ."""
        wrong = None
        for other in others:
            one = differ(type, own, other)
            wrong = one if wrong is None else wrong | one
        if isinstance(wrong, Traced):
            self.counted.append((f"mul + {instruction}", (wrong if w is True else wrong & w).nodes.reshape(-1)[0]))


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
            "T": SimpleNamespace(narrow=lambda w, p: p if w is True else w & p),
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
