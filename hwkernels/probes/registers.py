"""Probes of instructions that only read and write registers.

Warp w loads each operand's registers from `operand[w][lane][register]`, runs the instruction once, and stores the
result likewise. Kernel parameters: the inputs in PTX order, then d, then the number of warps as u32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Plan, grid_of
from tcsim.registry import Row
from tcsim.sparse import Sparsity


@dataclass(frozen=True)
class Vector:
    """One operand of the instruction in registers."""

    name: str
    kind: str  # PTX type of one register: ".b32", ".f64"
    count: int  # PTX registers
    words: int  # 32-bit words of all of them
    bare: bool = False  # written without braces

    @property
    def text(self) -> str:
        """The operand as the instruction line has it."""
        names = ", ".join(f"%{self.name}{i}" for i in range(self.count))
        return names if self.bare else "{" + names + "}"

    def transfer(self, word: str) -> list[str]:
        """Loads ("ld") or stores ("st") of all registers of this lane."""
        size = 4 * self.words // self.count
        lines = [f"mad.wide.u32 %address, %thread, {4 * self.words}, %base_{self.name};"]
        for i in range(self.count):
            place, register = f"[%address+{size * i}]", f"%{self.name}{i}"
            first, second = (register, place) if word == "ld" else (place, register)
            lines.append(f"{word}.global{self.kind} {first}, {second};")
        return lines


def operand_vectors(row: Row) -> dict[str, Vector]:
    """The fragments of a row's operands."""
    return {o.name: Vector(o.name, o.register_type, o.ptx_registers, o.registers) for o in row.operands.values()}


class RegisterBody:
    """d = instruction(a, b, c), each warp by itself."""

    def sources(self, row: Row) -> list[Vector]:
        """The register operands that the instruction reads, in PTX order."""
        return [vector for name, vector in operand_vectors(row).items() if name != "d"]

    def tail(self, row: Row, variant: str) -> str:
        """What follows the register operands."""
        return ""

    def variants(self, row: Row) -> tuple[str, ...]:
        """One form."""
        return ("",)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        sources, d = self.sources(row), operand_vectors(row)["d"]
        line = f"{row.mnemonic} {', '.join(vector.text for vector in (d, *sources))}{self.tail(row, variant)};"
        return _kernel(name, sources, d, line)

    def variant(self, row: Row, inputs: dict[str, Array]) -> str:
        """The form that a batch needs."""
        return ""

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """Registers (warps, lanes, registers) of every input operand."""
        d, sources = row.operands["d"], self.sources(row)
        warps = len(inputs[sources[0].name])
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[vector.name], np.uint32) for vector in sources),
            output=((warps, d.lanes, d.registers), np.dtype(np.uint32)),
            scalars=(np.uint32(warps),),
            grid=grid_of(32 * warps),
            block=(BLOCK_THREADS, 1, 1),
            variant=self.variant(row, inputs),
        )


class SparseBody(RegisterBody):
    """d = instruction(a, b, c, metadata, selector): an entry point for each value of the selector, an immediate."""

    def sources(self, row: Row) -> list[Vector]:
        """a, b, c and the metadata word of each lane."""
        return [*super().sources(row), Vector("metadata", ".b32", 1, 1, bare=True)]

    def tail(self, row: Row, variant: str) -> str:
        """The selector."""
        return ", " + variant.removeprefix("selector")

    def variants(self, row: Row) -> tuple[str, ...]:
        """One for each selector that the hardware runs."""
        if not isinstance(row.facts, Sparsity):
            raise TypeError(f"{row.mnemonic} has no sparsity facts")
        return tuple(f"selector{value}" for value in row.facts.selectors)

    def variant(self, row: Row, inputs: dict[str, Array]) -> str:
        """The one selector of the whole batch: `selector` (warps,) holds one value."""
        values = np.unique(inputs["selector"])
        if len(values) != 1:
            raise ValueError(f"a batch has one selector, not {values.tolist()}")
        variant = f"selector{values[0]}"
        if variant not in self.variants(row):
            raise ValueError(f"{row.mnemonic} has no probe of {variant}; valid: {', '.join(self.variants(row))}")
        return variant


BODY = RegisterBody()
SPARSE = SparseBody()


def _kernel(entry: str, sources: list[Vector], d: Vector, line: str) -> str:
    vectors = (*sources, d)
    parameters = [f".param .u64 {vector.name}" for vector in vectors] + [".param .u32 warps"]
    body = [
        ".reg .pred %outside;",
        ".reg .u32 %thread, %block, %size, %warp, %warps;",
        ".reg .u64 %address;",
        *(f".reg .u64 %base_{vector.name};" for vector in vectors),
        *(f".reg {vector.kind} %{vector.name}<{vector.count}>;" for vector in vectors),
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;",
        "shr.u32 %warp, %thread, 5;",
        "ld.param.u32 %warps, [warps];",
        "setp.ge.u32 %outside, %warp, %warps;",
        "@%outside exit;",
    ]
    for vector in vectors:
        name = vector.name
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    for vector in sources:
        body += vector.transfer("ld")
    body += [line, *d.transfer("st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"
