"""Probes of createpolicy: one block of one thread a sample, since a warp has one policy. Kernel parameters: words, result.

The words of a sample: the fraction, the primary size, the total size, nothing, then two of the address or the access property.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import checked, entry, pointer
from tcsim.isa.createpolicy import PolicyRow

WORDS = 6


class PolicyBody(Body):
    """The policy."""

    def kernel(self, row: PolicyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        body = [
            ".reg .u32 %sample, %primary_size, %total_size;",
            ".reg .f32 %fraction;",
            ".reg .b64 %wide, %policy;",
            "mov.u32 %sample, %ctaid.x;",
            *pointer("words", 4 * WORDS),
            *pointer("result", 8),
            "ld.global.f32 %fraction, [%words];",
            "ld.global.u32 %primary_size, [%words+4];",
            "ld.global.u32 %total_size, [%words+8];",
            "ld.global.b64 %wide, [%words+16];",
            form_of(row, variant).statement(row.mnemonic, {"address": "%wide", "access_property": "%wide"}),
            "st.global.b64 [%result], %policy;",
            "ret;",
        ]
        return entry(name, ("words", "result"), body)

    def plan(self, row: PolicyRow, inputs: dict[str, Array]) -> Plan:
        """words uint32 (samples, 6), form (samples,) -> uint32 (samples, 2).

        Raises ValueError for another shape.
        """
        samples = len(inputs["words"])
        return Plan(
            inputs=(checked("words", inputs["words"], (samples, WORDS), np.uint32),),
            output=((samples, 2), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(1, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


BODIES = {"createpolicy": PolicyBody()}
