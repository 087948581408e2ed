"""Launches that a GPU answered: what is recorded of each, and the file in which many of them share their arrays and PTX.

A launch is a dictionary of numbers, texts and arrays: `ptx`, `entry`, `before_entry`, `grid`, `block`, `cluster`, `smem`, `output`,
`param0` ... (bytes), and for each buffer `bufN_name`, `bufN_address`, `bufN_before` and, if it changed, `bufN_after` (bytes).
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpora.case import Array
from tests.corpora.pack import ROOT

GIVEN = ROOT / "tests" / "data" / "launches"  # 19 launches, each an .npz file
KEPT = GIVEN / "corpora.xz"  # those of the cases
Fields = dict[str, Any]


def name_of(case: str, target: str) -> str:
    """The name of a case's recording for a target."""
    return case if case.endswith(target) else f"{case}_{target}"


def write(path: Path, launches: Mapping[str, Mapping[str, Any]]) -> None:
    """Write launches: a line of JSON, then every distinct array once, all compressed together. The same launches give the same bytes."""
    blobs: dict[bytes, int] = {}

    def stored(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"blob": blobs.setdefault(value.tobytes(), len(blobs))}
        return list(value) if isinstance(value, tuple) else value

    index = {name: {field: stored(value) for field, value in own.items()} for name, own in sorted(launches.items())}
    head = json.dumps({"launches": index, "sizes": [len(data) for data in blobs]}).encode()
    path.write_bytes(lzma.compress(b"".join([head, b"\n", *blobs]), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path = KEPT) -> dict[str, Fields]:
    """The launches of a file; none if there is no such file."""
    if not path.is_file():
        return {}
    head, _, body = lzma.decompress(path.read_bytes()).partition(b"\n")
    index = json.loads(head)
    ends = np.cumsum([0, *index["sizes"]])
    blobs = [np.frombuffer(body, np.uint8, size, start) for start, size in zip(ends, index["sizes"], strict=False)]

    def loaded(value: Any) -> Any:
        return blobs[value["blob"]] if isinstance(value, dict) else value

    return {name: {field: loaded(value) for field, value in own.items()} for name, own in index["launches"].items()}


def read_given(path: Path) -> Fields:
    """One of the given launches, with the fields of the others."""
    with np.load(path) as file:
        found: Fields = dict(file)
    found |= {
        "ptx": np.frombuffer(str(found["ptx"]).encode(), np.uint8),
        "entry": str(found["entry"]),
        "smem": int(found["smem"]),
    }
    return found


def buffers(fields: Mapping[str, Any]) -> list[tuple[int, Array, Array]]:
    """Address, bytes before and bytes after of each buffer."""
    found = []
    for number in range(sum(name.endswith("_address") for name in fields)):
        before = fields[f"buf{number}_before"].view(np.uint8).reshape(-1)
        after = fields.get(f"buf{number}_after", before).view(np.uint8).reshape(-1)
        found.append((int(fields[f"buf{number}_address"]), before, after))
    return found


def params(fields: Mapping[str, Any]) -> list[bytes]:
    """The bytes of each parameter."""
    return [fields[f"param{i}"].tobytes() for i in range(sum(name.startswith("param") for name in fields))]
