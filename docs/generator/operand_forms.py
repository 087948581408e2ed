"""The lists of operands that a spelling takes, where one spelling takes several."""

from __future__ import annotations

from collections.abc import Sequence

from generator.markdown import code, table, target_text
from tcsim.model.row import Row


def forms_table(rows: Sequence[Row]) -> str:
    """What the rows of a section take before and after the address, or nothing if their facts do not tell."""
    found: dict[tuple[object, ...], list[str]] = {}
    for row in rows:
        for form in getattr(row.facts, "forms", ()):
            if not hasattr(form, "results"):
                continue  # tcgen05.mma: its operands are explained in its guide
            results = ", ".join(code(name) for name in form.results)
            operands = ", ".join(code(name) for name in form.operands)
            known = "yes" if form.documented else "no"
            spaces = found.setdefault((form.name, results, operands, target_text(form.targets), known), [])
            if (text := _space(row)) not in spaces:
                spaces.append(text)
    if not found:
        return ""
    cells = list(dict.fromkeys((*key[1:3], ", ".join(spaces), *key[3:]) for key, spaces in found.items()))
    if any(cell[2] for cell in cells):
        return table(("before the address", "after it", "state spaces", "targets", "in the manual"), cells)
    shown = [(*cell[:2], *cell[3:]) for cell in cells]
    return table(("results", "operands", "targets", "in the manual"), shown) if any(any(c[:2]) for c in shown) else ""


def _space(row: Row) -> str:
    """The state space of the address that a row writes to or acts on, or nothing if it has none."""
    space = row.modifiers.get("space", "") or getattr(row.facts, "destination", "")
    if space:
        return code(space)
    addressed = hasattr(row.facts, "space") or getattr(row.facts, "operation", "") == "arrive"
    return "generic" if addressed else ""
