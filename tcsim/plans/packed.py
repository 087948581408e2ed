"""The file format of recorded plans: a header in JSON, then a part for each kind, each compressed apart; a digest tells damage.

A part is a matrix of bytes: a row for each (n, k, batch), a column for each m; the byte is the number of a decision, ABSENT where nothing was recorded.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

ABSENT = 255
VERSION = 1
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 1, "pb": 0}]


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


class Kind(NamedTuple):
    """The shapes of one kind, before they are packed: rows (n, k, batch), columns m, and a decision's number for each pair."""

    rows: list[tuple[int, int, int]]
    columns: list[int]
    choices: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Part:
    """The shapes of one kind, decompressed at their first use."""

    data: bytes
    shape: tuple[int, int]

    @cached_property
    def _body(self) -> bytes:
        return lzma.decompress(self.data)

    def _numbers(self, start: int, count: int) -> list[int]:
        found: list[int] = np.frombuffer(self._body, "<u4", count, 4 * start).tolist()
        return found

    @cached_property
    def rows(self) -> Mapping[tuple[int, int, int], int]:
        """(n, k, batch), each with its row."""
        count = self.shape[0]
        n, k, batch = (self._numbers(i * count, count) for i in range(3))
        return {row: i for i, row in enumerate(zip(n, k, batch, strict=True))}

    @cached_property
    def columns(self) -> Mapping[int, int]:
        """m, each with its column."""
        return {m: i for i, m in enumerate(self._numbers(3 * self.shape[0], self.shape[1]))}

    @cached_property
    def choices(self) -> npt.NDArray[np.uint8]:
        """The number of each shape's decision."""
        return np.frombuffer(self._body, np.uint8, offset=4 * (3 * self.shape[0] + self.shape[1])).reshape(self.shape)


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


def pack(header: dict[str, Any], kinds: Mapping[str, Kind]) -> bytes:
    """A file from a header (profile, decisions, rules) and the shapes of each kind."""
    about, body = [], b""
    for key, (rows, columns, choices) in kinds.items():
        names = np.array(rows, "<u4").reshape(-1, 3).T.tobytes() + np.array(columns, "<u4").tobytes()
        part = lzma.compress(names + choices.tobytes(), filters=_FILTERS)
        about.append([key, len(part), len(rows), len(columns)])
        body += part
    digest = hashlib.sha256(body).hexdigest()
    fields = header | {"kinds": about, "version": VERSION, "sha256": digest}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode() + b"\n" + body


def unpack(data: bytes) -> Table:
    """The table in a file's bytes.

    Raises ValueError for bytes that `pack` did not make.
    """
    head, _, body = data.partition(b"\n")
    header = json.loads(head)
    if header["version"] != VERSION:
        raise ValueError(f"version {header['version']} of the format; valid: {VERSION}")
    if hashlib.sha256(body).hexdigest() != header["sha256"]:
        raise ValueError("its digest does not fit its contents")
    parts, start = {}, 0
    for key, size, rows, columns in header["kinds"]:
        parts[key] = Part(body[start : start + size], (rows, columns))
        start += size
    return Table(header["profile"], tuple(Decision(*item) for item in header["decisions"]), parts, header["rules"])


def read(name: str) -> Table:
    """The table in a file of this package."""
    return unpack(pkgutil.get_data(__package__, name) or b"")
