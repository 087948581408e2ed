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

VERSION = 7
AXES = {"m": (0,), "n": (1,), "k": (2,), "mn": (0, 1), "mk": (0, 2)}
"""Which of m, n, k grow in a sweep."""
FAR = 255
"""The distance from which two bytes hold it."""
_FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 0, "pb": 0}]


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


class Changes(NamedTuple):
    """Of a part: arrays of integers."""

    used: npt.NDArray[Any]  # its decisions plus 1, with zero for unknown
    steps: npt.NDArray[Any]  # of each sweep and class the distance of each change from the one before it, then a zero
    ranks: npt.NDArray[Any]  # of each change the place of its decision in `used`


@dataclass(frozen=True)
class Part:
    """Sweeps of one kind, decompressed at their first use with those of the same call."""

    changes: Callable[[], Sequence[Changes]]  # of all parts of the call
    place: int  # of this part among them
    axis: str
    step: int
    count: int  # multiples of the step in each sweep
    classes: tuple[int, ...]
    size: int  # sweeps
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
        used, steps, ranks = self.changes()[self.place]
        ends = np.flatnonzero(steps == 0)
        counts = np.diff(ends, prepend=-1) - 1
        first = np.concatenate([[0], np.cumsum(counts)])
        whole = len(ends) == self.size * len(self.classes) and first[-1] == len(ranks)
        if not whole or (used > self.decisions).any() or (ranks >= len(used)).any():
            raise ValueError("a part does not hold together")
        along = np.concatenate([[0], np.cumsum(steps[steps > 0])])
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


def _halves(words: npt.NDArray[Any]) -> bytes:
    """The low bytes of words of 16 bits, then the high ones."""
    return b"".join((words >> shift & 255).astype(np.uint8).tobytes() for shift in (0, 8))


def _joined(parts: Sequence[Changes]) -> bytes:
    """The changes of the parts of a call: what is alike stands together. Distances from FAR on come after the others."""
    used, steps, ranks = (np.concatenate(x) for x in zip(*parts, strict=True))
    short = np.minimum(steps, FAR).astype(np.uint8).tobytes()
    return used.astype("<u2").tobytes() + short + _halves(steps[steps >= FAR]) + _halves(ranks)


def _parted(data: bytes, sizes: Sequence[tuple[int, int, int, int]]) -> list[Changes]:
    """The changes of each part of a call, from what `_joined` made; sizes: of each part its decisions, steps, distances from FAR on and changes."""
    count = [sum(x) for x in zip(*sizes, strict=True)]
    body = _opened(data, 2 * count[0] + count[1] + 2 * (count[2] + count[3]))
    starts = list(accumulate((2 * count[0], count[1], 2 * count[2]), initial=0))
    far, ranks = (
        np.frombuffer(body, np.uint8, 2 * size, start).reshape(2, -1).astype(np.int64)
        for size, start in zip(count[2:], starts[2:], strict=True)
    )
    used = np.frombuffer(body, "<u2", count[0]).astype(np.int64)
    steps = np.frombuffer(body, np.uint8, count[1], starts[1]).astype(np.int64)
    if (steps == FAR).sum() != count[2]:
        raise ValueError("a call does not hold together")
    steps[steps == FAR] = far[0] | far[1] << 8
    each = zip((used, steps, ranks[0] | ranks[1] << 8), (0, 1, 3), strict=True)
    return [
        Changes(*x) for x in zip(*(np.split(y, np.cumsum([z[i] for z in sizes])[:-1]) for y, i in each), strict=True)
    ]


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


def _listed(sweeps: Sweeps, classes: tuple[int, ...]) -> Changes:
    """The changes of a part."""
    steps, choices = [], []
    x = np.arange(1, sweeps.choices.shape[1] + 1)
    members = [x[_class(x, classes) == i] for i in range(len(classes))]
    for row in sweeps.choices:
        for each in members:
            chosen = row[each - 1] + 1
            at = np.flatnonzero(np.diff(chosen, prepend=-1))
            steps.append(np.append(np.diff(each[at], prepend=0), 0))
            choices.append(chosen[at])
    used, ranks = np.unique(np.concatenate(choices), return_inverse=True)
    return Changes(used, np.concatenate(steps), ranks)


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
    parts, calls, rows = [], [], [size, len(body)]
    for _, some in groupby(sweeps, _call):
        together = []
        for each in some:
            made = ((classes, _listed(each, classes)) for classes in CLASSES)
            classes, one = min(made, key=lambda x: len(_compressed(_joined([x[1]]))))
            sizes = [len(one.used), len(one.steps), int((one.steps >= FAR).sum()), len(one.ranks)]
            parts.append([each.key, each.axis, each.step, each.choices.shape[1], list(classes), len(each.rows), sizes])
            together.append(one)
        calls.append(len(data := _compressed(_joined(together))))
        body += data
    return _ended(header | {"parts": parts, "calls": calls, "rows": rows}, body, [], trees)


def replanted(file: bytes, trees: Mapping[tuple[str, ...], tuple[Tree | Ranking, Sequence[int]]]) -> bytes:
    """A file whose trees and rankings of some kinds are others."""
    line, _, body = file.partition(b"\n")
    packed, size = json.loads(line)["header"]
    header = json.loads(_opened(body[:packed], size))
    ends = [len(body) - sum(x[-1] for x in header["trees"])]
    ends += accumulate((x[-1] for x in header["trees"]), initial=ends[0])
    spans = zip(header["trees"], ends[1:], ends[2:], strict=False)
    new = {key for keys in trees for key in keys}
    kept = [(about, body[first:last]) for about, first, last in spans if not new & set(about[0])]
    return _ended(header, body[packed : ends[0]], kept, trees)


def _ended(
    header: dict[str, Any],
    body: bytes,
    kept: Sequence[tuple[list[Any], bytes]],
    trees: Mapping[tuple[str, ...], tuple[Tree | Ranking, Sequence[int]]],
) -> bytes:
    """The file of a header, the bytes of its sweeps, trees that are packed already, and others."""
    grown = [about for about, _ in kept]
    body += b"".join(data for _, data in kept)
    for keys, (tree, answers) in trees.items():
        data = _compressed(tree.packed())
        nodes, machine = (
            (tree.sizes(), tree.choices.machine) if isinstance(tree, Ranking) else (len(tree.features), tree.machine)
        )
        about = [machine.processors, machine.workspace, machine.step]
        grown.append([list(keys), nodes, *about, list(answers), len(data)])
        body += data
    fields = _json(header | {"trees": grown})
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
    return lzma.compress(data, lzma.FORMAT_ALONE, filters=_FILTERS)


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
        opened = cache(partial(_parted, body[start : start + size], [x[-1] for _, x in together]))
        for place, (number, (key, axis, step, count, classes, rows, sizes)) in enumerate(together):
            if axis not in AXES or step < 1 or not classes or classes[0] != 1 or max(rows, count, *sizes) > _MOST:
                raise ValueError(f"a part of {key!r} that no recorder writes")
            part = Part(opened, place, axis, step, count, tuple(classes), rows, len(decisions), listed, number)
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
        if len(nodes) != 10 or not all(0 < x < 1 << 16 for x in nodes) or packed_extent(*nodes) > _MOST:
            raise ValueError(f"a ranking of {nodes}")
        return cache(lambda: ranked(_opened(data, packed_extent(*nodes)), machine, *nodes))
    if not 0 < nodes < 1 << 16:
        raise ValueError(f"a tree of {nodes} nodes")
    return cache(lambda: unpacked(_opened(data, packed_size(nodes)), nodes, machine))


def read(name: str) -> Table:
    """The table in a file of this package."""
    return unpack(pkgutil.get_data(__package__, name) or b"")
