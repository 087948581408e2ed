"""Probes of instructions in which every thread works on registers of its own: conversions.

Thread i loads element i of each operand's array, runs the instruction once, and stores the result register as element i
of the output. Kernel parameters: the operands in PTX's order, then d, then the number of threads as u32. A second
operand form, in which the register of `a` has another type, is an entry point of its own, named after that type.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Plan, grid_of
from tcsim.isa.cvt.rows import form_of
from tcsim.model.row import Row
from tcsim.numbers.conversion import Register


class ElementwiseBody:
    """d = instruction(a, ...), each thread by itself."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """One form, and a second if the register of `a` may have another type."""
        second = form_of(row).second_type
        return ("", second.removeprefix(".")) if second else ("",)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return _kernel(row.mnemonic, form_of(row).of_type(f".{variant}" if variant else ""), name)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """One array element per thread and operand, of the unsigned container of the operand's register.

        The width of `a` selects the operand form. A 64-bit result is two words, low first.
        """
        form, threads = form_of(row), len(inputs["a"])
        variant = "" if inputs["a"].dtype == form.registers["a"].dtype else form.second_type.removeprefix(".")
        chosen = form.of_type(f".{variant}" if variant else "")
        d = chosen["d"].dtype
        return Plan(
            inputs=tuple(
                np.ascontiguousarray(inputs[name], register.dtype) for name, register in chosen.items() if name != "d"
            ),
            output=((threads, 2), np.dtype(np.uint32)) if d.itemsize == 8 else ((threads,), d),
            scalars=(np.uint32(threads),),
            grid=grid_of(threads),
            block=(BLOCK_THREADS, 1, 1),
            variant=variant,
        )


BODY = ElementwiseBody()


def _transfer(register: Register, word: str) -> list[str]:
    """The load ("ld") or store ("st") of this thread's element."""
    place, name = "[%address]", f"%{register.name}"
    first, second = (name, place) if word == "ld" else (place, name)
    return [
        f"mad.wide.u32 %address, %thread, {register.dtype.itemsize}, %base_{register.name};",
        f"{word}.global{register.type} {first}, {second};",
    ]


def _call(mnemonic: str, names: list[str]) -> str:
    """The instruction; four sources are one vector operand."""
    operands = [f"%{name}" for name in names]
    if "f" in names:
        at = names.index("a")
        operands[at : at + 4] = ["{" + ", ".join(operands[at : at + 4]) + "}"]
    return f"{mnemonic} {', '.join(operands)};"


def _kernel(mnemonic: str, registers: dict[str, Register], entry: str) -> str:
    sources = [register for name, register in registers.items() if name != "d"]
    names = [*(register.name for register in sources), "d"]
    parameters = [f".param .u64 {name}" for name in names] + [".param .u32 threads"]
    body = [
        ".reg .pred %outside;",
        ".reg .u32 %thread, %block, %size, %threads;",
        ".reg .u64 %address;",
        *(f".reg .u64 %base_{name};" for name in names),
        *(f".reg {register.type} %{name};" for name, register in registers.items()),
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;",
        "ld.param.u32 %threads, [threads];",
        "setp.ge.u32 %outside, %thread, %threads;",
        "@%outside exit;",
    ]
    for name in names:
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    for register in sources:
        body += _transfer(register, "ld")
    body += [_call(mnemonic, list(registers)), *_transfer(registers["d"], "st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"


BODIES = {"cvt": BODY}
