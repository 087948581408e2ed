"""Effects of cp.async: applied early or late they come to what `execute` shows, and a copy reads when it is fetched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import catalog
from tcsim.core.addresses import MisalignedAddressError
from tcsim.core.errors import NotModelledError, OperandError
from tcsim.isa.copies import CopyRow
from tcsim.isa.mbarrier.semantics import signalled
from tcsim.memory.mbarrier import BarrierError, MBarrier
from tcsim.model.effects import Access, Effects, GroupOp, Memories, Outcome, Signal, Write, completed
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction

ROWS = [row for row in catalog.rows().values() if isinstance(row, CopyRow) and row.family == "cp.async"]
COPIES = [(row, form) for row in ROWS if row.operation == "copy" for form in row.forms]
SMEM, GMEM = 128, 256


def image(seed: int, size: int) -> npt.NDArray[np.uint8]:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def operands_of(form: Form, threads: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Operands of a copy: each thread has a place of its own in shared memory."""
    numbers, (size,) = np.random.default_rng(seed), form["size"].values
    found: dict[str, npt.NDArray[Any]] = {
        "source": numbers.integers(0, GMEM // size, threads) * size,
        "destination": numbers.permutation(SMEM // size)[:threads] * size,
    }
    if "source_size" in form:
        found["source_size"] = numbers.integers(0, size + 1, threads)
    if "ignore" in form:
        found["ignore"] = numbers.integers(0, 2, threads).astype(bool)
    return found


@pytest.mark.parametrize(("row", "form"), COPIES, ids=[f"{row.mnemonic} {form.name}" for row, form in COPIES])
def test_execute_is_what_the_effects_come_to(row: CopyRow, form: Form) -> None:
    """Every form of every spelling: all at once as `execute`, and fetched early, finished late, thread by thread."""
    item: Any = tcsim.instruction(row.mnemonic, arch="sm_80")
    memory, smem = image(1, GMEM), image(2, SMEM)
    given_operands, (size,) = operands_of(form, 6, 3), form["size"].values
    want = item.execute(memory=memory, smem=smem, size=size, **given_operands)
    view = Memories({"global": memory, "shared": smem})
    effects = item.effects(form, given_operands, view)
    assert np.array_equal(view.after(completed(effects, view))["shared"], want)

    fetched, now = [], view
    for thread in range(6):
        own = {name: array[thread : thread + 1] for name, array in given_operands.items()}
        (work,) = item.effects(form, own, now).pending
        fetched.append((work, work.fetch(now)))
    for work, data in reversed(fetched):
        now = replace(now, images=now.after((work.finish(data),)))
    assert np.array_equal(now.images["shared"], want)


@given(seed=st.integers(0, 1 << 16), place=st.sampled_from(range(len(COPIES))))
def test_a_copy_reads_when_it_is_fetched_and_writes_what_it_says(seed: int, place: int) -> None:
    """The extents known at issue are those that fetching reads and finishing writes; operands are read at issue."""
    row, form = COPIES[place]
    item: Any = tcsim.instruction(row.mnemonic, arch="sm_90")
    operands, view = (
        operands_of(form, 4, seed),
        Memories({"global": image(seed, GMEM), "shared": image(seed + 1, SMEM)}),
    )
    effects = item.effects(form, operands, view)
    (work,) = effects.pending
    assert (effects.now, effects.groups, effects.reads, work.group) == (Outcome(), (), (), "cp.async")
    (read,), (write,) = work.reads, work.writes
    assert (read.space, write.space, read.size, write.size) == ("global", "shared", *form["size"].values * 2)
    later = Memories({"global": image(seed + 2, GMEM), "shared": view.images["shared"]})
    data = work.fetch(later)
    assert np.array_equal(data, later.read(read))
    (done,) = work.finish(data).writes
    assert done == Write(write, data) and work.finish(data).signals == ()
    taken = np.full(4, read.size) if read.mask is None else read.mask.sum(axis=-1)
    if "source_size" in form:
        assert np.array_equal(taken, operands["source_size"])
    elif "ignore" in form:
        assert np.array_equal(taken, np.where(operands["ignore"], 0, read.size))
    for thread, start in enumerate(operands["source"]):
        assert data[thread, : taken[thread]].tolist() == later.images["global"][start : start + taken[thread]].tolist()
        assert not data[thread, taken[thread] :].any()


def test_a_copy_is_refused_at_issue() -> None:
    """Misaligned addresses, and source sizes beyond the size."""
    item: Any = tcsim.instruction("cp.async.ca.shared.global", arch="sm_80")
    forms = {form.name: form for form in item.forms}
    zero, view = np.zeros(1, np.int64), Memories({})
    with pytest.raises(
        MisalignedAddressError, match=r"destination = 0x4: a copy of cp\.async starts at a multiple of 8"
    ):
        item.effects(forms["size=8"], {"source": zero, "destination": zero + 4}, view)
    with pytest.raises(OperandError, match="source_size=5: valid: 0 to size, 4"):
        item.effects(forms["size=4;srcsize"], {"source": zero, "destination": zero, "source_size": zero + 5}, view)


def test_groups() -> None:
    """commit_group, wait_group and wait_all, and those of bulk copies; `execute` of all gives nothing."""
    commit, view = GroupOp("cp.async", "commit"), Memories({})
    bulk = "cp.async.bulk"
    want = {
        "cp.async.commit_group": (commit,),
        "cp.async.wait_group": (GroupOp("cp.async", "wait", 3),),
        "cp.async.wait_all": (commit, GroupOp("cp.async", "wait")),
        f"{bulk}.commit_group": (GroupOp("bulk", "commit"),),
        f"{bulk}.wait_group": (GroupOp("bulk", "wait", 3),),
        f"{bulk}.wait_group.read": (GroupOp("bulk", "wait", 3, reads_only=True),),
    }
    for name, groups in want.items():
        item: Any = tcsim.instruction(name, arch="sm_90")
        for form in item.forms:
            given_operands = {"groups": np.asarray(3)} if "groups" in form else {}
            assert item.effects(form, given_operands, view) == Effects(groups=groups)
        assert item.execute() is None
    with pytest.raises(OperandError, match="groups=-1"):
        item.effects(item.forms[0], {"groups": np.asarray(-1)}, view)


def test_arrivals() -> None:
    """An arrival once earlier copies are done; without .noinc the phase waits for one more from the start."""
    kinds = Counter[str]()
    for row in ROWS:
        if row.operation != "arrive":
            continue
        item: Any = tcsim.instruction(row.mnemonic, arch="sm_80")
        (form,) = item.forms
        effects = item.effects(form, {"barrier": np.array([64])}, Memories({}))
        (track,) = effects.groups
        assert (track.kind, track.op, effects.pending) == ("cp.async", "track", ())
        (arrival,) = track.then
        space = "generic" if form["barrier"].space == "generic" else "shared"
        assert (arrival.kind, arrival.at.space, arrival.at.size) == ("arrive", space, 8)
        assert (arrival.at.address.tolist(), arrival.count.tolist()) == ([64], [1])
        early = signalled(MBarrier(2), (effects.now,), "early")
        late = signalled(early, (Outcome(signals=track.then),), "late")
        assert late == item.execute(MBarrier(2)) == signalled(MBarrier(2), completed(effects, Memories({})), "all")
        kinds[f"{early.pending} then {late.pending}"] += 1
    assert kinds == {"3 then 2": 3, "2 then 1": 3}


def test_what_an_increment_refuses() -> None:
    """The pending count has a limit; where every arrival was dropped there is no phase to wait in."""
    item: Any = tcsim.instruction("cp.async.mbarrier.arrive.shared.b64", arch="sm_80")
    with pytest.raises(BarrierError, match="would be beyond 511"):
        item.execute(MBarrier(511, "v1"))
    dropped = MBarrier(1)
    dropped.arrive_drop()
    with pytest.raises(BarrierError, match="every arrival was dropped"):
        item.execute(dropped)
    with pytest.raises(OperandError, match="barrier is a int; valid: an MBarrier"):
        item.execute(7)


def test_signals_of_many_threads() -> None:
    """One after the other, whatever their kind."""
    at, few = Access("shared", np.zeros(3, np.int64), 8), np.array([1, 2, 1])
    outcome = Outcome(signals=(Signal("expect_tx", at, 16 * few), Signal("arrive", at, few), Signal("drop", at, few)))
    after = signalled(MBarrier(10), (outcome, Outcome(signals=(Signal("complete_tx", at, 8 * few),))), "call")
    assert (after.pending, after.expected, after.tx_count) == (2, 6, 32)


def test_memories_after_writes() -> None:
    """A write may touch some bytes only, or combine with what is there; what went in stays as it was."""
    view = Memories({"shared": np.arange(8, dtype=np.uint8)}, "call")
    mask = np.array([[True, False], [True, True]])
    at = Access("shared", np.array([0, 4]), 2, mask)
    data = np.array([[9, 9], [8, 7]], np.uint8)
    assert view.read(at).tolist() == [[0, 0], [4, 5]]
    assert view.after((Outcome(writes=(Write(at, data),)),))["shared"].tolist() == [9, 1, 2, 3, 8, 7, 6, 7]
    added = Write(at, data, combine=lambda old, new: old + new)
    assert view.after((Outcome(writes=(added,)),))["shared"].tolist() == [9, 1, 2, 3, 12, 12, 6, 7]
    clash = Write(Access("shared", np.array([0, 1]), 2), data)
    with pytest.raises(tcsim.TcsimError, match="call: threads 0 and 1 store different bytes to 0x1"):
        view.after((Outcome(writes=(clash,)),))
    assert view.images["shared"].tolist() == list(range(8))


def test_an_instruction_without_effects_says_so() -> None:
    """The error names the instruction."""
    item = tcsim.instruction("mbarrier.inval.b64", arch="sm_90")
    with pytest.raises(NotModelledError, match=r'mbarrier\.inval\.b64", arch="sm_90"\)\.effects: not modelled'):
        Instruction.effects(item, item.forms[0], {}, Memories({}))
