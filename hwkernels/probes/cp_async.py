"""Probes of cp.async: one warp a block; every thread copies once, at addresses of its own.

The block copies its image of shared memory in, runs the instruction between what it needs (a copy before a commit, a commit
before a wait, a barrier for an arrive), waits, and copies the image out. Kernel parameters: memory, smem, source,
destination, reads, then the result. `reads` is the source size, or whether the source is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import IMAGE_BYTES, LANES, checked, entry, moves, pointer, wait
from tcsim.isa.copies import WAITS, CopyInstruction, CopyRow
from tcsim.isa.cp_async import opcodes
from tcsim.model.form import Form

MEMORY_BYTES = 4096
"""Global memory that a probe reads from."""
_COPY = "cp.async.ca.shared.global [%to], [%from], 16;"
POLICY = "createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;"


class AsyncCopyBody(Body):
    """smem = cp.async(memory, smem)."""

    ptx_version = "7.1"  # of the policy of a cache hint
    watched = ("LDGSTS", "LDGDEPBAR", "ARRIVES")

    def claimed(self, instruction: CopyInstruction, variant: str, target: str) -> Mapping[str, int]:
        """The row's instruction, with the copies and commits around it."""
        row, form = instruction.row, form_of(instruction.row, variant)
        claimed = Counter(dict(opcodes(row, form, instruction.arch)))
        if row.operation != "copy":
            claimed["LDGSTS.E.128"] += 1
        claimed["LDGDEPBAR"] += _commits(form) + (row.operation == "copy")
        return claimed

    def kernel(self, row: CopyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return entry(
            name, ("memory", "smem", "source", "destination", "reads", "result"), _body(row, form_of(row, variant))
        )

    def plan(self, row: CopyRow, inputs: dict[str, Array]) -> Plan:
        """memory uint8 (samples, 4096), smem uint8 (samples, 1024), the others uint32 (samples, 32) -> uint32 (samples, 256).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["memory"])
        arrays = [
            checked("memory", inputs["memory"], (samples, MEMORY_BYTES), np.uint8),
            checked("smem", inputs["smem"], (samples, IMAGE_BYTES), np.uint8),
            *(checked(name, inputs[name], (samples, LANES), np.uint32) for name in ("source", "destination", "reads")),
        ]
        return Plan(
            inputs=tuple(arrays),
            output=((samples, IMAGE_BYTES // 4), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


BODY = AsyncCopyBody()


def _commits(form: Form) -> int:
    """Groups that a kernel commits before it waits for all but some of them."""
    return WAITS[form.name] + 1 if form.name in WAITS else 0


def _own(row: CopyRow, form: Form) -> list[str]:
    """The instruction, and what must stand around it."""
    names = {"destination": "%to", "source": "%from", "source_size": "%size", "cache_policy": "%policy"}
    names |= {"barrier": "%generic"} if row.has("barrier") and form["barrier"].space == "generic" else {}
    own = form.statement(row.mnemonic, names | {"groups": str(WAITS.get(form.name))})
    if row.operation == "copy":
        return [*([POLICY] if "cache_policy" in form else []), own, "cp.async.wait_all;"]
    if row.operation == "arrive":
        also = ["mbarrier.arrive.shared.b64 _, [%barrier];"] if row.increments else []
        return [_COPY, own, *also, *wait("%barrier")]
    commits = ["cp.async.commit_group;"] * _commits(form)
    return [_COPY, *commits, own, *(["cp.async.wait_group 0;"] if row.operation == "commit" else [])]


def _body(row: CopyRow, form: Form) -> list[str]:
    return [
        ".reg .pred %ignore, %first;",
        ".reg .u32 %lane, %sample, %image, %barrier, %to, %at, %size;",
        ".reg .u64 %from, %generic, %policy, %wide_at;",
        f".shared .align 128 .b8 image[{IMAGE_BYTES}];",
        ".shared .align 8 .b64 barrier;",
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        "mov.u32 %image, image;",
        "mov.u32 %barrier, barrier;",
        "cvt.u64.u32 %generic, %barrier;",
        "cvta.shared.u64 %generic, %generic;",
        *pointer("memory", MEMORY_BYTES),
        *pointer("smem", IMAGE_BYTES),
        *pointer("result", IMAGE_BYTES),
        *(line for name in ("source", "destination", "reads") for line in pointer(name, 4 * LANES)),
        "mul.wide.u32 %wide_at, %lane, 4;",
        *(f"add.u64 %{name}, %{name}, %wide_at;" for name in ("source", "destination", "reads")),
        *moves("global %smem", "shared %image"),
        "setp.eq.u32 %first, %lane, 0;",
        f"@%first mbarrier.init.shared.b64 [%barrier], {LANES};",
        "ld.global.u32 %at, [%source];",
        "cvt.u64.u32 %from, %at;",
        "add.u64 %from, %from, %memory;",
        "ld.global.u32 %at, [%destination];",
        "add.u32 %to, %image, %at;",
        # Through a shuffle, so that ptxas cannot split the address into two registers: with a cache hint it then emits
        # LDGSTS [R+UR4], desc[UR5], an instruction that an H200 finds illegal (ptxas 13.0.88 and 13.5.37).
        "shfl.sync.idx.b32 %to, %to, %lane, 31, 0xffffffff;",
        "ld.global.u32 %size, [%reads];",
        "setp.ne.u32 %ignore, %size, 0;",
        "bar.sync 0;",
        *_own(row, form),
        "bar.sync 0;",
        *moves("shared %image", "global %result"),
        "ret;",
    ]


BODIES = {"cp.async": BODY}
