"""Probes of setmaxnreg: a block of three warpgroups that move registers and keep what they hold.

Every thread loads eight words, its warpgroup changes its number of registers, and the words are stored. What comes before the
row's own instruction makes it defined and gives the pool enough (`moves_before`): nothing here can wait forever.
Kernel parameters: words, result.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import checked, pointer
from tcsim.isa.setmaxnreg import FEWEST, MOST, OPCODES, MoveRegisters, PoolRow

WARPGROUPS = 3
THREADS = 128 * WARPGROUPS
REGISTERS = 168  # of each thread at launch: 3 * 128 * 168 fit the 65,536 of an SM
WORDS = 8
COUNTS = (24, 40, 128, 232, 240, 256)
"""Counts that are assembled; the instruction takes any multiple of 8 from 24 to 256."""
OTHERS, FIRST = "others", "first"
"""Who executes a move: the warpgroups that the row's instruction is not for, or the one that it is for."""

Move = tuple[str, str, int]


def moves_before(row: PoolRow, count: int) -> tuple[Move, ...]:
    """(who, "inc" or "dec", count): what the block does before the row's instruction asks for `count`."""
    most = ((OTHERS, "dec", FEWEST), (FIRST, "inc", MOST))
    if row.increase:  # with an .inc to the most, ptxas lets the kernel begin with `REGISTERS`, not with `count`
        return (*most, (FIRST, "dec", FEWEST))
    return most if count > REGISTERS else ()


def count_of(variant: str) -> int:
    """The count of an entry point."""
    return int(variant.removeprefix("n"))


class RegisterPoolBody(Body):
    """result = words, through setmaxnreg."""

    watched = tuple(OPCODES.values())  # every one of the kernel must be there: ptxas may leave one out

    def variants(self, row: PoolRow) -> tuple[str, ...]:
        """An entry point for each count."""
        return tuple(f"n{count}" for count in COUNTS)

    def claimed(self, instruction: MoveRegisters, variant: str, target: str) -> Counter[str]:
        """The row's own move, and those before it."""
        moves = moves_before(instruction.row, count_of(variant))
        return Counter(dict(instruction.lowering.opcodes)) + Counter(OPCODES[word] for _, word, _ in moves)

    def kernel(self, row: PoolRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        text = "\n".join(f"    {line}" for line in _body(row, count_of(variant)))
        directives = f".maxntid {THREADS}, 1, 1\n.maxnreg {REGISTERS}\n"
        return f"\n.visible .entry {name}(.param .u64 words, .param .u64 result)\n{directives}{{\n{text}\n}}\n"

    def plan(self, row: PoolRow, inputs: dict[str, Array]) -> Plan:
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


def _body(row: PoolRow, count: int) -> list[str]:
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
    own = row.forms[0].statement(row.mnemonic, {"count": str(count)})
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
