"""The tables of docs/numerics.md: constants of the dot-add units, and what each class of inputs runs on."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import tcsim
from conformance.stimuli import classes as inputs
from generator.markdown import arch_ranges, table
from generator.sections import label
from generator.step_text import steps_text
from tcsim import catalog
from tcsim.arithmetic.units import UNITS, Unit, unit_for
from tcsim.core.targets import ARCHS
from tcsim.isa.mma import sync as mma_sync
from tcsim.model.row import Row

CLASSES_OF_ARITHMETIC = {
    "quad_pair": "f16 m8n8k4",
    "half": "f16, bf16",
    "tf32": "tf32",
    "fp8": "e4m3, e5m2",
    "f6f4": "e3m2, e2m3, e2m1",
    "f64": "f64",
    "int8": "s8, u8",
    "int4": "s4, u4",
    "b1": "b1",
}
"""What the `arithmetic` of the rows of mma.sync stands for, for readers."""


def _users(unit: Unit) -> list[Any]:
    """The instructions of mma.sync that run on a unit."""
    return [
        tcsim.instruction(row.mnemonic, arch=arch.name)
        for arch in ARCHS.values()
        for row in catalog.on_arch(arch.name, mma_sync.NAME)
        if row.arithmetic in unit.inputs
        and unit_for(row.arithmetic, arch) is unit
        and mma_sync.lowering(row, arch).kind == "native"
    ]


def _floor(unit: Unit, users: list[Any], result: str) -> str:
    """The floor of a unit for a result format; in parentheses if no product is small enough to show it."""
    problems = [inputs.Problem(user, 1) for user in users if user.operands["d"].format.name == result]
    if not problems:
        return ""
    value = unit.floor_f16 if result == "f16" else unit.floor_f32
    return str(value) if any(map(inputs.floor_matters, problems)) else f"({value})"


def units() -> str:
    """The constants of the dot-add units that mma.sync uses."""
    head = ("arch", "inputs", "L", "F", "f32 result", "floor, f32 result", "floor, f16 result")
    rows = []
    for unit in UNITS:
        users = _users(unit)
        if not users:
            continue
        kinds = "; ".join(CLASSES_OF_ARITHMETIC[name] for name in unit.inputs if name in CLASSES_OF_ARITHMETIC)
        output = {"f32": "RZ, 24 bits", "e8m13": "RZ, 14 bits"}[unit.f32_output]
        archs = arch_ranges(dict.fromkeys(user.arch.name for user in users))
        floors = (_floor(unit, users, "f32"), _floor(unit, users, "f16"))
        rows.append((archs, kinds, unit.length or "K", unit.fraction_bits, output, *floors))
    return table(head, rows, (2, 3, 5, 6))


def lowerings() -> str:
    """What each class of inputs runs on, by arch: the shape with the largest K speaks for the others."""
    found: dict[tuple[str, str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, kinds in CLASSES_OF_ARITHMETIC.items():
        for arch in ARCHS.values():
            by_result: dict[str, Row] = {}
            for row in catalog.on_arch(arch.name, mma_sync.NAME):
                if row.arithmetic == name and not {"rounding", "saturate"} & set(row.modifiers):
                    by_result[label(row)] = row
            for result, row in by_result.items():
                lowering = mma_sync.lowering(row, arch)
                steps = steps_text(lowering.steps, "<br>")
                found[kinds, result, lowering.kind, steps]["m{}n{}k{}".format(*row.shape)].append(arch.name)
    rows = []
    for (kinds, result, kind, steps), shapes in found.items():
        archs = arch_ranges(arch for own in shapes.values() for arch in own)
        rows.append((kinds, result, archs, ", ".join(shapes), kind, steps))
    return table(("inputs", "result", "arch", "shape shown", "kind", "steps"), rows)
