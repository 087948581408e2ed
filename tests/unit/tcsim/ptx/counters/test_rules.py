"""Every rule against launches of one instruction that an H200 counted under Nsight Compute, and what the rules say of how often they were right."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.counters import boxes, comparison
from conformance.counters.boxes import cases
from tcsim.layouts.coalescing import bulk_pieces
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.rules import EVIDENCE, OPERATIONS
from tests.support.extent import part as share

RECORDED = Path(__file__).parents[4] / "data" / "counters" / "patterns.json.xz"
COLUMNS = {
    rules.LOAD_WAVES: "op_ld", rules.STORE_WAVES: "op_st", rules.ATOM_WAVES: "op_atom", rules.COPY_WAVES: "copies",
    rules.L2_REQUESTS: "l2_requests", rules.L2_SECTORS: "l2_sectors", rules.DATA: "data",
}  # fmt: skip


def column(counter: str) -> str | None:
    """The column of the recording that has a counter."""
    for beginning, name in ((rules.REQUESTS, "requests"), (rules.SECTORS, "sectors"), ("l1tex__t_output", "tags")):
        if counter.startswith(beginning):
            return name
    return COLUMNS.get(counter)


@cache
def counted() -> dict[str, dict[str, tuple[int, int]]]:
    """By operation and kind: launches in which the rule gave the counter, and those that it was compared with: of 1,052 other kernels, and of conformance's."""
    data = json.loads(lzma.decompress(RECORDED.read_bytes()))
    right: Counter[tuple[str, str]] = Counter()
    every: Counter[tuple[str, str]] = Counter()
    for operation, width, sides, values in data["launches"]:
        given = dict(zip(data["counters"], values, strict=True))
        rows = [np.array([[-1 if place < 0 else place * width for place in own]]) for own in sides]
        for kind, rule in {rule.kind: rule for rule in OPERATIONS[operation].rules if column(rule.counter)}.items():
            if (value := given[column(rule.counter)]) is not None:
                every[operation, kind] += 1
                right[operation, kind] += int(rule.count(*rows, width)[0]) == value
    for operation, starts, size, shared, *values in data["copies of TMA"]:
        pieces = bulk_pieces(np.array(starts), np.full(len(starts), size), shared + size * np.arange(len(starts)))
        for rule, value in zip(OPERATIONS[operation].rules, values, strict=True):
            every[operation, rule.kind] += 1
            right[operation, rule.kind] += int(rule.count(*pieces).sum()) == value
    kinds = {(own.name, rule.counter): rule.kind for own in OPERATIONS.values() for rule in own.rules}
    for (operation, counter), own in comparison.evidence(comparison.recorded()).items():
        right[operation, kinds[operation, counter]] += own[0]
        every[operation, kinds[operation, counter]] += own[1]
    for own, hardware in boxes.recorded()[1]:
        given = (own.map, boxes.BASE + own.offset, np.array(own.at), 0, own.blocks)
        for operation in ("bulk.tile", "bulk.multicast" if own.blocks > 1 else "bulk.edge")[
            : 2 - (own.whole and own.blocks == 1)
        ]:
            for rule in OPERATIONS[operation].rules:
                every[operation, rule.kind] += 1
                right[operation, rule.kind] += int(rule.count(*given)[0]) == hardware[rule.counter]
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for (operation, kind), total in every.items():
        found.setdefault(operation, {})[kind] = right[operation, kind], total
    return found


def test_the_rules_say_how_often_they_were_right():
    assert {operation: dict(kinds) for operation, kinds in EVIDENCE.items()} == counted()


def test_what_is_exact_was_right_in_each_of_many_launches():
    for operation, kinds in counted().items():
        for kind, (right, total) in kinds.items():
            states = {rule.status for rule in OPERATIONS[operation].rules if rule.kind == kind}
            assert states == {"exact" if right == total else "approximate"}, (operation, kind)
            assert total >= 4, (operation, kind)
    assert sum(total for kinds in counted().values() for _, total in kinds.values()) > 3000


def test_the_recorded_launches_differ_only_where_the_model_does_not_call_itself_exact():
    launches = comparison.recorded()
    assert {comparison.read(path)[0]["gpu"] for path in comparison.RECORDED} == {"NVIDIA H200"} and len(launches) > 800
    assert not [own for own in comparison.compared(launches) if own.exact]


def test_boxes_that_are_launched_count_what_the_gpu_did():
    launches = boxes.recorded()[1]
    chosen = share(launches, 80)
    assert len(launches) == 640 and {own.blocks for own, _ in chosen} == {1, 2, 4}
    assert 10 < sum(own.whole for own, _ in chosen) < 70
    assert boxes.compared(chosen) == []


def test_a_recording_of_other_boxes_is_refused(monkeypatch):
    monkeypatch.setattr(boxes, "cases", lambda seed: cases(seed + 1))
    with pytest.raises(ValueError, match="its boxes are not those that are drawn of seed 1"):
        boxes.recorded()
