"""The scalar tables: exactly what ptxas takes, each with its targets; what is left out is listed with its reason."""

from __future__ import annotations

from collections import Counter

import pytest

from tcsim import catalog
from tcsim.isa.scalar.atomic import atomics
from tcsim.isa.scalar.catalog import scalar, scalars
from tcsim.isa.scalar.table import Scalar
from tests.support.scalar_inventory import INVENTORY, Spelling, spellings, taken

_DIRECTED_BF16 = "ptxas 13.5.37 assembles f16 instructions for it: what it computes has nothing to do with bf16"
LEFT_OUT = {
    **{
        f"vabsdiff{parts}.{out}.{a}.{b}{end}": "a difference may be wider than its part, and what becomes of it is not measured; no compiler emits it"
        for parts in (2, 4) for out in ("u32", "s32") for a in ("u32", "s32") for b in ("u32", "s32") for end in ("", ".sat", ".add")
        if out == "s32" or a != b
    },
    **{f"fma.{way}{end}.bf16{packed}": _DIRECTED_BF16 for way in ("rz", "rm", "rp") for end in ("", ".relu", ".oob", ".oob.relu") for packed in ("", "x2")},
}  # fmt: skip
"""What ptxas takes and no table has."""


def inventory() -> dict[Spelling, frozenset[str]]:
    """Targets by spelling, as committed."""
    lines = INVENTORY.read_text().splitlines()
    sets = [frozenset(line.partition(": ")[2].split()) for line in lines if line.startswith("# ") and line[2].isdigit()]
    found = {}
    for line in lines[lines.index("mnemonic,operands,targets") + 1 :]:
        name, types, number = line.split(",")
        found[Spelling(name.removesuffix("|"), tuple(types.split()), name.endswith("|"))] = sets[int(number)]
    assert len(found) > 5900
    return found


def key(item: Scalar) -> tuple[str, bool, int]:
    """Spelling, whether there are two results, how many sources."""
    name = item.mnemonic.removesuffix("|").removesuffix("/3")
    return name, len(item.results) == 2, len(item.sources)


def elsewhere(name: str) -> bool:
    """Whether a family of the catalog has the spelling (cvt), or the machine does (mov)."""
    return name.startswith("mov.") or catalog.row_of(name) is not None


def test_the_tables_are_the_inventory() -> None:
    """Every spelling with the targets that take it, and nothing else."""
    asked = {(one.mnemonic, one.second, len(one.types) - 1): takers for one, takers in inventory().items()}
    own = {key(item): item.targets for item in scalars().values()}
    missing = {name for name, _, _ in asked.keys() - own.keys() if not elsewhere(name)}
    assert missing == set(LEFT_OUT)
    assert own.keys() - asked.keys() == set()
    assert {name: asked[name] for name in own} == own
    assert len(own) == len(scalars()) > 5900


def test_types_of_operands() -> None:
    """Results and sources have the types that the assembler was asked with."""
    asked = {(one.mnemonic, one.second, len(one.types) - 1): one.types for one in inventory()}
    compared = 0
    for item in scalars().values():
        types = asked[key(item)]
        own = (item.results[0], *item.sources)
        for given, named in zip(types, own, strict=True):
            compared += 1
            if given != "imm" and {given[-2:], named[-2:]} != {"x4"}:
                assert given == named or given.lstrip("busf") == named.lstrip("busf"), (item.mnemonic, types, own)
    assert compared > 15_000


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100", "sm_120a"])
def test_the_inventory_is_what_the_assembler_says(target: str) -> None:
    """Asked anew."""
    assert taken(spellings(), target) == {one for one, takers in inventory().items() if target in takers}


def test_spellings_in_any_order() -> None:
    """Modifiers in another order find the same row."""
    for written, canonical in (
        ("add.ftz.rn.f32", "add.rn.ftz.f32"), ("min.xorsign.abs.NaN.f16x2", "min.NaN.xorsign.abs.f16x2"), ("setp.and.lt.f32", "setp.lt.and.f32"),
        ("cvt.sat.rzi.s32.f32", "cvt.rzi.sat.s32.f32"), ("fma.relu.rn.f16", "fma.rn.relu.f16"),
    ):  # fmt: skip
        found = scalar(written)
        assert found is not None
        assert found.mnemonic == canonical


def test_atomics_by_operation() -> None:
    """How many there are of each."""
    found = Counter(item.operation for item in atomics().values())
    assert found == {
        "add": 24,
        "min": 14,
        "max": 14,
        "and": 2,
        "or": 2,
        "xor": 2,
        "exch": 3,
        "cas": 4,
        "inc": 1,
        "dec": 1,
    }
