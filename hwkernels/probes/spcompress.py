"""Probes of spcompress and spdecompress: every thread compresses or decompresses registers of its own.

Inputs by name, first axis the thread: `data` uint32 (threads, n) and `spdesc` uint32 (threads,), or `mdata` and `cdata`. Output:
mdata and cdata one after the other, or data.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Plan, grid_of
from tcsim.isa.spcompress import compression_of
from tcsim.model.row import Row

_ORDER = {"compress": (("data",), ("mdata", "cdata")), "decompress": (("mdata", "cdata"), ("data",))}
"""By `arithmetic`: the vectors in, and the vectors out."""


class CompressionBody:
    """Registers in, registers out."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """One form."""
        return ("",)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        widths = compression_of(row).widths
        sources, results = _ORDER[row.arithmetic]
        scalar = ("spdesc",) if row.arithmetic == "compress" else ()
        vectors = {key: "{" + ", ".join(f"%{key}{i}" for i in range(widths[key])) + "}" for key in widths}
        parameters = (*sources, *scalar, "d")
        body = [
            ".reg .pred %outside;",
            ".reg .u32 %thread, %block, %size, %threads, %spdesc;",
            ".reg .u64 %address;",
            *(f".reg .u64 %base_{key};" for key in parameters),
            *(f".reg .b32 %{key}<{width}>;" for key, width in widths.items()),
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
        for key in sources:
            body += [f"mad.wide.u32 %address, %thread, {4 * widths[key]}, %base_{key};"]
            body += [f"ld.global.b32 %{key}{i}, [%address+{4 * i}];" for i in range(widths[key])]
        if scalar:
            body += ["mad.wide.u32 %address, %thread, 4, %base_spdesc;", "ld.global.u32 %spdesc, [%address];"]
        operands = [vectors[key] for key in (*results, *sources)] + [f"%{key}" for key in scalar]
        body += [f"{row.mnemonic} {', '.join(operands)};"]
        out = [f"%{key}{i}" for key in results for i in range(widths[key])]
        body += [f"mad.wide.u32 %address, %thread, {4 * len(out)}, %base_d;"]
        body += [f"st.global.b32 [%address+{4 * i}], {register};" for i, register in enumerate(out)]
        text = "\n".join(f"    {line}" for line in (*body, "ret;"))
        listed = ", ".join([*(f".param .u64 {key}" for key in parameters), ".param .u32 threads"])
        return f"\n.visible .entry {name}({listed})\n{{\n{text}\n}}\n"

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """One thread a sample."""
        sources, results = _ORDER[row.arithmetic]
        names = (*sources, *(("spdesc",) if row.arithmetic == "compress" else ()))
        threads = len(inputs[names[0]])
        width = sum(compression_of(row).widths[key] for key in results)
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[key], np.uint32) for key in names),
            output=((threads, width), np.dtype(np.uint32)),
            scalars=(np.uint32(threads),),
            grid=grid_of(threads),
            block=(BLOCK_THREADS, 1, 1),
        )


BODY = CompressionBody()

BODIES = {"spcompress": BODY}
