"""Probes of elect.sync: one warp a mask; the lanes of the mask elect one of them, the others pass by.

Each lane stores the elected lane and its own predicate; a lane that is not in the mask stores `ABSENT` twice. With the sink
the elected lane is stored as `ABSENT` too. Kernel parameters: membermask, result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.model.row import Row

ABSENT = 0xFFFF_FFFF


class LaneElectionBody(Body):
    """Lane and predicate of each lane."""

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form = form_of(row, variant)
        names = {"elected": "%chosen", "membermask": "%mask"} | (
            {} if form["lane"].kind == "sink" else {"lane": "%elected"}
        )
        body = [
            ".reg .pred %out, %chosen;",
            ".reg .u32 %lane, %sample, %mask, %elected, %told, %bit;",
            ".reg .u64 %wide_at;",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            *pointer("membermask", 4),
            *pointer("result", 8 * LANES),
            "mul.wide.u32 %wide_at, %lane, 8;",
            "add.u64 %result, %result, %wide_at;",
            "ld.global.u32 %mask, [%membermask];",
            f"mov.u32 %elected, {ABSENT};",
            f"mov.u32 %told, {ABSENT};",
            "shr.u32 %bit, %mask, %lane;",
            "and.b32 %bit, %bit, 1;",
            "setp.eq.u32 %out, %bit, 0;",
            "@%out bra STORE;",
            form.statement(row.mnemonic, names),
            "selp.u32 %told, 1, 0, %chosen;",
            "STORE:",
            "st.global.v2.u32 [%result], {%elected, %told};",
            "ret;",
        ]
        return entry(name, ("membermask", "result"), body)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """membermask uint32 (samples, 1), form (samples,) -> uint32 (samples, 32, 2).

        Raises ValueError for another shape.
        """
        samples = len(inputs["membermask"])
        return Plan(
            inputs=(checked("membermask", inputs["membermask"], (samples, 1), np.uint32),),
            output=((samples, LANES, 2), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


BODY = LaneElectionBody()

BODIES = {"elect.sync": BODY}
