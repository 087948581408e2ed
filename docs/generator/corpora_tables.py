"""Tables of docs/corpora.md: the launches that a GPU recorded, corpora.xz and wide.xz of tests/data/launches; PTX of others, docs/measurements/third-party.json."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from generator.markdown import code, table

ROOT = Path(__file__).resolve().parent.parent.parent
LAUNCHES = tuple(ROOT / "tests" / "data" / "launches" / name for name in ("corpora.xz", "wide.xz"))
THIRD_PARTY = ROOT / "docs" / "measurements" / "third-party.json"


@cache
def _recorded() -> tuple[dict[str, Any], ...]:
    """The line of JSON that each file begins with."""
    return tuple(json.loads(lzma.decompress(path.read_bytes()).partition(b"\n")[0]) for path in LAUNCHES)


def launches() -> str:
    """Each case: the compiler, the targets that were recorded, grid and block, bytes of its buffers."""
    cases: dict[str, list[dict[str, Any]]] = {}
    sizes_of: dict[str, list[int]] = {}
    for file in _recorded():
        for own in file["launches"].values():
            cases.setdefault(own["case"], []).append(own)
            sizes_of[own["case"]] = file["sizes"]
    rows = []
    for case, recorded in sorted(cases.items()):
        own, sizes = recorded[0], sizes_of[case]
        size = sum(sizes[own[name]["blob"]] for name in own if name.endswith("_before"))
        grid, block = (" x ".join(str(side) for side in own[name] if side > 1) or "1" for name in ("grid", "block"))
        name = case.removesuffix(f"_{own['target']}")
        rows.append(
            (code(name), own["made_by"], ", ".join(item["target"] for item in recorded), grid, block, f"{size:,}")
        )
    return table(("kernel", "compiled by", "targets", "grid", "block", "bytes compared"), rows, (5,))


def total() -> str:
    """How many launches, of how many kernels, on which GPU."""
    index = [own for file in _recorded() for own in file["launches"].values()]
    gpus = sorted({f"{own['gpu']}, driver {own['driver']}, {own['assembler']}" for own in index})
    return f"{len(index)} launches of {len({own['case'] for own in index})} cases: {'; '.join(gpus)}."


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
