"""Single rules of the stepper, each on the few numbers that decide it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.model.effects import Access
from tcsim.ptx import Memory, parse
from tcsim.ptx.stepping import breakpoints, moves, text
from tcsim.ptx.stepping.log import Log, Place, placed, taken_apart
from tcsim.ptx.stepping.state import InFlight
from tcsim.ptx.stepping.stepper import Worker
from tcsim.ptx.stepping.why import Node


@pytest.mark.parametrize("space", ["local", "shared", "tmem"])
@pytest.mark.parametrize(("block", "thread"), [(0, 0), (1, 31), (3, 1023), (4095, 512)])
def test_a_byte_is_taken_apart(space: str, block: int, thread: int) -> None:
    """Block, thread and offset are what they were, whatever their lowest and highest bits."""
    threads = thread if space == "local" else 0
    (number,) = placed(space, block, np.array([1027]), threads).tolist()
    assert taken_apart(number) == Place(space, block, threads, 1027)


def test_a_line_too_narrow_for_dots() -> None:
    assert [text.cut("abcdef", width) for width in (6, 5, 3)] == ["abcdef", "ab...", "..."]


def test_results_of_an_instruction_are_kept_once() -> None:
    """Registers that are written, with the values of then; a place without a register is left out."""
    log = Log()
    record: Any = SimpleNamespace(values={}, block=0, writes=[], size=0)
    registers = [np.zeros(4, np.uint32), np.arange(4, dtype=np.uint32)]
    log._keep(record, [1, -1, 1], registers)
    assert list(record.values) == [1] and np.array_equal(record.values[1], registers[1])
    assert log.writers == {(0, 1): [record]}


@pytest.mark.parametrize("cta", [None, np.array([[0], [1]])])
def test_bytes_have_the_shape_of_their_access(cta: Any) -> None:
    """An access of several blocks has a row for each of them."""
    access = Access("shared::cluster", np.arange(3) * 4, 4, cta=cta)
    count = 3 if cta is None else 6
    event: Any = SimpleNamespace(numbers=np.arange(count), size=4)
    asked: Any = SimpleNamespace(rank=0, warp=0)
    found = moves.Tagged(asked, [event], 0).read(access)
    assert found.shape == ((3, 4) if cta is None else (2, 3, 4))
    assert found.reshape(-1).tolist() == list(range(1, 4 * count + 1))


def test_mbarriers_before_transactions() -> None:
    """On sm_80 an mbarrier counts no bytes: none are missing."""
    body = "mov.u32 %r5, sh; mbarrier.init.shared.b64 [%r5], 3;\n    mbarrier.arrive.shared.b64 %d5, [%r5];"
    source = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
    .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 8 .b8 sh[8];
    {body}
    ret;
}}"""
    with parse(source).kernel().session(Memory(), [], block=(1, 1, 1)) as session:
        session.step()
        session.step()
        session.step()
        (barrier,) = session.mbarriers()
        assert (barrier.expected, barrier.pending, barrier.bytes) == (3, 2, 0)


def test_an_mbarrier_that_is_invalidated_is_gone() -> None:
    """The other one stays."""
    source = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
    .shared .align 8 .b8 sh[24];
    mbarrier.init.shared.b64 [sh+8], 3; mbarrier.init.shared.b64 [sh+16], 3; mbarrier.inval.shared.b64 [sh+8];
    ret;
}"""
    with parse(source).kernel().session(Memory(), [], block=(1, 1, 1)) as session:
        session.step(count=2)
        first, second = [own.address for own in session.mbarriers()]
        session.step()
        assert [own.address for own in session.mbarriers()] == [second] and second == first + 8


@pytest.mark.parametrize(
    ("warp", "thread", "meant"),
    [(None, 95, True), (2, 64, True), (2, 95, True), (2, 63, False), (0, 32, False), (1, 32, True)],
)
def test_the_warp_of_a_breakpoint(warp: int | None, thread: int, meant: bool) -> None:
    """Some thread of it executes the instruction."""
    own: Any = SimpleNamespace(block=None, warp=warp)
    assert breakpoints._meant(own, SimpleNamespace(index=(0, 0, 0)), np.arange(96) == thread) is meant  # type: ignore[arg-type]


def test_work_in_flight_in_words() -> None:
    """Its group is counted from the newest, unless it was not committed."""
    work = InFlight("bulk", (0, 0, 0), (0,), 7, None, "cp.async.bulk", None, False, ())
    assert "bulk: not committed" in "".join(work.lines())
    assert "bulk: group 2 from the newest" in "".join(replace(work, group=2).lines())


def test_a_worker_that_is_closed_leaves_no_thread() -> None:
    """One that stands still ends there; one that never began needs nobody."""
    worker = Worker(lambda: worker.pause())
    worker.resume()
    worker.close()
    assert worker.ended and not worker._thread.is_alive()
    unused = Worker(list)
    unused.close()
    assert unused.ended and unused._thread.ident is None


def test_hazards_are_new_until_the_launch_goes_on() -> None:
    """A session that was only stepped has seen none before; one that begins again has none."""
    source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { .reg .b32 %r; mov.u32 %r, 1; trap; }"
    with parse(source).kernel().session(Memory(), [], block=(1, 1, 1)) as session:
        assert not session.new_hazards
        session.step(count=3)
        assert session.ended and [own.name for own in session.new_hazards] == ["TRAP"]
        session.restart()
        assert not session.new_hazards


@pytest.mark.parametrize(("format", "cells"), [("f16", [(0, 1, 4), (0, 1, 5)]), ("f32", [(0, 1, 4)])])
def test_the_elements_of_the_bytes_of_a_register(
    format: str, cells: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lane 6 holds columns 4 and 5 of row 1 in its first registers: one holds both in f16."""
    model = tcsim.instruction(f"mma.sync.aligned.m16n8k16.row.col.{format}.f16.f16.{format}", arch="sm_90")
    monkeypatch.setattr(moves, "operands_of", lambda site, bound: {"d": None})
    monkeypatch.setattr(moves, "registers_of", lambda site, own: [7, 8, 9, 10])
    asked: Any = SimpleNamespace(bound=SimpleNamespace(model=model, lanes=32))
    bytes: Any = [("register", 7, 6, at) for at in range(4)]
    assert moves._cells(None, asked, bytes) == cells  # type: ignore[arg-type]


def test_what_is_left_out_below_a_depth() -> None:
    """A node says how many children it has where they are not told, and none where they are."""
    trail: Any = SimpleNamespace(bytes_text=lambda own: "")
    leaf = Node(trail, "1.1", "", (), ())
    node = Node(trail, "1", "", (), ())
    for own, children in ((leaf, []), (node, [leaf])):
        own.__dict__.update(
            children=children, last=None, origin="", lines=[], made={}, notes=[], head=lambda: "", bytes=[]
        )
    told = node.as_dict(1)
    assert told["more"] == 0 and [own["more"] for own in told["children"]] == [0]
    assert node.as_dict(0)["more"] == 1 and node.as_dict(0)["children"] == []
