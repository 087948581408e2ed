"""The rows on Tensor Memory, and spcompress: the inventory, targets, machine code, evidence."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

import tcsim
from tcsim import InstructionError, catalog
from tcsim.core.targets import ARCHS, TARGETS, Arch
from tests.support.tmem_cases import FAMILIES, ROWS, inventory

COUNTS = {
    "sm_100f": 214, "sm_100a": 216, "sm_103f": 382, "sm_103a": 384, "sm_107f": 402, "sm_107a": 647, "sm_110f": 382, "sm_110a": 384,
}  # fmt: skip
"""Spellings by target; an arch has those of its a target."""
NOT_FOUND = ("spdecompress.",)
"""Spellings that the inventory did not find in the manual, though PTX ISA has a section of them."""


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings that ptxas accepts, with their targets, versions, place in the manual and machine code."""
    lines = inventory()
    assert set(lines) == set(ROWS)
    compared = 0
    for mnemonic, own in lines.items():
        row = ROWS[mnemonic]
        for line in own:
            assert line["family"] == row.family
            assert set(line["targets"].split()) == set(row.targets), mnemonic
            assert line["min_ptx_isa"] == row.ptx_version, mnemonic
            assert row.documented == (bool(int(line["documented"])) or _known_gap(line))
            compared += 1
        assert len(row.targets) == len(set(row.targets))
        assert not row.dropped
    assert compared == 729
    for family, (count, spellings) in FAMILIES.items():
        assert sum(len(own) for own in lines.values() if own[0]["family"] == family) == count
        assert sum(row.family == family for row in ROWS.values()) == spellings


def _known_gap(line: dict[str, str]) -> bool:
    """What the inventory says is not documented: sizes beyond the table of exclusive allocation, and spdecompress."""
    return line["mnemonic"].startswith(NOT_FOUND) or line["extra"] == "nCols=1024"


@pytest.mark.parametrize("arch", ["sm_100", "sm_107"])
def test_machine_code_is_what_was_seen(arch: str) -> None:
    """The claimed opcodes are those of the inventory; of an alloc and its kin, which are routines, they are among them."""
    compared = 0
    for mnemonic, lines in inventory().items():
        seen = lines[0][f"sass_{arch.replace('_', '')}a"]
        if not seen:
            continue
        claimed = tcsim.instruction(mnemonic, arch=arch).lowering.opcodes
        names = [name for part in seen.split("+") for name in [part.split("*")[0]]]
        if ROWS[mnemonic].family != "tcgen05.alloc":
            assert [name for name, _ in claimed] == [name for name in names if name != "-"], mnemonic
        elif ".cta_group::1" in mnemonic:
            assert {name for name, _ in claimed} <= set(names), mnemonic
        compared += 1
    assert compared == COUNTS[f"{arch}a"]


@pytest.mark.parametrize("name", dict.fromkeys((*ARCHS, *TARGETS)))
def test_every_target_takes_exactly_its_instructions(name: str) -> None:
    """On an arch what any of its targets takes, on another target what that one takes; the rest is refused."""
    own = {target for target in TARGETS if TARGETS[target].arch == name} if name in ARCHS else {name}
    taken = {row.mnemonic for row in ROWS.values() if own & set(row.targets)}
    for number, (mnemonic, row) in enumerate(ROWS.items()):
        if mnemonic in taken:
            assert set(tcsim.instruction(mnemonic, arch=name).targets) == own & set(row.targets)
        elif number % 50 == 0:  # the text of a refusal takes long to find
            with pytest.raises(InstructionError, match=r"needs one of sm_"):
                tcsim.instruction(mnemonic, arch=name)
    assert len(taken) == COUNTS.get(name + "a" if name in ARCHS else name, 0)


def test_evidence_claims_no_measurement() -> None:
    """No GPU was asked: literature, or inferred where the manual is silent."""
    levels: dict[str, set[str]] = {}
    for mnemonic, row in ROWS.items():
        for arch in ("sm_100", "sm_103", "sm_107", "sm_110"):
            if any(TARGETS[target].arch == arch for target in row.targets):
                evidence = tcsim.instruction(mnemonic, arch=arch).evidence
                assert evidence.source
                levels.setdefault(evidence.level, set()).add(mnemonic)
    assert set(levels) == {"literature", "inferred"}
    inferred = levels["inferred"]
    assert {name for name in inferred if name.startswith("tcgen05.st")} == {n for n in ROWS if ".unpack::16b" in n}
    assert {name for name in ROWS if name.startswith("tcgen05.shift")} <= inferred
    assert {name for name in ROWS if "b4x16_p64" in name or ".4x256b" in name} <= inferred
    assert not {name for name in inferred if name.startswith(("spcompress", "tcgen05.commit", "tcgen05.dealloc"))}


def test_families_are_listed() -> None:
    """The registry knows each by name."""
    for name in FAMILIES:
        assert catalog.family(name).name == name


def test_operands_have_the_names_of_arguments() -> None:
    """What a form lists, `execute` takes or gives under the same name; a commit's barrier stands for a list of them."""
    checked = 0
    for family in [*FAMILIES, "tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp"]:
        for row in catalog.family(family).rows()[::9]:
            item: Any = tcsim.instruction(row.mnemonic, arch=row.targets[-1])
            takes = {*signature(item.execute).parameters, *item.RESULTS, *row.operands, "data", "mbar"}
            for form in row.forms:
                assert set(form.names) <= takes, (row.mnemonic, form.name)
                checked += len(form.names)
    assert checked > 2000


@pytest.mark.parametrize("relative", ["sm_107", "sm_110", "sm_120"])
def test_an_arch_that_nobody_described_has_what_its_relative_has(relative: str) -> None:
    """Every row has a lowering there, and evidence that is inferred."""
    later, rows = Arch("sm_130", "later", "", relative, ()), 0
    for family in [*FAMILIES, "tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp"]:
        own = catalog.family(family)
        for row in own.rows():
            lowering = own.lowering(row, later)
            if relative != "sm_120":
                assert lowering == own.lowering(row, ARCHS[relative])
            assert own.evidence(row, later).level == "inferred"
            rows += 1
    assert rows == 647 + 892
