"""Probes and testbenches of mbarrier: the machine code of every operand list, random programs, mutants, mismatches."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.isa.mbarrier.programs import STEPS, programs, run
from conformance.isa.mbarrier.testbench import OF_FORM
from conformance.stimuli.classes import digest
from conformance.stimuli.stream import Stream
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of, form_of, probe
from hwkernels.probes import mbarrier as barrier
from hwkernels.probes.probe import Probe
from tcsim import catalog

TESTBENCH = testbench_of("mbarrier")
ARRIVE = "mbarrier.arrive.shared::cta.b64"
TRY_WAIT = "mbarrier.try_wait.shared::cta.b64"


def rows(target: str) -> list[Any]:
    """The family's instructions that a target takes."""
    found = [row for row in catalog.rows().values() if row.family == "mbarrier" and target in row.targets]
    return [tcsim.instruction(row.mnemonic, arch=target) for row in found]


def sample(arch: str, every: int) -> list[Any]:
    """Every n-th instruction of an arch, and at least one of each operation."""
    items = [tcsim.instruction(row.mnemonic, arch=arch) for row in catalog.on_arch(arch, "mbarrier")]
    first = {item.row.arithmetic: item for item in reversed(items)}
    return [item for place, item in enumerate(items) if place % every == 0 or item in first.values()]


@pytest.mark.parametrize(("target", "count"), [("sm_80", 43), ("sm_90a", 285), ("sm_107a", 291), ("sm_120a", 285)])
def test_every_form_assembles_to_what_is_claimed(target: str, count: int) -> None:
    """Each kernel holds its own machine instruction and the helpers', and no other on a barrier; no note, no spill.

    The first row of every arithmetic and state space, and every ninth; a replay of the conformance suite assembles all.
    """
    items = rows(target)
    assert len(items) == count
    first = {(item.row.arithmetic, item.row.space): item for item in reversed(items)}
    items = [item for place, item in enumerate(items) if place % 9 == 0 or item in first.values()]
    made = probe.build(items, target)
    for name, item in made.items():
        assert isinstance(item, Probe), (name, item)
        assert item.complaint == "", name
    assert len({item.code_sha256 for item in made.values() if isinstance(item, Probe)}) > 10


def test_no_program_can_hang() -> None:
    """The only backward branch of a kernel is the one to the next step, and steps are counted."""
    checked = 0
    for item in sample("sm_90", 9):
        for variant in probe.forms_on(item.row, "sm_90a"):
            text = body_of(item.row).kernel(item.row, "k", variant)
            lines = [line.strip() for line in text.splitlines()]
            labels = {line.rstrip(":"): place for place, line in enumerate(lines) if re.fullmatch(r"\w+:", line)}
            jumps = [(place, re.search(r"bra(?:\.uni)? (\w+);", line)) for place, line in enumerate(lines)]
            back = [match[1] for place, match in jumps if match and labels[match[1]] < place]
            assert back == ["STEP"]
            assert "sub.u32 %steps, %steps, 1;" in lines
            checked += 1
    assert checked > 40


def test_machine_code_that_lacks_the_instruction_is_told() -> None:
    """A kernel of another form is a complaint that names the opcode."""
    item = tcsim.instruction(ARRIVE, arch="sm_90")
    claimed = {"SYNCS.ARRIVE.TRANS64.ART0": 2, "SYNCS.ARRIVE.TRANS64.A1T0": 0}
    told = barrier.BODY.complaint(item, "state", "sm_90a", Counter(claimed))
    assert "SYNCS.ARRIVE.TRANS64.A1T0 0 times instead of 1" in told
    assert "SYNCS.ARRIVE.TRANS64.ART0 2 times instead of 1" in told


def test_forms_that_a_target_lacks_are_left_out() -> None:
    """sm_80 takes a count with .noComplete only, and its kernels need PTX ISA 7.1."""
    row = catalog.rows()["mbarrier.arrive.shared.b64"]
    assert probe.forms_on(row, "sm_80") == ("state", "sink")
    assert probe.forms_on(row, "sm_90") == ("state", "sink", "state_count", "sink_count")
    assert probe.emit(row, "sm_80").startswith(".version 7.1\n")
    assert assemble(probe.emit(row, "sm_80"), "sm_80").notes == ()


def test_a_launch_has_what_the_kernel_reads() -> None:
    """One warp a program, the entry point of the class's form, an output that the model's answer fits."""
    item = tcsim.instruction(ARRIVE, arch="sm_90")
    given = TESTBENCH.inputs(item, "sinkcounted", 0, 5)
    launch = Probe(item, "sm_90a", b"code", "ptxas 13.0.0", "", "0" * 64).launch(given, repeat=2)
    assert launch.kernel == "probe_mbarrier_arrive_shared_cta_b64__sink_count"
    assert (launch.grid, launch.block, launch.scalars) == ((5, 1, 1), (32, 1, 1), (np.uint32(STEPS),))
    assert launch.outputs == (((5, STEPS, 4), np.dtype(np.uint32)),)
    assert TESTBENCH.model(item, given).shape == (5, STEPS, 4)
    head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", probe.emit(item.row, "sm_90a"))
    assert head is not None
    assert [word.split()[-1] for word in head[1].split(", ")] == ["program", "results", "steps"]
    with pytest.raises(ValueError, match=r"this probe takes uint32 \(samples, steps, 4\)"):
        barrier.BODY.plan(item.row, {"program": np.zeros((2, 3), np.uint32), "form": np.zeros(2, np.uint32)})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_107"])
def test_programs_and_mutants(arch: str) -> None:
    """Pure functions of their arguments, allowed by the model at every step; each mutant is contradicted."""
    outputs, steps, applied = 0, Counter[int](), Counter[str]()
    for item in sample(arch, 16):
        names, digests = TESTBENCH.classes(item), set()
        assert set(names) <= {*OF_FORM.values(), "threads", "tokens"}
        assert all(re.fullmatch("[a-z]+", name) for name in names)
        alive = [mutant for mutant in TESTBENCH.mutants if mutant.applies(item)]
        applied.update(mutant.name for mutant in alive)
        for name in names:
            given = TESTBENCH.inputs(item, name, 0, TESTBENCH.samples(item, name))
            digests.add(digest(given))
            assert digest(TESTBENCH.inputs(item, name, 0, TESTBENCH.samples(item, name))) in digests
            answer = TESTBENCH.model(item, given)
            comparison = TESTBENCH.compare(item, given, answer, answer)
            assert (comparison.mismatches, comparison.first) == (0, ())
            outputs += comparison.outputs
            steps.update(given["program"][..., 0].ravel().tolist())
            if name == "threads":
                assert (given["program"][..., 1] > 1).any()
            if name == "tokens":
                assert answer[..., 3].any()
            alive = [mutant for mutant in alive if np.array_equal(mutant.run(item, given), answer)]
        assert not alive, (item.mnemonic, [mutant.name for mutant in alive])
        assert len(digests) == len(names)
    assert outputs > 20_000
    hopper = {barrier.EXPECT_TX, barrier.COMPLETE_TX, barrier.INIT_V1}
    other = {barrier.ROW, barrier.INIT, barrier.ARRIVE, barrier.NO_COMPLETE, barrier.DROP, barrier.INVAL}
    assert set(steps) == (other if arch == "sm_80" else other | hopper)
    assert len(applied) == (6 if arch == "sm_80" else len(TESTBENCH.mutants))


def test_pending_count_is_asked_of_no_complete_arrivals_only() -> None:
    """The manual defines it of their states alone: of other arrivals a step stores nothing, and programs ask for nothing."""
    checked = 0
    for name, form in (
        (ARRIVE, "state"),
        ("mbarrier.arrive.noComplete.shared::cta.b64", "state"),
        ("mbarrier.pending_count.b64", "program"),
    ):
        item = tcsim.instruction(name, arch="sm_90")
        given = TESTBENCH.inputs(item, form, 0, 32)
        seen, program = TESTBENCH.model(item, given)[..., 0], given["program"]
        counted = [barrier.NO_COMPLETE] + ([barrier.ROW] if item.row.no_complete else [])
        others = [barrier.ARRIVE, barrier.DROP] + ([] if item.row.no_complete or "pending" in name else [barrier.ROW])
        one = program[..., 1] == 1
        assert (seen[np.isin(program[..., 0], counted) & one] > 0).all()
        assert (seen[np.isin(program[..., 0], others)] == 0).all()
        checked += int(np.isin(program[..., 0], counted).sum())
        text = body_of(item.row).kernel(item.row, "k", "" if "pending" in name else "state")
        read = re.findall(r"setp\.eq\.and\.u32 %is, %operation, (\d+), %in;", text)
        assert [int(number) for number in read] == counted
    assert checked > 200


def test_what_programs_reach() -> None:
    """Phases end, bytes come early and late, arrivals drop, states of the phase before are tested."""
    item = tcsim.instruction(TRY_WAIT, arch="sm_90")
    given = TESTBENCH.inputs(item, "hinted", 0, 64)
    seen = TESTBENCH.model(item, given)
    parities = seen[..., 1]
    assert {1, 2} == set(parities[given["program"][..., 3] & barrier.OBSERVE != 0].tolist())
    own = given["program"][..., 0] == barrier.ROW
    assert {0, 1} == set(seen[own][:, 0].tolist())
    assert (np.diff(parities.astype(int), axis=1) != 0).sum() > 100
    slow = TESTBENCH.inputs(item, "program", 0, 64)["program"]
    answers = run(item, item.row.forms[0], slow)
    waiting = (slow[..., 0] == barrier.ROW) & (answers[..., 0] == 0)
    assert 1 <= waiting.sum(axis=1).max() <= 2  # waits without a hint for a phase that is under way


def test_a_mismatch_is_explained() -> None:
    """Which step, what it was, both words, and the program up to there."""
    item = tcsim.instruction(ARRIVE, arch="sm_90")
    given = TESTBENCH.inputs(item, "state", 0, 4)
    model = TESTBENCH.model(item, given)
    hardware = model.copy()
    place = int(np.flatnonzero(given["program"][2, :, 0] == barrier.ROW)[0])
    hardware[2, place, 0] ^= 1
    comparison = TESTBENCH.compare(item, given, hardware, model)
    assert comparison.mismatches == 1
    line = comparison.first[0].line()
    assert re.fullmatch(
        rf"MISMATCH sample 2 step {place}: the instruction: what it returned, hardware 0x\w+ model 0x\w+", line
    )
    told = comparison.first[0].trace()
    assert told[0] == f"{ARRIVE} on sm_90"
    assert len(told) == place + 2
    with pytest.raises(ValueError, match="the hardware's result has shape"):
        TESTBENCH.compare(item, given, hardware[:1], model)


def test_forms_and_classes_that_do_not_exist() -> None:
    """Asked by name, refused by name."""
    row = catalog.rows()[ARRIVE]
    with pytest.raises(ValueError, match="has no form 'hint'; valid: 'state', 'sink'"):
        form_of(row, "hint")
    with pytest.raises(ValueError, match="has no input class 'hinted'"):
        TESTBENCH.inputs(tcsim.instruction(ARRIVE, arch="sm_90"), "hinted", 0, 1)
    item = tcsim.instruction(ARRIVE, arch="sm_90")
    assert programs(item, item.forms[0], False, False, 3, Stream("x")).shape == (3, STEPS, 4)
