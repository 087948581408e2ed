"""Fences and the groups of wgmma: the inventory, what each orders, that all of them assemble."""

from __future__ import annotations

import csv

import pytest

import tcsim
from conformance.isa import testbench_of
from hwkernels.probes import probe
from hwkernels.probes.fence import GROUPS
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tcsim.core.errors import InstructionError, OperandError
from tcsim.core.targets import ARCHS, TARGETS
from tests.support.tables import TABLES

FILES = {"fence": "fence", "wgmma.sync": "wgmma_sync"}
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FILES}


@pytest.mark.parametrize(("family", "count"), [("fence", 45), ("wgmma.sync", 5)])
def test_the_registry_is_the_inventory(family: str, count: int) -> None:
    """Exactly the spellings and operand lists that ptxas accepts, with their targets and versions."""
    path = TABLES / f"{FILES[family]}_inventory.csv"
    text = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    lines = {(line["mnemonic"], line["extra"]): line for line in csv.DictReader(text)}
    extras = {
        (row.mnemonic, f"N={number}" if "groups" in row.forms[0] else "")
        for row in ROWS.values()
        if row.family == family
        for number in GROUPS
    }
    assert len(lines) == count
    assert extras == set(lines)
    for key, line in lines.items():
        row = ROWS[key[0]]
        assert [name for form in row.forms for name in form.targets] == list(row.targets) == line["targets"].split(), (
            key
        )
        assert row.forms[0].ptx_version == row.ptx_version == line["min_ptx_isa"], key
        assert {form.documented for form in row.forms} == {row.documented} == {line["documented"] == "1"}, key


def test_accepted_on_exactly_their_targets_and_told() -> None:
    """On no other target; each says what it orders, and executes to nothing."""
    accepted = 0
    for name, row in ROWS.items():
        for target in TARGETS:
            if target in row.targets:
                item = tcsim.instruction(name, arch=target)
                assert len(item.orders.split()) > 4
                assert item.execute() is None
                assert testbench_of(row.family).classes(item) == []
                accepted += 1
            elif target not in ARCHS or not {t for t in row.targets if TARGETS[t].arch == target}:
                with pytest.raises(InstructionError, match="needs"):
                    tcsim.instruction(name, arch=target)
    assert accepted == sum(len(row.targets) for row in ROWS.values())
    scopes = {"cta": "block", "cluster": "cluster", "gpu": "GPU", "sys": "system"}
    for scope, word in scopes.items():
        assert word in tcsim.instruction(f"fence.sc.{scope}", arch="sm_90").orders
    with pytest.raises(OperandError, match="groups=-1: valid: 0 and more"):
        tcsim.instruction("wgmma.wait_group.sync.aligned", arch="sm_90").execute(groups=-1)


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_120a"])
def test_all_assemble(target: str) -> None:
    """Each list of operands, without a note."""
    rows = [row for row in ROWS.values() if target in row.targets]
    made = probe.build([tcsim.instruction(row.mnemonic, arch=target) for row in rows], target)
    assert len(made) == len(rows) >= 10
    for name, item in made.items():
        assert isinstance(item, Probe), (name, item)
        assert item.complaint == "", name
    with pytest.raises(ValueError, match="has no result to compare"):
        next(item for item in made.values() if isinstance(item, Probe)).launch({})
