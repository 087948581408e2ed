"""Probes of barrier.cta and bar.warp.sync: threads of a block tell each other numbers round after round, or reduce predicates.

sync: every thread stores its number, meets the others, reads one, meets them again. arrive: the lower half of the block arrives and
the upper half waits, then reads a number of the lower half. red: in round r bit r of a thread's word is its predicate.
bar.warp.sync: the lanes of the mask store a new number, meet, and read one of the warp. A thread that is not waited for is read too
early. Kernel parameters: words, result; of bar.warp.sync, words, membermask, result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.images import LANES, checked, entry, pointer
from tcsim.core.targets import TARGETS
from tcsim.isa.barrier_cta import NAME, WARP, BarrierRow, opcode
from tcsim.model.row import Row

THREADS = 128
ROUNDS = 8
STRIDE = 37
"""In round r, thread t reads the number of thread (t + STRIDE * (r + 1)) % THREADS; of arrive, % THREADS / 2."""
FACTOR, ADDEND = 1664525, 1013904223
"""A thread's next number is FACTOR * its own + what it read + ADDEND, modulo 2**32."""
BARRIER = 5


class CtaBarrierBody(Body):
    """Numbers after all rounds, or what reductions gave."""

    watched = ("BAR.",)

    def claimed(self, instruction: Any, variant: str, target: str) -> Mapping[str, int]:
        """Its own, and the meetings around it; before sm_90 an arrive of lanes that may have come apart stands there twice."""
        row, arch = instruction.row, TARGETS[target].number
        twice = row.operation == "arrive" and not row.aligned and arch < 90
        found = Counter({name: times * (2 if twice else 1) for name, times in instruction.lowering.opcodes})
        meetings = {"sync": 1, "arrive": 2, "red": 0}[row.operation]
        found[opcode("sync", "", True, arch)] += meetings
        return +found

    def kernel(self, row: BarrierRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form = form_of(row, variant)
        registers = form["barrier"].kind == "register"
        names = {
            "barrier": "%number_of" if registers else str(BARRIER),
            "threads": "%many" if registers else str(THREADS),
        }
        own = form.statement(row.mnemonic, {**names, "d": "%other", "p": "%got"})
        return entry(name, ("words", "result"), _reduce(row, own) if row.reduction else _exchange(row, own))

    def plan(self, row: BarrierRow, inputs: dict[str, Array]) -> Plan:
        """words uint32 (samples, 128), form (samples,) -> uint32 (samples, 128), of red (samples, 8, 128).

        Raises ValueError for another shape.
        """
        samples = len(inputs["words"])
        return Plan(
            inputs=(checked("words", inputs["words"], (samples, THREADS), np.uint32),),
            output=((samples, ROUNDS, THREADS) if row.reduction else (samples, THREADS), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(THREADS, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


def _start(stride: int) -> list[str]:
    return [
        ".reg .pred %more, %lower, %predicate, %got;",
        ".reg .u32 %thread, %sample, %own, %base, %at, %number, %other, %round, %number_of, %many;",
        ".reg .u64 %wide_at;",
        f".shared .align 128 .b32 told[{THREADS}];",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        *pointer("words", 4 * THREADS),
        *pointer("result", 4 * stride),
        "mul.wide.u32 %wide_at, %thread, 4;",
        "add.u64 %words, %words, %wide_at;",
        "add.u64 %result, %result, %wide_at;",
        "ld.global.u32 %number, [%words];",
        "mov.u32 %base, told;",
        "mad.lo.u32 %own, %thread, 4, %base;",
        "mov.u32 %at, %thread;",
        f"setp.lt.u32 %lower, %thread, {THREADS // 2};",
        "mov.u32 %number_of, %nctaid.y;",  # 1, which the assembler does not know
        f"mul.lo.u32 %many, %number_of, {THREADS};",
        f"mul.lo.u32 %number_of, %number_of, {BARRIER};",
        "mov.u32 %round, 0;",
        "ROUND:",
        '.pragma "nounroll";',
    ]


def _end() -> list[str]:
    return ["add.u32 %round, %round, 1;", f"setp.lt.u32 %more, %round, {ROUNDS};", "@%more bra ROUND;"]


def _exchange(row: BarrierRow, own: str) -> list[str]:
    arrives = row.operation == "arrive"
    meet = [f"@%lower {own}", f"@!%lower bar.sync {BARRIER}, {THREADS};"] if arrives else [own]
    return [
        *_start(THREADS),
        f"add.u32 %at, %at, {STRIDE};",
        f"and.b32 %at, %at, {(THREADS // 2 if arrives else THREADS) - 1};",
        "st.shared.u32 [%own], %number;",
        *meet,
        "mad.lo.u32 %other, %at, 4, %base;",
        "@%lower mov.u32 %other, %own;" if arrives else "",
        "ld.shared.u32 %other, [%other];",
        "bar.sync 0;",
        f"mad.lo.u32 %number, %number, {FACTOR}, %other;",
        f"add.u32 %number, %number, {ADDEND};",
        *_end(),
        "st.global.u32 [%result], %number;",
        "ret;",
    ]


def _reduce(row: BarrierRow, own: str) -> list[str]:
    return [
        *_start(ROUNDS * THREADS),
        "shr.u32 %other, %number, %round;",
        "and.b32 %other, %other, 1;",
        "setp.ne.u32 %predicate, %other, 0;",
        own,
        "selp.u32 %other, 1, 0, %got;" if row.reduction != "popc" else "",
        "st.global.u32 [%result], %other;",
        f"add.u64 %result, %result, {4 * THREADS};",
        *_end(),
        "ret;",
    ]


class WarpSyncBody(Body):
    """What each lane of the mask reads; the others store `0`."""

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        own = form_of(row, variant).statement(row.mnemonic, {"membermask": "%mask"})
        body = [
            ".reg .pred %out;",
            ".reg .u32 %lane, %sample, %mask, %own, %base, %number, %other, %bit;",
            ".reg .u64 %wide_at;",
            f".shared .align 128 .b32 told[{LANES}];",
            "mov.u32 %lane, %tid.x;",
            "mov.u32 %sample, %ctaid.x;",
            *pointer("words", 4 * LANES),
            *pointer("membermask", 4),
            *pointer("result", 4 * LANES),
            "mul.wide.u32 %wide_at, %lane, 4;",
            "add.u64 %words, %words, %wide_at;",
            "add.u64 %result, %result, %wide_at;",
            "ld.global.u32 %mask, [%membermask];",
            "ld.global.u32 %number, [%words];",
            "mov.u32 %base, told;",
            "mad.lo.u32 %own, %lane, 4, %base;",
            "st.shared.u32 [%own], %number;",
            "bar.sync 0;",
            "mov.u32 %other, 0;",
            "shr.u32 %bit, %mask, %lane;",
            "and.b32 %bit, %bit, 1;",
            "setp.eq.u32 %out, %bit, 0;",
            "@%out bra STORE;",
            f"mad.lo.u32 %number, %number, {FACTOR}, {ADDEND};",
            "st.shared.u32 [%own], %number;",
            own,
            f"add.u32 %bit, %lane, {STRIDE};",
            f"and.b32 %bit, %bit, {LANES - 1};",
            "mad.lo.u32 %bit, %bit, 4, %base;",
            "ld.shared.u32 %other, [%bit];",
            "STORE:",
            "st.global.u32 [%result], %other;",
            "ret;",
        ]
        return entry(name, ("words", "membermask", "result"), body)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """words uint32 (samples, 32), membermask uint32 (samples,) -> uint32 (samples, 32).

        Raises ValueError for other shapes.
        """
        samples = len(inputs["words"])
        return Plan(
            inputs=(
                checked("words", inputs["words"], (samples, LANES), np.uint32),
                checked("membermask", inputs["membermask"], (samples,), np.uint32),
            ),
            output=((samples, LANES), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(LANES, 1, 1),
        )


BODIES = {NAME: CtaBarrierBody(), WARP: WarpSyncBody()}
