"""Probes of st.async and red.async: a cluster of two blocks of one warp, whose first writes to the second's shared memory.

The second block's barrier expects the bytes of all 32 threads, and a wait that ends tests it; then the block copies its image
of shared memory out. Kernel parameters: smem, address, value, then the result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import CLUSTER_WAIT, IMAGE_BYTES, LANES, checked, entry, moves, pointer, wait
from tcsim.isa.st_async import RemoteRow

VALUE_WORDS = 4
"""32-bit words of a thread's value; the row takes the first ones."""


class RemoteStoreBody(Body):
    """smem of the second block = st.async or red.async of the first."""

    def kernel(self, row: RemoteRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return entry(name, ("smem", "address", "value", "result"), _body(row))

    def plan(self, row: RemoteRow, inputs: dict[str, Array]) -> Plan:
        """smem uint8 (samples, 1024), address uint32 (samples, 32), value uint32 (samples, 32, 4) -> uint32 (samples, 256).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["smem"])
        arrays = (
            checked("smem", inputs["smem"], (samples, IMAGE_BYTES), np.uint8),
            checked("address", inputs["address"], (samples, LANES), np.uint32),
            checked("value", inputs["value"], (samples, LANES, VALUE_WORDS), np.uint32),
        )
        return Plan(
            inputs=arrays,
            output=((samples, IMAGE_BYTES // 4), np.dtype(np.uint32)),
            scalars=(),
            grid=(2 * samples, 1, 1),
            block=(LANES, 1, 1),
            cluster=(2, 1, 1),
        )


BODY = RemoteStoreBody()


def _value(row: RemoteRow) -> tuple[list[str], tuple[str, ...]]:
    """What makes the value of the loaded words, and its registers."""
    if row.type == "b128":
        return [
            "mov.b64 %pair0, {%part0, %part1};",
            "mov.b64 %pair1, {%part2, %part3};",
            "mov.b128 %all, {%pair0, %pair1};",
        ], ("%all",)
    if row.word_bits == 32:
        return [], tuple(f"%part{place}" for place in range(row.elements))
    lines = [f"mov.b64 %pair{place}, {{%part{2 * place}, %part{2 * place + 1}}};" for place in range(row.elements)]
    return lines, tuple(f"%pair{place}" for place in range(row.elements))


def _body(row: RemoteRow) -> list[str]:
    lines, value = _value(row)
    generic = row.forms[0]["address"].space == "generic"
    far, far_barrier = ("%wide_far", "%wide_barrier") if generic else ("%far", "%far_barrier")
    mapped = [
        "mapa.shared::cluster.u32 %far, %at, 1;",
        "mapa.shared::cluster.u32 %far_barrier, %barrier, 1;",
    ]
    if generic:
        mapped = [
            line
            for name, place in (("%wide_far", "%at"), ("%wide_barrier", "%barrier"))
            for line in (
                f"cvt.u64.u32 {name}, {place};",
                f"cvta.shared.u64 {name}, {name};",
                f"mapa.u64 {name}, {name}, 1;",
            )
        ]
    return [
        ".reg .pred %first, %other;",
        ".reg .u32 %lane, %sample, %rank, %image, %barrier, %at, %far, %far_barrier;",
        ".reg .b32 %part<4>;",
        ".reg .b64 %pair<2>;",
        ".reg .u64 %wide_far, %wide_barrier, %wide_at;",
        *([".reg .b128 %all;"] if row.type == "b128" else []),
        f".shared .align 128 .b8 image[{IMAGE_BYTES}];",
        ".shared .align 8 .b64 barrier;",
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        "shr.u32 %sample, %sample, 1;",
        "mov.u32 %rank, %cluster_ctarank;",
        "setp.ne.u32 %other, %rank, 0;",
        "setp.eq.u32 %first, %lane, 0;",
        "mov.u32 %image, image;",
        "mov.u32 %barrier, barrier;",
        *pointer("smem", IMAGE_BYTES),
        *pointer("result", IMAGE_BYTES),
        *pointer("address", 4 * LANES),
        *pointer("value", 4 * VALUE_WORDS * LANES),
        *moves("global %smem", "shared %image"),
        "@%first mbarrier.init.shared::cta.b64 [%barrier], 1;",
        "@%first fence.mbarrier_init.release.cluster;",
        f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {LANES * row.bytes};",
        "mul.wide.u32 %wide_at, %lane, 4;",
        "add.u64 %address, %address, %wide_at;",
        f"mul.wide.u32 %wide_at, %lane, {4 * VALUE_WORDS};",
        "add.u64 %value, %value, %wide_at;",
        "ld.global.u32 %at, [%address];",
        "ld.global.v4.b32 {%part0, %part1, %part2, %part3}, [%value];",
        "add.u32 %at, %image, %at;",
        *mapped,
        *lines,
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
        "@%other bra RECEIVE;",
        row.forms[0].statement(row.mnemonic, {"address": far, "value": value, "barrier": far_barrier}),
        "bra.uni LEAVE;",
        "RECEIVE:",
        *wait("%barrier", CLUSTER_WAIT),
        "bar.warp.sync 0xffffffff;",
        *moves("shared %image", "global %result"),
        "LEAVE:",
        "bar.warp.sync 0xffffffff;",
        "barrier.cluster.arrive;",
        "barrier.cluster.wait;",
        "ret;",
    ]


BODIES = {"st.async": BODY, "red.async": BODY}
