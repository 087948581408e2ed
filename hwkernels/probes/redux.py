"""Probes of redux.sync: one warp a sample; the lanes of the mask reduce, the others pass by and store `ABSENT`.

Kernel parameters: words, membermask, result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.core.targets import TARGETS
from tcsim.isa.redux import ReductionRow

ABSENT = 0xFFFF_FFFF


class LaneReductionBody(Body):
    """What each lane gets."""

    watched = ("REDUX", "CREDUX")

    def kernel(self, row: ReductionRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        (form,) = row.forms
        kind = form["a"].type
        body = [
            ".reg .pred %out;",
            f".reg {kind} %a, %d;",
            ".reg .u32 %lane, %sample, %mask, %told, %bit;",
            ".reg .u64 %wide_at;",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            *pointer("words", 4 * LANES),
            *pointer("membermask", 4),
            *pointer("result", 4 * LANES),
            "mul.wide.u32 %wide_at, %lane, 4;",
            "add.u64 %words, %words, %wide_at;",
            "add.u64 %result, %result, %wide_at;",
            "ld.global.u32 %mask, [%membermask];",
            f"ld.global{kind} %a, [%words];",
            f"mov.u32 %told, {ABSENT};",
            "shr.u32 %bit, %mask, %lane;",
            "and.b32 %bit, %bit, 1;",
            "setp.eq.u32 %out, %bit, 0;",
            "@%out bra STORE;",
            form.statement(row.mnemonic, {"membermask": "%mask"}),
            "mov.b32 %told, %d;",
            "STORE:",
            "st.global.u32 [%result], %told;",
            "ret;",
        ]
        return entry(name, ("words", "membermask", "result"), body)

    def claimed(self, instruction: Any, variant: str, target: str) -> Mapping[str, int]:
        """Before sm_90 it stands there twice: for a warp that comes as a whole, and for one that does not."""
        copies = 1 if TARGETS[target].number >= 90 else 2
        return {opcode: copies * times for opcode, times in instruction.lowering.opcodes}

    def plan(self, row: ReductionRow, inputs: dict[str, Array]) -> Plan:
        """a uint32 (samples, 32), membermask uint32 (samples,) -> uint32 (samples, 32).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["a"])
        return Plan(
            inputs=(
                checked("a", inputs["a"], (samples, LANES), np.uint32),
                checked("membermask", inputs["membermask"], (samples,), np.uint32),
            ),
            output=((samples, LANES), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
        )


BODIES = {"redux.sync": LaneReductionBody()}
