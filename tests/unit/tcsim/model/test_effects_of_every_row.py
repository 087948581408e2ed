"""Every row of barriers and copies answers what it does, in every form that it takes, and keeps to the contract of effects."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tcsim import catalog
from tcsim.core.errors import NotModelledError
from tests.unit.tcsim.model.effects_cases import FAMILIES, check, instructions, operands_of, view_of

UNMODELLED: dict[str, int] = {
    "cp.async.bulk": 20, "cp.async.bulk.prefetch.tensor": 20, "cp.async.bulk.tensor": 150 + 94 + 48,
    "cp.reduce.async.bulk.tensor": 48 + 34 + 2, "tensormap": 3,
}  # fmt: skip
"""Forms whose effect nobody has documented: reports and overrides of sm_107, im2col-wide maps in memory, an ordinal that no map has."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_form_keeps_to_the_contract(family: str) -> None:
    """Accesses are within what is declared; the view and the operands stay as they are; the same question has the same answer."""
    counted = Counter[str]()
    for item, form in instructions():
        row: Any = item.row
        if row.family != family:
            continue
        view, operands = view_of(row, item.arch.name), operands_of(row, form)
        before = {name: array.copy() for name, array in operands.items()}
        for array in operands.values():
            array.flags.writeable = False
        try:
            effects = item.effects(form, operands, view)
        except NotModelledError as error:
            counted[str(error).partition("not modelled")[2][:40]] += 1
            continue
        outcomes = check(effects, form, view)
        assert len(outcomes) == 1 + len(effects.pending)
        again = check(item.effects(form, operands, view_of(row, item.arch.name)), form, view_of(row, item.arch.name))
        assert len(again) == len(outcomes)
        assert all(np.array_equal(before[name], operands[name]) for name in before)
        counted["answered"] += 1
    rows = [row for row in catalog.rows().values() if row.family == family]
    assert sum(counted.values()) == sum(len(row.forms) for row in rows) > 0
    assert counted["answered"] + UNMODELLED.get(family, 0) == sum(counted.values()), counted
