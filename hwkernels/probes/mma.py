"""Probes of instructions that only read and write registers.

Warp w loads each operand's registers from `operand[w][lane][register]`, runs the instruction once, and stores the
result likewise. Kernel parameters: the inputs in PTX order, then d, then the number of warps as u32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Body, Plan, grid_of
from tcsim.model.form import Form
from tcsim.model.operand import Operand


def transfer(operand: Operand, word: Literal["ld", "st"], base: str = "") -> list[str]:
    """Loads or stores of a lane's registers %name0, %name1, ... of an operand; `base`: the array, if not its own."""
    size = int(operand.type[2:]) // 8
    lines = [f"mad.wide.u32 %address, %thread, {size * operand.count}, %base_{base or operand.name};"]
    for i in range(operand.count):
        place, register = f"[%address+{size * i}]", f"%{operand.name}{i}"
        first, second = (register, place) if word == "ld" else (place, register)
        lines.append(f"{word}.global{operand.type} {first}, {second};")
    return lines


def declaration(operand: Operand) -> str:
    """The registers of an operand."""
    return f".reg {operand.type} %{operand.name}<{operand.count}>;"


def _parts(form: Form) -> list[str]:
    """The numbers that share a vector with others: the selectors of scales."""
    return [part for operand in form.operands for part in operand.parts]


def sources(form: Form) -> list[Operand]:
    """The registers that the instruction reads in PTX's order, then the numbers that share a vector, each in one of its own."""
    whole = [item for item in form.operands if item.role == "source" and item.kind != "immediate" and not item.parts]
    return [*whole, *map(Operand, _parts(form))]


class RegisterBody(Body):
    """d = instruction(a, b, c, ...), each warp by itself.

    The selectors of scales are registers, which the machine instruction takes from one uniform register anyway; every
    lane of a warp gets the same.
    """

    def kernel(self, row: Any, name: str, variant: str) -> str:
        """PTX of the entry point."""
        (form,) = row.forms
        parts = _parts(form)
        names: dict[str, str | tuple[str, ...]] = {
            operand.name: f"%{operand.name}0" for operand in form.operands if operand.kind == "register"
        }
        names |= {
            operand.name: tuple(f"%half{parts.index(part)}" for part in operand.parts)
            for operand in form.operands
            if operand.parts
        }
        if variant:
            names["selector"] = variant.removeprefix("selector")
        halves = [f"cvt.u16.u32 %half{i}, %{part}0;" for i, part in enumerate(parts)]
        before = [f".reg .u16 %half<{len(parts)}>;", *halves] if parts else []
        return _kernel(name, sources(form), form["d"], [*before, form.statement(row.mnemonic, names)])

    def variant(self, row: Any, inputs: dict[str, Array]) -> str:
        """The entry point that a batch needs."""
        return ""

    def plan(self, row: Any, inputs: dict[str, Array]) -> Plan:
        """Registers (warps, lanes, registers) of every input operand; metadata and scales (warps, 32); selectors of scales (warps,)."""
        (form,) = row.forms
        given = dict(inputs)
        for name in _parts(form):
            given[name] = np.repeat(np.asarray(inputs[name], np.uint32)[:, None], 32, axis=1)
        d, names = row.operands["d"], [operand.name for operand in sources(form)]
        warps = len(given[names[0]])
        return Plan(
            inputs=tuple(np.ascontiguousarray(given[name], np.uint32) for name in names),
            output=((warps, d.lanes, d.registers), np.dtype(np.uint32)),
            scalars=(np.uint32(warps),),
            grid=grid_of(32 * warps),
            block=(BLOCK_THREADS, 1, 1),
            variant=self.variant(row, inputs),
        )


class SparseBody(RegisterBody):
    """d = instruction(a, b, c, metadata, selector): an entry point for each value of the selector, an immediate."""

    def variants(self, row: Any) -> tuple[str, ...]:
        """One for each selector that the hardware runs."""
        return tuple(f"selector{value}" for value in row.forms[0]["selector"].values)

    def variant(self, row: Any, inputs: dict[str, Array]) -> str:
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


def _kernel(entry: str, inputs: list[Operand], d: Operand, lines: Sequence[str]) -> str:
    arrays = (*inputs, d)
    parameters = [f".param .u64 {operand.name}" for operand in arrays] + [".param .u32 warps"]
    body = [
        ".reg .pred %outside;",
        ".reg .u32 %thread, %block, %size, %warp, %warps;",
        ".reg .u64 %address;",
        *(f".reg .u64 %base_{operand.name};" for operand in arrays),
        *map(declaration, arrays),
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;",
        "shr.u32 %warp, %thread, 5;",
        "ld.param.u32 %warps, [warps];",
        "setp.ge.u32 %outside, %warp, %warps;",
        "@%outside exit;",
    ]
    for operand in arrays:
        name = operand.name
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    for operand in inputs:
        body += transfer(operand, "ld")
    body += [*lines, *transfer(d, "st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"


BODIES = {
    "mma.sync": BODY,
    "mma.sp": SPARSE,
    "mma.sync.block_scale": BODY,
    "mma.sp.block_scale": BODY,
    "wmma.mma": BODY,
}
