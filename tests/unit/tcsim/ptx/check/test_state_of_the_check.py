"""The state of the check by itself: clocks, flags, strength, operations, objects and races, each rule on the few numbers that decide it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.ptx.check.clocks import EXECUTED, GLOBALLY, HANDED, INITIALISED, KINDS, NEVER, ORDERED, PROXIED, Clocks
from tcsim.ptx.check.flags import Flags, order_of, scope_of
from tcsim.ptx.check.lanes import Lanes
from tcsim.ptx.check.operations import Object, Operations
from tcsim.ptx.check.rules import races as rules
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.races import BLOCK, CLUSTER, FAR, WEAK, Event, Party
from tcsim.ptx.check.rules.signals import Signals
from tcsim.ptx.check.words import PIPELINED, Words
from tcsim.ptx.machine.arrays import LANES

ONE, TWO = np.array([0]), np.array([1])
SMALL = np.arange(KINDS)[:, None] * 10 + np.arange(4)[None, :]
"""Of each kind and column another number."""


# --- strength


@pytest.mark.parametrize(
    ("opcode", "found"),
    [
        ("ld.global.u32", (False, True, False, False)),
        ("ld.weak.global.u32", (False, True, False, False)),
        ("ld.volatile.global.u32", (True, True, False, False)),
        ("ld.relaxed.gpu.global.u32", (True, True, False, False)),
        ("ld.acquire.gpu.global.u32", (True, True, True, False)),
        ("st.release.gpu.global.u32", (True, True, False, True)),
        ("st.mmio.relaxed.sys.global.u32", (True, True, False, False)),
        ("ld.mmio.sys.global.u32", (True, True, False, False)),
        ("fence.acq_rel.gpu", (True, True, True, True)),
        ("atom.global.add.u32", (True, True, False, False)),
        ("atom.acq_rel.gpu.global.add.u32", (True, True, True, True)),
        ("red.release.gpu.global.add.u32", (True, False, False, True)),
        ("red.global.add.u32", (True, False, False, False)),
    ],
)
def test_what_the_words_of_an_opcode_order(opcode: str, found: tuple[bool, ...]) -> None:
    assert order_of(opcode) == found


def test_the_scope_of_an_opcode() -> None:
    for scope in ("cta", "cluster", "gpu", "sys"):
        assert scope_of(f"ld.acquire.{scope}.shared::cta.u32") == scope
    assert scope_of("membar") == scope_of("atom.shared::cta.add.u32") == "gpu"


# --- clocks


def test_a_relaxed_wait_learns_of_execution_at_once_and_of_memory_at_the_next_fence() -> None:
    clocks = Clocks(2)
    before = clocks.known[1].copy()
    clocks.acquire(TWO, SMALL, relaxed=True)
    for kind in range(KINDS):
        learnt = kind in (EXECUTED, HANDED)
        assert np.array_equal(
            clocks.known[1, kind], np.maximum(before[kind], SMALL[kind]) if learnt else before[kind]
        ), kind
    assert np.array_equal(clocks.heard[1], SMALL) and not clocks.heard[0].any()
    clocks.acquire(TWO, SMALL // 2, relaxed=True)  # older news take nothing away
    assert np.array_equal(clocks.known[1, EXECUTED], np.maximum(before[EXECUTED], SMALL[EXECUTED]))
    clocks.fence(TWO)
    assert np.array_equal(clocks.known[1, ORDERED, 1:2], SMALL[ORDERED, 1:2]) and clocks.known[1, ORDERED, 0] == NEVER


def test_a_fence_between_proxies_carries_what_is_ordered_and_no_operation() -> None:
    for kind in (PROXIED, GLOBALLY):
        clocks = Clocks(2)
        clocks.known[0, ORDERED, 1:] = 7, 8, 5
        clocks.known[0, kind, 1:] = 9, 3, 6
        clocks.fence_proxies(ONE, kind)
        assert clocks.known[0, kind].tolist() == [NEVER, 9, 8, -1]
        assert clocks.known[1, kind].tolist() == [NEVER, 0, 0, -1] and clocks.now.tolist() == [2, 1]


# --- flags


def test_a_fence_for_more_than_the_block_keeps_what_is_known_or_was_heard() -> None:
    """Then a relaxed store publishes both to the other blocks; a fence for the block alone, or in a cluster of one, keeps nothing."""
    for blocks, scope, kept in ((2, "cluster", True), (2, "gpu", True), (2, "cta", False)):
        clocks = Clocks(2)
        flags = Flags(clocks, blocks)
        clocks.known[0, ORDERED, 1:3], clocks.heard[0, ORDERED, 1:3], flags.heard[0, ORDERED, 1:3] = (
            (5, 1),
            (2, 3),
            (1, 4),
        )
        flags.fence(ONE, scope)
        assert flags.fenced[0, ORDERED, 1:3].tolist() == ([5, 4] if kept else [0, 0])
        assert clocks.heard[0, ORDERED, 1:3].tolist() == ([2, 4] if kept else [2, 3])
        flags.release(0, ONE, "st.relaxed.cluster.global.u32", False, [(-1, 7)])
        told = flags.told(1, "ld.acquire.cluster.global.u32", [(-1, 7)])
        assert told[ORDERED, 1:3].tolist() == ([5, 4] if kept else [0, 0])
    Flags(Clocks(2), 1).fence(ONE, "gpu")


# --- operations


def issued(clocks: Clocks, warps: list[int], since: list[int]) -> tuple[Operations, Any]:
    every = Operations(clocks, SimpleNamespace())  # type: ignore[arg-type]
    for warp, when in zip(warps, since, strict=True):
        clocks.now[warp] = when
    return every, every.issue("wgmma", 1, 0, np.array(warps), np.arange(LANES), np.zeros(LANES, int), "async")


@pytest.mark.parametrize(
    ("known", "found"), [((3, 6), False), ((4, 0), True), ((0, 7), True), ((9, 9), True), ((0, 0), False)]
)
def test_an_operation_is_given_back_by_any_warp_that_published_since(known: tuple[int, int], found: bool) -> None:
    clocks = Clocks(3)
    every, operation = issued(clocks, [0, 1], [4, 7])
    clocks.known[2, ORDERED, 1:3] = known
    assert every.given_back(operation, np.array([2])) == found
    assert every.given_back(operation, np.array([2, 2])) == found


# --- words


@pytest.mark.parametrize("pair", sorted(PIPELINED))
def test_the_tensor_core_keeps_the_order_of_one_thread_or_of_fences(pair: tuple[str, str]) -> None:
    def asked(by: list[int], handed: list[int], units: tuple[str, str] = pair, columns: int = 8) -> bool:
        tensor = np.zeros((3, KINDS, 5), int)
        tensor[:, HANDED, 1 + 2] = handed
        words = SimpleNamespace(clocks=SimpleNamespace(tensor=tensor))
        earlier = SimpleNamespace(unit=units[0], warps=np.array([2]), since=np.array([6]), accumulator=8)
        later = SimpleNamespace(unit=units[1], warps=np.array(by), accumulator=columns)
        return bool(Words._in_turn(words, earlier, later))  # type: ignore[arg-type]

    assert asked([2], [0, 0, 0]) and asked([0, 2], [0, 0, 0])
    assert not asked([0], [5, 9, 9]) and asked([0], [6, 0, 0]) and asked([0], [7, 0, 0])
    assert asked([0, 1], [0, 6, 0]) and asked([0, 1], [6, 0, 0]) and not asked([0, 1], [5, 5, 9])
    assert not asked([2], [9, 9, 9], ("tcgen05.mma", "nothing"))
    assert asked([2], [0, 0, 0], columns=4) == (pair[0] != pair[1])


# --- mbarriers


@pytest.mark.parametrize(
    ("expecting", "phase", "kind", "waits"),
    [
        (-1, 2, "", 2),
        (0, 2, "", 0),
        (1, 2, "", 1),
        (2, 2, "", 2),
        (3, 2, "", 2),
        (0, 0, "", 0),
        (0, 2, "bulk", 2),
        (1, 2, "tcgen05", 2),
    ],
)
def test_which_phase_waits_for_an_operation(expecting: int, phase: int, kind: str, waits: int) -> None:
    """The one that expected its bytes, if that was before it was issued and it has no group."""
    found = Object(0x40, 1, 0, 1, np.zeros(1), np.zeros(1), expecting=expecting)  # type: ignore[arg-type]
    assert found.phase_of(SimpleNamespace(tells=((0x80, 9), (0x40, phase)), kind=kind)) == waits  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", [(1, 1), (1, 2), (0, 1)])
def test_the_bytes_of_a_copy_that_come_in_two_phases(ended: tuple[int, int]) -> None:
    """The first of them decide which phase it is of; a later part in another phase says that the phase had ended too early."""
    reported: list[tuple[int, int]] = []
    state: Any = SimpleNamespace(clocks=Clocks(2), operations=None)
    own: Any = SimpleNamespace(
        clocks=state.clocks,
        _under=lambda found, line, phase, expected, site: reported.append((line, phase)),
        _ended=None,
        _arrived=None,
    )
    found = Object(0x40, 1, 0, 1, np.zeros(1), np.zeros(1))  # type: ignore[arg-type]
    copy = SimpleNamespace(number=3, line=17)
    work: Any = SimpleNamespace(operations=[copy], count=1, published=np.zeros((KINDS, 4), int), warps=[0])
    for phase in ended:
        found.ended = phase
        Mbarriers.take(own, found, SimpleNamespace(kind="complete_tx"), 16, False, 9, None, [work], None)  # type: ignore[arg-type]
    assert reported == ([(17, ended[1] - 1)] if ended[0] != ended[1] else [])
    assert found.begun == {3: ended[0]}


@pytest.mark.parametrize(
    ("sem", "scope", "arrives", "space", "name"),
    [
        ("release", "cta", True, "shared::cluster", "MBAR_SCOPE"),
        ("release", "cluster", True, "shared::cluster", None),
        ("relaxed", "cta", True, "shared::cluster", None),
        ("release", "cta", False, "shared::cluster", None),
        ("release", "cta", True, "shared::cta", "MBAR_REMOTE_FORM"),
        ("release", "cta", False, "shared::cta", "MBAR_REMOTE_FORM"),
    ],
)
def test_an_mbarrier_of_another_block(sem: str, scope: str, arrives: bool, space: str, name: str | None) -> None:
    """Arrivals have to be in the form for clusters, and to release for more than the block."""
    reported: list[str] = []
    state = SimpleNamespace(opcode=str, report=lambda name, *rest, **more: reported.append(name))
    bound = SimpleNamespace(
        form={"barrier": SimpleNamespace(space=space)},
        model=SimpleNamespace(row=SimpleNamespace(arithmetic="complete_tx")),
    )
    at = SimpleNamespace(sem=sem, scope=scope)
    Signals._remote(SimpleNamespace(state=state), None, bound, at, 0x1000010, 3, 0, arrives)  # type: ignore[arg-type]
    assert reported == ([name] if name else [])


# --- races between clusters


def party(number: int = 0, warps: int = 2) -> Party:
    """A cluster of two blocks of one warp each, in a launch of its own."""
    state: Any = SimpleNamespace(clocks=Clocks(warps + 1), per_block=1, operations=None)
    return Party(rules.Races(4), state)


def event(by: Party, warp: int, reach: int, when: int = 1, store: Any = None) -> Event:
    return Event(by, warp, when, None, reach, (0, 0, 0), store)


def test_two_accesses_are_strong_for_each_other() -> None:
    """In a cluster if both reach the other's block; in two clusters if both reach the GPU."""
    own, other = party(), party()
    for one in range(4):
        for two in range(4):
            assert own._strong(event(other, 0, one), 0, two) == (one == two == FAR), (one, two)
            assert own._strong(event(own, 0, one), 0, two) == (min(one, two) >= BLOCK), (one, two)
            assert own._strong(event(own, 0, one), 1, two) == (min(one, two) >= CLUSTER), (one, two)
    assert (WEAK, BLOCK, CLUSTER, FAR) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("opcode", "kind", "called"),
    [
        ("ld.acquire.gpu.global.u32", "read", ["acquire"]),
        ("ld.relaxed.gpu.global.u32", "read", ["acquire"]),
        ("ld.acquire.cluster.global.u32", "read", ["narrow"]),
        ("ld.relaxed.cta.global.u32", "read", []),
        ("ld.global.u32", "read", []),
        ("st.release.gpu.global.u32", "write", ["release"]),
        ("st.relaxed.sys.global.u32", "write", ["release"]),
        ("st.release.cta.global.u32", "write", ["narrow"]),
        ("st.global.u32", "write", []),
        ("atom.acq_rel.gpu.global.add.u32", "both", ["acquire", "release"]),
        ("atom.relaxed.gpu.global.add.u32", "both", ["acquire", "release"]),
        ("red.release.gpu.global.add.u32", "both", ["release"]),
        ("red.relaxed.gpu.global.add.u32", "both", ["release"]),
        ("atom.acq_rel.cta.global.add.u32", "both", ["narrow"]),
    ],
)
def test_what_an_access_acquires_and_releases(opcode: str, kind: str, called: list[str]) -> None:
    """For the GPU: a read acquires, what writes releases, a reduction gives no value to acquire with. For less: it is narrow if it orders at all."""
    seen: list[str] = []
    far = called[-1:] in (["acquire"], ["release"])

    def record(name: str) -> Any:
        return lambda *given: seen.append(name)

    used: list[tuple[int, bool]] = []
    own = SimpleNamespace(
        acquire=record("acquire"),
        release=record("release"),
        narrow=record("narrow"),
        used=lambda touch, reach, reads: used.append((reach, reads)),
        unused=SimpleNamespace(stored=set()),
    )
    touch = SimpleNamespace(rank=-1, kind=kind, offsets=np.zeros(1), some=ONE, opcode=opcode, item=None, written=None)
    Party.accessed(own, touch)  # type: ignore[arg-type]
    assert seen == called
    strong, reads, *_ = order_of(opcode)
    assert used == [(used[0][0], strong and reads)] and (used[0][0] == FAR) == far
    Party.accessed(own, SimpleNamespace(rank=0, kind="read"))  # type: ignore[arg-type]  # shared memory is not asked about
    assert seen == called


@pytest.mark.parametrize(
    ("done", "known", "wrong"), [(None, 9, True), (4, 3, True), (4, 4, False), (4, 5, False), (1, 0, True)]
)
def test_a_bulk_store_of_another_cluster_is_done(done: int | None, known: int, wrong: bool) -> None:
    """If a release that is known here publishes that its group was waited for."""
    own = party()
    own.clocks.known[0, ORDERED, own.outside] = known
    other: Any = SimpleNamespace(known_done=lambda store: done)
    found = own._unfinished(event(other, 0, FAR, store=object()), 0, True)
    assert (found is not None) == wrong and (found is None or found[0] == "TMA_STORE_NOT_VISIBLE")


@pytest.mark.parametrize(
    ("copied", "release", "fenced", "ordered", "globally", "bridged", "wrong"),
    [
        (True, 3, None, 5, 0, 0, True),  # nobody fenced
        (False, 3, None, 5, 0, 0, False),  # no copy: the generic proxy reads
        (True, None, None, 5, 0, 0, False),  # never published: another rule
        (True, 3, None, 5, 3, 0, False), (True, 3, None, 5, 2, 0, True), (True, 3, None, 5, 4, 0, False),  # a fence here
        (True, 3, None, 5, 0, 3, False), (True, 3, None, 5, 0, 2, True), (True, 3, None, 5, 2, 4, False),  # a fence on the way
        (True, 3, 5, 5, 0, 0, False), (True, 3, 4, 5, 0, 0, False), (True, 3, 6, 5, 0, 0, True),  # a fence there, and its release known here
    ],
)  # fmt: skip
def test_a_copy_reads_what_another_cluster_wrote(
    copied: bool, release: int | None, fenced: int | None, ordered: int, globally: int, bridged: int, wrong: bool
) -> None:
    """Behind a fence between the proxies, in either block or on the way."""
    own = party()
    own.clocks.known[0, ORDERED, own.outside], own.clocks.known[0, GLOBALLY, own.outside] = ordered, globally
    own.races.bridged = [0] * ordered + [bridged]
    other: Any = SimpleNamespace(known_from=lambda event, kind=ORDERED: release if kind == ORDERED else fenced)
    found = own._unfinished(event(other, 0, FAR), 0, copied)
    assert (found is not None) == wrong and (found is None or found[0] == "PROXY_FENCE_GLOBAL")


def test_kinds_are_apart() -> None:
    assert sorted((ORDERED, PROXIED, INITIALISED, EXECUTED, HANDED, GLOBALLY)) == list(range(KINDS))


def test_a_lane_that_missed_what_others_of_its_warp_learnt() -> None:
    heard = np.ones((2, LANES), bool)
    own: Any = SimpleNamespace(heard=heard)
    assert not Lanes.missed(own, np.array([0, 1]), np.array([5, 5]))
    heard[1, 5] = False
    assert Lanes.missed(own, np.array([1]), np.array([5])) and Lanes.missed(own, np.array([0, 1]), np.array([5, 5]))
    assert not Lanes.missed(own, np.array([1]), np.array([4])) and not Lanes.missed(own, np.array([0]), np.array([5]))
    heard[:] = False
    heard[0, LANES - 1] = True
    assert not Lanes.missed(own, np.array([0]), np.array([LANES])) and Lanes.missed(own, np.array([0]), np.array([3]))
