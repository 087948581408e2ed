"""Blocks whose data choose where they work in shared memory: what is said of one that was watched is true of all."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import parse
from tcsim.ptx.check.intervals import Doubtful, Intervals
from tests.hazards.kernels import Kernel
from tests.hazards.test_hazards_in_batches import CONTENT, HEAD, told

DATA = np.random.default_rng(11).integers(0, 1 << 32, len(CONTENT), dtype=np.uint32)
PLACES = """
    mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd5, %rd1; ld.global.u32 %r10, [%rd5]; and.b32 %r11, %r10, 255; shl.b32 %r11, %r11, 2; add.u32 %r11, %r11, %r1;
    ld.global.u32 %r12, [%rd1]; and.b32 %r12, %r12, 63; xor.b32 %r12, %r12, %r0; shl.b32 %r12, %r12, 2; add.u32 %r12, %r12, %r1;
    shr.u32 %r13, %r10, 9; and.b32 %r13, %r13, RANKS; mapa.shared::cluster.u32 %r14, %r11, %r13; xor.b32 %r15, %r31, RANKS; mapa.shared::cluster.u32 %r15, %r12, %r15;
    setp.lt.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 5;
"""
"""%r11: a word that each thread's data choose; %r12: a word of its own, the block's data choose which; %r14, %r15: the same in the cluster."""
FILL = "".join(f"st.shared.u32 [%r3+{256 * own}], 0; " for own in range(4))
SYNC = ("bar.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;")
CLEAN = {
    "histogram": (f"{FILL} bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1; bar.sync 0; ld.shared.u32 %r21, [%r4];", 1),
    "a permutation": ("st.shared.u32 [%r12], %r10; bar.sync 0; ld.shared.u32 %r21, [%r3]; bar.sync 0; st.shared.u32 [%r12], 1;", 1),
    "reads of anything": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; @%p2 ld.shared.u32 %r20, [%r11];", 1),
    "counts in the cluster": (f"{FILL} {SYNC[1]} red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1; {SYNC[1]} ld.shared.u32 %r21, [%r4];", 2),
    "a permutation in the cluster": (f"{SYNC[1]} st.shared::cluster.u32 [%r15], %r10; {SYNC[1]} ld.shared.u32 %r21, [%r3]; {SYNC[1]}", 2),
}  # fmt: skip
"""Kernels in which nothing is wrong wherever the data lead: behind `HEAD` and `PLACES`, and the blocks of a cluster."""
DOUBTFUL = {
    "an atomic and a load": (f"{FILL} bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1; ld.shared.u32 %r21, [%r4];", 1),
    "an atomic and a store": (f"{FILL} bar.sync 0; @%p3 st.shared.u32 [%r11], 1; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a load and an atomic": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r4]; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a store and a load": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; ld.shared.u32 %r20, [%r11];", 1),
    "a load and a store": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; st.shared.u32 [%r12], 1;", 1),
    "two stores": (f"{FILL} bar.sync 0; st.shared.u32 [%r3], 1; st.shared.u32 [%r12], 1;", 1),
    "stores at once": ("st.shared.u32 [%r11], 1;", 1),
    "what nobody wrote": ("@%p2 st.shared.u32 [%r12], 1; bar.sync 0; ld.shared.u32 %r20, [%r11];", 1),
    "an atomic on what nobody wrote": ("@%p2 st.shared.u32 [%r12], 1; bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a barrier of one warp": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; @%p2 bar.sync 1, 32; ld.shared.u32 %r20, [%r11];", 1),
    "a block that has not started": (f"red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1; {SYNC[1]}", 2),
    "a block that may have ended": (f"{FILL} {SYNC[1]} red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1;", 2),
    "a relaxed barrier": (f"{FILL} {SYNC[1]} st.shared::cluster.u32 [%r15], 1; barrier.cluster.arrive.relaxed; barrier.cluster.wait; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "between arrival and wait": (f"{FILL} {SYNC[1]} barrier.cluster.arrive; st.shared::cluster.u32 [%r15], 1; barrier.cluster.wait; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "a barrier of the block alone": (f"{FILL} {SYNC[1]} st.shared::cluster.u32 [%r15], 1; bar.sync 0; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "atomics of the block's scope": (f"{FILL} {SYNC[1]} red.relaxed.cta.shared::cluster.add.u32 [%r14], 1; {SYNC[1]}", 2),
    "threads that have ended": (f"{FILL} bar.sync 0; @%p2 st.shared.u32 [%r12], 1; @%p3 exit; {SYNC[1]} ld.shared.u32 %r20, [%r11]; {SYNC[1]}", 2),
    "lanes that meet": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; bar.warp.sync -1; ld.shared.u32 %r20, [%r11];", 1),
    "a copy in flight": (f"{FILL} bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1; cp.async.ca.shared.global [%r3+4096], [%rd1], 4; cp.async.wait_all;", 1),
}  # fmt: skip
"""Kernels in which the places may matter."""


@pytest.fixture(name="doubts")
def _doubts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often clusters were compared without their places, and how often that was in doubt."""
    found = {"made": 0, "doubtful": 0}
    begin, doubt = Intervals.__init__, Doubtful.__init__

    def made(self: Intervals, *given: Any) -> None:
        found["made"] += 1
        begin(self, *given)

    def doubted(self: Doubtful, *given: Any) -> None:
        found["doubtful"] += 1
        doubt(self, *given)

    monkeypatch.setattr(Intervals, "__init__", made)
    monkeypatch.setattr(Doubtful, "__init__", doubted)
    return found


def compare(body: str, blocks: int) -> Any:
    """A launch in batches, which tells what it tells block by block."""
    source = f"{HEAD}{PLACES.replace('RANKS', str(blocks - 1))}{body}\n    ret;\n}}\n"
    module, kernel = parse(source), replace(Kernel("data", ""), blocks=blocks, threads=64)
    _, expected = told(module, 1, "late", kernel, DATA)
    run, found = told(module, 64, "late", kernel, DATA)
    assert found == expected, [str(own) for own in (*expected["hazards"], *found["hazards"])]
    return run


@pytest.mark.parametrize("name", CLEAN)
def test_places_that_do_not_matter(name: str, doubts: dict[str, int]) -> None:
    run = compare(*CLEAN[name])
    assert run.batch > 2 and not run.alone and doubts["made"] and not doubts["doubtful"]


@pytest.mark.parametrize("name", DOUBTFUL)
def test_places_that_may_matter(name: str, doubts: dict[str, int]) -> None:
    compare(*DOUBTFUL[name])
    assert doubts["made"] == doubts["doubtful"] == 1


OPERATIONS = (
    "st.shared.u32 [%r3], %r10;", "ld.shared.u32 %r20, [%r3];", "ld.shared.u32 %r20, [%r4];", "st.shared.u32 [%r12], %r10;", "ld.shared.u32 %r20, [%r12];",
    "atom.shared.add.u32 %r20, [%r11], 1;", "red.shared.max.u32 [%r11], %r10;", "ld.shared.u32 %r20, [%r11];", "st.shared.u8 [%r12+1], %r10;",
    "@%p2 st.shared.u32 [%r12+256], 1;", "@%p3 atom.shared.exch.b32 %r20, [%r12], 1;", "atom.shared.add.u32 %r20, [%r12], 1;", "ld.volatile.shared.u32 %r20, [%r12];",
)  # fmt: skip
REMOTE = (
    "red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1;", "st.shared::cluster.u32 [%r15], 1;", "ld.shared::cluster.u32 %r20, [%r15];",
    "atom.shared::cluster.add.u32 %r20, [%r14], 1;", "ld.shared::cluster.u32 %r20, [%r14];",
)  # fmt: skip
RANDOM = 60


def test_random_kernels(doubts: dict[str, int]) -> None:
    """Whatever they do. Some of them are compared without their places to the end, and some of those that are not are wrong."""
    clean = wrong = 0
    for number in range(RANDOM):
        random = Random(number)
        blocks = random.choice((1, 1, 2))
        body = [FILL if random.random() < 0.8 else "", SYNC[blocks - 1]]
        for _ in range(random.randrange(1, 5)):
            body += random.choices((*OPERATIONS, *(REMOTE if blocks > 1 else ())), k=random.randrange(1, 3))
            body += [
                random.choice((*SYNC[:blocks], SYNC[blocks - 1], "")) if random.random() < 0.9 else "bar.warp.sync -1;"
            ]
        before = dict(doubts)
        run = compare("\n".join((*body, SYNC[blocks - 1])), blocks)
        clean += doubts["made"] > before["made"] and doubts["doubtful"] == before["doubtful"]
        wrong += doubts["doubtful"] > before["doubtful"] and bool(run.hazards)
    assert clean > 10 and wrong > 10
