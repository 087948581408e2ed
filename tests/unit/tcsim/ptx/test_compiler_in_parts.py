"""Single rules of the compiler and the reader, each on the few lines that decide it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.ptx import Memory, PtxError, parse
from tcsim.ptx.compile import store
from tcsim.ptx.compile.carried import _followed
from tcsim.ptx.compile.convergence import set_once
from tcsim.ptx.compile.demand import Demand
from tcsim.ptx.compile.flow import Flow
from tcsim.ptx.compile.identities import identity
from tcsim.ptx.compile.known import Known
from tcsim.ptx.compile.spins import Spins
from tcsim.ptx.text.initial import _decimal
from tcsim.ptx.text.syntax import Function, Immediate, Register

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .f32 %f<4>; .reg .b64 %d<9>; .shared .b32 sh[8];"


def function_of(body: str) -> Function:
    """A kernel of those instructions."""
    return parse(f"{HEAD}.visible .entry k(.param .u64 at) {{ {REGISTERS} {body} ret; }}").kernel().function


def test_elements_go_through_moves() -> None:
    """A register that is moved to one that is stored may hold an element, too; one that is added to an address does not."""
    body = "ld.shared.b32 %r1, [sh]; mov.b32 %r2, %r1; st.shared.b32 [sh+4], %r2;"
    assert _followed(function_of(body)) == {"%r1", "%r2"}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("mov.u32 %r1, 7;", {"%r1": 7}),
        ("mov.u32 %r1, 7; mov.u32 %r1, 8;", {}),
        ("mov.u32 %r1, %r2;", {}),
        ("@%p1 mov.u32 %r1, 7;", {}),
    ],
)
def test_registers_that_hold_one_number(body: str, found: dict[str, int]) -> None:
    assert set_once(function_of(body)) == found


@pytest.mark.parametrize(
    ("asked", "bits"),
    [("lt.s32 %p1, %r1, 0", 1 << 31), ("ge.s32 %p1, %r1, 0", 1 << 31), ("gt.s32 %p1, %r1, -1", 1 << 31),
     ("le.s32 %p1, %r1, -1", 1 << 31), ("gt.s32 %p1, %r1, -2", 2**32 - 1), ("gt.s32 %p1, %r1, 0", 2**32 - 1), ("lt.u32 %p1, %r1, 0", 2**32 - 1)],
)  # fmt: skip
def test_comparisons_that_ask_for_the_sign(asked: str, bits: int) -> None:
    body = f"add.u32 %r1, %r2, %r3; setp.{asked}; selp.b32 %r4, 1, 2, %p1; st.shared.b32 [sh], %r4;"
    assert Demand(function_of(body)).bits(0, "%r1") == bits


@pytest.mark.parametrize(
    ("branches", "sure"),
    [("@%p1 bra L;", True), ("@%p1 bra END;", False), ("@%p1 bra L; @%p2 bra END;", False), ("@%p1 bra L; @%p2 bra L;", True)],
)  # fmt: skip
def test_where_every_way_leads(branches: str, sure: bool) -> None:
    """Some thread surely comes to a label if no way to the end of the function avoids it."""
    flow = Flow(function_of(f"{branches} L: mov.u32 %r1, 1; mov.u32 %r2, 2; END: mov.u32 %r3, 3;"))
    place = next(at for at, item in enumerate(flow.body) if item.opcode == "mov.u32")
    assert flow.surely(0, place) is sure


@pytest.mark.parametrize(
    ("body", "around"),
    [("@%p1 bra L; mov.u32 %r1, 1; L:", False), ("@%p1 bra L; st.shared.u32 [sh], %r1; L:", True), ("st.shared.u32 [sh], %r1; @%p1 bra L; L:", False)],
)  # fmt: skip
def test_branches_around_nothing(body: str, around: bool) -> None:
    """A branch matters if what it skips does, whatever stands before it."""
    flow = Flow(function_of(f"{body} mov.u32 %r2, 2;"))
    (index,) = (at for at, item in enumerate(flow.body) if item.opcode == "bra")
    assert (index in flow.live) is around


def test_instructions_that_give_back_their_source() -> None:
    """One that reads or writes the carry does not: what it gives depends on more than its operands."""
    zero = (
        parse(f"{HEAD}.visible .entry k() {{ .reg .b32 %r<3>; add.u32 %r1, %r2, 0; ret; }}").kernel().function.body[0]
    )
    number = zero.operands[2]
    assert identity("add.u32", (0, number), 0) == 1 and identity("and.b32", (0, number), 0) is None
    assert identity("and.b32", (0, Immediate(-1, "int")), 0) == 1
    assert identity("add.cc.u32", (0, number), 0) is None and identity("addc.u32", (0, number), 0) is None
    assert identity("no.such.u32", (0, number), 0) is None


def test_constants_through_moves_and_vectors() -> None:
    """What is known of a register is known six moves further on, taken apart and put together among them; not of a seventh."""
    packed = "mov.b64 %d1, {%r1, %r2}; mov.b64 {%r3, %r4}, %d1; mov.b64 %d2, {%r3, %r4}; mov.b64 {%r5, %r6}, %d2;"
    function = function_of(f"mov.u32 %r1, 7; mov.u32 %r2, 8; {packed} mov.b32 %r7, %r5; mov.b32 %r8, %r7;")
    known, end = Known(function, {}, Flow(function)), len(function.body) - 1
    assert known.constant(Register("%r7"), end) == "number" and known.constant(Register("%r8"), end) == ""


def test_a_branch_to_itself_is_a_loop() -> None:
    body = "L: try: mbarrier.try_wait.parity.shared.b64 %p1, [sh], 0; @%p1 bra L;"
    spins = Spins(function_of(body))
    assert [*spins._loops()] == [(0, 1)]
    assert [*Spins(function_of("mov.u32 %r1, 1; L: bra L;"))._loops()] == [(1, 1)]


@pytest.mark.parametrize(
    ("body", "adds"),
    [("ld.volatile.shared.u32 %r1, [sh]; add.u32 %r2, %r1, 1; st.shared.u32 [sh], %r2;", True),
     ("ld.volatile.shared.u32 %r1, [sh]; st.shared.u32 [sh], %r1;", False),
     ("ld.volatile.shared.u32 %r1, [sh+4]; add.u32 %r2, %r1, 1; st.shared.u32 [sh], %r2;", False)],
)  # fmt: skip
def test_loops_that_change_what_they_read(body: str, adds: bool) -> None:
    """A store adds to what a load of the same place found; what is put back as it was found, or comes from elsewhere, does not."""
    function = function_of(f"L: {body} setp.eq.u32 %p1, %r1, 0; @%p1 bra L;")
    index = next(at for at, item in enumerate(function.body) if item.opcode.startswith("st."))
    assert Spins(function)._adds(index, 0, len(function.body) - 2) is adds


def test_programs_are_kept_for_the_sources_of_the_model() -> None:
    assert Path(tcsim.__file__).parent == store._SOURCES


def test_a_kernel_of_more_registers_than_a_thread_has() -> None:
    """.maxnreg is rounded up to eights, and ends at 256."""
    for most, found in ((17, 24), (255, 256), (300, 256)):
        text = f"{HEAD}.visible .entry k() .maxnreg {most} {{ ret; }}"
        assert parse(text).kernel().compiled(Memory(), "sm_90").registers_at_launch == found


def test_words_of_every_size_pass_through_registers() -> None:
    """Arguments and results of a function, by value."""
    sizes = (("h", "b16", 2), ("r", "b32", 4), ("d", "b64", 8))
    for letter, type, size in sizes:
        text = f"""{HEAD}.func (.reg .{type} out) f(.reg .{type} in) {{ mov.{type} out, in; ret; }}
.visible .entry k(.param .u64 at) {{ {REGISTERS}
  ld.param.u64 %d0, [at]; ld.global.{type} %{letter}1, [%d0]; call (%{letter}2), f, (%{letter}1); st.global.{type} [%d0+8], %{letter}2; ret; }}"""
        memory = Memory()
        at = memory.allocate(np.arange(16, dtype=np.uint8))
        assert parse(text).kernel().launch(memory, [at]).completed
        assert memory.read(at + 8, size).tolist() == [*range(size)]


def test_tables_are_read_as_one_list_where_they_have_one_extent() -> None:
    text = "{" + ", ".join(map(str, range(4000))) + "}"
    found: Any = _decimal(text, (None,), "u32")
    assert found.tolist() == [*range(4000)]
    assert _decimal(text, (2, 2000), "u32") is None


def test_a_directive_that_takes_no_numbers() -> None:
    assert parse(f"{HEAD}.func f() .noreturn {{ ret; }}")
    with pytest.raises(PtxError):
        parse(f"{HEAD}.func f() .noreturn 5 {{ ret; }}")


def test_what_a_parameter_of_a_call_is() -> None:
    """An entry reads .param::func from the variable that a call fills, and from nothing else."""
    text = f"{HEAD}.visible .entry k(.param .b32 own) {{ .reg .b32 %r; .param .b32 passed; st.param.b32 [passed], 1; ld.param::func.b32 %r, [HERE]; ret; }}"
    assert parse(text.replace("HERE", "passed"))
    with pytest.raises(PtxError, match="param::func in an entry"):
        parse(text.replace("HERE", "own"))
