"""`python -m tests.hazards.layouts`: every mistake of layout, and every kernel without one. --page: write docs/reference/tables/layout-mistakes.md.

The exit status says whether a mistake is not named, or a right kernel is.
"""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

from tcsim.ptx import Hazard
from tests.hazards.layouts.table import FIELDS, KERNELS, MISTAKES, Mistake

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "tables" / "layout-mistakes.md"
TEXT = """<!-- Written by `python -m tests.hazards.layouts --page`. Do not edit. -->

# Mistakes of layout

Planted mistakes in how operands are stored and read, and how [the check](../../hazards.md#wrong-descriptors-and-layouts) names each.

## One of each
"""
SHOWN = {
    "A tile that TMA wrote, wgmma": ("wgmma, TMA", "stride_a"), "A tile that threads stored, wgmma": ("wgmma, st.shared", "store_phase"),
    "ldmatrix": ("mma.sync, cp.async, swizzled", "phase_a"), "tcgen05.mma": ("tcgen05.mma, TMA", "major_b"),
    "A step along k": ("tcgen05.mma, TMA", "advance_a"), "A in Tensor Memory": ("tcgen05.mma, A in Tensor Memory", "column"),
    "A tile off the pattern": ("wgmma, st.shared", "begin"), "A and B exchanged": ("wgmma, TMA", "exchanged"), "M and N": ("tcgen05.mma, TMA", "n"),
    "Scale factors": ("tcgen05.mma, scale factors", "scale_a"),
}  # fmt: skip
"""Whose sentences the page has."""


def hazard(own: Mistake) -> Hazard | None:
    """What names a mistake, if anything does."""
    found = (item for item in own.wrong.run().hazards if item.name == own.rule)
    return next((item for item in found if own.mend in item.detail.get("mend", "")), None)


def shown(value: object) -> str:
    """A value as the page has it."""
    return "as stored" if value is None else str(value) or "none"


def written(named: dict[Mistake, Hazard | None]) -> str:
    """The sentences and the table."""
    lines = []
    for title, key in SHOWN.items():
        own = next(own for own in named if (own.kernel, own.field) == key)
        found = named[own]
        said = textwrap.fill(found.message if found else "", 150, break_on_hyphens=False)
        lines += [f"{title} ({FIELDS[own.field]}: {own.value} for {own.right}):\n", f"```text\n{said}\n```\n"]
    lines += [
        f"## All {len(named)}\n",
        "| kernel | mistake | instead of | named | with |\n| --- | --- | --- | --- | --- |",
    ]
    for own, found in named.items():
        said = f"`{found.name}` | {found.detail['mend']}" if found else "not named | "
        lines.append(f"| {own.kernel} | {FIELDS[own.field]}: {shown(own.value)} | {shown(own.right)} | {said} |")
    silent = f"\nThe {len(KERNELS)} kernels without a mistake are silent."
    return "\n".join([*lines, silent]) + "\n"


def main(arguments: list[str]) -> int:
    """Run all."""
    start = time.process_time()
    named = {own: hazard(own) for own in MISTAKES}
    loud = {name: own.run().hazards for name, own in KERNELS.items()}
    for own, found in named.items():
        if found is None:
            print(f"not named: {own.kernel}: {own.field}={own.value!r}")
    for name, hazards in loud.items():
        if hazards:
            print(f"{name} is right, and has {[str(own) for own in hazards[:2]]}")
    if "--page" in arguments:
        PAGE.write_text(f"{TEXT}\n{written(named)}")
    lost, wrong = sum(own is None for own in named.values()), sum(map(bool, loud.values()))
    print(
        f"{len(named)} mistakes, {lost} not named; {len(loud)} kernels without one, {wrong} not silent; {time.process_time() - start:.0f} s of CPU"
    )
    return int(lost > 0 or wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
