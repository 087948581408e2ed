"""Probes of spcompress and spdecompress: every thread compresses or decompresses registers of its own.

Inputs by name, first axis the thread: `data` uint32 (threads, n) and `spdesc` uint32 (threads,), or `mdata` and `cdata`. Output:
mdata and cdata one after the other, or data.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Body, Plan, grid_of
from tcsim.isa.spcompress import CompressionRow
from tcsim.model.operand import Operand


class CompressionBody(Body):
    """Registers in, registers out."""

    def kernel(self, row: CompressionRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        (form,) = row.forms
        vectors = [operand for operand in form.operands if operand.kind == "vector"]
        sources, results = _parts(row)
        parameters = (*(operand.name for operand in sources), "d")
        declared = vectors if vectors[0].name == "data" else vectors[::-1]
        body = [
            ".reg .pred %outside;",
            ".reg .u32 %thread, %block, %size, %threads, %spdesc;",
            ".reg .u64 %address;",
            *(f".reg .u64 %base_{key};" for key in parameters),
            *(f".reg .b32 %{operand.name}<{operand.count}>;" for operand in declared),
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %block, %ctaid.x;",
            "mov.u32 %size, %ntid.x;",
            "mad.lo.u32 %thread, %block, %size, %thread;",
            "ld.param.u32 %threads, [threads];",
            "setp.ge.u32 %outside, %thread, %threads;",
            "@%outside exit;",
        ]
        for key in parameters:
            body += [f"ld.param.u64 %base_{key}, [{key}];", f"cvta.to.global.u64 %base_{key}, %base_{key};"]
        for operand in sources:
            load = "b32" if operand in vectors else "u32"
            body += [f"mad.wide.u32 %address, %thread, {4 * operand.count}, %base_{operand.name};"]
            places = (f"%address+{4 * i}" if operand in vectors else "%address" for i in range(operand.count))
            body += [f"ld.global.{load} {own}, [{at}];" for own, at in zip(operand.names, places, strict=True)]
        body += [form.statement(row.mnemonic)]
        out = [register for operand in results for register in operand.names]
        body += [f"mad.wide.u32 %address, %thread, {4 * len(out)}, %base_d;"]
        body += [f"st.global.b32 [%address+{4 * i}], {register};" for i, register in enumerate(out)]
        text = "\n".join(f"    {line}" for line in (*body, "ret;"))
        listed = ", ".join([*(f".param .u64 {key}" for key in parameters), ".param .u32 threads"])
        return f"\n.visible .entry {name}({listed})\n{{\n{text}\n}}\n"

    def plan(self, row: CompressionRow, inputs: dict[str, Array]) -> Plan:
        """One thread a sample."""
        sources, results = _parts(row)
        threads = len(inputs[sources[0].name])
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[operand.name], np.uint32) for operand in sources),
            output=((threads, sum(operand.count for operand in results)), np.dtype(np.uint32)),
            scalars=(np.uint32(threads),),
            grid=grid_of(threads),
            block=(BLOCK_THREADS, 1, 1),
        )


def _parts(row: CompressionRow) -> tuple[list[Operand], list[Operand]]:
    """What the instruction reads and what it writes, each in PTX's order."""
    operands = row.forms[0].operands
    return [one for one in operands if one.role == "source"], [one for one in operands if one.role == "destination"]


BODY = CompressionBody()

BODIES = {"spcompress": BODY}
