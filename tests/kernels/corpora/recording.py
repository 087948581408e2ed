"""Launches that a GPU answered: what is recorded of each, and the file in which many of them share their arrays and PTX.

A launch is a dictionary of numbers, texts and arrays, as tcsim.launchers.recording describes it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels.corpora.pack import ROOT

GIVEN = ROOT / "tests" / "data" / "launches"  # 19 launches, each an .npz file
KEPT = GIVEN / "corpora.xz"  # those of the cases
WIDE = GIVEN / "wide.xz"  # those of the cases of many blocks, which are called wide
LAUNCHERS = GIVEN / "launchers.xz"  # those of `python -m tests.kernels.corpora.launchers`
Fields = dict[str, Any]


def kept_in(case: str) -> Path:
    """The file that keeps a case's launches."""
    return WIDE if "_wide_" in case else KEPT


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
