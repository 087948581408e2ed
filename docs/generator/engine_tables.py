"""How many outputs three engines agreed on."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from conformance.engines.three import Agreed, table

MEASURED = Path(__file__).parent.parent / "measurements" / "engines.json.xz"


def engines() -> str:
    """By family, from what `python -m conformance.engines.three --json` wrote, compressed with xz."""
    return table([Agreed(**line) for line in json.loads(lzma.decompress(MEASURED.read_bytes()))])
