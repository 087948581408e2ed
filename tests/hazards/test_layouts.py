"""Mistakes of layout: a share of those that are planted is named, every kernel without one is silent, and what is asked decides the cost."""

from __future__ import annotations

import pytest

from tests.hazards.layouts.__main__ import PAGE, TEXT, shown
from tests.hazards.layouts.table import FIELDS, KERNELS, MISTAKES, Kernel, Mistake
from tests.hazards.layouts.tensor_memory import Tensor
from tests.hazards.layouts.warps import Warp

SHARE = tuple(dict.fromkeys((*MISTAKES[::8], *{own.rule: own for own in MISTAKES}.values())))
"""And one of each rule. The others: `python -m tests.hazards.layouts`."""


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_that_is_right_is_silent(kernel: Kernel) -> None:
    """And is checked: with each mistake of the share it is not."""
    run = kernel.run()
    assert run.completed and not run.hazards, [str(own) for own in run.hazards]


@pytest.mark.parametrize("mistake", SHARE, ids=[f"{own.kernel}: {own.field} {own.value}" for own in SHARE])
def test_a_mistake_is_named_with_its_mend(mistake: Mistake) -> None:
    run = mistake.wrong.run()
    ends = run.completed or run.hazards[-1].name == "SMEM_OUT_OF_RANGE"
    assert ends and mistake.named(run), [(own.name, own.message) for own in run.hazards]


def test_the_page_has_every_mistake_and_no_other() -> None:
    """With the rule and the mend that the table asks for; `python -m tests.hazards.layouts --page` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert page.startswith(TEXT) and len(rows) == len(MISTAKES)
    for row, own in zip(rows, MISTAKES, strict=True):
        assert row.startswith(f"| {own.kernel} | {FIELDS[own.field]}: {shown(own.value)} | "), row
        assert f"| `{own.rule}` | " in row and own.mend in row, row


def test_every_rule_and_every_kind_of_product_has_a_mistake() -> None:
    rules = {
        "FRAGMENT_LAYOUT",
        "K_ADVANCE",
        "DESC_START",
        "DESC_MAJOR",
        "DESC_LBO_SBO",
        "DESC_UNITS",
        "IDESC_SHAPE",
        "OPERANDS_EXCHANGED",
        "SCALE_COLUMN",
        "SWIZZLE_PHASE_1024",
        "DESC_SWIZZLE_MODE",
        "TMEM_COLUMN",
    }
    assert {own.rule for own in MISTAKES} == rules and {own.rule for own in SHARE} == rules
    assert len(MISTAKES) >= 80 and {own.kernel.partition(",")[0] for own in SHARE} == {
        "mma.sync",
        "wgmma",
        "tcgen05.mma",
    }


def test_registers_are_followed_only_where_it_is_asked_for() -> None:
    """The same kernel, with and without: hazards of layout, or none."""
    wrong = Warp(trans_a=".trans")
    assert [own.name for own in wrong.run().hazards] == ["FRAGMENT_LAYOUT"] * 2 and not wrong.run(origins=False).hazards


def test_a_product_of_a_part_is_no_mistake_where_another_takes_the_rest() -> None:
    """Half of the lanes of an M of 64 are never written, and are loaded all the same."""
    run = Tensor(m=64, halves=True).run()
    assert run.completed and [own.name for own in run.hazards if own.severity == "error"] == []
    assert {own.name for own in run.hazards} == {"TMEM_LD_UNINITIALISED"}


def test_the_sentence_names_both_elements_and_the_mend() -> None:
    """And both lines: the product, and the load that would have to change."""
    run = Warp(pitch_a=96).run()
    lines = run.text.splitlines()
    found = next(own for own in run.hazards if own.name == "FRAGMENT_LAYOUT")
    assert "reads A[1, 0] from the bytes that were written as A[1, 8]" in found.message
    assert "right with 80 bytes from row to row instead of 96" in found.message
    assert found.line and lines[found.line - 1].startswith("mma.sync") and found.severity == "error"
    assert found.other_line and lines[found.other_line - 1].startswith("ldmatrix")
