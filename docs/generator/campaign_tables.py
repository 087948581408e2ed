"""Tables of docs/conformance.md, from the ledger of a campaign on a GPU: docs/measurements/campaign.jsonl."""

from __future__ import annotations

from pathlib import Path

from conformance.campaign import ledger
from conformance.campaign.campaign import table as ledger_table
from generator.markdown import table
from tcsim import catalog

LEDGER = Path(__file__).resolve().parent.parent / "measurements" / "campaign.jsonl"


def campaign() -> str:
    """A row for each instruction."""
    return ledger_table(ledger.read(LEDGER))


def by_family() -> str:
    """A row for each family and format of A: instructions, outputs, mismatches, seconds."""
    found: dict[tuple[str, str, str], list[ledger.Line]] = {}
    for line in ledger.read(LEDGER):
        row = catalog.rows()[line.mnemonic]
        types = row.operands["a"].format.name
        kind = "fp8" if types in ("e4m3", "e5m2") else types
        found.setdefault((row.family, kind, row.operands["d"].format.name), []).append(line)
    rows = [
        (
            *key,
            str(len({line.mnemonic for line in lines})),
            *(f"{sum(getattr(line, name) for line in lines):,}" for name in ("outputs", "mismatches")),
            f"{sum(line.seconds for line in lines):.0f}",
        )
        for key, lines in found.items()
    ]
    return table(("family", "A", "D", "instructions", "outputs", "mismatches", "seconds"), rows, (3, 4, 5, 6))
