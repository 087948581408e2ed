"""The file format of recorded plans: a line of JSON, a header in JSON, then parts, those of one call compressed together; a digest tells damage.

A part has sweeps of one kind: in a sweep one extent grows (or two that are equal), everything else stands still. Of a sweep the file holds where the decision
changes. Decisions depend on how far an extent is aligned, so that each class of alignment has changes of its own. What stands still in any sweep is listed once,
with bits for each part that say which of it a part has. Behind the parts come decision trees, and rankings of tiles.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.plans.ranking import Ranking, packed_extent, ranked
from tcsim.plans.trees import Machine, Tree, packed_size, unpacked

VERSION = 6
AXES = {"m": (0,), "n": (1,), "k": (2,), "mn": (0, 1), "mk": (0, 2)}
"""Which of m, n, k grow in a sweep."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 0, "pb": 0}]


@dataclass(frozen=True)
class Decision:
    """What the library chose: its kernel and how K is cut."""

    kernel: str
    split: int  # 0: its order of summation is not modelled
    step: int  # chunks are multiples of it
    cuts: int = 0  # the library's own number of chunks, where the order is not modelled
    reduction: int = 0  # its scheme of adding them: 0 none, 1 in place, 2 in f32, 4 in the type of the result

    def chunk(self, k: int) -> int:
        """Elements of k in one chunk."""
        if self.split <= 1:
            return k
        steps = (k + self.step - 1) // self.step
        return (steps + self.split - 1) // self.split * self.step


Rows = list[tuple[int, int, int]]
"""Of sweeps the extents that stand still, in the order m, n, k, zeros after them; the batch last."""


class Sweeps(NamedTuple):
    """Sweeps before they are packed."""

    key: str
    axis: str  # of AXES
    step: int  # extents are multiples of it: the first is step
    rows: Rows  # in ascending order
    choices: npt.NDArray[np.int64]  # (rows, count) numbers of decisions, -1 where nothing is known


def _class(x: Any, classes: Sequence[int]) -> Any:
    """The class of a multiple of the step: how many of `classes` divide it, less 1. Each of them divides the next."""
    return sum((x % size == 0) * 1 for size in classes) - 1


def _opened(data: bytes, size: int) -> bytes:
    """The `size` bytes that were compressed.

    Raises ValueError for data that is damaged or of another size.
    """
    try:
        found = lzma.LZMADecompressor().decompress(data, size + 1)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None
    if len(found) != size:
        raise ValueError("a part does not have the size that the header says")
    return found


@dataclass(frozen=True)
class Part:
    """Sweeps of one kind, decompressed at their first use with those of the same call."""

    body: Callable[[], bytes]  # of all parts of the call
    start: int  # of this part in it
    axis: str
    step: int
    count: int  # multiples of the step in each sweep
    classes: tuple[int, ...]
    size: int  # sweeps
    runs: int
    used: int  # different decisions, with none as one of them
    decisions: int  # decisions of the table
    listed: Callable[[], Sequence[Rows]]  # the rows of every part of the file
    number: int  # of this part

    @cached_property
    def rows(self) -> Mapping[tuple[int, int, int], int]:
        """What stands still in each sweep, and its number."""
        found = self.listed()[self.number]
        if len(found) != self.size:
            raise ValueError("a part does not have the rows that the header says")
        return {row: i for i, row in enumerate(found)}

    @cached_property
    def _changes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The first change of each sweep and class, and behind the last; of each change its place and its decision plus 1, zero for unknown."""
        lists = self.size * len(self.classes)
        body = self.body()[self.start : self.start + _extent(lists, self.used, self.runs)]
        counts = np.frombuffer(body, "<u2", lists)
        used = np.frombuffer(body, "<u2", self.used, 2 * lists).astype(np.int64)
        planes = np.frombuffer(body, np.uint8, 4 * self.runs, 2 * (lists + self.used)).reshape(4, -1).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        ranks = planes[2] | planes[3] << 8
        if first[-1] != self.runs or (used > self.decisions).any() or (ranks >= self.used).any():
            raise ValueError("a part does not hold together")
        along = np.concatenate([[0], np.cumsum(planes[0] | planes[1] << 8)])
        return first, along[1:] - np.repeat(along[first[:-1]], counts), used[ranks]

    def find(self, row: tuple[int, int, int], value: int) -> int | None:
        """The number of the decision where the growing extent has a value; None where nothing is known."""
        x, rest = divmod(value, self.step)
        if rest or not 1 <= x <= self.count or (number := self.rows.get(row)) is None:
            return None
        first, places, choices = self._changes
        index = number * len(self.classes) + _class(x, self.classes)
        run = int(np.searchsorted(places[first[index] : first[index + 1]], x, "right")) - 1
        return int(choices[first[index] + run]) - 1 if run >= 0 and choices[first[index] + run] else None

    @property
    def known(self) -> int:
        """How many shapes it answers."""
        first, places, choices = self._changes
        after = np.append(places[1:], 0)
        after[first[1:][first[1:] > first[:-1]] - 1] = self.count + 1
        which = np.repeat(np.arange(len(first) - 1) % len(self.classes), np.diff(first))
        total = 0
        for i, size in enumerate(self.classes):
            larger = self.classes[i + 1] if i + 1 < len(self.classes) else self.count + 1
            some = (which == i) & (choices > 0)
            upper, lower = after[some] - 1, places[some] - 1
            total += int((upper // size - upper // larger - lower // size + lower // larger).sum())
        return total


def _extent(lists: int, used: int, runs: int) -> int:
    """Bytes of a part."""
    return 2 * (lists + used) + 4 * runs


class Grown(NamedTuple):
    """The tree of a kind, or its ranking of tiles."""

    tree: Callable[[], Tree | Ranking]  # read at its first use
    number: int  # of the kind, among those that share the tree
    answers: Sequence[int]  # the numbers of the decisions that leaves have the places of; empty: leaves have splits


@dataclass(frozen=True)
class Table:
    """All plans of one GPU."""

    profile: dict[str, Any]
    decisions: tuple[Decision, ...]
    parts: Mapping[str, tuple[Part, ...]]
    rules: Mapping[str, dict[str, Any]]  # by kind: products that are never split
    trees: Mapping[str, Grown]

    def find(self, key: str, m: int, n: int, k: int, batch: int) -> Decision | None:
        """The decision for a shape; None where it is not known."""
        shape = (m, n, k)
        for part in self.parts.get(key, ()):
            growing = AXES[part.axis]
            if len({shape[i] for i in growing}) > 1:
                continue
            still = [x for i, x in enumerate(shape) if i not in growing]
            found = part.find((still[0], still[1] if len(still) > 1 else 0, batch), shape[growing[0]])
            if found is not None:
                return self.decisions[found]
        return None


def _listed(sweeps: Sweeps, classes: tuple[int, ...]) -> tuple[bytes, int, int]:
    """The body of a part, its number of changes and of different decisions; a change is the distance from the one before it in its list."""
    counts, places, choices = [], [], []
    x = np.arange(1, sweeps.choices.shape[1] + 1)
    members = [x[_class(x, classes) == i] for i in range(len(classes))]
    for row in sweeps.choices:
        for each in members:
            chosen = row[each - 1] + 1
            at = np.flatnonzero(np.diff(chosen, prepend=-1))
            counts.append(len(at))
            places.append(np.diff(each[at], prepend=0))
            choices.append(chosen[at])
    used, ranks = np.unique(np.concatenate(choices), return_inverse=True)
    words = [x.astype(np.uint16) for x in (np.concatenate(places), ranks)]
    planes = b"".join((word >> shift & 255).astype(np.uint8).tobytes() for word in words for shift in (0, 8))
    return np.array(counts, "<u2").tobytes() + used.astype("<u2").tobytes() + planes, len(ranks), len(used)


def _named(sweeps: Sequence[Sweeps]) -> tuple[bytes, int]:
    """The rows of all parts in ascending order, which of them each part has, and how many they are."""
    rows = sorted({row for each in sweeps for row in each.rows})
    held = [np.packbits([row in some for row in rows]) for some in (set(each.rows) for each in sweeps)]
    return np.array(rows, "<u4").reshape(-1, 3).T.tobytes() + b"".join(bits.tobytes() for bits in held), len(rows)


def _rows(data: bytes, size: int, parts: int) -> list[Rows]:
    """The rows of each part, from what `_named` made."""
    each = (size + 7) // 8
    body = _opened(data, 12 * size + parts * each)
    rows = list(zip(*np.frombuffer(body, "<u4", 3 * size).reshape(3, -1).tolist(), strict=True))
    bits = np.unpackbits(np.frombuffer(body, np.uint8, parts * each, 12 * size).reshape(parts, each), axis=1)
    return [[row for row, one in zip(rows, some, strict=False) if one] for some in bits]


CLASSES = ((1,), (1, 2), (1, 8), (1, 2, 8), (1, 8, 16), (1, 2, 4), (1, 2, 4, 8), (1, 8, 16, 32))


def pack(
    header: dict[str, Any],
    sweeps: Sequence[Sweeps],
    trees: Mapping[tuple[str, ...], tuple[Tree | Ranking, Sequence[int]]],
) -> bytes:
    """A file from a header (profile, decisions, rules), sweeps, each part with the classes that make it smallest, and trees with their answers, each by the kinds that share it."""
    names, size = _named(sweeps)
    body = _compressed(names)
    parts, calls, grown, rows = [], [], [], [size, len(body)]
    for _, some in groupby(sweeps, _call):
        together = b""
        for each in some:
            made = ((classes, *_listed(each, classes)) for classes in CLASSES)
            classes, data, runs, used = min(made, key=lambda x: len(_compressed(x[1])))
            parts.append(
                [each.key, each.axis, each.step, each.choices.shape[1], list(classes), len(each.rows), runs, used]
            )
            together += data
        calls.append(len(data := _compressed(together)))
        body += data
    for keys, (tree, answers) in trees.items():
        data = _compressed(tree.packed())
        nodes, machine = (
            (tree.sizes(), tree.choices.machine) if isinstance(tree, Ranking) else (len(tree.features), tree.machine)
        )
        about = [machine.processors, machine.workspace, machine.step]
        grown.append([list(keys), nodes, *about, list(answers), len(data)])
        body += data
    fields = _json(header | {"parts": parts, "calls": calls, "trees": grown, "rows": rows})
    body = (packed := _compressed(fields)) + body
    sizes = [len(packed), len(fields)]
    return _json({"version": VERSION, "header": sizes, "sha256": hashlib.sha256(body).hexdigest()}) + b"\n" + body


def _call(part: Sequence[Any]) -> str:
    """The first word of the key that a part begins with: parts of one call are compressed together."""
    name: str = part[0]
    return name.split()[0]


def _json(fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _compressed(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_XZ, filters=_FILTERS)


def unpack(file: bytes) -> Table:
    """The table in a file's bytes.

    Raises ValueError for bytes that `pack` did not make; parts are read at their first use, and may raise it then.
    """
    line, _, body = file.partition(b"\n")
    head = json.loads(line)
    if head["version"] != VERSION:
        raise ValueError(f"version {head['version']} of the format; valid: {VERSION}")
    if hashlib.sha256(body).hexdigest() != head["sha256"]:
        raise ValueError("its digest does not fit its contents")
    start, size = head["header"]
    if not 0 < size < _MOST:
        raise ValueError(f"a header of {size} bytes")
    header = json.loads(_opened(body[:start], size))
    decisions = tuple(Decision(*item) for item in header["decisions"])
    parts: dict[str, tuple[Part, ...]] = {}
    trees: dict[str, Grown] = {}
    rows, size = header["rows"]
    if not 0 <= rows < _MOST:
        raise ValueError(f"{rows} rows")
    listed = cache(partial(_rows, body[start : start + size], rows, len(header["parts"])))
    start += size
    numbered = groupby(enumerate(header["parts"]), lambda x: _call(x[1]))
    for size, (_, some) in zip(header["calls"], numbered, strict=True):
        together = list(some)
        ends = list(accumulate(_extent(x[5] * len(x[4]), x[7], x[6]) for _, x in together))
        opened = cache(partial(_opened, body[start : start + size], ends[-1]))
        for first, (number, (key, axis, step, count, classes, rows, runs, used)) in zip(
            [0, *ends], together, strict=False
        ):
            if axis not in AXES or step < 1 or not classes or classes[0] != 1 or max(rows, count, runs, used) > _MOST:
                raise ValueError(f"a part of {key!r} that no recorder writes")
            part = Part(
                opened, first, axis, step, count, tuple(classes), rows, runs, used, len(decisions), listed, number
            )
            parts[key] = (*parts.get(key, ()), part)
        start += size
    for keys, nodes, processors, workspace, step, answers, size in header["trees"]:
        if any(not 0 <= x < len(decisions) for x in answers):
            raise ValueError("a tree with a decision that does not exist")
        tree = _tree(body[start : start + size], nodes, Machine(processors, workspace, step))
        trees |= {key: Grown(tree, number, answers) for number, key in enumerate(keys)}
        start += size
    return Table(header["profile"], decisions, parts, header["rules"], trees)


_MOST = 1 << 22
"""More rows or changes than a part has, and bytes than a header."""


def _tree(data: bytes, nodes: int | list[int], machine: Machine) -> Callable[[], Tree | Ranking]:
    """The tree, or the ranking of `nodes`, its sizes, read at its first use."""
    if isinstance(nodes, list):
        if len(nodes) != 5 or not all(0 < x < 1 << 16 for x in nodes) or packed_extent(*nodes) > _MOST:
            raise ValueError(f"a ranking of {nodes}")
        return cache(lambda: ranked(_opened(data, packed_extent(*nodes)), machine, *nodes))
    if not 0 < nodes < 1 << 16:
        raise ValueError(f"a tree of {nodes} nodes")
    return cache(lambda: unpacked(_opened(data, packed_size(nodes)), nodes, machine))


def read(name: str) -> Table:
    """The table in a file of this package."""
    return unpack(pkgutil.get_data(__package__, name) or b"")
