"""Probes of mbarrier: each block, one warp, runs a program of operations on one barrier and tells what it saw.

A program is a list of steps (operation, lanes, value, flags). In a step the first `lanes` lanes do the operation, each for
itself: 0 is the instruction under test, the others are `HELPERS`, which bring the barrier into the states that matter. After
a step, lane 0 tests both parities, and stores four words: what the operation returned, which parities are complete, the
state that the last arrive returned. No step waits for a phase in a loop, so no program can hang, whatever the barrier does.
Kernel parameters: the programs, the results, the number of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.templates import filled
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.core.versions import latest
from tcsim.isa.mbarrier.rows import opcodes
from tcsim.isa.mbarrier.semantics import BarrierInstruction, BarrierRow
from tcsim.model.form import Form

LANES = 32
WORDS = 4
"""Words of a step, and of what it stores."""
ROW, INIT, ARRIVE, NO_COMPLETE, EXPECT_TX, COMPLETE_TX, DROP, INVAL, INIT_V1 = range(9)
"""Operations of a program. ARRIVE counts 1 before sm_90 and the step's value from then on; DROP likewise."""
OBSERVE, RAW_STATE = 1, 2
"""Flags of a step: test both parities after it; store the 64 bits of the state."""
TIME_HINT = 1000
"""Nanoseconds, where try_wait takes a hint."""

_AMPERE = MappingProxyType(
    {
        INIT: "mbarrier.init.shared.b64 [%barrier], %value;",
        ARRIVE: "mbarrier.arrive.shared.b64 %state, [%barrier];",
        NO_COMPLETE: "mbarrier.arrive.noComplete.shared.b64 %state, [%barrier], %value;",
        DROP: "mbarrier.arrive_drop.shared.b64 %state, [%barrier];",
        INVAL: "mbarrier.inval.shared.b64 [%barrier];",
    }
)
_HOPPER = MappingProxyType(
    {
        INIT: "mbarrier.init.shared::cta.b64 [%barrier], %value;",
        ARRIVE: "mbarrier.arrive.shared::cta.b64 %state, [%barrier], %value;",
        NO_COMPLETE: "mbarrier.arrive.noComplete.shared::cta.b64 %state, [%barrier], %value;",
        EXPECT_TX: "mbarrier.expect_tx.shared::cta.b64 [%barrier], %value;",
        COMPLETE_TX: "mbarrier.complete_tx.shared::cta.b64 [%barrier], %value;",
        DROP: "mbarrier.arrive_drop.shared::cta.b64 %state, [%barrier], %value;",
        INVAL: "mbarrier.inval.shared::cta.b64 [%barrier];",
    }
)
_LAYOUT_V1 = "mbarrier.init.layout::v1.shared::cta.b64 [%barrier], %value;"


def helpers(row: BarrierRow, target: str) -> Mapping[int, str]:
    """The operations besides the row's own, in PTX. Rows that layouts matter to have a second init."""
    if TARGETS[target].number < 90:
        return _AMPERE
    return {**_HOPPER, INIT_V1: _LAYOUT_V1} if row.names_layouts else _HOPPER


class BarrierBody(Body):
    """results = program(barrier)."""

    watched = ("SYNCS", "ATOM")

    def version_on(self, row: BarrierRow, target: str) -> str:
        """The lowest `.version` that has all its forms on a target, and the helpers."""
        least = "7.1" if TARGETS[target].number < 90 else "9.3" if row.names_layouts else "8.0"
        return latest(*(form.ptx_version for form in row.forms if target in form.targets), least)

    def claimed(self, instruction: BarrierInstruction, variant: str, target: str) -> Mapping[str, int]:
        """What the instruction, the helpers and the two tests of parity become."""
        row, arch = instruction.row, instruction.arch
        form = form_of(row, variant)
        return Counter(dict(opcodes(row, form, arch))) + _helper_opcodes(row, form, target)

    def complaint(self, instruction: BarrierInstruction, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """Every SYNCS or ATOM must occur as often as claimed, and no other.

        The uniform datapath's USYNCS counts as SYNCS. Before sm_90 the adds of .noComplete are not counted: how many paths
        ptxas makes of them depends on what it knows of the active lanes.
        """
        found: Counter[str] = Counter()
        for opcode, times in counts.items():
            if ".ADD" not in opcode:
                found[opcode.removeprefix("U")] += times
        return super().complaint(instruction, variant, target, found)

    def kernel(self, row: BarrierRow, name: str, variant: str) -> str:
        """PTX of the entry point for sm_90 and later."""
        return self.kernel_on(row, name, variant, row.targets[-1])

    def kernel_on(self, row: BarrierRow, name: str, variant: str, target: str) -> str:
        """PTX of the entry point for a target."""
        return _kernel(row, name, form_of(row, variant), target)

    def plan(self, row: BarrierRow, inputs: dict[str, Array]) -> Plan:
        """program uint32 (samples, steps, 4) -> uint32 (samples, steps, 4). form (samples,) says which list of operands.

        Raises ValueError for a program of another shape.
        """
        program, form = inputs["program"], inputs["form"]
        if program.ndim != 3 or program.shape[2] != WORDS or program.dtype != np.uint32:
            raise ValueError(
                f"program is {program.dtype} {program.shape}; this probe takes uint32 (samples, steps, {WORDS})"
            )
        samples, steps, _ = program.shape
        return Plan(
            inputs=(np.ascontiguousarray(program),),
            output=((samples, steps, WORDS), np.dtype(np.uint32)),
            scalars=(np.uint32(steps),),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
            variant=self.variants(row)[int(form[0])],
        )


BODY = BarrierBody()


_REGISTERS = {
    "count": "%value",
    "tx_count": "%value",
    "parity": "%value",
    "cta_mask": "1",
    "time_hint": str(TIME_HINT),
    "matches": "%complete",
    "pending": "%result",
    "value": "%reported",
}
"""What the kernels call the operands that they do not call by their names."""


def _own(row: BarrierRow, form: Form) -> list[str]:
    """The instruction under test, and what it returned as the word %result."""
    names = _REGISTERS | {"barrier": "%generic" if row.space == "generic" else "%barrier"}
    lines = [form.statement(row.mnemonic, names)]
    if "complete" in form or "matches" in form:
        lines.append("selp.u32 %result, 1, 0, %complete;")
    if "report" in form:  # undefined unless the phase is complete
        lines += ["and.pred %report, %report, %complete;", "@%report or.b32 %result, %result, 2;"]
    if "value" in form:
        lines += [
            "cvt.u32.u8 %extra, %reported;",
            "shl.b32 %extra, %extra, 8;",
            "@%complete or.b32 %result, %result, %extra;",
        ]
    return lines


def _kernel(row: BarrierRow, name: str, form: Form, target: str) -> str:
    operations = {ROW: _own(row, form), **{number: [text] for number, text in helpers(row, target).items()}}
    chosen: list[str] = []
    for number, lines in operations.items():
        chosen += [
            f"setp.ne.u32 %is, %operation, {number};",
            f"@%is bra NEXT{number};",
            *lines,
            "bra.uni DONE;",
            f"NEXT{number}:",
        ]
    values = {"entry": name, "step_bytes": 4 * WORDS, "observe": OBSERVE, "raw_state": RAW_STATE}
    return filled("mbarrier", values, {"operations": chosen, "pending": _pending(row, form)})


def _pending(row: BarrierRow, form: Form) -> list[str]:
    """After a .noComplete arrival of one lane, the result is what was pending before it, as `mbarrier.pending_count` says.

    Of the states of other arrivals the manual leaves its answer undefined.
    """
    arrivals = [NO_COMPLETE] + ([ROW] if "state" in form.results and row.no_complete else [])
    lines = ["mbarrier.pending_count.b64 %extra, %state;", "setp.eq.u32 %in, %lanes, 1;"]
    for number in arrivals:
        lines += [f"setp.eq.and.u32 %is, %operation, {number}, %in;", "@%is mov.u32 %result, %extra;"]
    return lines


def _helper_opcodes(row: BarrierRow, form: Form, target: str) -> Counter[str]:
    """The machine instructions of the helpers and of the two tests of parity."""
    arch = ARCHS[TARGETS[target].arch]
    if arch.number < 90:
        return Counter({"ATOMS.ARRIVE.64": 2, "ATOMS.POPC.INC.32": 1})
    found = Counter(
        {
            "SYNCS.ARRIVE.TRANS64.ART0": 1,
            "SYNCS.ARRIVE.TRANS64.TMASK.ART0": 1,
            "SYNCS.ARRIVE.TRANS64.OPTOUT.ART0": 1,
            "SYNCS.ARRIVE.TRANS64.RED.A0TR": 1,
            "SYNCS.ARRIVE.TRANS64.RED.A0TX": 1,
            "SYNCS.CCTL.IV": 1,
            "SYNCS.PHASECHK.TRANS64": 2,
        }
    )
    # from sm_100 on ptxas initialises with a plain store where the address is not in a uniform register
    stored = arch.number >= 100 and "time_hint" in form
    found["SYNCS.CCTL.IVALL" if stored else "SYNCS.EXCH.64"] += 2 if row.names_layouts else 1
    return found


BODIES = {"mbarrier": BODY}
