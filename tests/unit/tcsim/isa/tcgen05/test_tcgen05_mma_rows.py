"""tcgen05.mma and its kin: rows, targets and evidence against the assembler's inventory."""

from __future__ import annotations

import csv

import pytest

from conformance.isa.tcgen05 import TENSOR_MEMORY
from tcsim.core.errors import InstructionError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.tcgen05.multiply import opcode
from tests.support.tables import TABLES
from tests.support.tensor_multiply_cases import FAMILIES, ROWS, instruction

INVENTORY = TABLES / "tcgen05_mma_inventory.csv"
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
        forms = {form.name: form for form in row.forms}
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
                assert opcode(row, ARCHS[arch]) == line[column], row.mnemonic
    assert pairs == FAMILIES
    assert seen == {(row.mnemonic, form.name) for row in ROWS.values() for form in row.forms}
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


def test_every_row_executes() -> None:
    """All 892 spellings, on the newest arch that takes each: memories in, another Tensor Memory out."""
    executed_ = dict.fromkeys(FAMILIES, 0)
    for turn, row in enumerate(ROWS.values()):
        item = instruction(row.mnemonic, "sm_107" if "sm_107a" in row.targets else TARGETS[row.targets[-1]].arch)
        name = TENSOR_MEMORY.classes(item)[0]
        given_ = TENSOR_MEMORY.inputs(item, name, turn, 1)
        after = TENSOR_MEMORY.model(item, given_)
        assert (after != given_["tmem"]).any(), item.mnemonic
        executed_[row.family] += 1
    assert executed_ == {"tcgen05.mma": 366, "tcgen05.mma.sp": 356, "tcgen05.mma.ws": 85, "tcgen05.mma.ws.sp": 85}
