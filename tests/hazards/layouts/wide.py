"""mma.sync with two tiles of 8 columns, whose B comes from one ldmatrix.x4: one warp, 16 x 16, K of 64 in tiles of 32. Its result is compared.

A and B are 16 rows of 64 elements in global memory. The lanes that address B's four matrices go through them in another order than those of A's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text

B = 4096
LANES_OF_A = "and.b32 %r13, %r0, 15; shr.u32 %r14, %r0, 4;"
"""Row and piece of 16 bytes: matrices of rows 0 to 7 and 8 to 15, then the next eight of k."""
LANES_OF_B = "and.b32 %r13, %r0, 7; bfe.u32 %r14, %r0, 4, 1; shl.b32 %r14, %r14, 3; add.u32 %r13, %r13, %r14; bfe.u32 %r14, %r0, 3, 1;"
"""Both matrices of k of rows 0 to 7, then those of rows 8 to 15."""


@dataclass(frozen=True)
class Wide:
    """What the kernel does; a mistake is another value of one field."""

    lanes_a: str = LANES_OF_A
    lanes_b: str = LANES_OF_B
    trans_a: str = ""
    trans_b: str = ""
    step_a: int = 2  # pieces of 16 bytes from one product to the next
    step_b: int = 2
    store: tuple[int, int] = (1, 3)  # pieces of a row are exchanged by these bits of the row: shift, mask
    load_a: tuple[int, int] = (1, 3)
    load_b: tuple[int, int] = (1, 3)
    order: tuple[int, ...] = (0, 1)  # products of a tile, by slice of k of A
    order_b: tuple[int, ...] | None = None  # of B
    further: int = 1  # tiles by which both go on in global memory
    accumulators: int = 1  # sums that the products are added to in turn, and that are added up in the end

    def _address(self, to: str, row: str, piece: str, swizzle: tuple[int, int], offset: int) -> str:
        shift, mask = swizzle
        return (
            f"shr.u32 %r30, {row}, {shift}; and.b32 %r30, %r30, {mask}; xor.b32 %r30, %r30, {piece}; shl.b32 %r30, %r30, 4;"
            f" shl.b32 {to}, {row}, 6; add.u32 {to}, {to}, %r30; add.u32 {to}, {to}, %r1; add.u32 {to}, {to}, {offset};\n"
        )

    def _filled(self, base: str, tile: int) -> str:
        found = ""
        for half in (0, 8):
            found += f"add.u32 %r31, %r2, {half};\n" + self._address("%r32", "%r31", "%r3", self.store, tile)
            found += f"mul.wide.u32 %rd10, %r31, 128; mul.wide.u32 %rd11, %r3, 16; add.u64 %rd10, %rd10, {base}; add.u64 %rd10, %rd10, %rd11;\n"
            found += "cp.async.cg.shared.global [%r32], [%rd10], 16;\n"
        return found

    def _product(self, number: int) -> str:
        place, other = self.order[number], (self.order_b or self.order)[number]
        found = f"{self.lanes_a} add.u32 %r14, %r14, {self.step_a * place};\n" + self._address(
            "%r16", "%r13", "%r14", self.load_a, 0
        )
        found += f"ldmatrix.sync.aligned.m8n8.x4{self.trans_a}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r16];\n"
        found += f"{self.lanes_b} add.u32 %r14, %r14, {self.step_b * other};\n" + self._address(
            "%r16", "%r13", "%r14", self.load_b, B
        )
        found += f"ldmatrix.sync.aligned.m8n8.x4{self.trans_b}.shared.b16 {{%r24, %r25, %r26, %r27}}, [%r16];\n"
        for column, pair in enumerate(("%r24, %r25", "%r26, %r27")):
            own = ", ".join(f"%s{8 * (number % self.accumulators) + 4 * column + own}" for own in range(4))
            found += f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{own}}}, {{%r20, %r21, %r22, %r23}}, {{{pair}}}, {{{own}}};\n"
        return found

    def body(self) -> str:
        """The kernel."""
        count = 8 * self.accumulators
        products = "".join(self._product(number) for number in range(len(self.order)))
        added = "".join(f"add.f32 %s{own % 8}, %s{own % 8}, %s{own};\n" for own in range(8, count))
        return f"""
    .reg .f32 %s<{count}>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
    mov.u32 %r1, smem; mov.u32 %r40, 0; shr.u32 %r2, %r0, 2; and.b32 %r3, %r0, 3;
    {"".join(f"mov.f32 %s{own}, 0f00000000; " for own in range(count))}
    LOOP:
    {self._filled("%rd1", 0)}{self._filled("%rd2", B)}
    cp.async.wait_all; bar.sync 0;
    {products}bar.sync 0;
    add.u32 %r40, %r40, 1; add.u64 %rd1, %rd1, {64 * self.further}; add.u64 %rd2, %rd2, {64 * self.further};
    setp.lt.u32 %p1, %r40, 2;
    @%p1 bra LOOP;
    {added}
    mul.wide.u32 %rd10, %r0, 32; add.u64 %rd10, %rd10, %rd3;
    st.global.v4.f32 [%rd10], {{%s0, %s1, %s2, %s3}}; st.global.v4.f32 [%rd10+16], {{%s4, %s5, %s6, %s7}};
    """

    def run(self, origins: bool = True, schedule: str | int = "late") -> Run:
        """A launch."""
        return self.launched(origins, schedule)[0]

    def launched(self, origins: bool = True, schedule: str | int = "late") -> tuple[Run, bool]:
        """A launch, and whether its result is A times B."""
        memory, rng = Memory(), np.random.default_rng(5)
        a, b = (rng.integers(-3, 4, (16, 64)).astype(np.float16) for _ in "ab")
        pointers = [memory.allocate(own.reshape(-1).view(np.uint8)) for own in (a, b)]
        result = memory.allocate(16 * 16 * 4)
        kernel = parse(text(".param .u64 a, .param .u64 b, .param .u64 d", self.body())).kernel()
        run = kernel.launch(memory, [*pointers, result], block=(32, 1, 1), origins=origins, schedule=schedule)
        own = memory.read(result, 16 * 16 * 4).view(np.float32).reshape(32, 2, 2, 2)  # lane, tile, row, column
        lane = np.arange(32)
        found = np.zeros((16, 16), np.float32)
        for tile in range(2):
            for row in range(2):
                for column in range(2):
                    found[lane // 4 + 8 * row, 8 * tile + lane % 4 * 2 + column] = own[:, tile, row, column]
        return run, bool((found == a.astype(np.float32) @ b.astype(np.float32).T).all())
