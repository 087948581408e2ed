"""Lists of operands: one spelling may take several, each with targets of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperandForm:
    """One list of operands that a spelling takes."""

    name: str  # "", or what tells it from the others: "state", "sink+count", "hint", "size=4;srcsize"
    results: tuple[
        str, ...
    ]  # before the address (of mbarrier): "state", "_" (sink), "complete", "report", "value", "matches"
    operands: tuple[str, ...]  # after the addresses: "count", "tx_count", "parity", "source_size", "cache_policy", ...
    targets: tuple[str, ...]
    ptx_version: str
    documented: bool = True
