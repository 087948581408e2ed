"""Probes of tcgen05.mma: they assemble for each target without a note, hold what is claimed, and take the testbench's inputs."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

import numpy as np
import pytest

import tcsim
from conformance.isa.tcgen05 import TENSOR_MEMORY
from hwkernels.probes import probe
from hwkernels.probes.probe import Probe, emit
from hwkernels.probes.tcgen05_mma import BODY, statement
from tcsim import catalog
from tcsim.model.row import Row

ROWS = [row for row in catalog.rows().values() if row.family.startswith("tcgen05.mma")]


def sample() -> dict[str, list[Row]]:
    """Target -> rows: every family, kind, cta_group, vector and .ashift once, and every collector usage; targets in turn.

    The conformance run assembles the rest: `pytest conformance/ --arch sm_100`, and sm_103, sm_107, sm_110.
    """
    chosen: dict[tuple[object, ...], Row] = {}
    for row in ROWS:
        chosen.setdefault((row.family, row.kind.name, row.cta_group, row.vector, row.ashift, row.lookup), row)
        chosen.setdefault((row.weight_stationary, row.collectors), row)
    targets: dict[str, list[Row]] = {}
    turn = cycle(range(8))
    for row in {row.mnemonic: row for row in chosen.values()}.values():
        targets.setdefault(row.targets[next(turn) % len(row.targets)], []).append(row)
    return targets


SAMPLE = sample()


@pytest.mark.parametrize("target", SAMPLE)
def test_probes_assemble_and_hold_what_is_claimed(target: str) -> None:
    made = probe.build([tcsim.instruction(row.mnemonic, arch=target) for row in SAMPLE[target]], target)
    assert len(made) == len(SAMPLE[target]) >= 5
    for mnemonic, item in made.items():
        assert isinstance(item, Probe), f"{mnemonic} for {target}: {item}"
        assert item.complaint == "", mnemonic


def test_the_sample_covers_everything() -> None:
    rows = [row for part in SAMPLE.values() for row in part]
    assert len(rows) == len({row.mnemonic for row in rows}) > 100
    assert len(SAMPLE) == 8
    assert {row.kind.name for row in rows} == {row.kind.name for row in ROWS}
    for attribute in ("cta_group", "vector", "ashift", "lookup", "sparse", "weight_stationary", "collectors"):
        assert {getattr(row, attribute) for row in rows} == {getattr(row, attribute) for row in ROWS}


def test_every_form_has_a_kernel_for_exactly_its_targets() -> None:
    kernels = Counter()
    for row in ROWS:
        forms = BODY.forms(row)
        assert {form.name for form, _ in forms.values()} == {form.name for form in row.forms}
        for target in row.targets:
            assert set(BODY.forms_on(row, target)) == {
                name for name, (form, _) in forms.items() if target in form.targets
            }
        kernels[row.family] += len(forms)
    assert kernels == {"tcgen05.mma": 992, "tcgen05.mma.sp": 938, "tcgen05.mma.ws": 340, "tcgen05.mma.ws.sp": 340}


def test_the_instruction_line_has_the_operands_in_order() -> None:
    row = catalog.rows()["tcgen05.mma.sp.cta_group::2.kind::f16"]
    form, value = BODY.forms(row)["tmem_lanes_scale3"]
    lanes = ", ".join(f"%lanes{i}" for i in range(8))
    assert (
        statement(row, form, value)
        == f"{row.mnemonic} [%d], [%a], %desc_b, [%metadata], %idesc, {{{lanes}}}, %enable, 3;"
    )
    row = catalog.rows()["tcgen05.mma.cta_group::1.kind::mxf4.block_scale"]
    form, value = BODY.forms(row)["desc"]
    assert (
        statement(row, form, value)
        == f"{row.mnemonic} [%d], %desc_a, %desc_b, %idesc, [%scale_a], [%scale_b], %enable;"
    )


@pytest.mark.parametrize("group", [1, 2])
def test_launches_fit_the_kernel(group: int) -> None:
    mnemonic = f"tcgen05.mma.cta_group::{group}.kind::f16"
    instruction = tcsim.instruction(mnemonic, arch="sm_100a")
    for name in ("desc", "tmemlanesscalethree"):
        given = TENSOR_MEMORY.inputs(instruction, name, 0, 3)
        plan = BODY.plan(instruction.row, given)
        assert plan.grid == (3 * group, 1, 1) and plan.cluster == (None if group == 1 else (2, 1, 1))
        assert plan.output[0] == given["tmem"].shape
        words, wide = plan.inputs[2:]
        assert words.dtype == np.uint32 and wide.dtype == np.uint64
        assert words[:, 2].tolist() == given["idesc"].tolist() and wide[:, 1].tolist() == given["b"].tolist()
        if name == "desc":
            assert wide[:, 0].tolist() == given["a"].tolist() and plan.variant == "desc"
        else:
            assert words[:, 1].tolist() == given["a"].tolist() and plan.variant == "tmem_lanes_scale3"
            assert words[:, 8 : 8 + 4 * group].tolist() == given["lanes"].tolist()
        made = Probe(instruction, "sm_100a", b"\x7fELF", "ptxas", "", "")
        launch = made.launch(given, repeat=2)
        assert launch.cluster == plan.cluster and launch.kernel == probe.kernel_name(instruction.row, plan.variant)


def test_one_kernel_does_everything_in_order() -> None:
    text = emit(catalog.rows()["tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale"], "sm_100f")
    order = [
        "tcgen05.alloc.cta_group::2", "tcgen05.relinquish_alloc_permit.cta_group::2", "tcgen05.st.", "tcgen05.wait::st",
        "barrier.cluster.arrive", "tcgen05.mma.cta_group::2", "tcgen05.commit.cta_group::2", "mbarrier.try_wait", "trap;",
        "tcgen05.ld.", "tcgen05.wait::ld", "tcgen05.dealloc.cta_group::2",
    ]  # fmt: skip
    place = -1
    for word in order:
        place = text.index(word, place + 1)
    assert text.count(".visible .entry") == 2
