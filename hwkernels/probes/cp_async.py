"""Probes of cp.async: one warp a block; every thread copies once, at addresses of its own.

The block copies its image of shared memory in, runs the instruction between what it needs (a copy before a commit, a commit
before a wait, a barrier for an arrive), waits, and copies the image out. Kernel parameters: memory, smem, source,
destination, reads, then the result. `reads` is the source size, or whether the source is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hwkernels.probes import Array, Plan
from hwkernels.probes.images import IMAGE_BYTES, LANES, checked, entry, moves, pointer, wait
from hwkernels.probes.mbarrier import variant_of
from tcsim.isa.copies import copy_facts
from tcsim.isa.cp_async import opcodes
from tcsim.model.instruction import Instruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

MEMORY_BYTES = 4096
"""Global memory that a probe reads from."""
_COPY = "cp.async.ca.shared.global [%to], [%from], 16;"
POLICY = "createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;"


class AsyncCopyBody:
    """smem = cp.async(memory, smem)."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """An entry point for each list of operands."""
        return tuple(_variant(form) for form in copy_facts(row).forms)

    def forms_on(self, row: Row, target: str) -> tuple[str, ...]:
        """All of them: every target has every form."""
        return self.variants(row)

    def version_on(self, row: Row, target: str) -> str:
        """The lowest `.version` that has all forms, and the policy of a cache hint."""
        return max([form.ptx_version for form in copy_facts(row).forms] + ["7.1"], key=float)

    def complaint(self, instruction: Instruction, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """The row's instruction must occur once, with the copies and commits around it, and no other copy."""
        row, form = instruction.row, _form(instruction.row, variant)
        claimed = Counter(dict(opcodes(row, form, instruction.arch)))
        if copy_facts(row).operation != "copy":
            claimed["LDGSTS.E.128"] += 1
        claimed["LDGDEPBAR"] += _commits(form) + (copy_facts(row).operation == "copy")
        found = {name: counts[name] for name in counts if name.startswith(("LDGSTS", "LDGDEPBAR", "ARRIVES"))}
        return "; ".join(
            f"{name} {found.get(name, 0)} times instead of {claimed[name]}"
            for name in sorted({*found, *claimed})
            if found.get(name, 0) != claimed[name]
        )

    def kernel_on(self, row: Row, name: str, variant: str, target: str) -> str:
        """PTX of the entry point, the same for every target."""
        return self.kernel(row, name, variant)

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return entry(
            name, ("memory", "smem", "source", "destination", "reads", "result"), _body(row, _form(row, variant))
        )

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
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


def _variant(form: OperandForm) -> str:
    return variant_of(form).replace("=", "").replace("::", "_")


def _form(row: Row, variant: str) -> OperandForm:
    return next(form for form in copy_facts(row).forms if _variant(form) == variant)


def _commits(form: OperandForm) -> int:
    """Groups that a kernel commits before it waits for all but so many."""
    return int(form.name.removeprefix("N=")) + 1 if form.name.startswith("N=") else 0


def _own(row: Row, form: OperandForm) -> list[str]:
    """The instruction, and what must stand around it."""
    facts = copy_facts(row)
    if facts.operation == "copy":
        words = {"source_size": "%size", "ignore": "%ignore", "cache_policy": "%policy"}
        size = form.name.removeprefix("size=").partition(";")[0]
        text = ", ".join(["[%to]", "[%from]", size, *(words[name] for name in form.operands)])
        policy = [POLICY] if "cache_policy" in form.operands else []
        return [*policy, f"{row.mnemonic} {text};", "cp.async.wait_all;"]
    if facts.operation == "arrive":
        address = "[%barrier]" if facts.destination else "[%generic]"
        also = ["mbarrier.arrive.shared.b64 _, [%barrier];"] if facts.increments else []
        return [_COPY, f"{row.mnemonic} {address};", *also, *wait("%barrier")]
    if form.name.startswith("N="):
        commits = ["cp.async.commit_group;"] * _commits(form)
        return [_COPY, *commits, f"{row.mnemonic} {form.name.removeprefix('N=')};"]
    return [_COPY, f"{row.mnemonic};", *(["cp.async.wait_group 0;"] if facts.operation == "commit" else [])]


def _body(row: Row, form: OperandForm) -> list[str]:
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
