"""mbarrier: every spelling and list of operands that ptxas accepts, executed, against a slow model; wrong use by name."""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import tcsim
from tcsim import catalog
from tcsim.core.errors import InstructionError, NotModelledError, OperandError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.mbarrier.semantics import CLASSES, BarrierRow
from tcsim.memory.mbarrier import BarrierError, BarrierState, MBarrier
from tcsim.memory.mbarrier_bits import pack, unpack
from tests.exact import mbarrier as exact
from tests.support.extent import examples
from tests.support.tables import TABLES

INVENTORY = TABLES / "mbarrier_inventory.csv"
ROWS = {name: row for name, row in catalog.rows().items() if row.family == "mbarrier"}
MULTICAST = "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.multicast::cluster::32b.b64"


def on(stem: str, arch: str = "sm_90") -> Any:
    """The instruction of a spelling without `mbarrier.` and `.b64`."""
    return tcsim.instruction(f"mbarrier.{stem}.b64", arch=arch)


# ---- the inventory


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings and operand lists that ptxas accepts, with their targets, versions, and place in the manual."""
    text = [line for line in INVENTORY.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    lines = {(line["mnemonic"], line["extra"]): line for line in csv.DictReader(text)}
    assert len(lines) == 708
    forms = {(name, form.name): form for name, row in ROWS.items() for form in row.forms}
    assert set(forms) == set(lines)
    assert len(ROWS) == 311
    for key, line in lines.items():
        form = forms[key]
        assert list(form.targets) == line["targets"].split(), key
        assert form.ptx_version == line["min_ptx_isa"], key
        assert form.documented == bool(int(line["documented"])), key
    for row in ROWS.values():
        own = row.forms
        assert set(row.targets) == {target for form in own for target in form.targets}
        assert row.ptx_version in {form.ptx_version for form in own}
        assert row.documented == any(form.documented for form in own)
        assert (dict(row.operands), row.shape, row.dropped) == ({}, (0, 0, 0), "")


def test_accepted_on_exactly_their_targets() -> None:
    """`tcsim.instruction` takes a spelling on the targets of the inventory and on no other (every fourth is refused)."""
    accepted = 0
    for place, (name, row) in enumerate(ROWS.items()):
        for target in TARGETS:
            if target in row.targets:
                found = tcsim.instruction(name, arch=target)
                assert [form for form in row.forms if target in form.targets] == list(found.forms)
                accepted += 1
            elif place % 4:
                continue
            elif target not in ARCHS or not {t for t in row.targets if TARGETS[t].arch == target}:
                with pytest.raises(InstructionError, match=r"needs (sm_\d+ or later|one of )"):
                    tcsim.instruction(name, arch=target)
    assert accepted == sum(len(row.targets) for row in ROWS.values()) == 43 * 25 + 242 * 20 + 6 * 2


def test_operations() -> None:
    """Every row has a class that executes it; the operand lists fit the spelling."""
    found = Counter(row.operation for row in ROWS.values())
    assert set(found) == set(CLASSES)
    for name, row in ROWS.items():
        words = name.split(".")
        assert words[1] == row.operation
        for form in row.forms:
            assert ("parity" in form.sources) == row.has("parity") == ("parity" in words)
            assert ("tx_count" in form.sources) == ("expect_tx" in words or "complete_tx" in words)
            assert ("cta_mask" in form) == row.has("cta_mask") == ("multicast::cluster::32b" in words)
            assert row.no_complete <= ("count" in form.sources)


# ---- executing


def test_every_row_executes() -> None:
    """Each spelling on each arch that has it does to a barrier what the slow model says."""
    executed = 0
    for name, row in ROWS.items():
        for arch in sorted({TARGETS[target].arch for target in row.targets}):
            item = tcsim.instruction(name, arch=arch)
            for form in item.forms:
                executed += execute_once(item, form)
    assert executed == sum(len({TARGETS[t].arch for t in form.targets}) for row in ROWS.values() for form in row.forms)


def execute_once(item: Any, form: Any) -> int:
    """One call with a form's operands on a barrier in the middle of its second phase; 1."""
    diary, barrier = exact.Diary(9), MBarrier(9)
    for kind, number in (("arrive", 9), ("arrive", 2), ("drop", 1)):
        diary.arrive(number, kind)
        (barrier.arrive if kind == "arrive" else barrier.arrive_drop)(number)
    before, row = barrier.copy(), item.row
    state = BarrierState(1, 9, counted=True)
    values = {"count": 3, "tx_count": 64, "cta_mask": 1, "parity": 0, "time_hint": 10, "state": state}
    given = {operand: values[operand] for operand in form.sources}
    if row.operation == "init":
        assert item.execute(**given) == MBarrier(3, row.layout or "v0")
    elif row.operation == "inval":
        with pytest.raises(BarrierError, match="was invalidated"):
            item.execute(barrier).arrive()
    elif row.operation == "check_layout":
        assert item.execute(barrier) is (row.layout == "v0")
    elif row.operation == "pending_count":
        assert item.execute(**given) == 9
    elif row.waits:
        want = diary.parity_complete(0) if row.has("parity") else diary.complete(1)
        assert item.execute(barrier, **given) is want
        if "report" in form.results:
            assert item.execute(barrier, **given, report=True) == ((True, False, 0) if want else (False, None, None))
    else:
        want_state = None
        if row.operation in ("expect_tx", "complete_tx"):
            diary.note(row.operation.removesuffix("_tx"), 64)
        else:
            if row.has("tx_count"):
                diary.note("expect", 64)
            want_state = diary.arrive(given.get("count", 1), "drop" if row.operation == "arrive_drop" else "arrive")
        found = item.execute([barrier] if row.has("cta_mask") else barrier, **given)
        got_state, after = found if isinstance(found, tuple) else (None, found)
        after = after[0] if row.has("cta_mask") else after
        assert (after.phase, after.pending, after.expected, after.tx_count) == diary.read()
        if any("state" in other.results for other in item.forms):
            assert (got_state.phase, got_state.pending) == want_state
        else:
            assert got_state is None
    assert barrier == before  # what goes in stays as it is
    return 1


class Programs(RuleBasedStateMachine):
    """Any sequence of instructions that the manual allows: the fast model and the diary agree after every one."""

    @initialize(count=st.integers(1, 6), arch=st.sampled_from(["sm_80", "sm_90", "sm_120"]))
    def begin(self, count: int, arch: str) -> None:
        """A new barrier."""
        self.arch, self.hopper = arch, arch != "sm_80"
        self.barrier = on("init.shared", arch).execute(count=count)
        self.diary = exact.Diary(count)
        self.states: list[tuple[BarrierState, tuple[int, int], int]] = []

    @property
    def pending(self) -> int:
        """Arrivals to come, by the diary."""
        return self.diary.read()[1]

    def arrive(self, stem: str, number: int, **given: int) -> None:
        """An arrive of some spelling, on both."""
        drop = stem.startswith("arrive_drop")
        if "expect_tx" in stem:
            self.diary.note("expect", given["tx_count"])
        bits = self.barrier.encode(arch=self.arch)
        state, self.barrier = on(f"{stem}.shared", self.arch).execute(self.barrier, **given)
        want = self.diary.arrive(number, "drop" if drop else "arrive")
        self.states.append((state, want, bits))

    @precondition(lambda self: self.pending > 0)
    @rule(drop=st.booleans(), data=st.data())
    def arrival(self, drop: bool, data: Any) -> None:
        """With a count where the arch has one."""
        number = data.draw(st.integers(1, self.pending)) if self.hopper else 1
        self.arrive("arrive_drop" if drop else "arrive", number, **({"count": number} if self.hopper else {}))

    @precondition(lambda self: self.pending > 1)
    @rule(drop=st.booleans(), data=st.data())
    def no_complete(self, drop: bool, data: Any) -> None:
        """Arrivals that do not end the phase."""
        number = data.draw(st.integers(1, self.pending - 1))
        self.arrive(f"{'arrive_drop' if drop else 'arrive'}.noComplete", number, count=number)

    @precondition(lambda self: self.hopper and self.pending > 0)
    @rule(drop=st.booleans(), number=st.integers(0, 5))
    def arrival_with_bytes(self, drop: bool, number: int) -> None:
        """Bytes, then one arrival."""
        self.arrive(f"{'arrive_drop' if drop else 'arrive'}.expect_tx", 1, tx_count=number)

    @precondition(lambda self: self.hopper)
    @rule(kind=st.sampled_from(["expect", "complete"]), number=st.integers(0, 5))
    def bytes(self, kind: str, number: int) -> None:
        """expect_tx or complete_tx."""
        if kind == "expect" and self.pending == 0 and self.barrier.tx_count + number == 0:
            with pytest.raises(BarrierError, match="whether expect_tx ends the phase is not known"):
                on("expect_tx.shared", self.arch).execute(self.barrier, tx_count=number)
            return
        self.diary.note(kind, number)
        self.barrier = on(f"{kind}_tx.shared", self.arch).execute(self.barrier, tx_count=number)

    @rule()
    def compare(self) -> None:
        """Everything that can be asked."""
        phase, pending, expected, waiting = self.diary.read()
        barrier, arch = self.barrier, self.arch
        assert (barrier.phase, barrier.pending, barrier.expected, barrier.tx_count) == (
            phase,
            pending,
            expected,
            waiting,
        )
        for parity in (0, 1):
            found = on("test_wait.parity.shared", arch).execute(barrier, parity=parity)
            assert found is self.diary.parity_complete(parity)
        for state, want, bits in self.states[-3:]:
            assert (state.phase, state.pending) == want
            count = on("pending_count", arch)
            assert count.execute(bits) == want[1]
            if state.counted:
                assert count.execute(state) == want[1]
            else:  # the manual defines it of .noComplete arrivals only
                with pytest.raises(OperandError, match=r"without \.noComplete, and the answer is undefined"):
                    count.execute(state)
            if state.phase >= phase - 1:
                wait = on("test_wait.shared", arch)
                assert wait.execute(barrier, state=state) is self.diary.complete(want[0])
                assert wait.execute(barrier, state=bits) is self.diary.complete(want[0])
        bits = barrier.encode(arch=arch)
        assert bits == exact.object_bits(pending, expected, waiting, phase, self.hopper)
        found = MBarrier.decode(bits, arch=arch)
        assert (found.phase, found.pending, found.expected, found.tx_count) == (phase % 2, pending, expected, waiting)


TestPrograms = Programs.TestCase
TestPrograms.settings = examples(120, stateful_step_count=30)


# ---- several blocks


def test_multicast() -> None:
    """The barriers of the blocks in the mask change, the others stay; the mask must fit the cluster."""
    item = tcsim.instruction(MULTICAST, arch="sm_107")
    barriers = [MBarrier(2), MBarrier(3), MBarrier(2)]
    state, after = item.execute(barrier=barriers, tx_count=16, cta_mask=0b101)
    assert state is None
    assert [(b.pending, b.tx_count) for b in after] == [(1, 16), (3, 0), (1, 16)]
    assert [b.pending for b in barriers] == [2, 3, 2]
    for mask in (0, 8, -1):
        with pytest.raises(OperandError, match=r"the cluster has 3 blocks; valid: masks of 1 to 0x7"):
            item.execute(barrier=barriers, tx_count=16, cta_mask=mask)
    with pytest.raises(OperandError, match="barrier is a MBarrier; valid: a list of MBarrier"):
        item.execute(barrier=barriers[0], tx_count=16, cta_mask=1)
    with pytest.raises(OperandError, match="cta_mask is missing"):
        item.execute(barrier=barriers, tx_count=16)


# ---- wrong use


@pytest.mark.parametrize(
    ("stem", "arch", "given", "words"),
    [
        ("init.shared", "sm_90", {"count": 0}, "from 1 to 1048575"),
        ("init.layout::v1.shared", "sm_90", {"count": 512}, r"from 1 to 511 \(layout v1\)"),
        ("arrive.shared", "sm_80", {"barrier": MBarrier(2), "count": 2}, "no count on sm_80; valid: the spelling with .noComplete"),
        ("arrive.shared", "sm_90", {"barrier": MBarrier(2), "count": 3}, "2 arrivals are pending; valid counts: 1 to 2"),
        ("arrive.shared", "sm_90", {"barrier": MBarrier(2), "tx_count": 3}, "takes no tx_count"),
        ("arrive.noComplete.shared", "sm_90", {"barrier": MBarrier(2)}, r"count is missing; valid: \(count\) or \(count\)"),
        ("arrive.noComplete.shared", "sm_90", {"barrier": MBarrier(2), "count": 2}, ".noComplete promises not to end"),
        ("arrive.expect_tx.shared", "sm_90", {"barrier": MBarrier(2)}, "tx_count is missing"),
        ("arrive.expect_tx.shared", "sm_90", {"barrier": MBarrier(2), "count": 1, "tx_count": 1}, "takes no count"),
        ("expect_tx.shared", "sm_90", {"barrier": MBarrier(2), "tx_count": 1 << 20}, "the transaction count would be 1048576"),
        ("test_wait.shared", "sm_90", {"barrier": MBarrier(2)}, "state is missing"),
        ("test_wait.shared", "sm_90", {"barrier": MBarrier(2), "parity": 0}, "takes no parity"),
        ("test_wait.shared", "sm_90", {"barrier": MBarrier(2), "state": BarrierState(3, 1)}, "the state is of phase 3"),
        ("test_wait.parity.shared", "sm_90", {"barrier": MBarrier(2), "parity": 2}, "valid: 0, 1"),
        ("test_wait.parity.shared", "sm_90", {"barrier": MBarrier(2), "parity": 0, "time_hint": 1}, "takes no time_hint"),
        ("test_wait.parity.shared", "sm_90", {"barrier": MBarrier(2), "parity": 0, "report": True}, "only spellings with"),
        ("try_wait.parity.shared", "sm_90", {"barrier": 7, "parity": 0}, "barrier is a int; valid: an MBarrier"),
        ("pending_count", "sm_90", {"state": 1 << 64}, "a state has 64 bits"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(stem: str, arch: str, given: dict[str, Any], words: str) -> None:
    """The error quotes the instruction or the barrier, and says what would be valid."""
    with pytest.raises(tcsim.TcsimError, match=words) as caught:
        on(stem, arch).execute(**given)
    assert isinstance(caught.value, BarrierError | OperandError)


def test_a_mask_names_32_blocks_at_most() -> None:
    """The last of 32 blocks has bit 31; no bit is that of a 33rd."""
    name = next(row.mnemonic for row in catalog.rows().values() if isinstance(row, BarrierRow) and row.has("cta_mask")
                and row.operation == "expect_tx")  # fmt: skip
    item = tcsim.instruction(name, arch="sm_107")
    found = item.execute([MBarrier(1) for _ in range(32)], tx_count=16, cta_mask=1 << 31)
    assert [barrier.tx_count for barrier in found] == [0] * 31 + [16]
    with pytest.raises(OperandError, match="the cluster has 33 blocks; valid: masks of 1 to 0xffffffff"):
        item.execute([MBarrier(1) for _ in range(33)], tx_count=16, cta_mask=1 << 32)


def test_the_layout_of_an_invalid_barrier_is_not_told() -> None:
    """mbarrier.check_layout after mbarrier.inval."""
    gone = MBarrier(1)
    gone.inval()
    with pytest.raises(BarrierError, match="was invalidated"):
        on("check_layout.layout::v0.shared::cta").execute(gone)


def test_a_dropped_barrier_expects_nobody() -> None:
    """After the last arrival dropped out, an arrival is told so."""
    barrier = MBarrier(1)
    barrier.arrive_drop()
    with pytest.raises(BarrierError, match="every arrival was dropped"):
        barrier.arrive()


def test_spellings_that_do_not_exist() -> None:
    """What ptxas refuses is refused, with the nearest spellings."""
    for stem in ("arrive.acquire.cta.shared", "test_wait.release.cta.shared", "arrive.noComplete.shared::cluster"):
        with pytest.raises(InstructionError, match=r"no such instruction; nearest: mbarrier\."):
            on(stem)


# ---- bits


def test_bits_that_are_not_known() -> None:
    """Layout v1 on sm_107, the error bit, counts of a layout that has none such, archs without an mbarrier."""
    with pytest.raises(NotModelledError, match="layout v1 on sm_107"):
        MBarrier(3, layout="v1").encode(arch="sm_107")
    with pytest.raises(NotModelledError, match="layout v1 on sm_107"):
        MBarrier.decode(1, arch="sm_107")
    value = MBarrier(3, layout="v1").encode(arch="sm_90")
    assert MBarrier.decode(value, arch="sm_90") == MBarrier(3, layout="v1")
    with pytest.raises(BarrierError, match="the error bit is set"):
        MBarrier.decode(value | 1 << 42, arch="sm_90")
    with pytest.raises(BarrierError, match="no barrier of layout v1"):
        MBarrier.decode(MBarrier(512).encode(arch="sm_90") | 1, arch="sm_90")
    for pending, expected in ((5, 512), (512, 5)):  # either count
        with pytest.raises(BarrierError, match="no barrier of layout v1"):
            MBarrier.decode(pack({"layout": 1, "pending": pending, "expected": expected}, "sm_90"), arch="sm_90")
        MBarrier.decode(pack({"layout": 1, "pending": pending - 1, "expected": expected - 1}, "sm_90"), arch="sm_90")
    with pytest.raises(OperandError, match=re.escape("sm_75: no mbarrier; valid: sm_80")):
        MBarrier(3).encode(arch="sm_75")
    barrier = MBarrier(3)
    barrier.expect_tx(8)
    with pytest.raises(OperandError, match="on sm_86 an mbarrier does not have that count"):
        barrier.encode(arch="sm_86")
    with pytest.raises(OperandError, match="has 64 bits"):
        MBarrier.decode(-1, arch="sm_90")
    for number in (1 << 20, -(1 << 20) - 1):
        with pytest.raises(OperandError, match="valid are from -1048576 to 1048575"):
            pack({"tx_count": number}, "sm_90")
        nearest = number - number // abs(number)
        assert unpack(pack({"tx_count": nearest}, "sm_90"), "sm_90")["tx_count"] == nearest
