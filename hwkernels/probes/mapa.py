"""Probes of mapa: every lane of every block of a cluster of four maps an address into a block and reads what is there.

A lane stores what it read, and by how much the mapped address differs from its own. Kernel parameters: images, offset, rank, result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.isa.mapa import AddressRow

BLOCKS = 4
IMAGE_WORDS = 64
WORDS = 3
"""What a lane stores: the value, then the two words of the difference."""


class ClusterAddressBody(Body):
    """Values behind mapped addresses."""

    def kernel(self, row: AddressRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return entry(name, ("images", "offset", "rank", "result"), _body(row))

    def plan(self, row: AddressRow, inputs: dict[str, Array]) -> Plan:
        """images uint32 (samples, 4, 64), offset (bytes) and rank uint32 (samples, 4, 32) -> uint32 (samples, 4, 32, 3).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["images"])
        arrays = [checked("images", inputs["images"], (samples, BLOCKS, IMAGE_WORDS), np.uint32)]
        arrays += [checked(name, inputs[name], (samples, BLOCKS, LANES), np.uint32) for name in ("offset", "rank")]
        return Plan(
            inputs=tuple(arrays),
            output=((samples, BLOCKS, LANES, WORDS), np.dtype(np.uint32)),
            scalars=(),
            grid=(BLOCKS * samples, 1, 1),
            block=(LANES, 1, 1),
            cluster=(BLOCKS, 1, 1),
        )


BODY = ClusterAddressBody()


def _mapping(row: AddressRow) -> list[str]:
    """%near and %mapped, of the spelling's width and space, and the load from %mapped."""
    form = row.forms[0]
    lines = ["cvt.u64.u32 %near, %at;", *(["cvta.shared.u64 %near, %near;"] if row.generic else [])]
    if row.bits == 64:
        lines.append(form.statement(row.mnemonic, {"address": "%near", "rank": "%block"}))
        lines.append("sub.u64 %difference, %mapped, %near;")
    else:
        lines += [
            "mov.b64 {%low, %high}, %near;",
            form.statement(row.mnemonic, {"mapped": "%far", "address": "%low", "rank": "%block"}),
            "sub.u32 %low, %far, %low;",
            "mov.b64 %mapped, {%far, %high};",
            "mov.b64 %difference, {%low, 0};",
        ]
    return [*lines, f"ld{'' if row.generic else '.shared::cluster'}.u32 %value, [%mapped];"]


def _body(row: AddressRow) -> list[str]:
    return [
        ".reg .u32 %lane, %cta, %at, %block, %far, %low, %high, %value;",
        ".reg .u64 %near, %mapped, %difference, %wide_at;",
        f".shared .align 128 .b32 image[{IMAGE_WORDS}];",
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %cta, %ctaid.x;",
        *pointer("images", 4 * IMAGE_WORDS, "%cta"),
        *(line for name in ("offset", "rank") for line in pointer(name, 4 * LANES, "%cta")),
        *pointer("result", 4 * WORDS * LANES, "%cta"),
        "mul.wide.u32 %wide_at, %lane, 8;",
        "add.u64 %images, %images, %wide_at;",
        "ld.global.v2.u32 {%low, %high}, [%images];",
        "mov.u32 %at, image;",
        "mad.lo.u32 %at, %lane, 8, %at;",
        "st.shared.v2.u32 [%at], {%low, %high};",
        "mul.wide.u32 %wide_at, %lane, 4;",
        "add.u64 %offset, %offset, %wide_at;",
        "add.u64 %rank, %rank, %wide_at;",
        f"mul.wide.u32 %wide_at, %lane, {4 * WORDS};",
        "add.u64 %result, %result, %wide_at;",
        "ld.global.u32 %value, [%offset];",
        "ld.global.u32 %block, [%rank];",
        "mov.u32 %at, image;",
        "add.u32 %at, %at, %value;",
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
        *_mapping(row),
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
        "mov.b64 {%low, %high}, %difference;",
        "st.global.u32 [%result], %value;",
        "st.global.u32 [%result+4], %low;",
        "st.global.u32 [%result+8], %high;",
        "ret;",
    ]


BODIES = {"mapa": BODY}
