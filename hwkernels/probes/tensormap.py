"""Probes of tensormap.replace, tensormap.cp_fenceproxy and prefetch.tensormap: one warp a sample, on its own 128 bytes.

Inputs by name, first axis the sample: `maps` uint8 (samples, 128) and `value` uint64 (samples,), which fields given by an
immediate ignore. The operand forms are the ordinals or immediates that every target of the row takes: "o1", "v3". Which one
a batch runs is `form`, uint32 (samples,) of one value: an index into `variants`.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Plan
from tcsim.isa.tensormap import UpdateFacts
from tcsim.model.row import Row


class UpdateBody:
    """128 bytes in, 128 bytes out."""

    ptx_version = "8.3"

    def variants(self, row: Row) -> tuple[str, ...]:
        """The ordinals, or the immediates that every target takes."""
        facts = row.facts
        if not isinstance(facts, UpdateFacts):
            return ("",)
        values = [f"v{value}" for value, targets in facts.immediates if set(row.targets) <= set(targets)]
        return tuple(values) or tuple(f"o{place}" for place in range(facts.ordinals)) or ("",)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
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
            "st.global.v4.b32 [%theirs], {%v0, %v1, %v2, %v3};",
            "mad.lo.u32 %narrow, %lane, 16, %shared;",
            "st.shared.v4.b32 [%narrow], {%v0, %v1, %v2, %v3};",
            "cvt.u32.u64 %narrow, %value;",
            "moved:",
            "bar.warp.sync 0xffffffff;",
            *_action(row, variant),
        ]
        text = "\n".join(f"    {line}" for line in (*body, "ret;"))
        parameters = ".param .u64 maps, .param .u64 value, .param .u64 result"
        parameters += ", .param .align 64 .b8 map[128]" * takes_parameter(row)
        return f"\n.visible .entry {name}({parameters})\n{{\n{text}\n}}\n"

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
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


def takes_parameter(row: Row) -> bool:
    """Whether the map of an instruction is a kernel parameter: the address must be one in parameter space.

    Any other is CUDA_ERROR_MISALIGNED_ADDRESS on an H200.
    """
    return row.mnemonic.startswith("prefetch.param")


BODY = UpdateBody()


def _action(row: Row, variant: str) -> list[str]:
    if row.arithmetic == "copy":
        return [f"{row.mnemonic} [%to], [%shared], 128;"]
    if row.arithmetic == "prefetch":
        where = ["mov.b64 %from, map;"] if takes_parameter(row) else []
        return [*where, f"{row.mnemonic} [%from];"]
    facts = row.facts
    if not isinstance(facts, UpdateFacts):
        raise TypeError(f"{row.mnemonic} changes no tensor map")
    in_shared = facts.space == ".shared::cta"
    operands = ["[%shared]" if in_shared else "[%to]"]
    operands += [variant[1:]] if variant else []
    operands += [] if facts.immediates else ["%value" if facts.wide else "%narrow"]
    lines = [
        "setp.ne.u32 %other, %lane, 0;",
        f"@%other bra done;\n    {row.mnemonic} {', '.join(operands)};\n    done:",
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
