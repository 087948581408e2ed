"""Probes of tcgen05.alloc, dealloc, relinquish_alloc_permit and commit.

Allocation: the first warp of each CTA allocates twice, each time the columns that the sample says, and stores the two
addresses. Inputs: `columns` uint32 (samples, 2); a form with an immediate always allocates that number. Enough shared
memory is asked for that an SM holds one CTA: what another one holds would move the addresses.

Commit: one thread of the first CTA of a cluster of two commits, each CTA waits a while for its own barrier, and stores
whether its first phase is complete. Inputs: `mask` uint32 (samples,); a commit without `.multicast` ignores it.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes import tmem_kernel as kernel
from tcsim.isa.tcgen05.control import IMMEDIATE, REGISTER, AllocationRow, CommitRow, allocation_opcodes

IMMEDIATES = {False: (32, 64, 128, 256, 512), True: (32, 64, 96, 128, 256, 512)}
"""By `.exclusive`: immediates that have a kernel."""
ALONE_BYTES = 180 * 1024
PATIENCE = 1 << 16  # tries of a barrier that may never complete


class AllocationBody(Body):
    """addresses = tcgen05.alloc(columns), and back."""

    def variants(self, row: AllocationRow) -> tuple[str, ...]:
        """The number of columns in a register, and as an immediate; relinquish has no such operand."""
        if len(row.forms) == 1:
            return (REGISTER,)
        return (REGISTER, *(f"{IMMEDIATE}{count}" for count in IMMEDIATES[row.exclusive]))

    def scaffold(self, row: AllocationRow) -> dict[str, int]:
        """Opcodes around the instruction."""
        opcodes = {word: dict(allocation_opcodes(row, word)) for word in ("alloc", "dealloc")}
        return {name: times for word, own in opcodes.items() if word != row.operation for name, times in own.items()}

    def kernel(self, row: AllocationRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        group, word = row.cta_group, ".exclusive" * row.exclusive
        count = "%count" if variant == REGISTER else variant.removeprefix(IMMEDIATE)
        steps = {
            "alloc": f"tcgen05.alloc{word}.cta_group::{group}.sync.aligned.shared::cta.b32 [%slot], {count};",
            "dealloc": f"tcgen05.dealloc{word}.cta_group::{group}.sync.aligned.b32 %taddr, {count};",
            "relinquish_alloc_permit": f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;",
        }
        form = row.forms[0 if variant == REGISTER else 1]
        place = {"shared::cta": "%slot", "generic": "%generic", "": "%taddr"}[
            form["address"].space if form.operands else ""
        ]
        steps[row.operation] = form.statement(row.mnemonic, {"address": place, "columns": count})
        hold = self._held(row, variant)
        body = [
            ".reg .u32 %count, %place, %next;",
            ".reg .u64 %generic;",
            ".reg .pred %lead;",
            f"shr.u32 %place, %cta, {group - 1};",
            "mul.wide.u32 %here, %place, 8;",
            "add.u64 %here, %here, %at_columns;",
            "mul.wide.u32 %word, %cta, 8;",
            "add.u64 %word, %word, %at_d;",
            "setp.eq.u32 %lead, %lane, 0;",
            "cvt.u64.u32 %generic, %slot;",
            "cvta.shared.u64 %generic, %generic;",
            *(kernel.meet(2) if group == 2 else []),  # the peer must be there
            "@!%first bra done;",
            "mov.u32 %next, 0;",
            "each:",
            '.pragma "nounroll";',
            "ld.global.u32 %count, [%here];",
            steps["alloc"],
            "bar.warp.sync 0xffffffff;",
            "ld.shared.b32 %taddr, [%slot];",
            "@%lead st.global.u32 [%word], %taddr;",
            *([] if hold else [steps["dealloc"]]),
            "add.u64 %here, %here, 4;",
            "add.u64 %word, %word, 4;",
            "add.u32 %next, %next, 1;",
            "setp.lt.u32 %again, %next, 2;",
            "@%again bra each;",
            *(self._release(steps["dealloc"]) if hold else []),
            steps["relinquish_alloc_permit"],
            "done:",
            *(kernel.meet(2) if group == 2 else []),
        ]
        return kernel.entry(name, ("columns", "d"), body, group)

    @staticmethod
    def _held(row: AllocationRow, variant: str) -> bool:
        """Both allocations live at once."""
        return row.operation == "alloc" and not row.exclusive and variant == REGISTER

    @staticmethod
    def _release(free: str) -> list[str]:
        """The addresses and numbers, read back from where they were left, in reverse."""
        return [
            "mov.u32 %next, 0;",
            "back:",
            '.pragma "nounroll";',
            "sub.u64 %here, %here, 4;",
            "sub.u64 %word, %word, 4;",
            "bar.warp.sync 0xffffffff;",
            "ld.global.u32 %count, [%here];",
            "ld.volatile.global.u32 %taddr, [%word];",
            free,
            "add.u32 %next, %next, 1;",
            "setp.lt.u32 %again, %next, 2;",
            "@%again bra back;",
        ]

    def plan(self, row: AllocationRow, inputs: dict[str, Array]) -> Plan:
        """One CTA, or one pair, a sample: (samples, ctas, 2) addresses."""
        columns = np.ascontiguousarray(inputs["columns"], np.uint32)
        group, samples = row.cta_group, len(columns)
        return Plan(
            inputs=(columns,),
            output=((samples, group, 2), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples * group, 1, 1),
            block=(kernel.THREADS, 1, 1),
            variant=REGISTER,
            shared_bytes=ALONE_BYTES,
            cluster=(2, 1, 1) if group == 2 else None,
        )


class CommitBody(Body):
    """phases = tcgen05.commit(barriers, mask)."""

    def scaffold(self, row: CommitRow) -> dict[str, int]:
        """Nothing but the instruction: no Tensor Memory is needed."""
        return {}

    def kernel(self, row: CommitRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        (form,) = row.forms
        place = {"shared::cluster": "%bar", "generic": "%generic"}[form["mbar"].space]
        mask = "%wide" if row.mask_bits == 32 else "%mask"
        body = [
            ".reg .u32 %wide, %tries, %complete;",
            ".reg .u64 %generic;",
            *kernel.barrier(),
            "cvt.u64.u32 %generic, %bar;",
            "cvta.shared.u64 %generic, %generic;",
            "shr.u32 %column, %cta, 1;",
            "mad.wide.u32 %here, %column, 4, %at_mask;",
            "ld.global.u32 %wide, [%here];",
            "cvt.u16.u32 %mask, %wide;",
            *kernel.meet(2),
            *kernel.first_thread(2),
            form.statement(row.mnemonic, {"mbar": place, "mask": mask}),
            "issued:",
            "mov.u32 %tries, 0;",
            "waiting:",
            "mbarrier.test_wait.parity.shared::cta.b64 %done, [%bar], 0;",
            "add.u32 %tries, %tries, 1;",
            f"setp.lt.u32 %again, %tries, {PATIENCE};",
            "@%done bra over;",
            "@%again bra waiting;",
            "over:",
            "selp.u32 %complete, 1, 0, %done;",
            "mad.wide.u32 %here, %cta, 4, %at_d;",
            "@%one st.global.u32 [%here], %complete;",
            *kernel.meet(2),
        ]
        return kernel.entry(name, ("mask", "d"), body, 2)

    def plan(self, row: CommitRow, inputs: dict[str, Array]) -> Plan:
        """One cluster of two CTAs a sample: (samples, 2) flags."""
        mask = np.ascontiguousarray(inputs["mask"], np.uint32)
        return Plan(
            inputs=(mask,),
            output=((len(mask), 2), np.dtype(np.uint32)),
            scalars=(),
            grid=(2 * len(mask), 1, 1),
            block=(kernel.THREADS, 1, 1),
            cluster=(2, 1, 1),
        )


ALLOCATION = AllocationBody()
COMMIT = CommitBody()

BODIES = {"tcgen05.alloc": ALLOCATION, "tcgen05.commit": COMMIT}
