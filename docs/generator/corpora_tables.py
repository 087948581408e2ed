"""Tables of docs/corpora.md: the launches that a GPU recorded, tests/data/launches/corpora.xz; PTX of others, docs/measurements/third-party.json."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table

LAUNCHES = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "launches" / "corpora.xz"

THIRD_PARTY = LAUNCHES.parents[3] / "docs" / "measurements" / "third-party.json"


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


def third_party() -> str:
    """Of each project of others: kernels, how many were parsed and had code generated, how many launches ran, and came out as NumPy has it."""
    found = json.loads(THIRD_PARTY.read_text())["projects"]
    columns = ("kernels", "parsed", "generated", "launched", "as_expected")
    rows = [(name, own["what"], *(own.get(column, 0) for column in columns)) for name, own in found.items()]
    rows.append(("all", "", *(sum(own.get(column, 0) for own in found.values()) for column in columns)))
    heads = ("project", "what", "kernels", "parsed", "bound, code generated", "launches run", "as NumPy has it")
    return table(heads, rows, tuple(range(2, 7)))


def third_party_differences() -> str:
    """What does not come out, and why."""
    found = json.loads(THIRD_PARTY.read_text())["projects"]
    return "\n".join(f"- {name}: {reason}" for name, own in found.items() for reason in own.get("differs", ()))
