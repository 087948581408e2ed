"""The page of a family: every row with its targets, fragments, lowering and evidence."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from generator.markdown import NOTICE, arch_ranges, code, table, target_text
from generator.numerics_tables import CLASSES_OF_ARITHMETIC
from generator.operand_forms import forms_table
from generator.sections import common_label, kind_of, section_of, shapes_text
from generator.step_text import steps_text
from generator.surroundings import INTRODUCTIONS
from tcsim.core.evidence import Evidence
from tcsim.core.targets import ARCHS, TARGETS, Arch
from tcsim.isa.mma.scaled_multiply import ScaledRow
from tcsim.model.family import Family
from tcsim.model.row import Row

FAMILY_INTRODUCTION = """\
Every spelling of {name} in the registry: {count}; {dropped} of them assemble to nothing. A section holds the spellings
of {shape}, one class of inputs and the same layouts: first their targets, then who holds which element, then what
runs.

- *Layouts* are CuTe's `(thread, value)` layouts `shape:stride` ([fragments](../fragments.md)). The index is `m + M*k`
  for A, `n + N*k` for B, `m + M*n` for C and D.
- *Steps* name `a`, `b`, `c`, the result `d` and intermediate results. The dot-add is the fused step of
  [numerics](../numerics.md), F and floor are its constants; RNE, RZ, RM and RP are roundings.
- *Machine code* is what ptxas must emit for one instruction; the conformance suite checks it.
- *Evidence* is explained in [evidence](../evidence.md). Numbers in brackets are the sources:

"""


class _Sources:
    """Numbers the sources of evidence of a page in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def cite(self, evidence: Evidence, arch: Arch) -> str:
        """Level and source number; an inference says from what instead."""
        if evidence.level == "inferred":
            return f"inferred, {evidence.source.partition(':')[0].replace(arch.name, 'this arch')}"
        if str(evidence) not in self.texts:
            self.texts.append(str(evidence))
        return f"{evidence.level} [{self.texts.index(str(evidence)) + 1}]"


def _instruction_table(rows: Sequence[Row]) -> str:
    cells: list[tuple[str, ...]] = [
        (code(row.mnemonic), target_text(row.targets), row.ptx_version, "yes" if row.documented else "no",
         f"none: {row.dropped}" if row.dropped else "")
        for row in rows
    ]  # fmt: skip
    head = ["mnemonic", "targets", "PTX ISA", "in the manual", "effect"]
    if not any(row.dropped for row in rows):
        head, cells = head[:4], [cell[:4] for cell in cells]
    return table(head, cells)


def _fragment_table(rows: Sequence[Row]) -> str:
    formats: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        for name, operand in row.operands.items():
            size = f"{operand.count} x `{operand.type}`"
            accumulator = name in ("c", "d") and "c" in row.operands
            title = "C, D" if accumulator else name.upper() if len(name) == 1 else name
            shape = "{} x {}".format(*operand.shape)
            key = (title, shape, size, code(operand.layout))
            if operand.format.name not in formats[key]:
                formats[key].append(operand.format.name)
        if isinstance(row, ScaledRow):
            for scales in (row.scale_a, row.scale_b):
                key = (scales.name, "{} x {}".format(*scales.shape), "1 x `.b32`", code(scales.layout))
                if scales.format.name not in formats[key]:
                    formats[key].append(scales.format.name)
    cells = [
        (name, ", ".join(formats[key]), *rest) for key in sorted(formats, key=_by_extents) for name, *rest in [key]
    ]
    return table(("operand", "formats", "rows x columns", "registers of a lane", "layout"), cells)


def _by_extents(key: tuple[str, ...]) -> tuple[object, ...]:
    """Sorts by operand, then by rows, columns and registers as numbers."""
    name, extents, registers, layout = key
    return name, *map(int, extents.split(" x ")), int(registers.split(" x ")[0]), layout


def _lowering_table(family: Family[Any], rows: Sequence[Row], sources: _Sources) -> str:
    evidence: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    opcodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    members: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    real = [row for row in rows if not row.dropped]
    for row in real:
        for arch in ARCHS.values():
            if not any(TARGETS[target].arch == arch.name for target in row.targets):
                continue
            lowering = family.lowering(row, arch)
            steps = steps_text(lowering.steps, "<br>", family.without_steps)
            key = (str(lowering.kind), steps)
            members[key][row.mnemonic] = row
            if arch.name not in (archs := evidence[key][sources.cite(family.evidence(row, arch), arch)]):
                archs.append(arch.name)
            text = " + ".join(f"{times} {code(opcode)}" for opcode, times in lowering.opcodes) or lowering.note
            if text not in opcodes[key]:
                opcodes[key].append(text)
    cells = []
    for key, levels in evidence.items():
        archs_text = "<br>".join(f"{arch_ranges(names)}: {level}" for level, names in levels.items())
        machine = opcodes[key][0] + (f" and {len(opcodes[key]) - 1} like it" if len(opcodes[key]) > 1 else "")
        cells.append((common_label(list(members[key].values()), real), *key, machine, archs_text))
    return table(("rows", "kind", "steps", "machine code of one instruction", "arch: evidence"), cells)


LONG = 600
"""Rows of a page from which on spellings that are alike share a line."""


def _shown(rows: Sequence[Row]) -> list[Row]:
    """The rows; on a long page, of those that differ in order, scope and state space alone the first."""
    if len(rows) <= LONG:
        return list(rows)
    found: dict[str, Row] = {}
    for row in rows:
        name = row.mnemonic
        if "order" in row.modifiers:
            name = name.replace(row.modifiers["order"] + row.modifiers.get("space", ""), "", 1)
        elif any("order" in other.modifiers for other in rows[:8]):
            name = name.replace(row.modifiers.get("space", " "), "", 1)
        found.setdefault(name, row)
    return list(found.values())


def family_page(family: Family[Any]) -> str:
    """Every row of a family: targets, fragments, lowering, evidence."""
    sections: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in _shown(family.rows()):
        sections[section_of(row)].append(row)
    sources, body, titles = _Sources(), [], Counter[str]()
    for rows in sections.values():
        kinds = CLASSES_OF_ARITHMETIC.get(rows[0].arithmetic, rows[0].arithmetic)
        shape = shapes_text(rows)
        title = f"{shape}, {kinds}" if shape else kinds
        if kind := kind_of(rows[0]):
            title += f", {kind}"
        if rows[0].arithmetic == "quad_pair":
            title = title.replace(" m8n8k4", "")
            title += f", {'.'.join(re.findall(r'row|col', rows[0].mnemonic))}"
        titles[title] += 1
        body += [
            f"## {title}" + (f" ({titles[title]})" if titles[title] > 1 else ""),
            _instruction_table(rows),
            *([_fragment_table(rows)] if any(row.operands for row in rows) else []),
            *([forms] if (forms := forms_table(rows)) else []),
            _lowering_table(family, rows, sources),
        ]
    count: int | str = len(family.rows())
    if (shown := sum(len(rows) for rows in sections.values())) < len(family.rows()):
        count = f"{count}. Those that differ in order, scope and state space alone are one line: {shown} lines"
    dropped = sum(bool(row.dropped) for rows in sections.values() for row in rows)
    several = any(" to " in shapes_text(rows) for rows in sections.values())
    intro = INTRODUCTIONS.get(family.name, FAMILY_INTRODUCTION).format(
        name=family.name,
        count=count,
        dropped=dropped,
        shape="shapes that differ in N or count only" if several else "one shape",
    )
    cited = "\n".join(f"  {number}. {text}" for number, text in enumerate(sources.texts, 1))
    return "\n\n".join([f"# {family.name}", NOTICE, f"{intro}{cited}", *body]) + "\n"
