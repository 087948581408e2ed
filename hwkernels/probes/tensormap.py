"""Probes of tensormap.replace, .query and .cp_fenceproxy and prefetch.tensormap: one warp a sample, on its own 128 bytes.

Inputs by name, first axis the sample: `maps` uint8 (samples, 128) and `value` uint64 (samples,), which fields given by an
immediate ignore. The variants are the ordinals or immediates that every target of the row takes: "o1", "v3". Which one a
batch runs is `form`, uint32 (samples,) of one value: an index into `variants`.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from tcsim.core.versions import latest
from tcsim.isa.tensormap import TensorMapRow


class UpdateBody(Body):
    """128 bytes in, 128 bytes out."""

    ptx_version = "8.3"

    def variants(self, row: TensorMapRow) -> tuple[str, ...]:
        """The ordinals, or the immediates that every target takes."""
        everywhere = [form for form in row.forms if set(row.targets) <= set(form.targets)]
        values = [value for form in everywhere if row.immediate for value in form["new_value"].values]
        return (*(f"v{value}" for value in values), *(f"o{place}" for place in row.ordinals)) or ("",)

    def version_on(self, row: TensorMapRow, target: str) -> str:
        """The lowest PTX ISA version that has what every target takes."""
        return latest(row.ptx_version, self.ptx_version)

    def kernel(self, row: TensorMapRow, name: str, variant: str) -> str:
        """PTX of the entry point: a copy finds other bytes at its destination, every bit inverted."""
        copies = row.operation == "copy"
        body = [
            ".reg .pred %other;",
            ".reg .b32 %lane, %sample, %shared, %narrow, %v<4>;",
            ".reg .b64 %from, %to, %value, %mine, %theirs;",
            ".shared .align 128 .b8 bytes[128];",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            "ld.param.u64 %from, [maps];",
            "mad.wide.u32 %from, %sample, 128, %from;",
            "ld.param.u64 %to, [result];",
            "mad.wide.u32 %to, %sample, 128, %to;",
            "ld.param.u64 %value, [value];",
            "mad.wide.u32 %value, %sample, 8, %value;",
            "ld.global.u64 %value, [%value];",
            "cvt.u32.u64 %narrow, %value;",
            "mov.u32 %shared, bytes;",
            "setp.gt.u32 %other, %lane, 7;",  # 8 lanes move 16 bytes each
            "mad.wide.u32 %mine, %lane, 16, %from;",
            "mad.wide.u32 %theirs, %lane, 16, %to;",
            "@%other bra moved;",
            "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%mine];",
            *([] if copies else ["st.global.v4.b32 [%theirs], {%v0, %v1, %v2, %v3};"]),
            "mad.lo.u32 %narrow, %lane, 16, %shared;",
            "st.shared.v4.b32 [%narrow], {%v0, %v1, %v2, %v3};",
            *([*_INVERTED, "st.global.v4.b32 [%theirs], {%v0, %v1, %v2, %v3};"] if copies else []),
            "cvt.u32.u64 %narrow, %value;",
            "moved:",
            "bar.warp.sync 0xffffffff;",
            *_action(row, variant),
        ]
        text = "\n".join(f"    {line}" for line in (*body, "ret;"))
        parameters = ".param .u64 maps, .param .u64 value, .param .u64 result"
        parameters += ", .param .align 64 .b8 map[128]" * takes_parameter(row)
        return f"\n.visible .entry {name}({parameters})\n{{\n{text}\n}}\n"

    def plan(self, row: TensorMapRow, inputs: dict[str, Array]) -> Plan:
        """One warp a sample."""
        maps = np.ascontiguousarray(inputs["maps"], np.uint8)
        values = np.ascontiguousarray(inputs["value"], np.uint64)
        forms = np.unique(inputs["form"]) if "form" in inputs else np.zeros(1, int)
        if len(forms) != 1 or maps.shape != (len(values), 128):
            raise ValueError(
                f"maps {maps.shape}, values {values.shape}, forms {forms.tolist()}; valid: one form, (n, 128), (n,)"
            )
        output = ((len(maps), 32), np.dtype(np.uint32))
        given = (maps[0].tobytes(),) if takes_parameter(row) else ()
        return Plan(
            (maps, values),
            output,
            (),
            (len(maps), 1, 1),
            (32, 1, 1),
            self.variants(row)[int(forms[0])],
            tensor_maps=given,
        )


def takes_parameter(row: TensorMapRow) -> bool:
    """Whether the map of an instruction is a kernel parameter: the address must be one in parameter space.

    Any other is CUDA_ERROR_MISALIGNED_ADDRESS on an H200.
    """
    return row.forms[0]["tensor_map"].space == "param"


_INVERTED = tuple(f"not.b32 %v{place}, %v{place};" for place in range(4))
BODY = UpdateBody()


def _action(row: TensorMapRow, variant: str) -> list[str]:
    form = row.forms[0]
    if row.operation == "copy":
        return [form.statement(row.mnemonic, {"destination": "%to", "tensor_map": "%shared"})]
    if row.operation == "prefetch":
        where = ["mov.b64 %from, map;"] if takes_parameter(row) else []
        return [*where, form.statement(row.mnemonic, {"tensor_map": "%from"})]
    in_shared = form["tensor_map"].space == "shared::cta"
    if row.operation == "query":  # the predicate takes the place of the first word
        return [
            *(["cvt.u64.u32 %from, %shared;"] if in_shared else []),
            form.statement(row.mnemonic, {"large": "%other", "tensor_map": "%from"}),
            "selp.b32 %narrow, 1, 0, %other;",
            "setp.ne.u32 %other, %lane, 0;",
            "@%other bra done;",
            "st.global.b32 [%to], %narrow;",
            "done:",
        ]
    value = variant[1:] if row.immediate else "%value" if row.wide else "%narrow"
    names = {"tensor_map": "%shared" if in_shared else "%to", "ordinal": variant[1:], "new_value": value}
    lines = [
        "setp.ne.u32 %other, %lane, 0;",
        f"@%other bra done;\n    {form.statement(row.mnemonic, names)}\n    done:",
    ]
    if in_shared:
        lines += [
            "bar.warp.sync 0xffffffff;",
            "setp.gt.u32 %other, %lane, 7;",
            "@%other bra out;",
            "mad.lo.u32 %narrow, %lane, 16, %shared;",
            "ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%narrow];",
            "st.global.v4.b32 [%theirs], {%v0, %v1, %v2, %v3};",
            "out:",
        ]
    return lines


BODIES = {"tensormap": BODY}
