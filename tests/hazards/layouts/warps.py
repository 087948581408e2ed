"""mma.sync on tiles that threads store or copy with cp.async, read by ldmatrix or plain loads: one warp, 16 x 8, K of 64 in two tiles.

A is 16 x 64 in global memory; B is 8 columns of 64, or with `b_rows` 64 rows of 8, which ldmatrix.trans turns. A tile is 32 elements of k.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count

import numpy as np

from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text, wait

_STAGING, _BARRIER = 4096, 8192
B = 2048
"""Where the tile of B begins, behind that of A."""


@dataclass(frozen=True)
class Warp:
    """What the kernel does; a mistake is another value of one field."""

    fill: str = "st"
    """How tiles are stored: "st" (16 bytes), "cp.async" (16), "cp.async.4", "cp.async.8", "cvt" (from f32, pairs packed), "shfl" (from the next
    lane's registers), "st.async", "bulk" (from one place of shared memory to another, 16 bytes a lane)."""
    read: str = "ldmatrix"  # or "ld": two elements at a time; "movmatrix": B is loaded without .trans, and turned
    turned: bool = True  # whether B is turned, of "movmatrix"
    b_rows: bool = False
    pitch: int = 80  # bytes from row to row of both tiles, as stored
    swizzle: tuple[int, int] = (0, 0)  # of both: pieces of 16 bytes are exchanged by these bits of the row: shift, mask
    pitch_a: int | None = None  # as read
    pitch_b: int | None = None
    swizzle_a: tuple[int, int] | None = None
    swizzle_b: tuple[int, int] | None = None
    phase_a: int = 0  # added to the row for the swizzle of what is read
    trans_a: str = ""
    trans_b: str | None = None
    start_a: int = 0  # bytes
    start_b: int = 0
    step_a: int = 2  # pieces of 16 bytes from one product to the next
    step_b: int | None = None  # of rows of B: rows
    lanes_a: str = "and.b32 %r10, %r0, 15; shr.u32 %r11, %r0, 4;"  # row and piece of this lane
    lanes_b: str | None = None
    swapped: bool = False  # the fragments of A's second and third register

    def body(self) -> str:
        """The kernel."""
        element = 4 if self.fill == "cvt" else 2
        trans_b = self.trans_b if self.trans_b is not None else (".trans" if self.b_rows else "")
        step_b = self.step_b if self.step_b is not None else (16 if self.b_rows else 2)
        lanes_b = self.lanes_b or (
            "and.b32 %r13, %r0, 15; mov.u32 %r14, 0;"
            if self.b_rows
            else "and.b32 %r13, %r0, 7; shr.u32 %r14, %r0, 3; and.b32 %r14, %r14, 1;"
        )
        pitch_b = 16 if self.b_rows else self.pitch
        swizzle_b = (0, 0) if self.b_rows else self.swizzle
        stores = "".join(self._filled("%rd1", 0, 128 * element // 2, row, self.pitch, self.swizzle) for row in (0, 8))
        if self.b_rows:
            stores += self._stored("%rd2", B, "%r0", "0", 8 * element, 16, (0, 0))
        else:
            stores += self._filled("%rd2", B, 128 * element // 2, 0, self.pitch, self.swizzle)
        named = count()
        stores = re.sub(
            "#", lambda _: str(next(named) // 2), stores
        )  # each label is there twice: where it is, and in a branch
        products = "".join(
            self._read_a(step) + self._read_b(step, trans_b, step_b, lanes_b, self.pitch_b or pitch_b, self.swizzle_b or swizzle_b)
            + "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f2, %f3, %f4};\n"
            for step in (0, 1)
        )  # fmt: skip
        waits = "cp.async.commit_group; cp.async.wait_group 0;\n" if self.fill.startswith("cp") else ""
        return f"""
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
    mov.u32 %r1, smem; {self._barrier()} mov.u32 %r40, 0; shr.u32 %r2, %r0, 2; and.b32 %r3, %r0, 3;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    LOOP:
    {stores}{waits}bar.sync 0;
    {products}bar.sync 0;
    add.u32 %r40, %r40, 1; add.u64 %rd1, %rd1, {32 * element}; add.u64 %rd2, %rd2, {32 * element * (8 if self.b_rows else 1)};
    setp.lt.u32 %p1, %r40, 2;
    @%p1 bra LOOP;
    mov.u32 %r10, %ctaid.x; shl.b32 %r10, %r10, 5; add.u32 %r10, %r10, %r0; mul.wide.u32 %rd10, %r10, 16; add.u64 %rd10, %rd10, %rd3;
    st.global.v4.f32 [%rd10], {{%f1, %f2, %f3, %f4}};
    """

    def _address(
        self, to: str, row: str, piece: str, pitch: int, swizzle: tuple[int, int], offset: int, phase: int = 0
    ) -> str:
        """Where a piece of 16 bytes of a row lies."""
        shift, mask = swizzle
        return (
            f"add.u32 %r30, {row}, {phase}; shr.u32 %r30, %r30, {shift}; and.b32 %r30, %r30, {mask}; xor.b32 %r30, %r30, {piece}; shl.b32 %r30, %r30, 4;"
            f" mul.lo.u32 {to}, {row}, {pitch}; add.u32 {to}, {to}, %r30; add.u32 {to}, {to}, %r1; add.u32 {to}, {to}, {offset};\n"
        )

    def _filled(self, base: str, tile: int, bytes: int, row: int, pitch: int, swizzle: tuple[int, int]) -> str:
        """Eight rows, a piece a lane."""
        return f"add.u32 %r31, %r2, {row};\n" + self._stored(base, tile, "%r31", "%r3", bytes, pitch, swizzle)

    def _stored(
        self, base: str, tile: int, row: str, piece: str, bytes: int, pitch: int, swizzle: tuple[int, int]
    ) -> str:
        wide = 32 if self.fill == "cvt" else 16
        found = self._address("%r32", row, piece, pitch, swizzle, tile)
        found += f"mul.wide.u32 %rd10, {row}, {bytes}; mul.wide.u32 %rd11, {piece if piece[0] == '%' else '%r40'}, {wide if piece[0] == '%' else 0};"
        found += f" add.u64 %rd10, %rd10, {base}; add.u64 %rd10, %rd10, %rd11;\n"
        if self.fill == "st":
            return (
                found
                + "ld.global.v4.u32 {%r33, %r34, %r35, %r36}, [%rd10]; st.shared.v4.u32 [%r32], {%r33, %r34, %r35, %r36};\n"
            )
        if self.fill == "cvt":
            for place in range(4):
                found += f"ld.global.v2.f32 {{%f5, %f6}}, [%rd10+{8 * place}]; cvt.rn.f16x2.f32 %r33, %f6, %f5; st.shared.u32 [%r32+{4 * place}], %r33;\n"
            return found
        if self.fill == "shfl":  # a lane loads what its partner stores
            other = f"xor.b32 %r37, %r3, 1; mul.wide.u32 %rd11, %r37, 16; mul.wide.u32 %rd10, {row}, {bytes}; add.u64 %rd10, %rd10, {base}; add.u64 %rd10, %rd10, %rd11;\n"
            found += other + "ld.global.v4.u32 {%r33, %r34, %r35, %r36}, [%rd10];\n"
            found += "".join(f"shfl.sync.bfly.b32 %r{place}, %r{place}, 1, 31, -1;\n" for place in range(33, 37))
            return found + "st.shared.v4.u32 [%r32], {%r33, %r34, %r35, %r36};\n"
        if self.fill in ("st.async", "bulk"):
            found += "ld.global.v4.u32 {%r33, %r34, %r35, %r36}, [%rd10]; @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r39], 512;\n"
            found += self._remote() if self.fill == "st.async" else self._staged()
            return found + wait("FILLED#", "%r39", "%r41") + "xor.b32 %r41, %r41, 1; bar.warp.sync -1;\n"
        size = {"cp.async.4": 4, "cp.async.8": 8}.get(self.fill, 16)
        cache = "cg" if size == 16 else "ca"
        return found + "".join(
            f"cp.async.{cache}.shared.global [%r32+{at}], [%rd10+{at}], {size};\n" for at in range(0, 16, size)
        )

    def _barrier(self) -> str:
        """%r39: that of copies that tell one, and %r41 its parity."""
        return (
            f"add.u32 %r39, %r1, {_BARRIER}; mov.u32 %r41, 0; setp.eq.u32 %p2, %r0, 0;"
            " @%p2 mbarrier.init.shared::cta.b64 [%r39], 1; @%p2 fence.mbarrier_init.release.cluster; bar.sync 0;"
        )

    def _remote(self) -> str:
        """16 bytes of registers to the own block, as if it were another one of the cluster."""
        name = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
        return (
            "mov.u32 %r37, %cluster_ctarank; mapa.shared::cluster.u32 %r32, %r32, %r37; mapa.shared::cluster.u32 %r38, %r39, %r37;\n"
            f"{name}.v2.b32 [%r32], {{%r33, %r34}}, [%r38]; {name}.b32 [%r32+8], %r35, [%r38]; {name}.b32 [%r32+12], %r36, [%r38];\n"
        )

    def _staged(self) -> str:
        """16 bytes of registers to the place of the lane, and from there."""
        return (
            f"shl.b32 %r38, %r0, 4; add.u32 %r38, %r38, %r1; st.shared.v4.u32 [%r38+{_STAGING}], {{%r33, %r34, %r35, %r36}};\n"
            f"fence.proxy.async; bar.warp.sync -1; add.u32 %r38, %r38, {_STAGING};\n"
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r32], [%r38], 16, [%r39];\n"
        )

    def _read_a(self, step: int) -> str:
        order = "%r20, %r22, %r21, %r23" if self.swapped else "%r20, %r21, %r22, %r23"
        pitch, swizzle = self.pitch_a or self.pitch, self.swizzle_a or self.swizzle
        if self.read == "ld":
            found = "shr.u32 %r10, %r0, 2; and.b32 %r11, %r0, 3; shl.b32 %r11, %r11, 2;\n"
            for number, (row, piece) in enumerate(((0, 0), (8, 0), (0, 1), (8, 1))):
                found += f"add.u32 %r12, %r10, {row}; mov.u32 %r15, {piece + self.step_a * step};\n"
                found += self._address("%r16", "%r12", "%r15", pitch, swizzle, self.start_a, self.phase_a)
                found += f"add.u32 %r16, %r16, %r11; ld.shared.u32 %r{20 + number}, [%r16];\n"
            return found
        found = f"{self.lanes_a} add.u32 %r11, %r11, {self.step_a * step};\n"
        found += self._address("%r16", "%r10", "%r11", pitch, swizzle, self.start_a, self.phase_a)
        return found + f"ldmatrix.sync.aligned.m8n8.x4{self.trans_a}.shared.b16 {{{order}}}, [%r16];\n"

    def _read_b(self, step: int, trans: str, further: int, lanes: str, pitch: int, swizzle: tuple[int, int]) -> str:
        moved = f"add.u32 %r13, %r13, {further * step};" if self.b_rows else f"add.u32 %r14, %r14, {further * step};"
        found = f"{lanes} {moved}\n" + self._address("%r16", "%r13", "%r14", pitch, swizzle, B + self.start_b)
        trans = "" if self.read == "movmatrix" else trans
        found += f"ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r24, %r25}}, [%r16];\n"
        for place in (24, 25) if self.read == "movmatrix" and self.turned else ():
            found += f"movmatrix.sync.aligned.m8n8.trans.b16 %r{place}, %r{place};\n"
        return found

    def run(self, origins: bool = True, schedule: str | int = "late") -> Run:
        """A launch."""
        memory, rng = Memory(), np.random.default_rng(5)
        type = np.float32 if self.fill == "cvt" else np.float16
        arrays = [
            memory.allocate(rng.standard_normal((rows, 64)).astype(type).reshape(-1).view(np.uint8)) for rows in (16, 8)
        ]
        source = text(".param .u64 a, .param .u64 b, .param .u64 d", self.body())
        kernel = parse(source).kernel()
        blocks = (2 if self.fill == "st.async" else 1, 1, 1)
        return kernel.launch(
            memory,
            [*arrays, memory.allocate(2 * 16 * 8 * 4)],
            grid=blocks,
            block=(32, 1, 1),
            cluster=blocks,
            origins=origins,
            schedule=schedule,
        )
