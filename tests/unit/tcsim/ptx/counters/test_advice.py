"""Ten slow kernels and their mended twins: the first thing that is said of a slow one names its line and the reason; nothing is said of a twin."""

from __future__ import annotations

import pytest

from tcsim.inspection.report import Lines
from tcsim.launchers.profile import Profile
from tcsim.ptx import Memory, parse
from tcsim.ptx.counters.counters import Counters

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
FETCH = "ld.param.u64 %d1, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;"


def profiled(body: str, block: int = 32, grid: int = 1, directives: str = "", more: str = "") -> Profile:
    """A kernel whose line of interest, the sixth, is the first of the body."""
    text = f"{HEAD}.visible .entry k(.param .u64 to) {directives} {{ .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .f32 %f<40>; .shared .align 1024 .b8 tile[16384]; {more}\n{FETCH} mul.wide.u32 %d3, %r1, 4;\n{body}\nret; }}"
    memory = Memory()
    module = parse(text)
    run = module.kernel().launch(
        memory, [memory.allocate(1 << 23)], (grid, 1, 1), (block, 1, 1), check=False, counters=True
    )
    assert run.completed
    return Profile("k.ptx", run, (grid, 1, 1), (block, 1, 1))


def counted(body: str) -> Counters:
    return profiled(body).counters


def warnings(own: Profile) -> list[str]:
    """What the report names, the worst first."""
    parts = [part.lines for part in own.report(verbose=False).parts if isinstance(part, Lines)]
    assert all(1 < len(lines) <= 3 for lines in parts)
    return [" ".join(lines) for lines in parts if lines[0].startswith("cause")]


def shared(stride: int) -> str:
    return f"mad.lo.u32 %r3, %r1, {stride}, %r2; st.shared.b32 [%r3], %r1;"


def rows(pitch: int) -> str:
    return f"mad.lo.u32 %r3, %r1, {pitch}, %r2; ld.shared.b32 %r4, [%r3];"


def matrix(swizzled: bool) -> str:
    swizzle = "and.b32 %r4, %r1, 7; shl.b32 %r4, %r4, 4; xor.b32 %r3, %r3, %r4;" if swizzled else ""
    return f"shl.b32 %r3, %r1, 7; add.u32 %r3, %r3, %r2; {swizzle} ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r5, %r6, %r7, %r8}}, [%r3];"


def loads(vector: str, each: int, registers: str) -> str:
    return f"mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 1024, %r1; mul.wide.u32 %d2, %r9, {each}; add.u64 %d2, %d1, %d2; ld.global{vector}.b32 {registers}, [%d2];"


def column(pitch: int) -> str:
    return f"mul.wide.u32 %d2, %r1, {pitch}; add.u64 %d2, %d1, %d2; ld.global.b32 %r4, [%d2];"


def added(distinct: bool) -> str:
    return f"{'add.u64 %d1, %d1, %d3;' if distinct else ''} red.global.add.u32 [%d1], %r1;"


def copies(size: int, count: int) -> str:
    load = f"@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], {size}, [%r5];"
    return (
        f"mov.u32 %r5, bar; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r5], 1; bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 %d4, [%r5], {size * count}; mov.u32 %r6, 0; "
        f"L: {load} add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, {count}; @%p2 bra L;\nW: mbarrier.try_wait.parity.shared.b64 %p3, [%r5], 0; @!%p3 bra W;"
    )


def product(columns: int) -> str:
    registers = ", ".join(f"%f{number}" for number in range(columns // 2))
    return (
        f"wgmma.fence.sync.aligned; mov.u64 %d5, 0x4000004000000040; wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{registers}}}, %d5, %d5, 1, 1, 1, 0, 0; "
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )


BARRIER = {"more": ".shared .align 8 .b64 bar;"}
PAIRS = {
    "8-way conflict": (shared(32), shared(4), {}, "8-way bank conflict"),
    "a pitch without padding": (rows(128), rows(132), {}, "32-way bank conflict"),
    "scalar loads": (loads("", 4, "%r4"), loads(".v4", 16, "{%r4, %r5, %r6, %r7}"), {"block": 1024, "grid": 128}, "4 bytes a lane"),
    "columns": (column(1024), column(4), {}, "not coalesced: 32.0 sectors a request, 4.0"),
    "no swizzle": (matrix(False), matrix(True), {}, "8-way bank conflict"),
    "a box of one row": (copies(64, 128), copies(4096, 2), BARRIER, "TMA copies of 64 bytes"),
    "registers": ("ret;", "ret;", {"block": 512, "grid": 1584}, "low occupancy: 16 of 64 warps, limited by registers"),
    "a tail": ("ret;", "ret;", {"grid": 140}, "tail: 140 blocks, 132 at a time"),
    "atomics in turn": (added(False), added(True), {}, "lanes change one address in turn"),
    "a narrow wgmma": (product(8), product(64), {"block": 128}, "wgmma of 8 columns"),
}  # fmt: skip
OF_LAUNCH = {
    "registers": ({"directives": ".maxntid 512, 1, 1 .maxnreg 128"}, {"directives": ".maxntid 512, 1, 1 .maxnreg 32"}),
    "a tail": ({}, {"grid": 132}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_first_advice_names_the_line_and_the_reason_and_a_twin_gets_none(name):
    slow, mended, options, reason = PAIRS[name]
    more = OF_LAUNCH.get(name, ({}, {}))
    own = profiled(slow, **options | more[0])
    first = own.counters.advice[0]
    assert reason in first.reason and first.line == (0 if name in OF_LAUNCH else 6)
    said = warnings(own)[0]
    assert said.startswith(f"cause  {reason}") and f"place  {'the launch' if name in OF_LAUNCH else 'line 6: '}" in said
    assert not warnings(profiled(mended, **options | more[1]))


def test_a_change_is_tried_on_the_same_addresses():
    assert counted(matrix(False)).advice[0].change == "swizzle 128B: 4 instead of 32 wavefronts"
    assert counted(rows(128)).advice[0].change == "pad rows of 128 bytes by 4: 1 instead of 32 wavefronts"
