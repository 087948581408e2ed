"""The registry against what ptxas accepts: every spelling, target and version, and what a wrong one is told."""

from __future__ import annotations

import csv
from typing import NamedTuple

import pytest

import tcsim
from tcsim import catalog
from tcsim.core.errors import InstructionError, TargetError, TcsimError
from tcsim.core.evidence import LEVELS
from tcsim.core.targets import ARCHS, TARGETS
from tests.support.tables import TABLES

INVENTORY = TABLES / "mma_sync_inventory.csv"
ROWS = {name: row for name, row in catalog.rows().items() if row.family == "mma.sync"}
BF16_M8N8K4 = [f"mma.sync.aligned.m8n8k4.{a}.{b}.f32.bf16.bf16.f32" for a in ("row", "col") for b in ("row", "col")]
MODIFIERS = (".satfinite", ".rn", ".rz", ".rm", ".rp", ".xor.popc", ".and.popc")


class Accepted(NamedTuple):
    """One spelling that the assembler accepts."""

    targets: tuple[str, ...]
    ptx_version: str
    documented: bool


def accepted() -> dict[str, Accepted]:
    """The inventory by mnemonic."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    table = {}
    for line in csv.DictReader(lines):
        targets = tuple(line["targets"].split())
        table[line["mnemonic"]] = Accepted(targets, line["min_ptx_isa"], {"0": False, "1": True}[line["documented"]])
    assert len(table) == len(lines) - 1
    return table


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings that ptxas accepts, each with exactly its targets and version, and documented or not."""
    inventory = accepted()
    assert set(ROWS) == set(inventory)
    assert len(inventory) == 172
    pairs = 0
    for mnemonic, (targets, ptx_version, documented) in inventory.items():
        row = ROWS[mnemonic]
        assert row.mnemonic == mnemonic
        assert set(row.targets) == set(targets), mnemonic
        assert len(row.targets) == len(targets)
        assert row.ptx_version == ptx_version, mnemonic
        assert row.documented == documented, mnemonic
        pairs += len(targets)
    assert pairs == sum(len(row.targets) for row in ROWS.values())
    assert {target for row in inventory.values() for target in row.targets} == set(TARGETS)


def test_shape_and_formats_are_those_of_the_spelling() -> None:
    """m, n, k and the formats of d, a, b and c, read back from the mnemonic."""
    checked = 0
    for mnemonic, row in ROWS.items():
        words = mnemonic.replace(".xor.popc", "").replace(".and.popc", "").split(".")
        shape = next(word for word in words if word[0] == "m" and word[1].isdigit())
        assert shape == "m{}n{}k{}".format(*row.shape)
        assert [row.operands[name].format.name for name in "dabc"] == words[-4:]
        assert list(row.operands) == ["d", "a", "b", "c"]
        m, n, k = row.shape
        shapes = {"d": (m, n), "a": (m, k), "b": (k, n), "c": (m, n)}
        assert {name: operand.shape for name, operand in row.operands.items()} == shapes
        spelled = {modifier for modifier in MODIFIERS if f"{modifier}." in f"{mnemonic}."}
        assert set(row.modifiers.values()) == spelled, mnemonic
        checked += 1
    assert checked == 172


def test_bf16_m8n8k4_is_refused_with_the_reason() -> None:
    """ptxas accepts four spellings and emits no instruction for them: they are known, and refused on every target."""
    assert [mnemonic for mnemonic, row in ROWS.items() if row.dropped] == BF16_M8N8K4
    refused = 0
    for mnemonic in BF16_M8N8K4:
        for target in TARGETS:
            with pytest.raises(InstructionError, match=r"emits no instruction for it.*bf16 has m16n8k8 and m16n8k16"):
                tcsim.instruction(mnemonic, arch=target)
            assert mnemonic not in {row.mnemonic for row in catalog.on_arch(target, "mma.sync")}
            refused += 1
    assert refused == 4 * 28


@pytest.mark.parametrize("name", dict.fromkeys((*ARCHS, *TARGETS)))
def test_every_target_takes_exactly_its_instructions(name: str) -> None:
    """instruction() on an arch takes what any of its targets takes; on another target, what that one takes."""
    own = {target for target in TARGETS if TARGETS[target].arch == name} if name in ARCHS else {name}
    taken, refused = set(), 0
    for mnemonic, row in accepted().items():
        if mnemonic in BF16_M8N8K4:
            continue
        if own & set(row.targets):
            ins = tcsim.instruction(mnemonic, arch=name)
            assert ins.mnemonic == mnemonic
            assert set(ins.targets) == own & set(row.targets)
            assert ins.arch.name == TARGETS[ins.targets[0]].arch
            assert ins.lowering.steps
            assert ins.evidence.level in LEVELS
            taken.add(mnemonic)
        else:
            with pytest.raises(InstructionError) as caught:
                tcsim.instruction(mnemonic, arch=name)
            assert f'tcsim.instruction("{mnemonic}", arch="{name}"): ' in str(caught.value)
            refused += 1
    assert {row.mnemonic for row in catalog.on_arch(name, "mma.sync")} == taken
    assert len(taken) + refused == 168
    counts = {
        "sm_70": 12, "sm_72": 12, "sm_75": 31, "sm_80": 79, "sm_86": 79, "sm_87": 79, "sm_88": 79, "sm_89": 95,
        "sm_90": 110, "sm_90a": 110, "sm_100": 126, "sm_120": 168, "sm_121": 168, "sm_100f": 126, "sm_110a": 126,
        "sm_120a": 168,
    }  # fmt: skip
    assert len(taken) == counts.get(name, len(taken))


# ---- what wrong use is told


@pytest.mark.parametrize(
    ("mnemonic", "arch", "complaint"),
    [
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
            "sm_80",
            r"m16n8k32 with e4m3 needs sm_89 or later; sm_80 has f16, .*s4, u4, b1.*",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
            "sm_75",
            r"m16n8k32 with e4m3 x e5m2 needs sm_89 or later; sm_75 has f16, s8, u8, s4, u4, b1",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            "sm_75",
            r"m16n8k16 with f16 needs sm_80 or later; sm_75 has .* \(f16 in m8n8k4, m16n8k8\)",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",
            "sm_89",
            r"m16n8k8 with f64 needs sm_90 or later; sm_89 has .* \(f64 in m8n8k4\)",
        ),
        (
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
            "sm_70",
            r"m8n8k16 with s8 needs sm_75 or later; sm_70 has f16$",
        ),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32",
            "sm_100",
            r"m16n8k32 with e2m1 x e3m2 needs one of sm_120f, sm_120a, sm_121f, sm_121a; sm_100 has ",
        ),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32",
            "sm_90a",
            r"needs one of sm_120f, sm_120a, sm_121f, sm_121a; sm_90a has ",
        ),
    ],
)
def test_an_instruction_that_needs_another_target(mnemonic: str, arch: str, complaint: str) -> None:
    """The call, what the instruction needs, and what the arch has instead."""
    with pytest.raises(InstructionError, match=complaint) as caught:
        tcsim.instruction(mnemonic, arch=arch)
    assert str(caught.value).startswith(f'tcsim.instruction("{mnemonic}", arch="{arch}"): ')


def test_the_formats_listed_are_those_of_the_arch() -> None:
    """Of the families of a refused instruction, every format of A that the arch has is named, and no other."""
    with pytest.raises(InstructionError) as caught:
        tcsim.instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", arch="sm_80")
    listed = str(caught.value).split("sm_80 has ")[1].split(", ")
    assert sorted(listed) == sorted(["f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4", "b1"])


@pytest.mark.parametrize(
    ("mnemonic", "nearest"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.sync.m16n8k32.row.col.s32.s8.s8.s32", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        ("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f16", "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"),
    ],
)
def test_a_mnemonic_that_does_not_exist_lists_the_nearest(mnemonic: str, nearest: str) -> None:
    """Three spellings at most, the nearest first among them, each of which exists."""
    with pytest.raises(InstructionError, match="no such instruction; nearest: ") as caught:
        tcsim.instruction(mnemonic, arch="sm_90")
    offered = str(caught.value).split("nearest: ")[1].partition(";")[0].split(", ")
    assert nearest in offered
    assert 1 <= len(offered) <= 3
    assert set(offered) <= set(catalog.rows())


@pytest.mark.parametrize("name", ["sm_91", "sm_80a", "91", "sm_", "SM_91", "compute_91"])
def test_an_arch_that_does_not_exist(name: str) -> None:
    """The error lists the nearest and all; nothing is guessed from the number."""
    with pytest.raises(TargetError, match=rf"no arch or target '{name}'; nearest: .*; all: sm_70, .*sm_121a") as caught:
        tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch=name)
    assert isinstance(caught.value, TcsimError)
    assert isinstance(caught.value, ValueError)


def test_a_family_that_does_not_exist() -> None:
    """The registry knows its families by name."""
    assert catalog.family("mma.sync").name == "mma.sync"
    with pytest.raises(InstructionError, match=r"no family 'mma'; valid: mma\.sync"):
        catalog.family("mma")
    with pytest.raises(TargetError, match="no arch or target 'sm_91'"):
        list(catalog.on_arch("sm_91"))


def test_every_row_has_a_lowering_and_evidence_on_every_arch_that_runs_it() -> None:
    """The last step writes d in its own format; H200 results count as measured on sm_90 only."""
    checked = 0
    for name in ARCHS:
        for row in catalog.on_arch(name, "mma.sync"):
            ins = tcsim.instruction(row.mnemonic, arch=name)
            assert ins.lowering.steps[-1].result == "d"
            assert (ins.evidence.level == "measured") == (name == "sm_90"), (row.mnemonic, name)
            assert ins.evidence.source
            checked += 1
    assert checked == 2 * 12 + 31 + 4 * 79 + 95 + 110 + 4 * 126 + 2 * 168
