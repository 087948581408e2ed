"""Probes of setmaxnreg: a block of three warpgroups that move registers and keep what they hold.

Every thread loads eight words, its warpgroup changes its number of registers, and the words are stored. What comes before the
row's own instruction makes it defined and gives the pool enough (`moves_before`): nothing here can wait for ever.
Kernel parameters: words, result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwkernels.probes import Array, Plan
from hwkernels.probes.images import checked, pointer
from tcsim.isa.setmaxnreg import FEWEST, MOST, pool_facts
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

WARPGROUPS = 3
THREADS = 128 * WARPGROUPS
REGISTERS = 168  # of each thread at launch: 3 * 128 * 168 fit the 65,536 of an SM
WORDS = 8
OTHERS, FIRST = "others", "first"
"""Who executes a move: the warpgroups that the row's instruction is not for, or the one that it is for."""

Move = tuple[str, str, int]


def moves_before(row: Row, count: int) -> tuple[Move, ...]:
    """(who, "inc" or "dec", count): what the block does before the row's instruction asks for `count`."""
    most = ((OTHERS, "dec", FEWEST), (FIRST, "inc", MOST))
    if pool_facts(
        row
    ).increase:  # with an .inc to the most, ptxas lets the kernel begin with `REGISTERS`, not with `count`
        return (*most, (FIRST, "dec", FEWEST))
    return most if count > REGISTERS else ()


def count_of(variant: str) -> int:
    """The count of an entry point."""
    return int(variant.removeprefix("n"))


class RegisterPoolBody:
    """result = words, through setmaxnreg."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """An entry point for each count that was assembled."""
        return tuple(form.name.replace("=", "") for form in pool_facts(row).forms)

    def forms_on(self, row: Row, target: str) -> tuple[str, ...]:
        """All of them."""
        return self.variants(row)

    def version_on(self, row: Row, target: str) -> str:
        """The row's."""
        return row.ptx_version

    def kernel_on(self, row: Row, name: str, variant: str, target: str) -> str:
        """PTX of the entry point, the same for every target."""
        return self.kernel(row, name, variant)

    def complaint(self, instruction: Instruction, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """Every setmaxnreg of the kernel must be there: ptxas may leave one out."""
        ((own, _),) = instruction.lowering.opcodes
        claimed = {"USETMAXREG.TRY_ALLOC.CTAPOOL": 0, "USETMAXREG.DEALLOC.CTAPOOL": 0}
        claimed[own] += 1
        for _, word, _ in moves_before(instruction.row, count_of(variant)):
            claimed["USETMAXREG.TRY_ALLOC.CTAPOOL" if word == "inc" else "USETMAXREG.DEALLOC.CTAPOOL"] += 1
        return "; ".join(
            f"{name} {counts.get(name, 0)} times instead of {times}"
            for name, times in claimed.items()
            if counts.get(name, 0) != times
        )

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        text = "\n".join(f"    {line}" for line in _body(row, count_of(variant)))
        directives = f".maxntid {THREADS}, 1, 1\n.maxnreg {REGISTERS}\n"
        return f"\n.visible .entry {name}(.param .u64 words, .param .u64 result)\n{directives}{{\n{text}\n}}\n"

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """words uint32 (samples, 384, 8), form (samples,) -> uint32 (samples, 384, 8).

        Raises ValueError for another shape.
        """
        shape = (len(inputs["words"]), THREADS, WORDS)
        return Plan(
            inputs=(checked("words", inputs["words"], shape, np.uint32),),
            output=(shape, np.dtype(np.uint32)),
            scalars=(),
            grid=(shape[0], 1, 1),
            block=(THREADS, 1, 1),
            variant=self.variants(row)[int(inputs["form"][0])],
        )


BODY = RegisterPoolBody()


def _body(row: Row, count: int) -> list[str]:
    halves = [", ".join(f"%word{place}" for place in range(start, start + 4)) for start in (0, 4)]
    lines = [
        ".reg .pred %others;",
        ".reg .u32 %thread, %sample;",
        f".reg .b32 %word<{WORDS}>;",
        ".reg .u64 %wide_at;",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        *pointer("words", 4 * WORDS * THREADS),
        *pointer("result", 4 * WORDS * THREADS),
        f"mul.wide.u32 %wide_at, %thread, {4 * WORDS};",
        "add.u64 %words, %words, %wide_at;",
        "add.u64 %result, %result, %wide_at;",
        f"ld.volatile.global.v4.b32 {{{halves[0]}}}, [%words];",
        f"ld.volatile.global.v4.b32 {{{halves[1]}}}, [%words+16];",
        "setp.ge.u32 %others, %thread, 128;",
        "bar.sync 0;",
    ]
    own = f"{row.mnemonic} {count};"
    steps = [(who, f"setmaxnreg.{word}.sync.aligned.u32 {number};") for who, word, number in moves_before(row, count)]
    for place, (who, text) in enumerate([*steps, (FIRST, own)]):
        skip = "@!%others" if who == OTHERS else "@%others"
        lines += [f"{skip} bra SKIP{place};", text, f"SKIP{place}:", "bar.sync 0;"]
    return [
        *lines,
        f"st.volatile.global.v4.b32 [%result], {{{halves[0]}}};",
        f"st.volatile.global.v4.b32 [%result+16], {{{halves[1]}}};",
        "ret;",
    ]


BODIES = {"setmaxnreg": BODY}
