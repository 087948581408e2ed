"""Modifiers in other orders: what ptxas takes, tcsim takes for the same instruction, and what the one refuses, the other refuses."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

import tcsim
from hwkernels.device.sass import code_sha256
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of
from hwkernels.probes.probe import emit, kernel_name
from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.core.targets import TARGETS
from tcsim.isa.scalar.catalog import scalars
from tcsim.model.row import Row
from tcsim.model.spelling import STEMS, spelling
from tests.unit.tcsim.model.test_near_misses import complaints, families, forms_of, kind_of

ROWS = 8  # of each family, as unlike each other as there are
ORDERS = 10  # of each row: half of them keep the stem where it is

# What CUTLASS, CuTe DSL, Triton and NVCC's libraries emit: another order than the manual's.
EMITTED = {
    "ldmatrix.sync.aligned.x2.m8n8.shared.b16": "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
    "ldmatrix.sync.aligned.x4.m8n8.shared.b16": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix.sync.aligned.x2.m8n8.shared.b16": "stmatrix.sync.aligned.m8n8.x2.shared.b16",
    "stmatrix.sync.aligned.x4.trans.m8n8.shared.b16": "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0":
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32.satfinite":
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.satfinite.s32.s4.s4.s32",
    "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn": "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64",
    "tcgen05.cp.cta_group::1.warpx4.32x128b": "tcgen05.cp.cta_group::1.32x128b.warpx4",
    "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint":
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint",
    "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint":
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2.L2::cache_hint",
    "cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.mbarrier::complete_tx::bytes":
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes",
    "cp.async.bulk.tensor.2d.tile::scatter4.global.shared::cta.bulk_group":
        "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group",
}  # fmt: skip


@cache
def sample(family: str) -> tuple[Row, ...]:
    """Rows of a family in whose mnemonics words of different kinds follow each other."""
    rows = list(families()[family])
    random.Random(f"rows of {family}").shuffle(rows)
    unlike = {tuple(map(kind_of, row.mnemonic.split("."))): row for row in rows}
    return tuple(unlike.values())[:ROWS]


def orders(row: Row) -> list[str]:
    """A row's mnemonic with its words in other orders, the first one in its place."""
    head, *words = row.mnemonic.split(".")
    kept = len(spelling(row.mnemonic).stem) - 1
    choose, found = random.Random(row.mnemonic), {row.mnemonic: None}
    for turn in range(20 * ORDERS):
        first = kept if turn % 2 else 0
        moved = words[first:]
        if turn % 4 < 2:  # all change places, else two
            choose.shuffle(moved)
        elif len(moved) > 1:
            i, j = choose.sample(range(len(moved)), 2)
            moved[i], moved[j] = moved[j], moved[i]
        found.setdefault(".".join((head, *words[:first], *moved)))
    return list(found)[1 : 1 + ORDERS]


@cache
def asked(target: str) -> tuple[tuple[Row, str], ...]:
    """The orders that are tried for a target: each row for the last of its targets."""
    rows = (row for name in families() for row in sample(name) if row.targets[-1] == target)
    return tuple((row, order) for row in rows for order in orders(row))


def taken(order: str, target: str) -> str | None:
    """What tcsim takes a spelling for, if the target has it."""
    row = catalog.row_of(order)
    return row.mnemonic if row is not None and target in row.targets else None


@pytest.mark.parametrize("target", [target for target in TARGETS if asked(target)])
def test_the_assembler_takes_the_same_orders(target: str) -> None:
    """An order that is another instruction of the registry is tried with that one's operands."""
    lines = []
    for row, order in asked(target):
        other = catalog.row_of(order) or row
        lines.append(next(forms_of(other if target in other.targets else row)).line(order))
    refused = complaints(target, lines)
    differ = {
        order: (taken(order, target), refused.get(place, ["ptxas takes it"]))
        for place, (_, order) in enumerate(asked(target))
        if (place in refused) == (taken(order, target) is not None)
    }
    for order in [order for order, (name, _) in differ.items() if name is None]:  # a spelling outside the registry?
        if re.match(r"cvt\.", order) and not re.search(r"tf32|x[24]\b|pack", order):
            del differ[order]
    assert differ == {}


def test_orders_of_both_kinds_are_tried() -> None:
    """In all families of more than one modifier, and some of each are taken and refused."""
    verdicts: dict[str, set[bool]] = {}
    for target in TARGETS:
        for row, order in asked(target):
            verdicts.setdefault(row.family, set()).add(taken(order, target) is not None)
    alone = {name for name, rows in families().items() if all(row.mnemonic.count(".") < 2 for row in rows)}
    assert alone == set(families()) - set(verdicts) == {"elect.sync", "griddepcontrol", "tcgen05.fence"}
    both = [name for name, found in verdicts.items() if found == {True, False}]
    assert len(both) > 30, verdicts


@pytest.mark.parametrize("family", families())
def test_another_order_is_the_same_machine_code(family: str) -> None:
    """Of one row of each family: the probe with the modifiers in another order assembles to the same code."""
    for row in sample(family):
        other = [order for order in orders(row) if taken(order, row.targets[-1]) == row.mnemonic]
        if other:
            break
    else:
        assert all(len(spelling(row.mnemonic).others) < 2 for row in sample(family))
        return
    target, variant = row.targets[-1], body_of(row).variants(row)[0]
    text = emit(row, target)
    texts = [text, re.sub(rf" {re.escape(row.mnemonic)}(?=[ ;])", f" {other[0]}", text)]
    assert texts[0] != texts[1]
    codes = [code_sha256(assemble(one, target).cubin, f".text.{kernel_name(row, variant)}") for one in texts]
    assert codes[0] == codes[1]


@pytest.mark.parametrize("order", EMITTED)
def test_what_compilers_emit_is_found(order: str) -> None:
    """By the spelling that they use; `.mnemonic` is the manual's."""
    row = catalog.rows()[EMITTED[order]]
    assert tcsim.instruction(order, arch=row.targets[-1]).mnemonic == row.mnemonic


def test_no_two_rows_are_read_alike() -> None:
    """The order that tells two instructions apart is kept."""
    rows = catalog.rows()
    assert len({spelling(mnemonic) for mnemonic in rows}) == len(rows) > 6000


def test_a_family_says_with_which_words_its_mnemonics_begin() -> None:
    """A mnemonic is looked for in the families that have its first word, and in no others."""
    begun = {family.name: {row.mnemonic.partition(".")[0] for row in family.rows()} for family in catalog.families()}
    said = {family.name: set(family.words) for family in catalog.families()}
    assert {name: words | {name.partition(".")[0]} for name, words in begun.items()} == said


def test_every_word_of_a_stem_is_used() -> None:
    """By a row or a scalar instruction; a stem is never the whole list of a family's words."""
    stems = {spelling(mnemonic).stem for mnemonic in (*catalog.rows(), *scalars())}
    assert {(stem[0], word) for stem in stems for word in stem[1:]} == {
        (head, word) for head, words in STEMS.items() for word in words
    }


@pytest.mark.parametrize(
    "order",
    [
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",  # layouts
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f32.f32",  # types
        "cp.async.bulk.shared::cta.global.bulk_group",  # from where to where
        "mma_async.wgmma.sync.aligned.m64n8k16.f32.f16.f16",  # the stem
        "wgmma.sync.mma_async.aligned.m64n8k16.f32.f16.f16",
        "ldmatrix.sync.sync.aligned.m8n8.x4.shared.b16",  # ptxas does not mind a modifier that is there twice; we do
    ],
)
def test_other_orders_are_errors(order: str) -> None:
    """Where the order has a meaning, or the assembler refuses it."""
    with pytest.raises(InstructionError, match="no such instruction"):
        tcsim.instruction(order, arch="sm_90a")
