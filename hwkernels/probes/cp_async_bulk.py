"""Probes of cp.async.bulk and cp.reduce.async.bulk: one warp a block, whose first thread issues one copy.

Into shared memory: a barrier expects the bytes, and a wait that ends tests it. Out of shared memory: the memory that is
written is first filled with its image, a proxy fence orders that and the image of shared memory before the copy, then its
group is waited for. Between blocks: a cluster of two, where the image and the barrier of the second are written.
Kernel parameters: memory, smem, source, destination, size, options, then the result, which is the memory that was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.cp_async import POLICY
from hwkernels.probes.images import CLUSTER_WAIT, IMAGE_BYTES, LANES, checked, entry, moves, pointer, wait
from tcsim.isa.copies import GROUPS, WAITS, CopyInstruction, CopyRow
from tcsim.model.form import Form

OPTIONS = ("byte_mask", "ignore_left", "ignore_right", "cta_mask")
"""What the columns of `options` hold."""
_PARAMETERS = ("memory", "smem", "source", "destination", "size", "options", "result")
_STORE = "cp.async.bulk.global.shared::cta.bulk_group [%there], [%here], %size;"


class BulkCopyBody(Body):
    """The memory that one bulk copy writes."""

    ptx_version = "8.0"
    watched = ("UBLK", "UTMACMD")

    def claimed(self, instruction: CopyInstruction, variant: str, target: str) -> Mapping[str, int]:
        """The row's instruction, and the bulk copies that the kernel needs around it."""
        row, claimed = instruction.row, Counter(dict(instruction.lowering.opcodes))
        if row.operation in GROUPS:
            claimed["UBLKCP.G.S"] += 1
        if row.group:
            claimed["UTMACMDFLUSH"] += _commits(form_of(row, variant)) - (row.operation == "commit")
        return claimed

    def kernel(self, row: CopyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form = form_of(row, variant)
        if row.operation == "prefetch":
            body = _prefetch(row, form)
        elif row.has("barrier"):
            body = _across(row, form) if row.outward else _inward(row, form)
        else:
            body = _outward(row, form)
        return entry(name, _PARAMETERS, [*_HEAD, *body, "ret;"])

    def plan(self, row: CopyRow, inputs: dict[str, Array]) -> Plan:
        """memory and smem uint8 (samples, 1024), source, destination, size uint32 (samples, 1), options uint32 (samples, 4).

        The result is uint32 (samples, 256). Raises ValueError for other shapes.
        """
        samples = len(inputs["memory"])
        arrays = [checked(name, inputs[name], (samples, IMAGE_BYTES), np.uint8) for name in ("memory", "smem")]
        arrays += [checked(name, inputs[name], (samples, 1), np.uint32) for name in ("source", "destination", "size")]
        arrays.append(checked("options", inputs["options"], (samples, len(OPTIONS)), np.uint32))
        blocks = 2 if row.outward and row.has("barrier") else 1
        return Plan(
            inputs=tuple(arrays),
            output=((samples, IMAGE_BYTES // 4), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples * blocks, 1, 1),
            block=(LANES, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
            cluster=(blocks, 1, 1) if blocks > 1 else None,
        )


BODY = BulkCopyBody()

_HEAD = [
    ".reg .pred %first, %other;",
    ".reg .u32 %lane, %sample, %rank, %image, %barrier, %here, %far, %far_barrier, %at, %size;",
    ".reg .u32 %option0, %option1, %option2, %option3;",
    ".reg .b16 %mask, %blocks;",
    ".reg .u64 %there, %policy, %wide_at;",
    f".shared .align 128 .b8 image[{IMAGE_BYTES}];",
    ".shared .align 8 .b64 barrier;",
    "mov.u32 %lane, %tid.x;",
    "mov.u32 %sample, %ctaid.x;",
    "mov.u32 %image, image;",
    "mov.u32 %barrier, barrier;",
    "setp.eq.u32 %first, %lane, 0;",
]


def _commits(form: Form) -> int:
    return WAITS[form.name] + 1 if form.name in WAITS else 1


def _inputs() -> list[str]:
    """The pointers of this sample, its addresses, size and options in registers."""
    lines = [line for name in ("memory", "smem", "result") for line in pointer(name, IMAGE_BYTES)]
    lines += [line for name in ("source", "destination") for line in pointer(name, 4)]
    lines += [line.replace("%size", "%sizes") for line in pointer("size", 4)]
    lines += pointer("options", 4 * len(OPTIONS))
    lines += ["ld.global.u32 %size, [%sizes];"]
    lines += ["ld.global.v4.u32 {%option0, %option1, %option2, %option3}, [%options];"]
    return [*lines, "cvt.u16.u32 %mask, %option0;", "cvt.u16.u32 %blocks, %option3;"]


_REGISTERS = {"byte_mask": "%mask", "ignore_left": "%option1", "ignore_right": "%option2", "cache_policy": "%policy"}
"""What the kernels call the operands that they do not call by their names."""


def _call(row: CopyRow, form: Form, **addresses: str) -> list[str]:
    """The instruction under test, by the first thread."""
    wide = row.has("cta_mask") and form["cta_mask"].type == ".b32"
    names = _REGISTERS | {"cta_mask": "%option3" if wide else "%blocks"} | addresses
    policy = [f"@%first {POLICY}"] if "cache_policy" in form else []
    return [*policy, f"@%first {form.statement(row.mnemonic, names)}"]


def _inward(row: CopyRow, form: Form) -> list[str]:
    """Global memory to this block's shared memory."""
    return [
        *_inputs(),
        *moves("global %smem", "shared %image"),
        "@%first mbarrier.init.shared::cta.b64 [%barrier], 1;",
        "@%first fence.mbarrier_init.release.cluster;",
        "fence.proxy.async.shared::cta;",
        "ld.global.u32 %at, [%source];",
        "cvt.u64.u32 %wide_at, %at;",
        "add.u64 %there, %memory, %wide_at;",
        "ld.global.u32 %at, [%destination];",
        "add.u32 %here, %image, %at;",
        "bar.sync 0;",
        "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], %size;",
        *_call(row, form, destination="%here", source="%there"),
        *wait("%barrier"),
        "bar.sync 0;",
        *moves("shared %image", "global %result"),
    ]


def _outward(row: CopyRow, form: Form) -> list[str]:
    """Shared memory to the result, which holds the image of memory before."""
    commit, done = "@%first cp.async.bulk.commit_group;", "@%first cp.async.bulk.wait_group 0;"
    own = form.statement(row.mnemonic, {"groups": str(WAITS.get(form.name))})
    if row.operation == "commit":
        lines = [f"@%first {_STORE}", f"@%first {own}", done]
    elif row.operation == "wait":
        lines = [f"@%first {_STORE}", *[commit] * _commits(form), f"@%first {own}", done]
    else:
        lines = [*_call(row, form, destination="%there", source="%here"), commit, done]
    return [
        *_inputs(),
        *moves("global %smem", "shared %image"),
        *moves("global %memory", "global %result"),
        "ld.global.u32 %at, [%destination];",
        "cvt.u64.u32 %wide_at, %at;",
        "add.u64 %there, %result, %wide_at;",
        "ld.global.u32 %at, [%source];",
        "add.u32 %here, %image, %at;",
        "fence.proxy.async;",
        "bar.sync 0;",
        *lines,
    ]


def _across(row: CopyRow, form: Form) -> list[str]:
    """The first block's shared memory to the second's, which goes to the result."""
    return [
        "mov.u32 %rank, %cluster_ctarank;",
        "shr.u32 %sample, %sample, 1;",
        "setp.ne.u32 %other, %rank, 0;",
        *_inputs(),
        "@%other mov.u64 %smem, %memory;",
        *moves("global %smem", "shared %image"),
        "@%first mbarrier.init.shared::cta.b64 [%barrier], 1;",
        "@%first fence.mbarrier_init.release.cluster;",
        "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], %size;",
        "fence.proxy.async;",
        "ld.global.u32 %at, [%source];",
        "add.u32 %here, %image, %at;",
        "ld.global.u32 %at, [%destination];",
        "add.u32 %at, %image, %at;",
        "mapa.shared::cluster.u32 %far, %at, 1;",
        "mapa.shared::cluster.u32 %far_barrier, %barrier, 1;",
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
        "@%other bra RECEIVE;",
        *_call(row, form, destination="%far", source="%here", barrier="%far_barrier"),
        "bra.uni LEAVE;",
        "RECEIVE:",
        *wait("%barrier", CLUSTER_WAIT),  # the bytes' release has the scope of the cluster
        "bar.warp.sync 0xffffffff;",
        *moves("shared %image", "global %result"),
        "LEAVE:",
        "bar.warp.sync 0xffffffff;",
        "barrier.cluster.arrive;",
        "barrier.cluster.wait;",
    ]


def _prefetch(row: CopyRow, form: Form) -> list[str]:
    """A prefetch changes nothing: the result is the memory."""
    grouped = ["@%first cp.async.bulk.commit_group;", "@%first cp.async.bulk.wait_group 0;"]
    return [
        *_inputs(),
        "ld.global.u32 %at, [%source];",
        "cvt.u64.u32 %wide_at, %at;",
        "add.u64 %there, %memory, %wide_at;",
        *_call(row, form, source="%there"),
        *(grouped if row.group else []),
        *moves("global %memory", "global %result"),
    ]


BODIES = {"cp.async.bulk": BODY, "cp.reduce.async.bulk": BODY}
