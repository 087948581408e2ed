"""Tables of docs/corpora.md, from the launches that a GPU recorded: tests/data/launches/corpora.xz."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table

LAUNCHES = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "launches" / "corpora.xz"


@cache
def _recorded() -> dict[str, Any]:
    """The line of JSON that the file begins with."""
    return json.loads(lzma.decompress(LAUNCHES.read_bytes()).partition(b"\n")[0])


def launches() -> str:
    """Each case: the compiler, the targets that were recorded, grid and block, bytes of its buffers."""
    index, sizes = _recorded()["launches"], _recorded()["sizes"]
    cases: dict[str, list[dict[str, Any]]] = {}
    for own in index.values():
        cases.setdefault(own["case"], []).append(own)
    rows = []
    for case, recorded in sorted(cases.items()):
        own = recorded[0]
        size = sum(sizes[own[name]["blob"]] for name in own if name.endswith("_before"))
        grid, block = (" x ".join(str(side) for side in own[name] if side > 1) or "1" for name in ("grid", "block"))
        name = case.removesuffix(f"_{own['target']}")
        rows.append(
            (code(name), own["made_by"], ", ".join(item["target"] for item in recorded), grid, block, f"{size:,}")
        )
    return table(("kernel", "compiled by", "targets", "grid", "block", "bytes compared"), rows, (5,))


def total() -> str:
    """How many launches, of how many kernels, on which GPU."""
    index = _recorded()["launches"]
    gpus = sorted({f"{own['gpu']}, driver {own['driver']}, {own['assembler']}" for own in index.values()})
    return f"{len(index)} launches of {len({own['case'] for own in index.values()})} cases: {'; '.join(gpus)}."
