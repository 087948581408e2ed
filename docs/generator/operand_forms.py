"""The forms of the rows of a section: their operands as PTX writes them, where addresses lie and what immediates may be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from generator.markdown import code, table, target_text
from tcsim.core.errors import listing
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.row import Row

_Key = tuple[str, tuple[str, ...], str, str]


def forms_table(rows: Sequence[Row]) -> str:
    """What the rows of a section take, or nothing if that is nothing, or matrices in registers, which have a table of their own."""
    found: dict[_Key, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for form in (form for row in rows if not row.operands for form in row.forms if form.operands):
        numbers = tuple(filter(None, map(_numbers, form.operands)))
        spaces = found[_statement(form), numbers, target_text(form.targets), "yes" if form.documented else "no"]
        for operand in form.operands:
            if operand.space:
                spaces[operand.name][operand.space] = None
    cells = []
    for (statement, numbers, targets, known), spaces in found.items():
        names: dict[str, list[str]] = defaultdict(list)
        for name, own in spaces.items():
            names[" or ".join(own)].append(code(name))
        where = [f"{', '.join(together)}: {text}" for text, together in names.items()]
        cells.append((statement, "; ".join((*where, *numbers)), targets, known))
    return table(("operands", "addresses and immediates", "targets", "in the manual"), cells) if cells else ""


def _statement(form: Form) -> str:
    """The operands alone: `[address], value, [barrier]`."""
    text = form.statement("", {operand.name: operand.name for operand in form.operands if operand.kind == "immediate"})
    return code(text.strip(" ;").replace("%", ""))


def _numbers(operand: Operand) -> str:
    """What an immediate may be: "`count`: 24 to 256 in steps of 8"."""
    values = operand.values
    if not values:
        return ""
    step = values[1] - values[0] if len(values) > 2 else 0
    if step > 0 and values == tuple(range(values[0], values[-1] + 1, step)):
        return f"{code(operand.name)}: {values[0]} to {values[-1]}" + (f" in steps of {step}" if step > 1 else "")
    return f"{code(operand.name)}: {listing(map(str, values))}"
