"""tcgen05.mma with scale factors that tcgen05.cp puts into Tensor Memory: e4m3, 128 x 32, four products of 32 elements of k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tcsim
from tcsim.ptx import Memory, Run, parse
from tests.hazards.layouts.tensor_memory import SET_UP
from tests.support.ptx_copies import text, wait

ROWS, COLUMNS, K = 128, 32, 128
A, B, FACTORS_A, FACTORS_B = 1024, 1024 + ROWS * K, 1024 + (ROWS + COLUMNS) * K, 1536 + (ROWS + COLUMNS) * K
_BARRIER, _DONE, _PLACE = FACTORS_B + 512, FACTORS_B + 520, FACTORS_B + 528
_ATOM = 512
"""Bytes of a copy of 32 lanes: of each, four factors along k of four rows that are 32 apart."""
_BYTES = (ROWS + COLUMNS) * K + 2 * _ATOM


@dataclass(frozen=True)
class Scaled:
    """What the kernel does; a mistake is another value of one field."""

    scale_a: int = 64  # the columns that tcgen05.mma reads
    scale_b: int = 72
    copied_a: int = 64  # those to which tcgen05.cp copies
    copied_b: int = 72

    def body(self) -> str:
        """The kernel."""
        box = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
        bulk = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
        copies = "".join(
            f"mov.u64 %rd4, {tcsim.MatrixDescriptor(start, 16, 128, arch='sm_100').encode()}; add.u32 %r12, %r8, {column};"
            " tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd4;\n"
            for start, column in ((FACTORS_A, self.copied_a), (FACTORS_B, self.copied_b))
        )
        return f"""
    ld.param.u64 %rd6, [a]; ld.param.u64 %rd7, [b];
    mov.b64 %rd1, map_a; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, map_b; cvta.param.u64 %rd2, %rd2; mov.u32 %r4, 0;
    mov.u32 %r1, {A}; mov.u32 %r2, {B}; mov.u32 %r3, {_BARRIER}; mov.u32 %r6, {_DONE}; mov.u32 %r7, {_PLACE}; mov.u32 %r9, {FACTORS_A}; mov.u32 %r13, {FACTORS_B};
    setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p3, %r0, 32;
    {SET_UP}
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.u32 %r8, [%r7];
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {_BYTES};
    @%p1 {box} [%r1], [%rd1, {{%r4, %r4}}], [%r3];
    @%p1 {box} [%r2], [%rd2, {{%r4, %r4}}], [%r3];
    @%p1 {bulk} [%r9], [%rd6], {_ATOM}, [%r3];
    @%p1 {bulk} [%r13], [%rd7], {_ATOM}, [%r3];
    {wait("FULL", "%r3", "0")}
    @!%p1 bra ISSUED;
    {copies}{"".join(self._product(step) for step in range(4))}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
    ISSUED:
    {wait("DONE", "%r6", "0")}
    tcgen05.fence::after_thread_sync;
    bar.sync 0;
    @%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 128;
    """

    def _product(self, step: int) -> str:
        named = [
            tcsim.MatrixDescriptor(start + 32 * step, 16, 1024, swizzle="128B", arch="sm_100").encode()
            for start in (A, B)
        ]
        idesc = tcsim.InstructionDescriptor(
            "mxf8f6f4", ROWS, COLUMNS, "f32", "e4m3", "e4m3", scale_format="ue8m0", scale_a_id=step, scale_b_id=step
        ).encode()
        adds = f"setp.{'eq' if step else 'ne'}.u32 %p6, %r4, %r4;"
        return (
            f"{adds} mov.u64 %rd4, {named[0]}; mov.u64 %rd5, {named[1]}; add.u32 %r11, %r8, {self.scale_a}; add.u32 %r12, %r8, {self.scale_b};\n"
            f"tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %rd4, %rd5, {idesc}, [%r11], [%r12], %p6;\n"
        )

    def run(self, origins: bool = True, schedule: str | int = "late") -> Run:
        """A launch."""
        memory, rng = Memory(), np.random.default_rng(5)
        pointers = [memory.allocate(rng.integers(0, 120, rows * K, np.uint8)) for rows in (ROWS, COLUMNS)]
        factors = [memory.allocate(rng.integers(120, 135, _ATOM, np.uint8)) for _ in range(2)]
        maps = [
            (tcsim.TensorMap("UINT8", (K, rows), (K,), (K, rows), swizzle="128B"), pointer)
            for rows, pointer in zip((ROWS, COLUMNS), pointers, strict=True)
        ]
        params = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 a, .param .u64 b"
        kernel = parse(text(params, self.body(), "sm_100a", _PLACE - 1024 + 16)).kernel()
        return kernel.launch(memory, [*maps, *factors], block=(128, 1, 1), origins=origins, schedule=schedule)
