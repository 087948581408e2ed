"""How many outputs three engines agreed on."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.engines.three import Agreed, table

MEASURED = Path(__file__).parent.parent / "measurements" / "engines.json"


def engines() -> str:
    """By family, from what `python -m conformance.engines.three --json` wrote."""
    return table([Agreed(**line) for line in json.loads(MEASURED.read_text(encoding="utf-8"))])
