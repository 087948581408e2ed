"""Single rules of the reader, the compiler and the machine, each on the few numbers that decide it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, PtxError, parse
from tcsim.ptx.machine.polling import MOST_POLLED, Polled
from tcsim.ptx.machine.reports import Reports
from tcsim.ptx.text.expressions import DEEPEST, constant

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_choices_do_not_make_room_for_parentheses() -> None:
    """However many choices stand before them, parentheses may lie as deep in each other as without."""
    for before in ("1", "(1 ? 1 : 2)", "(1 ? 1 : 2)+(0 ? 1 : 2)"):
        assert constant(f"{before}+{'(' * (DEEPEST - 1)}1{')' * (DEEPEST - 1)}") in (2, 4)
        with pytest.raises(PtxError):
            constant(f"{before}+{'(' * DEEPEST}1{')' * DEEPEST}")


def test_accesses_that_are_noted() -> None:
    """As many as may be are noted; of one more nothing is kept."""
    polled = Polled()
    polled.note(np.zeros(MOST_POLLED, np.uint64))
    assert not polled.many and polled.pieces.tolist() == [0]
    polled.note(np.zeros(1, np.uint64))
    assert polled.many


@pytest.mark.parametrize(("negated", "found"), [(False, [0, 0, 1, 0]), (True, [0, 1, 0, 0]), (None, [0, 1, 1, 0])])
def test_who_executes(negated: bool | None, found: list[int]) -> None:
    """The threads of the mask whose predicate holds, or does not where it is negated; all of them without one."""
    predicate = None if negated is None else SimpleNamespace(name="%p")
    site: Any = SimpleNamespace(item=SimpleNamespace(predicate=predicate, negated=bool(negated)), numbers={"%p": 0})
    block: Any = SimpleNamespace(registers=[np.array([True, False, True, False])])
    mask, threads, events = np.array([False, True, True, False]), None, None
    reports = Reports(block, threads, events)  # type: ignore[arg-type]
    assert reports._executing(site, mask).tolist() == [bool(own) for own in found]


@pytest.mark.parametrize(("factor", "inexact"), [(1.0, False), (1.0 + 2.0**-12, True)])
def test_a_product_on_its_way_to_a_sum(factor: float, inexact: bool) -> None:
    """A product that is moved before it is added may be fused with the sum: the result says so where the bits differ."""
    text = f"""{HEAD}.visible .entry k(.param .u64 at, .param .f32 factor)
{{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<9>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [at]; ld.param.f32 %f0, [factor];
  mov.u32 %r0, %tid.x;
  mov.f32 %f1, 0f3F800001;
  mul.f32 %f2, %f0, %f1;
  mov.f32 %f3, %f2;
  mov.f32 %f2, 0f00000000;
  setp.eq.u32 %p0, %r0, 77;
  @%p0 mov.f32 %f3, %f0;
  add.f32 %f4, %f3, 0fBF800000;
  st.global.f32 [%d0], %f4;
  ret;
}}"""
    memory = Memory()
    at = memory.allocate(4)
    run = parse(text).kernel().launch(memory, [at, np.float32(factor)], (1, 1, 1), (1, 1, 1))
    product = np.float32(factor) * np.float32(1 + 2.0**-23)
    exact = {np.float32(product + np.float32(-1)), np.float32(factor * (1 + 2.0**-23) - 1)}
    assert memory.read(at, 4).view(np.float32)[0] in exact
    assert bool(run.inexact) == (len(exact) > 1) == inexact
