"""The table of dot-add units, and the tables by arch that the multiplying families choose from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from tcsim.arithmetic.dot import Datapath, dot_add
from tcsim.arithmetic.units import UNITS, unit_for
from tcsim.core.rules import NoRuleError, in_force
from tcsim.core.targets import ARCHS
from tcsim.numbers.formats import FORMATS


@dataclass(frozen=True)
class _Row:
    first: int
    name: str


def test_the_latest_row_is_in_force() -> None:
    """Of rows that begin together the first; of none, the relative's; of none at all, an error that says where they begin."""
    rows = (_Row(80, "old"), _Row(100, "special"), _Row(100, "new"))
    assert [in_force(rows, ARCHS[name]).name for name in ("sm_80", "sm_90", "sm_100", "sm_121")] == [
        "old", "old", "special", "special",
    ]  # fmt: skip
    assert in_force(rows, replace(ARCHS["sm_75"], name="sm_79", relative="sm_90")).name == "old"
    with pytest.raises(NoRuleError, match="no rule for sm_75; valid: sm_80 and later"):
        in_force(rows, ARCHS["sm_75"])


def test_no_class_of_inputs_has_two_units_from_one_arch() -> None:
    """And a later unit of a class differs from the earlier one."""
    compared = 0
    for name in {name for unit in UNITS for name in unit.inputs}:
        own = [unit for unit in UNITS if name in unit.inputs]
        assert [unit.first for unit in own] == sorted({unit.first for unit in own}), name
        for earlier, later in pairwise(own):
            assert replace(earlier, inputs=(), first=0) != replace(later, inputs=(), first=0), name
            compared += 1
    assert compared == 3  # half, tf32, fp8


def test_steps_cover_every_product_once() -> None:
    """In ascending order, from c to d."""
    for unit in UNITS:
        steps = unit.steps(64, "f32")
        assert [k for step in steps for k in step.k] == list(range(64))
        assert [(step.addend, step.result) for step in (steps[0], steps[-1])] == [
            ("c", "acc" if len(steps) > 1 else "d"), ("acc" if len(steps) > 1 else "c", "d"),
        ]  # fmt: skip
        assert {len(step.k) for step in steps} == {unit.length or 64}


def test_a_later_arch_has_the_units_of_its_relative() -> None:
    """An arch that the table does not name: nothing in it ends."""
    relative = ARCHS["sm_120"]
    later = replace(relative, name="sm_130", relative="sm_120")
    assert all(unit_for(name, later) is unit_for(name, relative) for unit in UNITS for name in unit.inputs)


def test_f16_overflow_is_infinite_though_the_mode_is_rz() -> None:
    """No unit truncates to f16; a datapath that does, as one of the suite's mutants, is rounded as f32 is."""
    unit = Datapath(25, -133, "f16", "rz")
    formats = FORMATS["f32"], FORMATS["f32"], FORMATS["f16"]
    one, none = np.float32([[[1.0]]]).view(np.uint32), np.zeros((1, 1, 1), np.uint16)
    for value, code in ((1.0, 0x3C00), (65535.0, 0x7BFF), (65536.0, 0x7C00), (-98304.0, 0xFC00), (131072.0, 0x7C00)):
        found = dot_add(np.float32([[[value]]]).view(np.uint32), one, none, formats, unit)
        assert found.item() == code, value
