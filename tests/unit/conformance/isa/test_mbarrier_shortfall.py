"""What an H200 made of mbarriers that expect other bytes than their copies bring: what docs/mbarriers-and-copies.md says, and what the machine does."""

from __future__ import annotations

import json

import numpy as np

import tcsim.ptx
from conformance.isa.mbarrier.shortfall import BLOCKS, QUESTIONS, RECORDING, THREADS, brought, name_of, ptx
from tcsim.memory import mbarrier_bits

OBJECTS = json.loads(RECORDING.read_text(encoding="utf-8"))["objects"]
PORTION = 64


def fields(kind: str, units: int, expected: int) -> dict[str, int]:
    """The object of a question."""
    return mbarrier_bits.unpack(int(OBJECTS[name_of(kind, units, expected)], 16), "sm_90")


def test_every_question_is_answered() -> None:
    assert list(OBJECTS) == [name_of(*own) for own in QUESTIONS]


def test_the_count_is_what_is_expected_less_what_came() -> None:
    """Whether the phase has ended or not: then it is that of the next one."""
    for kind, units, expected in QUESTIONS:
        assert fields(kind, units, expected)["tx_count"] == expected - brought(kind, units)


def test_a_phase_ends_between_portions_only() -> None:
    """Portions of 64 bytes, or a whole copy that is smaller."""
    early = never = 0
    for kind, units, expected in QUESTIONS:
        ended, all_of_it = fields(kind, units, expected)["phase"], brought(kind, units)
        portion = 16 if kind == "bulk of each" else PORTION
        if expected in (0, all_of_it):
            assert ended
        elif expected > all_of_it or expected % portion:
            assert not ended
            never += 1
        else:
            early += ended
    assert early > 10 and never > 10


def test_the_check_names_bytes_that_are_not_expected() -> None:
    """In launches where the barrier is not waited for, so that nothing hangs."""
    named = 0
    for kind, units, expected in [own for own in QUESTIONS if own[0] != "bulk of each"][::9]:
        memory = tcsim.ptx.Memory()
        pointers = [memory.allocate(np.array([units, expected], np.uint32).view(np.uint8)), memory.allocate(4096)]
        run = tcsim.ptx.parse(ptx(kind)).kernel().launch(
            memory, [*pointers, memory.allocate(24)], (BLOCKS, 1, 1), (THREADS, 1, 1), schedule="early"
        )  # fmt: skip
        under = "MBAR_TX_UNDER" in {own.name for own in run.hazards}
        assert run.completed and under == (expected < brought(kind, units)), (kind, units, expected)
        named += under
    assert named > 3
