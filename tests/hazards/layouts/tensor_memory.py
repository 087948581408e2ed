"""tcgen05.mma on tiles that TMA or threads fill with a swizzle of 128 bytes: 128 x 32, four products; A may lie in Tensor Memory.

The arrays have 128 elements of k in a row, of which a tile has the first 64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tcsim
from tcsim.ptx import Memory, Run, parse
from tests.hazards.layouts.described import Described
from tests.support.ptx_copies import text, wait

ROWS, COLUMNS = 128, 32
A, B = 1024, 1024 + ROWS * 128
_BARRIER, _DONE, _PLACE = 24576, 24584, 24592
_BYTES = (ROWS + COLUMNS) * 128
SET_UP = """@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @!%p3 bra TAKEN;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 128;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    TAKEN:"""
"""One thread (%p1) begins the mbarriers of the copies (%r3) and of the products (%r6), one warp (%p3) takes 128 columns (address to [%r7])."""
_EIGHT = "{%r31, %r32, %r33, %r34, %r35, %r36, %r37, %r38}"


def _loaded() -> str:
    """The result, eight columns at a time."""
    load = "tcgen05.ld.sync.aligned.32x32b.x8.b32"
    return "".join(
        f"add.u32 %r11, %r10, {column}; {load} {_EIGHT}, [%r11]; tcgen05.wait::ld.sync.aligned;\n"
        for column in range(0, COLUMNS, 8)
    )


@dataclass(frozen=True)
class Tensor(Described):
    """What the kernel does; a mistake is another value of one field."""

    fill: str = "tma"  # or "st"
    a_in_tmem: bool = False  # A is loaded by threads from global memory and stored to Tensor Memory
    halves: bool = False  # a second product takes the upper half of A
    copied: bool = False  # A is copied there by tcgen05.cp, from its tile in shared memory
    m: int = ROWS
    n: int = COLUMNS
    store_phase: int = 0  # as threads store
    store_column: int = 64  # of A in Tensor Memory
    column: int = 64  # as tcgen05.mma reads it
    columns: int = 8  # from one product to the next

    def body(self) -> str:
        """The kernel."""
        a = tcsim.MatrixDescriptor(
            A + self.begin + self.start_a, 16, self.stride_a, self.base, self.swizzle_a, arch="sm_100"
        ).encode()
        b = tcsim.MatrixDescriptor(
            B + self.begin + self.start_b, 16, self.stride_b, self.base, self.swizzle_b, arch="sm_100"
        ).encode()
        idesc = tcsim.InstructionDescriptor(
            "f16", self.m, self.n, "f32", "f16", "f16", transpose_a=bool(self.major_a), transpose_b=bool(self.major_b)
        ).encode()
        if self.exchanged:
            a, b = b, a
        products = "".join(self._product(a, b, idesc, step) for step in range(4))
        return f"""
    ld.param.u64 %rd6, [a]; ld.param.u64 %rd7, [b];
    mov.u32 %r1, smem; add.u32 %r1, %r1, {self.begin}; add.u32 %r2, %r1, {B - A}; add.u32 %r3, %r1, {_BARRIER}; add.u32 %r6, %r1, {_DONE}; add.u32 %r7, %r1, {_PLACE};
    setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p3, %r0, 32; mov.u32 %r4, 0;
    {SET_UP}
    bar.sync 0;
    ld.shared.u32 %r8, [%r7];
    {self._filled()}
    {self._tensor_memory() if self.a_in_tmem else ""}
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @!%p1 bra ISSUED;
    {self._copied(a) if self.copied else ""}
    {products}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
    ISSUED:
    {wait("DONE", "%r6", "0")}
    tcgen05.fence::after_thread_sync;
    shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    {_loaded()}
    bar.sync 0;
    @%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 128;
    """

    def _filled(self) -> str:
        if self.fill == "tma":
            box = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
            return f"""
    mov.b64 %rd1, map_a; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, map_b; cvta.param.u64 %rd2, %rd2;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {_BYTES};
    @%p1 {box} [%r1], [%rd1, {{%r4, %r4}}], [%r3];
    @%p1 {box} [%r2], [%rd2, {{%r4, %r4}}], [%r3];
    {wait("FULL", "%r3", "0")}
    """
        pieces = [("%rd6", 0, place) for place in range(ROWS // 16)] + [
            ("%rd7", B - A, place) for place in range(COLUMNS // 16)
        ]
        found = "shr.u32 %r10, %r0, 3; and.b32 %r11, %r0, 7;\n"
        for base, tile, place in pieces:
            found += f"add.u32 %r12, %r10, {16 * place}; add.u32 %r13, %r12, {self.store_phase}; and.b32 %r13, %r13, 7; xor.b32 %r13, %r13, %r11; shl.b32 %r13, %r13, 4;\n"
            found += f"mul.lo.u32 %r14, %r12, 128; add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r1; add.u32 %r13, %r13, {tile};\n"
            found += f"mul.wide.u32 %rd10, %r12, 256; mul.wide.u32 %rd11, %r11, 16; add.u64 %rd10, %rd10, %rd11; add.u64 %rd10, %rd10, {base};\n"
            found += "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd10]; st.shared.v4.u32 [%r13], {%r20, %r21, %r22, %r23};\n"
        return found + "fence.proxy.async;\nbar.sync 0;\n"

    def _tensor_memory(self) -> str:
        """Each thread takes a row of A, 64 elements in 32 columns."""
        found = "mul.wide.u32 %rd10, %r0, 256; add.u64 %rd10, %rd10, %rd6; shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;\n"
        for step in range(4):
            found += "".join(f"ld.global.u32 %r{31 + place}, [%rd10+{32 * step + 4 * place}];\n" for place in range(8))
            found += f"add.u32 %r11, %r10, {self.store_column + 8 * step};\ntcgen05.st.sync.aligned.32x32b.x8.b32 [%r11], {_EIGHT};\n"
            found += "tcgen05.wait::st.sync.aligned;\n"
        return found

    def _copied(self, a: int) -> str:
        """A product's share of A, 32 bytes of each row, to eight columns."""
        return "".join(
            f"mov.u64 %rd4, {a + 2 * step}; add.u32 %r12, %r8, {self.store_column + 8 * step}; tcgen05.cp.cta_group::1.128x256b [%r12], %rd4;\n"
            for step in range(4)
        )

    def _product(self, a: int, b: int, idesc: int, step: int) -> str:
        adds = "setp.ne.u32 %p6, %r4, %r4;" if not step else "setp.eq.u32 %p6, %r4, %r4;"
        second = f"{adds} mov.u64 %rd5, {b + step * (self.advance_b // 16)};\n"
        if self.a_in_tmem or self.copied:
            first = f"add.u32 %r12, %r8, {self.column + self.columns * step};\n"
            return f"{first}{second}tcgen05.mma.cta_group::1.kind::f16 [%r8], [%r12], %rd5, {idesc}, %p6;\n"
        first = f"mov.u64 %rd4, {a + step * (self.advance_a // 16)};\n"
        product = f"{first}{second}tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd4, %rd5, {idesc}, %p6;\n"
        if self.halves:
            upper = a + (ROWS // 2 * 128 + step * self.advance_a) // 16
            product += f"mov.u64 %rd4, {upper}; add.u32 %r12, %r8, 64; tcgen05.mma.cta_group::1.kind::f16 [%r12], %rd4, %rd5, {idesc}, %p6;\n"
        return product

    def run(self, origins: bool = True, schedule: str | int = "late") -> Run:
        """A launch."""
        memory, rng = Memory(), np.random.default_rng(5)
        arrays = [
            rng.standard_normal((rows, 128)).astype(np.float16).reshape(-1).view(np.uint8) for rows in (ROWS, COLUMNS)
        ]
        pointers = [memory.allocate(own) for own in arrays]
        maps = [
            (tcsim.TensorMap("FLOAT16", (128, rows), (256,), (64, rows), swizzle="128B"), pointer)
            for rows, pointer in zip((ROWS, COLUMNS), pointers, strict=True)
        ]
        params = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 a, .param .u64 b"
        kernel = parse(text(params, self.body(), "sm_100a", 26624)).kernel()
        return kernel.launch(memory, [*maps, *pointers], block=(128, 1, 1), origins=origins, schedule=schedule)
