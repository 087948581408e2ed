"""Probes of st.bulk: one warp a block, whose first thread fills a range of the block's shared memory with zeros.

Kernel parameters: smem, address, size, then the result, which is the shared memory afterwards.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import IMAGE_BYTES, LANES, checked, entry, moves, pointer
from tcsim.model.row import Row


class ZeroFillBody(Body):
    """smem with a range of zeros."""

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form = form_of(row, variant)
        names = {
            "address": "%generic" if form["address"].space == "generic" else "%at",
            "size": "%sizes32" if form["size"].type == ".u32" else "%sizes64",
        }
        body = [
            ".reg .pred %first;",
            ".reg .u32 %lane, %sample, %image, %at, %sizes32;",
            ".reg .u64 %generic, %sizes64;",
            f".shared .align 128 .b8 image[{IMAGE_BYTES}];",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            "mov.u32 %image, image;",
            "setp.eq.u32 %first, %lane, 0;",
            *pointer("smem", IMAGE_BYTES),
            *pointer("result", IMAGE_BYTES),
            *(line for name in ("address", "size") for line in pointer(name, 4)),
            *moves("global %smem", "shared %image"),
            "ld.global.u32 %at, [%address];",
            "add.u32 %at, %image, %at;",
            "cvt.u64.u32 %generic, %at;",
            "cvta.shared.u64 %generic, %generic;",
            "ld.global.u32 %sizes32, [%size];",
            "cvt.u64.u32 %sizes64, %sizes32;",
            "bar.sync 0;",
            f"@%first {form.statement(row.mnemonic, names)}",
            "bar.sync 0;",
            *moves("shared %image", "global %result"),
            "ret;",
        ]
        return entry(name, ("smem", "address", "size", "result"), body)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """smem uint8 (samples, 1024), address and size uint32 (samples, 1), form (samples,) -> uint32 (samples, 256).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["smem"])
        arrays = [checked("smem", inputs["smem"], (samples, IMAGE_BYTES), np.uint8)]
        arrays += [checked(name, inputs[name], (samples, 1), np.uint32) for name in ("address", "size")]
        return Plan(
            inputs=tuple(arrays),
            output=((samples, IMAGE_BYTES // 4), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


BODY = ZeroFillBody()

BODIES = {"st.bulk": BODY}
