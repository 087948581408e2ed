"""What a GPU answered to every input of the conversions."""

from __future__ import annotations

import json
from collections import Counter

from conformance.conversions.__main__ import RECORDED
from conformance.conversions.source import chosen, conversion_of
from generator.markdown import table


def conversions() -> str:
    """The ledger of the campaign, a line for each pair of formats; or that there is none yet."""
    if not RECORDED.exists():
        return "No GPU has been asked: there is no ledger."
    ledger = json.loads(RECORDED.read_text())
    rows: dict[tuple[str, str], Counter[str]] = {}
    for mnemonic, answers in ledger["conversions"].items():
        own = conversion_of(chosen()[mnemonic])
        counts = rows.setdefault((own.source.name, own.target.name), Counter())
        counts["conversions"] += 1
        for found in answers.values():
            counts.update(inputs=found["inputs"], mismatches=found["mismatches"])
    every = sum(rows.values(), Counter())
    control = ledger["control"]
    head = (
        f"{ledger['gpu']}, driver {ledger['driver']}, {ledger['compiler']}, {ledger['date']}: {every['conversions']} conversions, "
        f"{every['inputs']:,} inputs, {every['mismatches']:,} mismatches, {ledger['seconds']} s. The control: {control['mismatches']:,} of "
        f"{control['inputs']:,} inputs found wrong, as predicted."
    )
    lines = [
        (*formats, counts["conversions"], f"{counts['inputs']:,}", f"{counts['mismatches']:,}")
        for formats, counts in rows.items()
    ]
    return f"{head}\n\n{table(('from', 'to', 'conversions', 'inputs', 'mismatches'), lines, (2, 3, 4))}"
