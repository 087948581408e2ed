"""Probes of instructions that only read and write registers.

Warp w loads each operand's registers from `operand[w][lane][register]`, runs the instruction once, and stores the
result likewise. Kernel parameters: the inputs in PTX order, then d, then the number of warps as u32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Plan, grid_of
from tcsim.layouts.block_scales import BlockScaling
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.row import Row


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
    return {o.name: Vector(o.name, o.type, o.count, o.registers) for o in row.operands.values()}


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


class ScaledBody(RegisterBody):
    """d = instruction(a, b, c[, metadata, selector], scale_a, {byte id, thread id}, scale_b, {byte id, thread id}).

    The selectors of scales are registers, which the machine instruction takes from one uniform register anyway; every
    lane of a warp gets the same. The selector of metadata is 0, the only one there is.
    """

    def sources(self, row: Row) -> list[Vector]:
        """a, b, c, the metadata of a sparse A, scales and their selectors."""
        metadata = [_word("metadata")] if _is_sparse(row) else []
        return [*super().sources(row), *metadata, _word("scale_a"), _word("scale_b"), *map(_word, SCALE_SELECTORS)]

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        sources, d = self.sources(row), operand_vectors(row)["d"]
        texts = [vector.text for vector in (d, *super().sources(row))]
        texts += ["%metadata0", "0"] if _is_sparse(row) else []
        texts += ["%scale_a0", "{%half0, %half1}", "%scale_b0", "{%half2, %half3}"]
        halves = [f"cvt.u16.u32 %half{i}, %{selector}0;" for i, selector in enumerate(SCALE_SELECTORS)]
        before = [f".reg .u16 %half<{len(halves)}>;", *halves]
        return _kernel(name, sources, d, f"{row.mnemonic} {', '.join(texts)};", before)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """Registers (warps, 32, registers) of every operand; scales and metadata (warps, 32); selectors (warps,)."""
        spread = dict(inputs)
        for name in SCALE_SELECTORS:
            spread[name] = np.repeat(np.asarray(inputs[name], np.uint32)[:, None], 32, axis=1)
        return super().plan(row, spread)


SCALE_SELECTORS = ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")
"""The selectors of scales, in PTX order."""


def _word(name: str) -> Vector:
    return Vector(name, ".b32", 1, 1, bare=True)


def _is_sparse(row: Row) -> bool:
    if not isinstance(row.facts, BlockScaling):
        raise TypeError(f"{row.mnemonic} has no block scaling")
    return row.facts.sparsity is not None


BODY = RegisterBody()
SPARSE = SparseBody()
SCALED = ScaledBody()


def _kernel(entry: str, sources: list[Vector], d: Vector, line: str, before: Sequence[str] = ()) -> str:
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
    body += [*before, line, *d.transfer("st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"


BODIES = {
    "mma.sync": BODY,
    "mma.sp": SPARSE,
    "mma.sync.block_scale": SCALED,
    "mma.sp.block_scale": SCALED,
    "wmma.mma": BODY,
}
