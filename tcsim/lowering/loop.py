"""Recorded code as loops over the threads of a block: registers in, registers out, for those that execute, and what they load and store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.lowering.llvm import WIDTH, Unit, vector
from tcsim.lowering.objects import NAME, Entry, compiled
from tcsim.lowering.strip import AT_PIECES, Stored, Strip, pairs
from tcsim.lowering.traced import Node


@dataclass(eq=False)
class Recording:
    """What a loop does for each thread: it loads, computes and counts, or it computes, stores and counts."""

    results: dict[int, Node] = field(
        default_factory=dict
    )  # the new value of each register that is written, by its number
    counted: list[Node] = field(default_factory=list)  # conditions
    places: list[Node] = field(
        default_factory=list
    )  # of loads: all are looked at, whether what lies there is used or not
    given: set[int] = field(default_factory=set)  # registers that other lanes read: they are not among the results
    stores: list[Stored] = field(default_factory=list)  # in order, each of all threads after the one before

    def copy(self) -> Recording:
        """What was recorded so far."""
        return Recording(**{name: own.copy() for name, own in vars(self).items()})

    @property
    def reaches(self) -> bool:
        """Whether it loads, stores, or reads registers of other lanes."""
        return bool(self.places or self.stores or self.given)


class Loop:
    """Compiled code of a block's registers."""

    def __init__(self, recording: Recording) -> None:
        self.text, tables = _written(recording)
        self._entry: Entry = compiled(self.text)
        self._tables = tables
        self._addresses = np.array([own.ctypes.data for own in tables], np.uint64)
        self._where, self._counted = int(self._addresses.ctypes.data), len(recording.counted)

    def __call__(self, registers: int, mask: int, threads: int, world: int = 0) -> tuple[int, list[int]]:
        """Run it for threads from the first on; how many are done, and for how many of these each condition held. All of a loop that stores, or none.

        registers: where the addresses of the registers' arrays lie; mask: where the bools of the threads that execute do; world: what
        `tcsim.lowering.strip` needs to know of memory.
        """
        if not self._counted:
            return self._entry(registers, mask, threads, self._where, 0, world), []
        counts = np.zeros(self._counted, np.int64)
        done = self._entry(registers, mask, threads, self._where, counts.ctypes.data, world)
        return done, counts.tolist()


_PARAMS = "ptr %regs, ptr %mask, i64 %n, ptr %tables, ptr %counts, ptr %world"


def _written(recording: Recording) -> tuple[str, list[npt.NDArray[Any]]]:
    """The assembly, and the tables that it reads."""
    unit, loops = Unit(), list[str]()
    if recording.stores:
        looked = Strip(unit, done="0")
        for own in recording.stores:
            looked.value(own.place)
        loops.append(_loop(0, looked))
    for own in recording.stores:
        strip = Strip(unit, checks=False)
        strip.store(own)
        loops.append(_loop(len(loops), strip, f"xor i64 %i, {WIDTH}" if pairs(own.size) else "add i64 %i, 0"))
    if recording.results or recording.counted or recording.places:
        strip = Strip(unit)
        _computed(strip, recording)
        loops.append(_loop(len(loops), strip))
    calls = []
    for number in range(len(loops)):
        calls += [
            f"  %d{number} = call i64 @loop{number}({_PARAMS})", f"  %whole{number} = icmp eq i64 %d{number}, %n",
            f"  br i1 %whole{number}, label %on{number}, label %out{number}", f"out{number}:", f"  ret i64 %d{number}", f"on{number}:",
        ]  # fmt: skip
    main = [f"define i64 @{NAME}({_PARAMS}) {{", *calls, "  ret i64 %n", "}", "!0 = !{}"]
    return "\n".join([unit.text, *loops, *main]), unit.tables


def _computed(strip: Strip, recording: Recording) -> None:
    """Load and compute; nothing is written before all of it is done."""
    for own in recording.places:
        strip.value(own)
    values = {number: strip.value(node) for number, node in recording.results.items()}
    conditions = [strip.value(node) for node in recording.counted]
    for place, name in enumerate(conditions):
        both = strip.two("and", "b1", name, "%m")
        bits = strip.line(f"bitcast {vector('b1')} {both} to i{WIDTH}")
        strip.unit.declared["llvm.ctpop"] = f"declare i{WIDTH} @llvm.ctpop.i{WIDTH}(i{WIDTH})"
        wide = strip.line(f"zext i{WIDTH} {strip.line(f'call i{WIDTH} @llvm.ctpop.i{WIDTH}(i{WIDTH} {bits})')} to i64")
        at = strip.line(f"getelementptr i64, ptr %counts, i64 {place}")
        strip.lines.append(f"  %c{place} = load i64, ptr {at}")
        strip.lines.append(f"  %d{place} = add i64 %c{place}, {wide}")
        strip.lines.append(f"  store i64 %d{place}, ptr {at}")
    for number, name in values.items():
        strip.stored(recording.results[number].type, number, name)


def _loop(number: int, strip: Strip, order: str = "add i64 %i, 0") -> str:
    """A function that takes the steps one after the other. order: which threads a step takes."""
    pointers = [
        line
        for own in sorted(strip.registers)
        for line in (f"  %q{own} = getelementptr ptr, ptr %regs, i64 {own}", f"  %r{own} = load ptr, ptr %q{own}")
    ]
    if strip.hints:
        pointers += [f"  %rows = getelementptr i64, ptr %world, i64 {AT_PIECES}", "  %row = load ptr, ptr %rows"]
    for hint in strip.hints:
        pointers += [f"  {hint} = alloca ptr", f"  store ptr %row, ptr {hint}"]
    return "\n".join([
        f"define internal i64 @loop{number}({_PARAMS}) {{", "start:", *pointers, "  br label %step",
        "step:", "  %i = phi i64 [ 0, %start ], [ %j, %next ]", f"  %s = {order}", "  %at = getelementptr i8, ptr %mask, i64 %s",
        f"  %octets = load {vector('u1')}, ptr %at, align 1", f"  %m = icmp ne {vector('u1')} %octets, zeroinitializer",
        f"  %bits = bitcast {vector('b1')} %m to i{WIDTH}", f"  %some = icmp ne i{WIDTH} %bits, 0", "  br i1 %some, label %work, label %next",
        "work:", *strip.lines, "  br label %next",
        "next:", f"  %j = add i64 %i, {WIDTH}", "  %more = icmp ult i64 %j, %n", "  br i1 %more, label %step, label %end",
        "end:", "  ret i64 %n", "leave:", f"  ret i64 {strip.done}", "}",
    ])  # fmt: skip
