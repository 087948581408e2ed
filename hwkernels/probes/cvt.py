"""Probes of instructions in which every thread works on registers of its own: conversions, and special functions (special.py).

Thread i loads element i of each operand's array, runs the instruction once, and stores the result register as element i
of the output. Kernel parameters: the operands in PTX's order, then d, then the number of threads as u32. A second
operand form, in which the register of `a` has another type, is an entry point of its own, named after that type.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Body, Plan, form_of, grid_of
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.model.form import Form
from tcsim.model.row import Row


class ElementwiseBody(Body):
    """d = instruction(a, ...), each thread by itself."""

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return _kernel(row.mnemonic, form_of(row, variant), name)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """One array element per thread and operand, of the unsigned container of the operand's register.

        The width of `a` selects the operand form. A 64-bit result is two words, low first.
        """
        threads = len(inputs["a"])
        form = next((form for form in row.forms if registers_of(form)["a"].dtype == inputs["a"].dtype), row.forms[-1])
        registers = registers_of(form)
        d = registers["d"].dtype
        return Plan(
            inputs=tuple(
                np.ascontiguousarray(inputs[name], register.dtype)
                for name, register in registers.items()
                if name != "d"
            ),
            output=((threads, 2), np.dtype(np.uint32)) if d.itemsize == 8 else ((threads,), d),
            scalars=(np.uint32(threads),),
            grid=grid_of(threads),
            block=(BLOCK_THREADS, 1, 1),
            variant=form.name,
        )


BODY = ElementwiseBody()


def _transfer(register: Packed, word: str) -> list[str]:
    """The load ("ld") or store ("st") of this thread's element."""
    place, name = "[%address]", f"%{register.name}"
    first, second = (name, place) if word == "ld" else (place, name)
    return [
        f"mad.wide.u32 %address, %thread, {register.dtype.itemsize}, %base_{register.name};",
        f"{word}.global{register.type} {first}, {second};",
    ]


def _kernel(mnemonic: str, form: Form, entry: str) -> str:
    registers = registers_of(form)
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
    body += [form.statement(mnemonic), *_transfer(registers["d"], "st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {entry}({', '.join(parameters)})\n{{\n{text}\n}}\n"


BODIES = {"cvt": BODY}
