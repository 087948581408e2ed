"""A recording as it is kept: for each case the digest of its output, small outputs themselves, the kernels of attention, what torch refused."""

from __future__ import annotations

import json
import lzma
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.aten.cases import Case, cases
from tcsim.core.files import write_file

NAN = {np.dtype(np.uint32): (0x7F800000, 0x7FFFFFFF), np.dtype(np.uint16): (0x7FFF, 0x7FFF)}
MOST_BYTES = 64  # outputs up to this size are kept whole


def canonical(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The codes of an array, every NaN the one that arithmetic on a GPU gives; integers as they are."""
    array = np.array(array, order="C", ndmin=1)
    if array.dtype.kind in "ib":
        return array
    codes = array.view({4: np.uint32, 2: np.uint16}[array.itemsize])
    return np.where(np.isnan(array.astype(np.float32)), codes.dtype.type(NAN[codes.dtype][1]), codes)


def digest(array: npt.NDArray[Any]) -> str:
    """96 bits of an output's hash, in hexadecimal digits; NaNs are all alike."""
    return blake2b(canonical(array).tobytes(), digest_size=16).hexdigest()[:24]


def read(path: str | Path) -> dict[str, dict[str, Any]]:
    """The entries of a recording by the names of their cases: digest, raw, unstable, refused, kernels."""
    recorded: dict[str, dict[str, Any]] = json.loads(lzma.decompress(Path(path).read_bytes()))["entries"]
    return recorded


def write(path: str | Path, about: dict[str, Any], entries: dict[str, dict[str, Any]], kernels: list[str]) -> None:
    """Writes a recording: entries as `read` gives them; the kernels' names are numbered."""
    text = json.dumps({"about": about, "kernels": kernels, "entries": entries}, separators=(",", ":"))
    write_file(Path(path), lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def recorded_cases(path: str | Path, group: str | None = None) -> list[tuple[Case, dict[str, Any]]]:
    """The cases of a recording that have an output which two runs agreed on."""
    entries = read(path)
    return [
        (c, entries[c.id])
        for c in cases(group)
        if "digest" in entries.get(c.id, {}) and not entries[c.id].get("unstable")
    ]
