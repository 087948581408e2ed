"""tcgen05.mma and its kin: rows, targets and evidence against the assembler's inventory."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tensor_multiply_cases import FAMILIES, ROWS, instruction

import tcsim
from tcsim.errors import InstructionError
from tcsim.families.tcgen05_mma import opcode
from tcsim.targets import ARCHS, TARGETS

INVENTORY = Path(__file__).parent / "data" / "tcgen05_mma_inventory.csv"
FORMS = {"disable-output-lane": "lanes", "scale-input-d": "scale", "zero-column-mask": "mask"}


def inventory() -> list[dict[str, str]]:
    """The assembler's inventory, a line for spellings and forms that are accepted alike."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def form_name(text: str) -> tuple[str, str]:
    """The registry's name of an inventory form, `A=desc;scale-input-d=3`, and the value of the immediate."""
    place, *rest = text.split(";")
    words = [place.removeprefix("A="), *(FORMS[word.partition("=")[0]] for word in rest)]
    value = next((word.partition("=")[2] for word in rest if "=" in word), "")
    return "_".join(words), value


def test_the_registry_is_the_inventory() -> None:
    pairs, seen = dict.fromkeys(FAMILIES, 0), set()
    for line in inventory():
        row = ROWS[line["mnemonic"]]
        forms = {form.name: form for form in row.facts.forms}
        for text in line["forms"].split("|"):
            name, _ = form_name(text)
            form = forms[name]
            seen.add((row.mnemonic, name))
            assert form.targets == tuple(line["targets"].split()), (row.mnemonic, text)
            assert (row.ptx_version, form.documented) == (line["min_ptx_isa"], line["documented"] == "1"), (
                row.mnemonic,
                text,
            )
            pairs[row.family] += 1
        for arch, column in (("sm_100", "sass_sm100a"), ("sm_107", "sass_sm107a")):
            if line[column]:
                assert opcode(row.facts, ARCHS[arch]) == line[column], row.mnemonic
    assert pairs == FAMILIES
    assert seen == {(row.mnemonic, form.name) for row in ROWS.values() for form in row.facts.forms}
    assert len(ROWS) == 892 and len(seen) == 2554


def test_every_target_takes_exactly_its_spellings() -> None:
    counts = {}
    for name in TARGETS:
        taken = [row for row in ROWS.values() if name in row.targets]
        counts[name] = len(taken)
        if name in ARCHS:  # the arch runs what its f and a targets take
            continue
        for row in list(ROWS.values())[::37]:
            if name in row.targets:
                assert instruction(row.mnemonic, name).targets == (name,)
            else:
                with pytest.raises(InstructionError, match="needs one of"):
                    instruction(row.mnemonic, name)
    listed = {
        name: len({line["mnemonic"] for line in inventory() if name in line["targets"].split()}) for name in TARGETS
    }
    assert counts == listed
    assert (counts["sm_100a"], counts["sm_107a"], counts["sm_120a"]) == (464, 826, 0)


def test_evidence_is_never_a_measurement() -> None:
    levels = {"literature": 0, "inferred": 0}
    for row in ROWS.values():
        for arch in {TARGETS[target].arch for target in row.targets}:
            levels[instruction(row.mnemonic, arch).evidence.level] += 1
    assert sum(levels.values()) == sum(len({TARGETS[t].arch for t in row.targets}) for row in ROWS.values())
    assert min(levels.values()) > 50
    dense = "tcgen05.mma.cta_group::1.kind::f16"
    assert instruction(dense).evidence.level == "literature"
    for other in (dense.replace("::1", "::2"), dense.replace(".mma", ".mma.ws"), dense.replace(".mma", ".mma.sp")):
        assert instruction(other).evidence.level == "inferred"
    assert instruction(dense, "sm_103").evidence.level == "inferred"


def test_what_is_not_modelled_says_so() -> None:
    refused = 0
    for mnemonic, arch in (
        ("tcgen05.mma.cta_group::1.kind::ti16", "sm_107"),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::ti16", "sm_107"),
        ("tcgen05.mma.cta_group::1.kind::f8f6f4.decompress::lut::b", "sm_107"),
        ("tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale", "sm_107"),
    ):
        item = instruction(mnemonic, arch)
        assert item.evidence.level == "inferred"
        with pytest.raises(InstructionError, match="not modelled"):
            item.matmul(0, 0, 0, idesc=0)
        with pytest.raises(InstructionError, match="not modelled"):
            item.execute(tcsim.TensorMemory.allocated(), d=0, a=0, b=0, idesc=0)
        refused += 1
    assert refused == 4
