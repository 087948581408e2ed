"""The file format of recorded plans: a header in JSON, then one byte for each shape, compressed; its digest tells damage.

The bytes of a kind form a matrix: a row for each (n, k, batch), a column for each m; the byte is the number of a decision, ABSENT where nothing was recorded.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ABSENT = 255
VERSION = 1


@dataclass(frozen=True)
class Decision:
    """What the library chose: the family of its kernel and how K is cut."""

    kernel: str
    split: int  # 0: its order of summation is not modelled
    step: int  # chunks are multiples of it

    def chunk(self, k: int) -> int:
        """Elements of k in one chunk."""
        if self.split <= 1:
            return k
        steps = (k + self.step - 1) // self.step
        return (steps + self.split - 1) // self.split * self.step


@dataclass(frozen=True)
class Part:
    """The shapes of one kind."""

    rows: Mapping[tuple[int, int, int], int]
    columns: Mapping[int, int]
    choices: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Table:
    """All plans of one GPU."""

    profile: dict[str, Any]
    decisions: tuple[Decision, ...]
    parts: Mapping[str, Part]
    rules: Mapping[str, dict[str, Any]]

    def find(self, key: str, m: int, n: int, k: int, batch: int) -> Decision | None:
        """The decision for a shape; None where it was not recorded."""
        part = self.parts.get(key)
        if part is None:
            return None
        row, column = part.rows.get((n, k, batch)), part.columns.get(m)
        if row is None or column is None:
            return None
        choice = int(part.choices[row, column])
        return None if choice == ABSENT else self.decisions[choice]


def pack(header: dict[str, Any], matrices: list[npt.NDArray[np.uint8]]) -> bytes:
    """A file from a header (profile, decisions, rules, kinds with rows and columns) and the matrix of each kind."""
    body = b"".join(matrix.tobytes() for matrix in matrices)
    head = json.dumps(
        header | {"version": VERSION, "sha256": hashlib.sha256(body).hexdigest()}, separators=(",", ":"), sort_keys=True
    )
    return lzma.compress(head.encode() + b"\n" + body, preset=9 | lzma.PRESET_EXTREME)


def unpack(data: bytes) -> Table:
    """The table in a file's bytes.

    Raises ValueError for bytes that `pack` did not make.
    """
    try:
        raw = lzma.decompress(data)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None
    head, _, body = raw.partition(b"\n")
    header = json.loads(head)
    if header["version"] != VERSION:
        raise ValueError(f"version {header['version']} of the format; valid: {VERSION}")
    if hashlib.sha256(body).hexdigest() != header["sha256"]:
        raise ValueError("its digest does not fit its contents")
    parts, start = {}, 0
    for kind in header["kinds"]:
        rows, columns = [tuple(row) for row in kind["rows"]], kind["columns"]
        count = len(rows) * len(columns)
        choices = np.frombuffer(body, np.uint8, count, start).reshape(len(rows), len(columns))
        parts[kind["key"]] = Part(
            {row: i for i, row in enumerate(rows)}, {m: i for i, m in enumerate(columns)}, choices
        )
        start += count
    return Table(header["profile"], tuple(Decision(*item) for item in header["decisions"]), parts, header["rules"])


def read(name: str) -> Table:
    """The table in a file of this package."""
    return unpack(pkgutil.get_data(__package__, name) or b"")
