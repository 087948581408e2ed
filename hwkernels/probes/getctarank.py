"""Probes of getctarank: every lane of a cluster of four maps an address into a block and asks whose it is.

Kernel parameters: offset, rank, result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.isa.mapa import AddressRow

BLOCKS = 4
IMAGE_WORDS = 64


class RankBody(Body):
    """The ranks."""

    def kernel(self, row: AddressRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        wide = row.bits == 64
        own = row.forms[0].statement(row.mnemonic, {"rank": "%found", "address": "%far" if wide else "%low"})
        space = "" if row.generic else ".shared::cluster"
        body = [
            ".reg .u32 %lane, %cta, %at, %block, %low, %high, %found;",
            ".reg .u64 %near, %far, %wide_at;",
            f".shared .align 128 .b32 image[{IMAGE_WORDS}];",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %cta, %ctaid.x;",
            *(line for parameter in ("offset", "rank", "result") for line in pointer(parameter, 4 * LANES, "%cta")),
            "mul.wide.u32 %wide_at, %lane, 4;",
            *(f"add.u64 %{parameter}, %{parameter}, %wide_at;" for parameter in ("offset", "rank", "result")),
            "ld.global.u32 %at, [%offset];",
            "ld.global.u32 %block, [%rank];",
            "mov.u32 %low, image;",
            "add.u32 %at, %at, %low;",
            "cvt.u64.u32 %near, %at;",
            "cvta.shared.u64 %near, %near;" if row.generic else "",
            f"mapa{space}.u64 %far, %near, %block;",
            "mov.b64 {%low, %high}, %far;",
            own,
            "st.global.u32 [%result], %found;",
            "ret;",
        ]
        return entry(name, ("offset", "rank", "result"), body)

    def plan(self, row: AddressRow, inputs: dict[str, Array]) -> Plan:
        """offset (bytes) and rank uint32 (samples, 4, 32) -> uint32 (samples, 4, 32).

        Raises ValueError for other shapes.
        """
        shape = (len(inputs["rank"]), BLOCKS, LANES)
        return Plan(
            inputs=tuple(checked(name, inputs[name], shape, np.uint32) for name in ("offset", "rank")),
            output=(shape, np.dtype(np.uint32)),
            scalars=(),
            grid=(BLOCKS * shape[0], 1, 1),
            block=(LANES, 1, 1),
            cluster=(BLOCKS, 1, 1),
        )


BODIES = {"getctarank": RankBody()}
