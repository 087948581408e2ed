"""Probes of multimem: one thread, whose instruction takes registers that were loaded, and shows what it gives.

They are assembled, not run: a multicast object needs several devices. Kernel parameters: object, value, result.
"""

from __future__ import annotations

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import entry
from tcsim.isa.multimem import rows as multimem
from tcsim.isa.multimem.rows import MultimemRow

PARAMETERS = ("object", "value", "result")


class MultimemBody(Body):
    """The result of one thread."""

    def kernel(self, row: MultimemRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        body = [f".reg .u64 {', '.join('%' + own for own in PARAMETERS)};"]
        body += [f"ld.param.u64 %{own}, [{own}];" for own in PARAMETERS]
        if row.family in (multimem.COPY, multimem.COPY_REDUCE):
            return entry(name, PARAMETERS, [*body, *_copy(row)])
        reads = row.family == multimem.LOAD
        own = row.forms[0]["d" if reads else "value"]
        registers = tuple(f"%own{place}" for place in range(row.count))
        word = own.type if own.type in (".f32", ".f64") else f".b{8 * row.register_bytes}"
        body.append(f".reg {own.type} %own<{row.count}>;")
        access = [(register, row.register_bytes * place) for place, register in enumerate(registers)]
        statement = row.forms[0].statement(row.mnemonic, {"address": "%object", own.name: registers})
        loads = [f"ld.global{word} {register}, [%value+{at}];" for register, at in access]
        stores = [f"st.global{word} [%result+{at}], {register};" for register, at in access]
        return entry(
            name, PARAMETERS, [*body, statement, *stores, "ret;"] if reads else [*body, *loads, statement, "ret;"]
        )

    def plan(self, row: MultimemRow, inputs: dict[str, Array]) -> Plan:
        """Never launched: raises ValueError."""
        raise ValueError(f"{row.mnemonic} needs a multicast object, which a launch does not have")


def _copy(row: MultimemRow) -> list[str]:
    names = {"destination": "%object", "source": "%from", "size": "%size", "byte_mask": "%mask"}
    return [
        ".reg .b32 %from, %size;", ".reg .b16 %mask;", ".shared .align 16 .b8 image[64];", "mov.u32 %from, image;", "ld.global.u32 %size, [%value];",
        "ld.global.u16 %mask, [%value+4];", row.forms[0].statement(row.mnemonic, names), "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;",
        "ret;",
    ]  # fmt: skip


BODIES = dict.fromkeys(
    (
        multimem.LOAD, multimem.STORE, multimem.REDUCE, multimem.STORE_ASYNC, multimem.REDUCE_ASYNC, multimem.COPY, multimem.COPY_REDUCE,
    ),
    MultimemBody(),
)  # fmt: skip
