"""What a GPU answered to every input of the special functions."""

from __future__ import annotations

import json

from conformance.special.__main__ import RECORDED
from generator.markdown import code, table


def special_functions() -> str:
    """The ledger of the campaign, a line for each spelling; or that there is none yet."""
    if not RECORDED.exists():
        return "No GPU has been asked: there is no ledger."
    ledger = json.loads(RECORDED.read_text())
    rows = [
        (code(name), f"{found['inputs']:,}", f"{found['mismatches']:,}", found["seconds"])
        for name, found in ledger["spellings"].items()
    ]
    inputs = sum(found["inputs"] for found in ledger["spellings"].values())
    wrong = sum(found["mismatches"] for found in ledger["spellings"].values())
    control = ledger["control"]
    head = (
        f"{ledger['gpu']}, driver {ledger['driver']}, {ledger['compiler']}, {ledger['date']}: {inputs:,} inputs, {wrong:,} mismatches, "
        f"{ledger['seconds']} s. The control: {control['mismatches']:,} of {control['inputs']:,} inputs found wrong."
    )
    return f"{head}\n\n{table(('spelling', 'inputs', 'mismatches', 'seconds'), rows, (1, 2, 3))}"
