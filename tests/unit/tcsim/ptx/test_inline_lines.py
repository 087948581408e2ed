"""Lines of inline assembly are those of the statement that it stands in."""

from __future__ import annotations

import pytest

from tcsim.ptx.text.reader import parse

PTX = """.version 8.7
.target sm_90
.address_size 64
.file 1 "add.py"
.visible .entry add(.param .u64 to) {
  .reg .b32 %r<4>; .reg .b64 %d<2>;
  .loc 1 7 3
  ld.param.u64 %d1, [to];
  .loc 1 10 16
  // begin inline asm
  mov.u32 %r1, 0x0;
  .loc 1 11 16
  ld.global.u32 %r1, [%d1];
  .loc 1 12 16
  ld.global.u32 %r2, [%d1+4];
  // end inline asm
  add.u32 %r3, %r1, %r2;
  .loc 1 13 5
  st.global.u32 [%d1], %r3; ret; }"""


@pytest.mark.parametrize("inline", [True, False])
def test_lines_inside_are_not_counted_on(inline: bool) -> None:
    """LLVM moves on a line for each line of the assembly; without the comments a .loc is what it says."""
    text = PTX if inline else PTX.replace("inline asm", "something")
    (function,) = parse(text).functions.values()
    lines = [item.source.line if item.source else 0 for item in function.body]
    assert lines == ([7, 10, 10, 10, 10, 13, 13] if inline else [7, 10, 11, 12, 12, 13, 13])
