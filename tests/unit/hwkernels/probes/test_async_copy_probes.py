"""cp.async, cp.async.bulk, cp.reduce.async.bulk: probes and testbenches."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.stimuli.classes import digest
from hwkernels.probes import cp_async as async_copy
from hwkernels.probes import cp_async_bulk as bulk_copy
from hwkernels.probes import probe
from hwkernels.probes.images import IMAGE_BYTES
from hwkernels.probes.probe import Probe
from tests.support.async_copy_cases import FILES, LOAD, ROWS, items


@pytest.mark.parametrize(("target", "count"), [("sm_80", 41), ("sm_90a", 41 + 48 + 68), ("sm_107a", 88 - 48)])
def test_every_form_assembles_to_what_is_claimed(target: str, count: int) -> None:
    """Each kernel holds the row's machine instruction and those around it, and no other copy; no note, no spill.

    On sm_107a those that sm_90a does not have; a replay of the conformance suite assembles all.
    """
    checked = 0
    for family in FILES:
        rows = [row for row in ROWS.values() if row.family == family and target in row.targets]
        rows = [row for row in rows if target != "sm_107a" or "sm_90a" not in row.targets]
        made = probe.build([tcsim.instruction(row.mnemonic, arch=target) for row in rows], target)
        for name, item in made.items():
            assert isinstance(item, Probe), (name, item)
            assert item.complaint == "", name
            checked += 1
    assert checked == count


def test_launches() -> None:
    """One warp a copy, two blocks a cluster between blocks; other shapes are refused."""
    across = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    for name, clusters in ((LOAD, None), (across, (2, 1, 1)), ("cp.async.ca.shared.global", None)):
        item = tcsim.instruction(name, arch="sm_90")
        testbench = testbench_of(item.row.family)
        given_inputs = testbench.inputs(item, testbench.classes(item)[0], 0, 3)
        launch = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64).launch(given_inputs, repeat=2)
        assert (launch.grid[0], launch.cluster, launch.block) == (6 if clusters else 3, clusters, (32, 1, 1))
        ((shape, dtype),) = launch.outputs
        assert shape == testbench.model(item, given_inputs).shape == (3, IMAGE_BYTES // 4)
        head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", probe.emit(item.row, "sm_90"))
        assert head is not None
        names = [word.split()[-1] for word in head[1].split(", ")]
        assert len(names) == len(launch.inputs) + 1
        body: Any = async_copy.BODY if item.row.family == "cp.async" else bulk_copy.BODY
        with pytest.raises(ValueError, match=r"smem is uint8 \(3, 8\); this probe takes uint8 \(3, 1024\)"):
            body.plan(item.row, given_inputs | {"smem": np.zeros((3, 8), np.uint8)})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_107"])
def test_testbenches_and_mutants(arch: str) -> None:
    """Inputs are pure functions of their arguments; each mutant is contradicted; the model agrees with itself."""
    outputs, applied = 0, Counter[str]()
    for item in items(arch):
        testbench, digests = testbench_of(item.row.family), set()
        names = testbench.classes(item)
        assert bool(names) != item.row.reports
        assert all(re.fullmatch("[a-z]+", name) for name in names)
        alive = [mutant for mutant in testbench.mutants if mutant.applies(item)]
        applied.update(mutant.name for mutant in alive)
        for name in names:
            inputs = testbench.inputs(item, name, 0, testbench.samples(item, name))
            digests.add(digest(inputs))
            assert digest(testbench.inputs(item, name, 0, testbench.samples(item, name))) in digests
            answer = testbench.model(item, inputs)
            comparison = testbench.compare(item, inputs, answer, answer)
            assert comparison.mismatches == 0
            outputs += comparison.outputs
            for mutant in list(alive):
                wrong = mutant.run(item, inputs)
                if not np.array_equal(wrong, answer):
                    alive.remove(mutant)
                    assert item.row.has("ignore_left") or testbench.compare(item, inputs, wrong, answer).mismatches
        assert not alive, (item.mnemonic, [mutant.name for mutant in alive])
        assert len(digests) == len(names)
    assert outputs > 1_000_000
    every = {mutant.name for mutant in testbench_of("cp.async").mutants}
    missing = {"sm_80": {"mask reversed", "not reduced"}, "sm_90": {"mask reversed"}}.get(arch, set())
    prefetches = set() if arch == "sm_80" else {"prefetch taken for a copy"}
    assert set(applied) == (every - missing) | prefetches


def test_a_mismatch_is_explained() -> None:
    """The address, the copy that covers it, both bytes; undefined bytes are no mismatch."""
    item = tcsim.instruction(LOAD + ".ignore_oob", arch="sm_90")
    testbench = testbench_of("cp.async.bulk")
    inputs = testbench.inputs(item, "uniform", 0, 4)
    model = testbench.model(item, inputs)
    hardware = model.copy().view(np.uint8)
    to, size = int(inputs["destination"][1, 0]), int(inputs["size"][1, 0])
    left, right = inputs["options"][1, 1:3].tolist()
    hardware[1, item.undefined_bytes(to, size, left, right)] ^= 0xFF
    assert testbench.compare(item, inputs, hardware.view("<u4"), model).mismatches == 0
    hardware[1, to + left] ^= 4
    comparison = testbench.compare(item, inputs, hardware.view("<u4"), model)
    assert comparison.mismatches == 1
    line = comparison.first[0].line()
    source = int(inputs["source"][1, 0])
    assert line.startswith(
        f"MISMATCH sample 1 address {to + left:#x}: byte {left} of {size} from {source:#x}, copy 0, hardware 0x"
    )
    assert comparison.first[0].trace()[0] == f"{item.mnemonic} on sm_90"
    with pytest.raises(ValueError, match="the hardware's result has shape"):
        testbench.compare(item, inputs, model[:1], model)
