"""Every rule has a kernel that breaks it and is named for it, beside one that does not and is clean."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from tcsim import catalog
from tcsim.ptx import HAZARDS, Limits, Memory, Run, parse
from tcsim.ptx.hazards.rules import ASSEMBLER, FAULTS, GRID, LAYOUTS
from tests.hazards import (
    kernels,
    kernels_global,
    kernels_lanes,
    kernels_mbarriers,
    kernels_tensor,
    kernels_tiles,
    kernels_work,
)
from tests.hazards.kernels import FIRST, LOAD, OTHER, OWN, PARAMS, RACES, SOURCE, Kernel
from tests.hazards.kernels_mbarriers import PIPELINE

KERNELS = (
    *kernels.KERNELS,
    *kernels_lanes.KERNELS,
    *kernels_mbarriers.KERNELS,
    *kernels_tensor.KERNELS,
    *kernels_global.KERNELS,
    *kernels_tiles.KERNELS,
    *kernels_work.KERNELS,
)
PLANTED = [(kernel, defect) for kernel in KERNELS for defect in kernel.defects]
SCHEDULES = ("late", "early", 7)


def ran(kernel: Kernel, source: str, schedule: str | int, check: bool = True) -> Run:
    """A launch of a kernel's text."""
    memory = Memory()
    pointers = [memory.allocate(np.arange(1024, dtype=np.uint32).view(np.uint8)) for _ in range(2)]
    assert pointers[0] == SOURCE
    first = None
    if kernel.before:
        first = parse(kernel.before).kernel().launch(memory, pointers, block=(kernel.threads, 1, 1), schedule=schedule)
    return parse(source).kernel().launch(
        memory, pointers, grid=(kernel.blocks, 1, 1), block=(kernel.threads, 1, 1), cluster=(kernel.blocks, 1, 1),
        schedule=schedule, check=check, after=first,
    )  # fmt: skip


@cache
def _planted(kernel: Kernel, defect: str, schedule: str | int) -> Run:
    return ran(kernel, kernel.without(defect), schedule)


def test_every_rule_has_a_planted_defect() -> None:
    """But for faults, which tests/unit/tcsim/ptx/test_ptx_wrong_use.py and others plant, layouts (test_layouts.py), blocks of a grid (test_global_races.py), and the assembler's notes (tests/unit/tcsim/ptx/test_ptx_notes.py)."""
    planted = {defect.split(".")[0] for _, defect in PLANTED}
    assert planted == set(HAZARDS) - {rule.name for rule in (*FAULTS, *LAYOUTS, *GRID, *ASSEMBLER)}


def test_families_without_a_named_mutant_have_a_defect_that_takes_them_away() -> None:
    """What orders returns nothing that a recording could hold. The others are multimem's: tests/unit/tcsim/isa/test_multimem.py."""
    without = {family.name for family in catalog.families() if not testbench_of(family.name).mutants}
    ordering = {name for name in without if not name.startswith("multimem.")}
    assert ordering == {"fence", "wgmma.sync", "griddepcontrol", "tcgen05.fence", "tcgen05.wait"}
    taken = set[str]()
    for kernel, defect in PLANTED:
        lines = Counter(kernel.source.splitlines()) - Counter(kernel.without(defect).splitlines())
        words = (re.sub(r"^\s*(@!?%\w+\s+)?", "", line).partition(";")[0].partition(" ")[0] for line in lines)
        taken |= {row.family for word in words if (row := catalog.row_of(word)) is not None}
    assert ordering <= taken


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda own: own.name)
def test_a_kernel_that_is_right_is_clean(kernel: Kernel, schedule: str | int) -> None:
    run = ran(kernel, kernel.source, schedule)
    assert run.completed and not run.hazards, [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("kernel", "defect"), PLANTED, ids=[f"{own.name}-{defect}" for own, defect in PLANTED])
def test_a_planted_defect_is_named(kernel: Kernel, defect: str, schedule: str | int) -> None:
    """Whether or not memory differs: in every order in which asynchronous work may complete."""
    run = _planted(kernel, defect, schedule)
    rule = defect.split(".")[0]
    found = [own for own in run.hazards if own.name == rule]
    assert found, [str(own) for own in run.hazards]
    assert found[0].line and (
        found[0].block is not None or rule in ("GUARD_IGNORED", "ACCUMULATOR_OVERWRITTEN")
    )  # told of the program


def test_another_blocks_memory_as_ones_own_ends_a_launch_that_is_not_checked() -> None:
    """As on an H200."""
    run = ran(kernels_work.PEER, kernels_work.PEER.without("SMEM_REMOTE_FORM"), "late", check=False)
    assert not run.completed and [own.name for own in run.hazards] == ["SMEM_REMOTE_FORM"]


ON_TCGEN05 = {"DESC_LBO_SBO", "DESC_SWIZZLE_MODE", "DESC_UNITS"}
"""Rules of descriptors, which tests/hazards/test_layouts.py breaks in tcgen05.mma."""


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_rules_that_are_not_of_one_generation_are_named_on_blackwell(target: str) -> None:
    """One defect of every rule that no kernel of Blackwell plants, in the kernel for Hopper or Ampere, which is clean; but for those of wgmma."""
    own = {defect.split(".")[0] for kernel, defect in PLANTED if kernel.target == "sm_100a"}
    first: dict[str, tuple[Kernel, str]] = {}
    for kernel, defect in PLANTED:
        if "wgmma.mma" not in kernel.body:
            first.setdefault(defect.split(".")[0], (kernel, defect))
    rules = {rule for rule in first if not rule.startswith("WGMMA_")} - own
    missing = set(HAZARDS) - {rule.name for rule in (*FAULTS, *LAYOUTS, *GRID, *ASSEMBLER)} - rules - own
    assert {rule for rule in missing if not rule.startswith("WGMMA_")} == ON_TCGEN05 and len(rules) > 40
    right = set[str]()
    for rule in sorted(rules):
        kernel, defect = first[rule]
        body = "\n".join(line for line in kernel.body.splitlines() if not line.lstrip().startswith("wgmma"))
        moved = replace(kernel, target=target, body=body)
        if kernel.name not in right:
            right.add(kernel.name)
            assert not ran(moved, moved.source, "late").hazards
        assert rule in {hazard.name for hazard in ran(moved, moved.without(defect), "late").hazards}, defect


@pytest.mark.parametrize("written", [True, False])
def test_a_report_says_whether_the_operation_before_read_or_wrote(written: bool) -> None:
    """Of Tensor Memory that a product writes, with a barrier but no fences of tcgen05 after a store or, without that, a load."""
    head, wait, rest = kernels_tensor.ACCUMULATED.source.partition("tcgen05.wait::ld.sync.aligned;")
    product = next(line for line in head.splitlines() if "tcgen05.mma" in line)
    stored = rest.partition("tcgen05.fence")[0] if written else ""
    run = ran(kernels_tensor.ACCUMULATED, f"{head}{wait}{stored} bar.sync 0; @%p1 {product} ret; }}", "late")
    found = next(own.message for own in run.hazards if own.name == "TCGEN05_FENCE_MISSING")
    assert ("written by tcgen05.st" if written else "read by tcgen05.ld") in found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda own: own.name)
def test_the_same_launch_has_the_same_hazards(kernel: Kernel) -> None:
    """In the same order, with the same counts."""
    for defect in kernel.defects[:2]:
        again = ran(kernel, kernel.without(defect), 7)
        assert [own.as_dict() for own in again.hazards] == [
            own.as_dict() for own in _planted(kernel, defect, 7).hazards
        ]


@pytest.mark.parametrize("kernel", [RACES, LOAD], ids=lambda own: own.name)
def test_without_the_check_nothing_is_found(kernel: Kernel) -> None:
    for defect in kernel.defects:
        if defect.startswith(("SMEM", "ASYNC")):
            assert not ran(kernel, kernel.without(defect), "late", check=False).hazards


@pytest.mark.parametrize("processes", [1, 2])
def test_the_number_of_processes_does_not_matter(processes: int) -> None:
    memory = Memory()
    pointers = [memory.allocate(4096) for _ in range(2)]
    limits = Limits(processes=processes)
    run = parse(RACES.without("SMEM_RACE_WAR")).kernel().launch(
        memory, pointers, grid=(4, 1, 1), block=(RACES.threads, 1, 1), limits=limits
    )  # fmt: skip
    (found,) = run.hazards
    assert (
        run.processes == processes and found.name == "SMEM_RACE_WAR" and found.count == 4 and found.block == (0, 0, 0)
    )


def test_a_deadlock_says_which_bytes_came_from_where() -> None:
    """Of the mbarrier that is waited for: its name, its phase, the bytes expected and delivered, the arrivals, by instruction."""
    run = ran(PIPELINE, PIPELINE.without("MBAR_TX_OVER"), "late")
    message = run.hazards[-1].message
    lines = [number for number, own in enumerate(run.text.splitlines(), 1) if "cp.async.bulk" in own]
    copies = ", ".join(
        f"128 by cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes (line {line})" for line in lines[:2]
    )
    assert run.hazards[-1].name == "DEADLOCK" and "of smem + 1024, the mbarrier at 0x800" in message
    assert f"phase 0: 272 bytes expected by mbarrier.arrive.expect_tx.shared::cta.b64 (line {lines[0] - 2})" in message
    assert f"256 delivered ({copies}), 1 arrived by" in message, message


RAGGED = f"""
    ld.param.u64 %rd2, [target]; {FIRST} mov.u32 %r1, smem;
    div.u32 %r2, %r0, 24; rem.u32 %r3, %r0, 24; shl.b32 %r2, %r2, 7; shl.b32 %r3, %r3, 2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r1;
    setp.lt.u32 %p3, %r0, WRITERS;
    @%p3 st.shared.u32 [%r2], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.u32 %r4, 0; mov.u32 %r5, 4;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {{%r4, %r5}}], [%r1];
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
"""
"""A box of 32 x 4 words is stored to a tensor of 24 x 6 from its row 4 on: 24 x 2 of them lie in it, and only these are written."""


@pytest.mark.parametrize(("writers", "names"), [(48, []), (47, ["SMEM_UNINITIALISED"])])
def test_what_a_store_drops_need_not_be_written(writers: int, names: list[str]) -> None:
    memory = Memory()
    tensor = memory.allocate(24 * 6 * 4)
    box = tcsim.TensorMap("UINT32", (24, 6), (96,), (32, 4), swizzle="NONE")
    pointers = [tensor, memory.allocate(np.frombuffer(box.encode(tensor), np.uint8))]
    source = Kernel("ragged", RAGGED.replace("WRITERS", str(writers))).source
    run = parse(source).kernel().launch(memory, pointers, block=(64, 1, 1))
    assert run.completed and [own.name for own in run.hazards] == names
    rows = memory.read(tensor, 24 * 6 * 4).view(np.uint32).reshape(6, 24)[4:]
    assert rows.reshape(-1)[:writers].tolist() == list(range(writers))


SHARED_BY_TWO = f"""
    {PARAMS} {OWN} {OTHER}
    mul.wide.u32 %rd3, %r0, 2; add.u64 %rd3, %rd3, %rd1; xor.b32 %r5, %r0, 32; mul.wide.u32 %rd4, %r5, 2; add.u64 %rd4, %rd4, %rd1;
    mov.u16 %h1, 5; st.global.u16 [%rd3], %h1;
    bar.sync 0;
    ld.global.u16 %h2, [%rd4];
    TAKES st.global.u16 [%rd3+2048], %h2;
"""


@pytest.mark.parametrize(("body", "asked", "names"), [
    (SHARED_BY_TWO.replace("TAKES", ""), True, []),
    (SHARED_BY_TWO.replace("TAKES", "").replace("bar.sync 0;", ""), True, ["GMEM_RACE"]),
    (SHARED_BY_TWO.replace("TAKES", "").replace("bar.sync 0;", ""), False, []),
    (SHARED_BY_TWO.replace("TAKES", "setp.gt.u32 %p3, %r0, 99; @%p3").replace("bar.sync 0;", ""), True, ["GMEM_RACE_UNUSED"]),
    (SHARED_BY_TWO.replace("TAKES", "setp.gt.u32 %p3, %r0, 40; @%p3").replace("bar.sync 0;", ""), True, ["GMEM_RACE"]),
    (SHARED_BY_TWO.replace("TAKES", "setp.gt.u16 %p3, %h2, 99; @%p3").replace("bar.sync 0;", ""), True, ["GMEM_RACE"]),
])  # fmt: skip
def test_races_in_global_memory_are_looked_for_where_asked(body: str, asked: bool, names: list[str]) -> None:
    """Byte by byte: neighbours in one word are not mistaken for each other."""
    memory = Memory()
    pointers = [memory.allocate(4096) for _ in range(2)]
    run = parse(Kernel("global", body).source).kernel().launch(
        memory, pointers, block=(64, 1, 1), races=asked
    )  # fmt: skip
    assert [own.name for own in run.hazards] == names
