"""wgmma on tiles that TMA or threads fill with a swizzle of 128 bytes: one warpgroup, 64 x 16, four products.

The arrays have 128 elements of k in a row, of which a tile has the first 64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tcsim
from tcsim.ptx import Memory, Run, parse
from tests.hazards.layouts.described import Described
from tests.support.ptx_copies import text, wait

A, B = 1024, 1024 + 64 * 128
_BARRIER = 15360
_BYTES = (64 + 16) * 128


@dataclass(frozen=True)
class Warpgroup(Described):
    """What the kernel does; a mistake is another value of one field."""

    fill: str = "tma"  # how tiles are filled: "tma", "st", "cp.async"
    registers: bool = False  # A is loaded into registers with ldmatrix
    store_pitch: int = 128  # as threads store
    store_phase: int = 0
    load_pitch: int = 128  # of ldmatrix
    load_phase: int = 0
    load_trans: str = ""
    load_advance: int = 2  # pieces

    def body(self) -> str:
        """The kernel."""
        a = tcsim.MatrixDescriptor(A + self.begin + self.start_a, 16, self.stride_a, self.base, self.swizzle_a).encode()
        b = tcsim.MatrixDescriptor(B + self.begin + self.start_b, 16, self.stride_b, self.base, self.swizzle_b).encode()
        if self.exchanged:
            a, b = b, a
        products = "".join(self._product(a, b, step) for step in range(4))
        return f"""
    ld.param.u64 %rd6, [a]; ld.param.u64 %rd7, [b];
    mov.u32 %r1, smem; add.u32 %r1, %r1, {self.begin}; add.u32 %r2, %r1, {B - A}; add.u32 %r3, %r1, {_BARRIER}; setp.eq.u32 %p1, %r0, 0; mov.u32 %r4, 0;
    {self._filled()}
    {"".join(f"mov.f32 %f{place}, 0f00000000; " for place in range(1, 9))}
    wgmma.fence.sync.aligned;
    {products}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """

    def _filled(self) -> str:
        if self.fill == "tma":
            box = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            return f"""
    mov.b64 %rd1, map_a; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, map_b; cvta.param.u64 %rd2, %rd2;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {_BYTES};
    @%p1 {box} [%r1], [%rd1, {{%r4, %r4}}], [%r3];
    @%p1 {box} [%r2], [%rd2, {{%r4, %r4}}], [%r3];
    {wait("FULL", "%r3", "0")}
    """
        pieces = [("%rd6", 0, place) for place in range(4)] + [("%rd7", B - A, 0)]
        found = "shr.u32 %r10, %r0, 3; and.b32 %r11, %r0, 7;\n"
        for base, tile, place in pieces:
            found += f"add.u32 %r12, %r10, {16 * place}; add.u32 %r13, %r12, {self.store_phase}; and.b32 %r13, %r13, 7; xor.b32 %r13, %r13, %r11; shl.b32 %r13, %r13, 4;\n"
            found += f"mul.lo.u32 %r14, %r12, {self.store_pitch}; add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r1; add.u32 %r13, %r13, {tile};\n"
            found += f"mul.wide.u32 %rd10, %r12, 256; mul.wide.u32 %rd11, %r11, 16; add.u64 %rd10, %rd10, %rd11; add.u64 %rd10, %rd10, {base};\n"
            if self.fill == "st":
                found += "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd10]; st.shared.v4.u32 [%r13], {%r20, %r21, %r22, %r23};\n"
            else:
                found += "cp.async.cg.shared.global [%r13], [%rd10], 16;\n"
        return found + ("cp.async.wait_all;\n" if self.fill != "st" else "") + "fence.proxy.async;\nbar.sync 0;\n"

    def _product(self, a: int, b: int, step: int) -> str:
        result = "{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}"
        second = f"mov.u64 %rd5, {b + step * (self.advance_b // 16)};\n"
        name = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
        if not self.registers:
            first = f"mov.u64 %rd4, {a + step * (self.advance_a // 16)};\n"
            return f"{first}{second}{name} {result}, %rd4, %rd5, 1, 1, 1, {self.major_a}, {self.major_b};\n"
        registers = ", ".join(f"%r{30 + 4 * step + place}" for place in range(4))
        first = "shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 4; and.b32 %r11, %r0, 15; add.u32 %r10, %r10, %r11; bfe.u32 %r11, %r0, 4, 1;\n"
        first += f"add.u32 %r11, %r11, {self.load_advance * step}; add.u32 %r12, %r10, {self.load_phase}; and.b32 %r12, %r12, 7; xor.b32 %r11, %r11, %r12; shl.b32 %r11, %r11, 4;\n"
        first += f"mul.lo.u32 %r10, %r10, {self.load_pitch}; add.u32 %r10, %r10, %r11; add.u32 %r10, %r10, %r1;\n"
        first += f"ldmatrix.sync.aligned.m8n8.x4{self.load_trans}.shared.b16 {{{registers}}}, [%r10];\n"
        fence = "wgmma.fence.sync.aligned;\n"
        return f"{first}{second}{fence}{name} {result}, {{{registers}}}, %rd5, 1, 1, 1, {self.major_b};\n"

    def run(self, origins: bool = True, schedule: str | int = "late") -> Run:
        """A launch."""
        memory, rng = Memory(), np.random.default_rng(5)
        arrays = [rng.standard_normal((rows, 128)).astype(np.float16).reshape(-1).view(np.uint8) for rows in (64, 16)]
        pointers = [memory.allocate(own) for own in arrays]
        maps = [
            (tcsim.TensorMap("FLOAT16", (128, rows), (256,), (64, rows), swizzle="128B"), pointer)
            for rows, pointer in zip((64, 16), pointers, strict=True)
        ]
        params = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 a, .param .u64 b"
        return (
            parse(text(params, self.body()))
            .kernel()
            .launch(memory, [*maps, *pointers], block=(128, 1, 1), origins=origins, schedule=schedule)
        )
