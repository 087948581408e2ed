"""Probes of instructions that only read and write registers.

Warp w loads each operand's registers from `operand[w][lane][register]`, runs the instruction once, and stores the
result likewise. Kernel parameters: the inputs in PTX order a, b, c, then d, then the number of warps as u32.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Plan, grid_of
from tcsim.registry import Operand, Row


class RegisterBody:
    """d = instruction(a, b, c), each warp by itself."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """One form."""
        return ("",)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return _kernel(row, name)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """Registers (warps, lanes, registers) of every input operand."""
        d, warps = row.operands["d"], len(inputs["a"])
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[name], np.uint32) for name in _inputs(row)),
            output=((warps, d.lanes, d.registers), np.dtype(np.uint32)),
            scalars=(np.uint32(warps),),
            grid=grid_of(32 * warps),
            block=(BLOCK_THREADS, 1, 1),
        )


BODY = RegisterBody()


def _inputs(row: Row) -> list[str]:
    return [name for name in row.operands if name != "d"]


def _vector(operand: Operand) -> str:
    return "{" + ", ".join(f"%{operand.name}{i}" for i in range(operand.ptx_registers)) + "}"


def _transfer(operand: Operand, word: str) -> list[str]:
    """Loads ("ld") or stores ("st") of all registers of an operand of this lane."""
    size = 4 * operand.registers // operand.ptx_registers
    lines = [
        f"mad.wide.u32 %address, %thread, {4 * operand.registers}, %base_{operand.name};",
    ]
    kind = operand.register_type
    for i in range(operand.ptx_registers):
        place, register = f"[%address+{size * i}]", f"%{operand.name}{i}"
        first, second = (register, place) if word == "ld" else (place, register)
        lines.append(f"{word}.global{kind} {first}, {second};")
    return lines


def _kernel(row: Row, entry: str) -> str:
    inputs, d = [row.operands[name] for name in _inputs(row)], row.operands["d"]
    names = [operand.name for operand in (*inputs, d)]
    parameters = [f".param .u64 {name}" for name in names] + [".param .u32 warps"]
    body = [
        ".reg .pred %outside;",
        ".reg .u32 %thread, %block, %size, %warp, %warps;",
        ".reg .u64 %address;",
        *(f".reg .u64 %base_{name};" for name in names),
        *(f".reg {o.register_type} %{o.name}<{o.ptx_registers}>;" for o in (*inputs, d)),
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;",
        "shr.u32 %warp, %thread, 5;",
        "ld.param.u32 %warps, [warps];",
        "setp.ge.u32 %outside, %warp, %warps;",
        "@%outside exit;",
    ]
    for name in names:
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    for operand in inputs:
        body += _transfer(operand, "ld")
    vectors = ", ".join(_vector(operand) for operand in (d, *inputs))
    body += [f"{row.mnemonic} {vectors};", *_transfer(d, "st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"
