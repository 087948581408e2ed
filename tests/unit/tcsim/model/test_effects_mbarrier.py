"""Effects of mbarrier instructions, applied one after the other to the object's 64 bits, against the slow model's diary of events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa.mbarrier import limits
from tcsim.core.errors import OperandError
from tcsim.memory.mbarrier import BarrierError, MBarrier
from tcsim.model.effects import Access, Effects, Memories, Outcome, Signal
from tcsim.model.instruction import Instruction
from tcsim.ptx.machine.mbarriers import told
from tests.exact.mbarrier import Diary, chip_faults, object_bits

AT = 64
Array = npt.NDArray[Any]


@dataclass
class Machine:
    """An object in shared memory, and what applies signals to it: the counts of all lanes of one signal are one number."""

    arch: str = "sm_90"
    smem: Array = field(default_factory=lambda: np.full(128, 0x77, np.uint8))

    def ask(self, mnemonic: str, form: str = "", lanes: int = 1, **operands: Any) -> Effects:
        """The effects of an instruction that some lanes execute."""
        item: Instruction = tcsim.instruction(mnemonic, arch=self.arch)
        chosen = next(own for own in item.forms if own.name == form)
        given_operands = {"barrier": np.full(lanes, AT)} | {name: np.asarray(value) for name, value in operands.items()}
        return item.effects(chosen, given_operands, Memories({"shared": self.smem}))

    def apply(self, outcome: Outcome) -> None:
        """Tell the object."""
        for signal in outcome.signals:
            assert set(signal.at.address.tolist()) == {AT} and signal.at.size == 8
            count = int(signal.count.sum())
            if signal.kind == "init":
                self.bits = MBarrier(int(signal.count[0]), signal.layout).encode(arch=self.arch)
                continue
            barrier = MBarrier.decode(self.bits, arch=self.arch)
            if signal.kind in ("arrive", "drop"):
                (barrier.arrive if signal.kind == "arrive" else barrier.arrive_drop)(count, signal.no_complete)
            else:
                getattr(barrier, signal.kind)(count)
            self.bits = barrier.encode(arch=self.arch)

    @property
    def bits(self) -> int:
        """The object."""
        return int(self.smem[AT : AT + 8].view(np.uint64)[0])

    @bits.setter
    def bits(self, value: int) -> None:
        self.smem[AT : AT + 8] = np.array([value], np.uint64).view(np.uint8)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "drop", "both", "expect", "complete", "noComplete"]),
        st.lists(st.integers(1, 3), min_size=1, max_size=4),
    ),
    max_size=30,
)


def run(machine: Machine, diary: Diary, kind: str, numbers: list[int]) -> Effects | None:
    """One step on both sides; None if the slow model's counts say that it is refused."""
    over, pending, _, waiting = diary.read()
    lanes, told = len(numbers), np.array(numbers, np.uint32)
    total = lanes if kind == "both" else sum(numbers)
    arrives = kind in ("arrive", "drop", "both", "noComplete")
    ends = total == pending and (waiting + sum(numbers) * (kind == "both")) == 0
    refused = arrives and (total > pending or (kind == "noComplete" and ends))
    if refused or (kind == "expect" and pending == 0 and waiting + total == 0):
        return None
    shared = "shared::cta.b64"
    if kind in ("arrive", "drop"):
        word = "arrive_drop" if kind == "drop" else kind
        effects = machine.ask(f"mbarrier.{word}.{shared}", "state+count", lanes, count=told)
        diary.arrive(total, kind)
    elif kind == "noComplete":
        effects = machine.ask(f"mbarrier.arrive.noComplete.{shared}", "state", lanes, count=told)
        diary.arrive(total)
    elif kind == "both":
        effects = machine.ask(f"mbarrier.arrive.expect_tx.{shared}", "state", lanes, tx_count=told)
        diary.note("expect", sum(numbers))
        diary.arrive(lanes)
    else:
        effects = machine.ask(f"mbarrier.{kind}_tx.relaxed.cta.{shared}", "", lanes, tx_count=told)
        diary.note(kind, total)
    if arrives:
        want = object_bits(pending, 1, waiting, over, True) & 0xFFFFFFFF00000000  # the high word
        assert [int(state) for state in effects.now.registers["state"]] == [want] * lanes
    return effects


@given(count=st.integers(1, 12), steps=STEPS)
def test_any_sequence_of_instructions(count: int, steps: list[tuple[str, list[int]]]) -> None:
    """The object's bits after every step, states, and waits by state and by parity of every lane."""
    machine, diary = Machine(), Diary(count)
    machine.apply(machine.ask("mbarrier.init.shared::cta.b64", count=np.array([count], np.uint32)).now)
    states: list[tuple[int, int]] = []
    for kind, numbers in steps:
        if diary.read()[2] == 0:
            break  # every arrival was dropped
        before = diary.read()[0]
        effects = run(machine, diary, kind, numbers)
        if effects is None:
            continue
        machine.apply(effects.now)
        over, pending, expected, waiting = diary.read()
        assert machine.bits == object_bits(pending, expected, waiting, over, True)
        if "state" in effects.now.registers:
            states.append((before, int(effects.now.registers["state"][0])))
        for parity in (0, 1, 3):  # its lowest bit
            wait = machine.ask(
                "mbarrier.test_wait.parity.shared::cta.b64", lanes=2, parity=np.full(2, parity, np.uint32)
            )
            assert wait.now.registers["complete"].tolist() == [diary.parity_complete(parity & 1)] * 2
            attempt = machine.ask(
                "mbarrier.try_wait.parity.shared::cta.b64", lanes=2, parity=np.full(2, parity, np.uint32)
            )
            assert (attempt.blocked is None) == diary.parity_complete(parity & 1)
        for phase, state in states[-1:]:
            if over - phase <= 1:
                wait = machine.ask("mbarrier.test_wait.shared::cta.b64", state=np.array([state], np.uint64))
                assert wait.now.registers["complete"].tolist() == [diary.complete(phase)]


def test_a_wait_of_some_lanes() -> None:
    """A wait whose lanes ask for both parities answers; the others get false, as after the time that the hardware waits."""
    machine = Machine()
    machine.apply(machine.ask("mbarrier.init.shared::cta.b64", count=np.array([1], np.uint32)).now)
    both = machine.ask("mbarrier.try_wait.parity.shared::cta.b64", lanes=2, parity=np.array([0, 1], np.uint32))
    assert both.now.registers["complete"].tolist() == [False, True]
    none = machine.ask("mbarrier.try_wait.parity.shared::cta.b64", lanes=2, parity=np.array([0, 0], np.uint32))
    assert none.blocked is not None and none.blocked.at is not None and none.now == Outcome()
    assert (none.blocked.kind, none.blocked.value, none.blocked.at.address.tolist()) == ("mbarrier", 0, [AT, AT])


def test_counts_layouts_and_reports() -> None:
    """pending_count of a state of .noComplete, check_layout, a wait that reports, an invalidated barrier."""
    machine = Machine()
    machine.apply(machine.ask("mbarrier.init.layout::v1.shared::cta.b64", count=np.array([5], np.uint32)).now)
    for layout in ("v0", "v1"):
        found = machine.ask(f"mbarrier.check_layout.layout::{layout}.shared::cta.b64")
        assert found.now.registers["matches"].tolist() == [layout == "v1"]
    effects = machine.ask("mbarrier.arrive.noComplete.shared::cta.b64", "state", count=np.array([2], np.uint32))
    item: Any = tcsim.instruction("mbarrier.pending_count.b64", arch="sm_90")
    pending = item.effects(item.forms[0], {"state": effects.now.registers["state"]}, Memories({}))
    assert pending.now.registers["pending"].tolist() == [5]
    name = "mbarrier.test_wait.parity.phase_type::primary.shared::cta.b64"
    report = machine.ask(name, "report+value.b8", parity=np.array([1], np.uint32)).now.registers
    assert {key: value.tolist() for key, value in report.items()} == {
        "complete": [True],
        "report": [False],
        "value": [0],
    }
    (signal,) = machine.ask("mbarrier.inval.shared::cta.b64").now.signals
    assert signal.kind == "inval"
    with pytest.raises(BarrierError, match="1 to 511"):
        machine.ask("mbarrier.init.layout::v1.shared::cta.b64", count=np.array([512], np.uint32))


def test_a_multicast() -> None:
    """Each lane's mask names the CTAs whose barriers it tells."""
    machine = Machine("sm_107")
    name = "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.multicast::cluster::32b.b64"
    masks = np.array([0b101, 0b110], np.uint32)
    effects = machine.ask(name, "", 2, tx_count=np.array([16, 32], np.uint32), cta_mask=masks)
    expect, arrive = effects.now.signals
    assert (expect.kind, arrive.kind) == ("expect_tx", "arrive") and expect.at == arrive.at
    assert expect.at.cta is not None and expect.at.thread is not None
    told = list(zip(expect.at.thread.tolist(), expect.at.cta.tolist(), expect.count.tolist(), strict=True))
    assert told == [(0, 0, 16), (0, 2, 16), (1, 1, 32), (1, 2, 32)] and arrive.count.tolist() == [1] * 4
    with pytest.raises(OperandError, match="cta_mask=0x0"):
        machine.ask(name, "", 2, tx_count=masks, cta_mask=masks * np.uint32(0))


def test_ampere() -> None:
    """The object of sm_80 has a different layout, and no transaction count."""
    machine, diary = Machine("sm_80"), Diary(3)
    machine.apply(machine.ask("mbarrier.init.shared.b64", count=np.array([3], np.uint32)).now)
    for _ in range(5):
        diary.arrive(1)
        machine.apply(machine.ask("mbarrier.arrive.shared.b64", "state").now)
        over, pending, expected, _ = diary.read()
        assert machine.bits == object_bits(pending, expected, 0, over, False)


# --- what a warp may tell a barrier at once


def test_questions_of_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The GPU script has questions at both sides of each border; the model answers them, and a wrong answer is seen."""
    assert limits.main([str(tmp_path), "--predict"]) == 0
    found = json.loads((tmp_path / "mbarrier_limits.json").read_text())["questions"]
    assert len(found) == len(limits.questions()) == 123
    assert "the model predicts 71 faults" in capsys.readouterr().out
    for name, question in limits.questions().items():
        model = found[name]["predicted"]
        if question.kind in ("expect_tx", "complete_tx") and not question.bytes and len(question.numbers) <= 32:
            assert model["fault"] == (sum(question.numbers) >= 1 << 20), name
        if question.kind == "arrive" and len(question.numbers) <= 32:
            assert model["fault"] == (sum(question.numbers) > question.expected), name
        assert limits.agrees(model, dict(model)) and not limits.agrees(model, {"fault": None})
    assert not limits.agrees({"fault": False, "object": "0x1"}, {"fault": False, "object": "0x2"})


UNANSWERED = {"000: expect_tx: 1 lanes, 1048575 in all, largest 1048575; 64 arrivals": "no answer within 30 s"}
"""Questions that no H200 answered."""
LENIENT = {
    "025: expect_tx: 1 lanes, 1047576 in all, largest 1047576; 64 arrivals, 1000 bytes before": "1000 + 1047576 = 2**20",
    "027: expect_tx: 32 lanes, 1047576 in all, largest 32737; 64 arrivals, 1000 bytes before": "1000 + 1047576 = 2**20",
    "036: expect_tx: 32 lanes, 1048576 in all, largest 32768; 64 arrivals": "two warps, each 2**19",
}
"""Launches that the model refuses and an H200 does not: a count of 2**20, beyond the manual's range, though the object holds it."""


def test_faults_of_an_h200() -> None:
    """The model faults where the chip did, except where it keeps to the manual; the slow model of the chip has every answer."""
    faults = json.loads(limits.RECORDING.read_text())["faults"]
    assert list(faults) == list(limits.questions())
    assert {name for name, fault in faults.items() if fault is None} == UNANSWERED.keys()
    differing = set()
    for name, question in limits.questions().items():
        if name in UNANSWERED:
            continue
        assert chip_faults(question.kind, question.numbers, question.expected, question.bytes) == faults[name], name
        model = limits.predicted(question)
        if model["fault"] != faults[name]:
            differing.add(name)
            assert faults[name] is False and "an H200 does not fault there" in model["why"], name
        else:
            assert "an H200 does not fault there" not in model.get("why", ""), name
    assert (
        differing == LENIENT.keys() and len(faults) - len(UNANSWERED) == 122 and sum(map(bool, faults.values())) == 68
    )


def test_copies_of_a_warp_tell_a_barrier_one_by_one() -> None:
    """Only what an instruction says is added up."""
    at = Access("shared", np.full(32, AT), 8)
    for copied, want in ((False, [(AT, 1 << 20)]), (True, [(AT, 1 << 15)] * 32)):
        signal = Signal("complete_tx", at, np.full(32, 1 << 15), copied=copied)
        assert [own[:2] for own in told(signal, at.address, np.arange(32))] == want


def test_a_question_is_a_kernel() -> None:
    """What it writes is the object that the slow model puts together."""
    question = limits.Question("arrive.expect_tx", limits.spread(500, 7), 9, 100)
    model = limits.predicted(question)
    assert model == {"fault": False, "object": f"{object_bits(2, 9, 600, 0, True):#018x}"}
