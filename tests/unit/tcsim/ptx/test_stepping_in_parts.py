"""Single rules of the stepper, each on the few numbers that decide it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.model.effects import Access
from tcsim.ptx import Memory, parse
from tcsim.ptx.stepping import moves, text
from tcsim.ptx.stepping.log import Log
from tcsim.ptx.stepping.places import Place, placed, taken_apart


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
