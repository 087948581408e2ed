"""The rules of `tcsim.ptx`, as tables."""

from __future__ import annotations

from generator.markdown import table
from tcsim.ptx.hazards import rules

_PARTS = {
    "What ends a run": rules.FAULTS,
    "Ordinary accesses": rules.RACES,
    "Global memory, where it is asked for": rules.GRID,
    "Asynchronous copies": rules.COPIES,
    "mbarriers": rules.MBARRIERS,
    "wgmma": rules.WARPGROUPS,
    "Tensor Memory": rules.TENSOR_MEMORY,
    "Operands of products": rules.LAYOUTS,
    "Blocks and clusters": rules.BLOCKS,
    "Synchronisation that orders nothing": rules.PERFORMANCE,
    "What ptxas says": rules.ASSEMBLER,
}


def hazards() -> str:
    """Every rule: its name, severity, what it means, and the section that says so."""
    return "\n".join(
        f"## {title}\n\n"
        + table(
            ["name", "severity", "what it means", "section"],
            [[f"`{own.name}`", own.severity, own.sentence, f"{own.section} ({own.source})"] for own in part],
        )
        for title, part in _PARTS.items()
    )
