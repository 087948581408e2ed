"""What an H200 answered to plain loads of mbarrier objects: the object's bits are the model's, and memory has them only after mbarrier.inval."""

from __future__ import annotations

import json

from conformance.isa.mbarrier.held import FILL, QUESTIONS, RECORDING
from tcsim import MBarrier

ANSWERS = {
    name: [int(word, 16) for word in words]
    for name, words in json.loads(RECORDING.read_text(encoding="utf-8"))["answers"].items()
}


def encoded(count: int, arrivals: int = 0) -> int:
    """The object of a barrier after some arrivals."""
    barrier = MBarrier(count)
    for _ in range(arrivals):
        barrier.arrive()
    return barrier.encode(arch="sm_90")


def test_every_question_is_answered() -> None:
    assert ANSWERS.keys() == QUESTIONS.keys()


def test_memory_stays_as_it_was() -> None:
    assert ANSWERS["init"][:2] == [0, 0] and ANSWERS["through the cluster"][0] == 0
    assert ANSWERS["fill, init"][0] == ANSWERS["init, store, arrive, inval"][1] == FILL
    assert ANSWERS["an object stored"][1] == encoded(96)


def test_inval_writes_the_object() -> None:
    assert ANSWERS["init, inval, init"][:2] == [encoded(96), encoded(5)]
    assert ANSWERS["init, arrive, inval"][2] == ANSWERS["init, store, arrive, inval"][2] == encoded(96, 1)
    assert ANSWERS["an object stored"][3] == encoded(96, 2)
    assert ANSWERS["a phase"][1] == encoded(1, 1)


def test_thirty_two_are_kept() -> None:
    """How many were in memory when all had been made; of 33 the one came there while it was counted."""
    found = {int(name.split()[0]): words for name, words in ANSWERS.items() if name.endswith("objects")}
    assert [found[count][0] for count in (31, 32, 64, 1024)] == [0, 0, 32, 992]
    assert [found[count][1] for count in (31, 32, 33, 64, 1024)] == [0, 0, *[encoded(96)] * 3]
    assert {words[2] for words in found.values()} == {0}
