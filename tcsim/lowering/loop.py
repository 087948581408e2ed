"""Recorded code as a loop over the threads of a block: registers in, registers out, for those that execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.lowering.llvm import WIDTH, Body, Unit, vector
from tcsim.lowering.objects import NAME, Entry, compiled
from tcsim.lowering.traced import Node


class Loop:
    """Compiled code of a block's registers.

    results: the new value of each register that is written, by its number. counted: conditions; a call says for how many threads each holds.
    """

    def __init__(self, results: Mapping[int, Node], counted: Sequence[Node] = ()) -> None:
        self.text, tables = _written(results, counted)
        self._entry: Entry = compiled(self.text)
        self._tables = tables
        self._addresses = np.array([own.ctypes.data for own in tables], np.uint64)
        self._where, self._counted = int(self._addresses.ctypes.data), len(counted)

    def __call__(self, registers: int, mask: int, threads: int) -> list[int]:
        """Run it; for how many threads each condition held. registers: where the addresses of the registers' arrays lie; mask: where the bools of the threads that execute do."""
        if not self._counted:
            self._entry(registers, mask, threads, self._where, 0)
            return []
        counts = np.zeros(self._counted, np.int64)
        self._entry(registers, mask, threads, self._where, counts.ctypes.data)
        return counts.tolist()


def _written(results: Mapping[int, Node], counted: Sequence[Node]) -> tuple[str, list[npt.NDArray[Any]]]:
    """The assembly, and the tables that it reads."""
    unit = Unit()
    body = Body(unit)
    values = {number: body.value(node) for number, node in results.items()}
    conditions = [body.value(node) for node in counted]
    for place, name in enumerate(conditions):
        both = body.two("and", "b1", name, "%m")
        bits = body.line(f"bitcast {vector('b1')} {both} to i{WIDTH}")
        unit.declared["llvm.ctpop"] = f"declare i{WIDTH} @llvm.ctpop.i{WIDTH}(i{WIDTH})"
        wide = body.line(f"zext i{WIDTH} {body.line(f'call i{WIDTH} @llvm.ctpop.i{WIDTH}(i{WIDTH} {bits})')} to i64")
        at = body.line(f"getelementptr i64, ptr %counts, i64 {place}")
        body.lines.append(f"  %c{place} = load i64, ptr {at}")
        body.lines.append(f"  %d{place} = add i64 %c{place}, {wide}")
        body.lines.append(f"  store i64 %d{place}, ptr {at}")
    for number, name in values.items():
        body.stored(results[number].type, number, name)
    pointers = [
        line
        for own in sorted(body.registers)
        for line in (f"  %q{own} = getelementptr ptr, ptr %regs, i64 {own}", f"  %r{own} = load ptr, ptr %q{own}")
    ]
    main = [
        f"define void @{NAME}(ptr %regs, ptr %mask, i64 %n, ptr %tables, ptr %counts) {{", "start:", *pointers, "  br label %step",
        "step:", "  %i = phi i64 [ 0, %start ], [ %j, %next ]", "  %at = getelementptr i8, ptr %mask, i64 %i",
        f"  %octets = load {vector('u1')}, ptr %at, align 1", f"  %m = icmp ne {vector('u1')} %octets, zeroinitializer",
        f"  %bits = bitcast {vector('b1')} %m to i{WIDTH}", f"  %some = icmp ne i{WIDTH} %bits, 0", "  br i1 %some, label %work, label %next",
        "work:", *body.lines, "  br label %next",
        "next:", f"  %j = add i64 %i, {WIDTH}", "  %more = icmp ult i64 %j, %n", "  br i1 %more, label %step, label %end",
        "end:", "  ret void", "}",
    ]  # fmt: skip
    return "\n".join([unit.text, *main]), unit.tables
