"""Work that several blocks of a batch issued as one: of the blocks that complete, and of no others, objects are told."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.model.effects import Access, Outcome, Signal
from tcsim.ptx.machine.performer import Performer

THREADS = np.array([0, 32, 64])  # the first of each of three blocks


def told(cta: Any, only: Any) -> list[Signal]:
    """The signals that a part of a copy of three blocks gives: 1, 2 and 3 bytes at 8, 16 and 24."""
    found: list[Signal] = []
    performer: Any = SimpleNamespace(
        threads=SimpleNamespace(block_of=lambda threads: threads // 32),
        mbarriers=SimpleNamespace(signal=lambda signal, threads: found.append(signal)),
    )
    performer._part = partial(Performer._part, performer)
    at = Access("shared", np.array([8, 16, 24]), 8, thread=np.arange(3), cta=cta)
    outcome = Outcome(signals=(Signal("complete_tx", at, np.array([1, 2, 3]), copied=True),))
    Performer.apply(performer, outcome, THREADS, only)
    return found


@pytest.mark.parametrize("cta", [None, np.array([0, 1, 0])])
def test_a_part_tells_its_own_blocks(cta: Any) -> None:
    """The middle block has not come so far."""
    (signal,) = told(cta, np.array([True, False, True]))
    assert signal.at.address.tolist() == [8, 24] and signal.count.tolist() == [1, 3]
    assert signal.at.thread is not None and signal.at.thread.tolist() == [0, 2] and signal.copied
    assert cta is None or (signal.at.cta is not None and signal.at.cta.tolist() == [0, 0])


@pytest.mark.parametrize("only", [None, np.ones(3, bool)])
def test_the_whole_tells_all(only: Any) -> None:
    """Of all blocks, named or not."""
    (signal,) = told(None, only)
    assert signal.at.address.tolist() == [8, 16, 24] and signal.count.tolist() == [1, 2, 3]
