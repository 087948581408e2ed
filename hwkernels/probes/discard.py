"""Probes of discard and applypriority: one warp a sample, over four lines of 128 bytes.

Every lane stores a word to each line; lane 0 gives the hint for one line; after discard the lanes store new words there. Then all lines
are read. Kernel parameters: words (four lines), news (one line), line, image (scratch memory of four lines), result.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.isa.discard import DISCARD, PRIORITY, SIZE
from tcsim.model.row import Row

LINES = 4
PARAMETERS = ("words", "news", "line", "image", "result")


class CacheHintBody(Body):
    """The lines afterwards."""

    watched = ("CCTL.E.RML2", "CCTL.E.DML2")

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        discards = row.family == DISCARD
        own = form_of(row, variant).statement(row.mnemonic, {"address": "%at"})
        offsets = range(0, LINES * SIZE, SIZE)
        body = [
            ".reg .pred %first;",
            ".reg .u32 %lane, %sample, %word, %which;",
            ".reg .u64 %wide_at, %at, %mine;",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            *pointer("words", LINES * SIZE),
            *pointer("news", SIZE),
            *pointer("line", 4),
            *pointer("image", LINES * SIZE),
            *pointer("result", LINES * SIZE),
            "mul.wide.u32 %wide_at, %lane, 4;",
            "setp.eq.u32 %first, %lane, 0;",
            "ld.global.u32 %which, [%line];",
            f"mad.wide.u32 %at, %which, {SIZE}, %image;",
            "add.u64 %mine, %at, %wide_at;",
            *(f"add.u64 %{name}, %{name}, %wide_at;" for name in ("words", "news", "image", "result")),
            *(
                line
                for offset in offsets
                for line in (f"ld.global.u32 %word, [%words+{offset}];", f"st.global.u32 [%image+{offset}], %word;")
            ),
            "ld.global.u32 %word, [%news];",
            "membar.gl;",
            "bar.sync 0;",
            f"@%first {own}",
            "membar.gl;",
            "bar.sync 0;",
            "st.global.u32 [%mine], %word;" if discards else "",
            "membar.gl;",
            "bar.sync 0;",
            *(
                line
                for offset in offsets
                for line in (
                    f"ld.volatile.global.u32 %word, [%image+{offset}];",
                    f"st.global.u32 [%result+{offset}], %word;",
                )
            ),
            "ret;",
        ]
        return entry(name, PARAMETERS, body)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """words uint32 (samples, 4, 32), news uint32 (samples, 32), line uint32 (samples,) -> uint32 (samples, 4, 32).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["words"])
        shape = (samples, LINES, LANES)
        arrays = (
            checked("words", inputs["words"], shape, np.uint32),
            checked("news", inputs["news"], (samples, LANES), np.uint32),
            checked("line", inputs["line"], (samples,), np.uint32),
            np.zeros(shape, np.uint32),
        )
        return Plan(arrays, (shape, np.dtype(np.uint32)), (), (samples, 1, 1), (LANES, 1, 1))


BODIES = {DISCARD: CacheHintBody(), PRIORITY: CacheHintBody()}
