"""Probes of barrier.cluster: two blocks of four warps tell each other numbers, round after round.

In a round every thread stores its number in its own shared memory, arrives and waits, reads a number of the other block, arrives
and waits again, and makes its next number of the two. A thread that is not waited for is read a round too early or too late.
The row is one half of each meeting; an arrive that orders nothing has a fence before it. Kernel parameters: numbers, result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import checked, entry, pointer
from tcsim.isa.barrier_cluster import ClusterBarrierRow

BLOCKS, WARPS = 2, 4
THREADS = 32 * WARPS
ROUNDS = 12
STRIDE = 37
"""In round r, thread t reads the number of the other block's thread (t + STRIDE * (r + 1)) % THREADS."""
FACTOR, ADDEND = 1664525, 1013904223
"""A thread's next number is FACTOR * its own + what it read + ADDEND, modulo 2**32."""


class ClusterBarrierBody(Body):
    """The numbers after all rounds."""

    def scaffold(self, row: ClusterBarrierRow) -> dict[str, int]:
        """Besides the one that is claimed: each of the two meetings of a round has an arrive and a wait."""
        arrives = row.operation == "arrive"
        return {"UCGABAR_ARV": 1 if arrives else 2, "UCGABAR_WAIT": 2 if arrives else 1}

    def kernel(self, row: ClusterBarrierRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return entry(name, ("numbers", "result"), _body(row))

    def plan(self, row: ClusterBarrierRow, inputs: dict[str, Array]) -> Plan:
        """numbers uint32 (samples, 2, 128) -> uint32 (samples, 2, 128).

        Raises ValueError for another shape.
        """
        samples = len(inputs["numbers"])
        shape = (samples, BLOCKS, THREADS)
        return Plan(
            inputs=(checked("numbers", inputs["numbers"], shape, np.uint32),),
            output=(shape, np.dtype(np.uint32)),
            scalars=(),
            grid=(BLOCKS * samples, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(BLOCKS, 1, 1),
        )


BODY = ClusterBarrierBody()


def _meeting(row: ClusterBarrierRow) -> list[str]:
    own = row.forms[0].statement(row.mnemonic)
    if row.operation == "wait":
        return ["barrier.cluster.arrive;", own]
    fence = ["fence.acq_rel.cluster;"] if row.sem == "relaxed" else []
    return [*fence, own, "barrier.cluster.wait;"]


def _body(row: ClusterBarrierRow) -> list[str]:
    return [
        ".reg .pred %more;",
        ".reg .u32 %thread, %block, %rank, %own, %far, %at, %number, %other, %round;",
        ".reg .u64 %wide_at;",
        f".shared .align 128 .b32 told[{THREADS}];",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %rank, %cluster_ctarank;",
        "xor.b32 %rank, %rank, 1;",
        *pointer("numbers", 4 * THREADS, "%block"),
        *pointer("result", 4 * THREADS, "%block"),
        "mul.wide.u32 %wide_at, %thread, 4;",
        "add.u64 %numbers, %numbers, %wide_at;",
        "add.u64 %result, %result, %wide_at;",
        "ld.global.u32 %number, [%numbers];",
        "mov.u32 %own, told;",
        "mapa.shared::cluster.u32 %far, %own, %rank;",
        "mad.lo.u32 %own, %thread, 4, %own;",
        "mov.u32 %at, %thread;",
        "mov.u32 %round, 0;",
        "ROUND:",
        '.pragma "nounroll";',
        f"add.u32 %at, %at, {STRIDE};",
        f"and.b32 %at, %at, {THREADS - 1};",
        "mad.lo.u32 %other, %at, 4, %far;",
        "st.shared.u32 [%own], %number;",
        *_meeting(row),
        "ld.shared::cluster.u32 %other, [%other];",
        *_meeting(row),
        f"mad.lo.u32 %number, %number, {FACTOR}, %other;",
        f"add.u32 %number, %number, {ADDEND};",
        "add.u32 %round, %round, 1;",
        f"setp.lt.u32 %more, %round, {ROUNDS};",
        "@%more bra ROUND;",
        "st.global.u32 [%result], %number;",
        "ret;",
    ]


BODIES = {"barrier.cluster": BODY}
