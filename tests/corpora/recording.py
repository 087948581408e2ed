"""A launch that a GPU answered: one .npz file, as tests/data/launches/README.md says."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpora.case import Array

ROOT = Path(__file__).parent.parent.parent
LAUNCHES = ROOT / "tests" / "data" / "launches"


def name_of(case: str, target: str) -> str:
    """The name of a case's recording for a target."""
    return case if case.endswith(target) else f"{case}_{target}"


def encoded(fields: Mapping[str, Any]) -> bytes:
    """The bytes of an .npz file; its members are compressed with LZMA. The same fields give the same bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_LZMA) as file:
        for name, value in fields.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(value), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), data.getvalue(), zipfile.ZIP_LZMA)
    return whole.getvalue()


def read(path: Path) -> dict[str, Array]:
    """The fields of a file."""
    with np.load(path) as file:
        return dict(file)


def buffers(fields: Mapping[str, Array]) -> list[tuple[int, Array, Array]]:
    """Address, bytes before and bytes after of each buffer; a buffer without `after` did not change."""
    found = []
    for number in range(sum(name.endswith("_address") for name in fields)):
        before = fields[f"buf{number}_before"].view(np.uint8).reshape(-1)
        after = fields.get(f"buf{number}_after", before).view(np.uint8).reshape(-1)
        found.append((int(fields[f"buf{number}_address"]), before, after))
    return found


def params(fields: Mapping[str, Array]) -> list[bytes]:
    """The bytes of each parameter."""
    return [fields[f"param{i}"].tobytes() for i in range(sum(name.startswith("param") for name in fields))]


def text(value: Array) -> str:
    """A text that is stored as bytes or as a NumPy string."""
    return value.tobytes().decode() if value.dtype == np.uint8 else str(value)
