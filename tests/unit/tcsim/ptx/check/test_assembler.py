"""What the assembler does not do as PTX says: told of a program."""

from __future__ import annotations

import pytest

from tcsim.ptx import Memory, parse

ACCUMULATORS = {
    "%r0,%r1,%r2,%r3": 0,
    "%r4,%r5,%r6,%r7": 0,
    "%r1,%r2,%r3,%r3": 0,
    "%r4,%r0,%r5,%r6": 1,
    "%r4,%r5,%r6,%r2": 1,
    "%r3,%r0,%r1,%r2": 3,
}
"""Registers of c, and how many of them are earlier ones of d, %r0 to %r3."""


@pytest.mark.parametrize("mma", ["m16n8k32.row.col.f32.e4m3.e5m2.f32", "m16n8k16.row.col.f32.f16.f16.f32"])
@pytest.mark.parametrize("target", ["sm_89", "sm_90", "sm_100", "sm_120"])
def test_accumulators_that_are_overwritten(target: str, mma: str) -> None:
    """Of FP8 where it runs as f16: 240 mma of 24 spellings on an H200, in 123 of which other sums were left, the 123 that are told of."""
    for c, count in ACCUMULATORS.items():
        text = f"""
.version 8.7
.target {target}
.address_size 64
.visible .entry k()
{{
  .reg .b32 %r<9>;
  mma.sync.aligned.{mma} {{%r0, %r1, %r2, %r3}}, {{%r8, %r8, %r8, %r8}}, {{%r8, %r8}}, {{{c}}};
  ret;
}}
"""
        run = parse(text).kernel().launch(Memory(), [], grid=(1, 1, 1), block=(32, 1, 1))
        names = [own.name for own in run.hazards if own.name == "ACCUMULATOR_OVERWRITTEN"]
        emulated = target in ("sm_90", "sm_100") and "e4m3" in mma
        assert sum(own.count for own in run.hazards if own.name in names) == (count if emulated else 0), c
