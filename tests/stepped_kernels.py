"""Three matrix products with a mistake each, and the same without it: small enough to be read, large enough to be wrong in earnest.

Each is a launch: PTX, the arrays of its memory by name with their addresses, and what `launch` and `session` take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim import MatrixDescriptor, TensorMap
from tcsim.ptx import Kernel, Memory, parse

Array = np.ndarray[Any, Any]
HEAD = ".version 8.3\n.target sm_90a\n.address_size 64\n"


@dataclass
class Launched:
    """A kernel, its memory, and the launch."""

    ptx: str
    arrays: dict[str, Array]  # of global memory, the result last
    params: tuple[Any, ...]  # names of arrays, numbers, or a tensor map and the name of its array
    block: int
    options: dict[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self.at = {name: self.memory.allocate(array.reshape(-1).view(np.uint8)) for name, array in self.arrays.items()}

    @property
    def kernel(self) -> Kernel:
        """The only kernel of the module."""
        return parse(self.ptx).kernel()

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `launch` and of `session`."""
        params = [
            (own[0], self.at[own[1]]) if isinstance(own, tuple) else self.at[own] if isinstance(own, str) else own
            for own in self.params
        ]
        return {"memory": self.memory, "params": params, "block": (self.block, 1, 1), **self.options}

    def session(self, **options: Any) -> Any:
        """A session whose arrays are named."""
        made = self.kernel.session(**self.given, **options)
        for name, array in self.arrays.items():
            made.name(name, self.at[name], array.shape, array.dtype)
        return made

    def line(self, beginning: str, which: int = 0) -> int:
        """The line of PTX on which an instruction stands."""
        found = [number for number, text in enumerate(self.ptx.splitlines(), 1) if text.strip().startswith(beginning)]
        return found[which]

    def result(self, name: str = "c") -> Array:
        """An array as it is in memory now."""
        own = self.arrays[name]
        return self.memory.read(self.at[name], own.nbytes).view(own.dtype).reshape(own.shape)


def matrices(m: int, n: int, k: int, seed: int = 0) -> dict[str, Array]:
    """a (m, k) and b (k, n) of small whole numbers in f16, and c (m, n) of zeros in f32."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return {"a": a, "b": b, "c": np.zeros((m, n), np.float32)}


STORE = """
  shr.u32 %r20, %lane, 2;                  // row = lane / 4, column = lane % 4 * 2
  and.b32 %r21, %lane, 3;
  mad.lo.u32 %r22, %r20, 4, %r21;
  mul.wide.u32 %rd10, %r22, 8;
  add.s64 %rd11, %pc, %rd10;
  st.global.v2.f32 [%rd11], {%f0, %f1};
  st.global.v2.f32 [%rd11+256], {%f2, %f3};
  ret;
"""
"""The accumulator of m16n8: 16 rows of 32 bytes."""


def transposed(wrong: bool = True) -> Launched:
    """c = a b on one warp, b in rows of shared memory: ldmatrix has to transpose it, and does not."""
    ptx = f"""{HEAD}
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
  .reg .b32 %r<30>; .reg .b32 %lane; .reg .b32 %at; .reg .b64 %rd<20>; .reg .b64 %pa, %pb, %pc;
  .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %f<4>; .reg .pred %half;
  .shared .align 128 .b8 tile[768];        // a: 16 rows of 32 bytes; b: 16 rows of 16 bytes
  ld.param.u64 %pa, [a];
  ld.param.u64 %pb, [b];
  ld.param.u64 %pc, [c];
  mov.u32 %lane, %tid.x;
  mov.u32 %at, tile;
  shl.b32 %r1, %lane, 4;                   // 16 bytes of a, and of b for the first half of the warp
  add.u32 %r2, %at, %r1;
  cvt.u64.u32 %rd1, %r1;
  add.s64 %rd2, %pa, %rd1;
  add.s64 %rd3, %pb, %rd1;
  cp.async.ca.shared.global [%r2], [%rd2], 16;
  setp.lt.u32 %half, %lane, 16;
  @%half cp.async.ca.shared.global [%r2+512], [%rd3], 16;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.warp.sync -1;
  and.b32 %r3, %lane, 15;                  // rows 0 to 15, their halves of 8 elements
  shr.u32 %r4, %lane, 4;
  shl.b32 %r5, %r3, 5;
  shl.b32 %r6, %r4, 4;
  add.u32 %r7, %r5, %r6;
  add.u32 %r8, %at, %r7;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%a0, %a1, %a2, %a3}}, [%r8];
  shl.b32 %r9, %r3, 4;
  add.u32 %r10, %at, %r9;
  ldmatrix.sync.aligned.m8n8.x2{"" if wrong else ".trans"}.shared.b16 {{%b0, %b1}}, [%r10+512];
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {{%f0, %f1, %f2, %f3}};
{STORE}}}
"""
    return Launched(ptx, matrices(16, 8, 16), ("a", "b", "c"), 32)


def late(wrong: bool = True) -> Launched:
    """c = a b over four tiles of K in two stages; the loop's end commits no group, so that its last wait leaves the last tile out."""
    commit = "\n  cp.async.commit_group;\nNEXT:" if wrong else "\nNEXT:\n  cp.async.commit_group;"
    copy = """
  cp.async.ca.shared.global [%to], [%pa], 16;
  cp.async.ca.shared.global [%to+512], [%pb], 8;
  add.s64 %pa, %pa, 32;                    // 16 columns of a, 16 rows of b
  add.s64 %pb, %pb, 256;"""
    ptx = f"""{HEAD}
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
  .reg .b32 %r<30>; .reg .b32 %lane, %at, %to, %from, %tile; .reg .b64 %rd<20>; .reg .b64 %pa, %pb, %pc;
  .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %f<4>; .reg .pred %p, %q;
  .shared .align 128 .b8 stages[1536];     // two stages of 512 + 256 bytes
  ld.param.u64 %pa, [a];
  ld.param.u64 %pb, [b];
  ld.param.u64 %pc, [c];
  mov.u32 %lane, %tid.x;
  mov.u32 %at, stages;
  shr.u32 %r1, %lane, 1;                   // row lane / 2 of a, which has 128 bytes, half lane % 2 of its 32 bytes
  and.b32 %r2, %lane, 1;
  shl.b32 %r3, %r1, 7;
  shl.b32 %r4, %r2, 4;
  add.u32 %r5, %r3, %r4;
  cvt.u64.u32 %rd1, %r5;
  add.s64 %pa, %pa, %rd1;
  mul.wide.u32 %rd2, %lane, 8;
  add.s64 %pb, %pb, %rd2;
  shl.b32 %r6, %lane, 4;
  add.u32 %to, %at, %r6;{copy.replace("[%to+512]", "[%r7+512]").replace("  cp", "  shl.b32 %r8, %lane, 3;" + chr(10) + "  add.u32 %r7, %at, %r8;" + chr(10) + "  cp", 1)}
  cp.async.commit_group;
  add.u32 %to, %to, 768;
  add.u32 %r7, %r7, 768;{copy.replace("[%to+512]", "[%r7+512]")}
  cp.async.commit_group;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  mov.u32 %tile, 0;
  and.b32 %r9, %lane, 15;
  shr.u32 %r10, %lane, 4;
  shl.b32 %r11, %r9, 5;
  shl.b32 %r12, %r10, 4;
  add.u32 %r13, %r11, %r12;                // of a in its stage
  shl.b32 %r14, %r9, 4;                    // of b
LOOP:
  cp.async.wait_group 1;
  bar.sync 0;
  and.b32 %r15, %tile, 1;
  mad.lo.u32 %from, %r15, 768, %at;
  add.u32 %r16, %from, %r13;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%a0, %a1, %a2, %a3}}, [%r16];
  add.u32 %r17, %from, %r14;
  ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%b0, %b1}}, [%r17+512];
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {{%f0, %f1, %f2, %f3}};
  bar.sync 0;
  setp.ge.u32 %q, %tile, 2;
  @%q bra NEXT;
  add.u32 %to, %from, %r6;
  add.u32 %r7, %from, %r8;{copy.replace("[%to+512]", "[%r7+512]")}{commit}
  add.u32 %tile, %tile, 1;
  setp.lt.u32 %p, %tile, 4;
  @%p bra LOOP;
{STORE}}}
"""
    return Launched(ptx, matrices(16, 8, 64, 1), ("a", "b", "c"), 32)


def swizzled(wrong: bool = True) -> Launched:
    """c = a b with TMA and wgmma: the boxes are swizzled by 128 bytes, and the descriptor of a says 64."""
    arrays = matrices(64, 8, 64, 2)
    arrays = {"a": arrays["a"], "b": np.ascontiguousarray(arrays["b"].T), "c": arrays["c"]}  # b is K-major
    maps = [TensorMap("FLOAT16", (64, rows), (128,), (64, rows), swizzle="128B") for rows in (64, 8)]
    right = MatrixDescriptor(stride_byte_offset=1024, swizzle="128B").encode()
    descriptor = MatrixDescriptor(stride_byte_offset=512, swizzle="64B").encode() if wrong else right
    products = ""
    for step in range(4):
        products += f"""
  add.s64 %rd6, %rd4, {2 * step};
  add.s64 %rd7, %rd5, {2 * step};
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd6, %rd7, {"0" if not step else "%p"}, 1, 1, 0, 0;""".replace(
            "%rd7, 0,", "%rd7, %q,"
        )
    store = STORE.replace(
        "shr.u32 %r20, %lane, 2;", "shr.u32 %r23, %lane, 5;\n  and.b32 %r24, %lane, 31;\n  shr.u32 %r20, %r24, 2;"
    )
    store = store.replace(
        "mul.wide.u32 %rd10, %r22, 8;", "mad.lo.u32 %r25, %r23, 64, %r22;\n  mul.wide.u32 %rd10, %r25, 8;"
    )
    ptx = f"""{HEAD}
.visible .entry product(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 c)
{{
  .reg .b32 %r<30>; .reg .b32 %lane; .reg .b64 %rd<20>; .reg .b64 %pa, %pb, %pc; .reg .f32 %f<4>; .reg .pred %p, %q, %first, %done;
  .shared .align 1024 .b8 tile[9216];      // a: 64 rows of 128 bytes; b: 8
  .shared .align 8 .b64 full;
  mov.b64 %pa, a;
  cvta.param.u64 %pa, %pa;
  mov.b64 %pb, b;
  cvta.param.u64 %pb, %pb;
  ld.param.u64 %pc, [c];
  mov.u32 %lane, %tid.x;
  mov.u32 %r1, tile;
  mov.u32 %r2, full;
  setp.eq.u32 %first, %lane, 0;
  setp.ne.u32 %p, 1, 0;
  setp.ne.u32 %q, 0, 0;
  @!%first bra WAIT;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 9216;
  mov.u32 %r3, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%pa, {{%r3, %r3}}], [%r2];
  add.u32 %r4, %r1, 8192;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%pb, {{%r3, %r3}}], [%r2];
WAIT:
  bar.sync 0;
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%r2], 0;
  @!%done bra AGAIN;
  shr.u32 %r5, %r1, 4;
  cvt.u64.u32 %rd1, %r5;
  or.b64 %rd4, %rd1, {descriptor};
  add.s64 %rd2, %rd1, 512;
  or.b64 %rd5, %rd2, {right};
  wgmma.fence.sync.aligned;{products}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
{store}}}
"""
    return Launched(ptx, arrays, ((maps[0], "a"), (maps[1], "b"), "c"), 128)


KERNELS = {"transposed": transposed, "late": late, "swizzled": swizzled}


def expected(own: Launched) -> Array:
    """What the product should be."""
    a, b = own.arrays["a"].astype(np.float32), own.arrays["b"].astype(np.float32)
    return a @ (b if b.shape[0] == a.shape[1] and b.shape != (8, 64) else b.T)
