"""How the time of a launch grows with its blocks, its instructions and the processes that run it.

python benchmarks/growth.py    print the table: seconds by the clock, the best of three launches after a first one
"""

from __future__ import annotations

import platform
import sys
import time

import numpy as np

from tcsim.engines.threads import count
from tcsim.ptx import Limits, Memory, parse

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u32 rounds)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<3>; .shared .align 4 .b8 tile[512];
    ld.param.u64 %d0, [data]; ld.param.u32 %r0, [rounds];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 128, %r2; mul.wide.u32 %d1, %r3, 4; add.s64 %d1, %d0, %d1;
    ld.global.f32 %f0, [%d1]; mov.u32 %r4, tile; mad.lo.u32 %r4, %r2, 4, %r4; xor.b32 %r5, %r4, 4;
AGAIN:
    st.shared.f32 [%r4], %f0; bar.sync 0; ld.shared.f32 %f1, [%r5]; bar.sync 0;
    fma.rn.f32 %f0, %f0, 0f3F000000, %f1; ex2.approx.ftz.f32 %f2, %f0; mul.f32 %f0, %f0, %f2; min.f32 %f0, %f0, 0f3F800000;
    sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra AGAIN;
    st.global.f32 [%d1], %f0;
    ret;
}
"""
"""Blocks of 128 threads; 11 instructions a round: a store, a load and two barriers among them."""
THREADS = 128
CASES = ((64, 100), (256, 100), (1024, 100), (4096, 100), (1024, 10), (1024, 1000))
"""Blocks, and rounds of each."""


def seconds(blocks: int, rounds: int, processes: int) -> tuple[float, float, int]:
    """Of a launch: the first, the best of three more, and the instructions of all blocks."""
    kernel, times, done = parse(KERNEL).kernel(), [], 0
    for _ in range(4):
        memory = Memory()
        data = memory.allocate(np.linspace(-1, 1, blocks * THREADS, dtype=np.float32).view(np.uint8))
        begin = time.perf_counter()
        run = kernel.launch(
            memory, [data, rounds], (blocks, 1, 1), (THREADS, 1, 1), check=False, limits=Limits(processes=processes)
        )
        times.append(time.perf_counter() - begin)
        assert run.completed
        done = run.instructions
    return times[0], min(times[1:]), done


def main() -> int:
    """Print the table."""
    many = count()
    sys.stdout.write(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {many} processors\n"
        f"| blocks | instructions of blocks | first | s | s, {many} processes | 10^6 thread instructions a second |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    for blocks, rounds in CASES:
        first, own, done = seconds(blocks, rounds, 1)
        shared = seconds(blocks, rounds, many)[1]
        rate = done * THREADS / own / 1e6
        sys.stdout.write(f"| {blocks:,} | {done:,} | {first:.2f} | {own:.2f} | {shared:.2f} | {rate:,.0f} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
