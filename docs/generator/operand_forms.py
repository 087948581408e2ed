"""The lists of operands that a spelling takes, where one spelling takes several."""

from __future__ import annotations

from collections.abc import Sequence

from generator.markdown import code, table, target_text
from tcsim.registry import Row


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
            space = row.modifiers.get("space", "")
            if (text := code(space) if space else "generic") not in spaces:
                spaces.append(text)
    if not found:
        return ""
    cells = [(*key[1:3], ", ".join(spaces), *key[3:]) for key, spaces in found.items()]
    return table(("before the address", "after it", "state spaces", "targets", "in the manual"), cells)
