"""The file of golden answers: a digest of each and, of texts, the text; and what differs between two of them."""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.evaluation.golden.kind import Scope, Value


@dataclass(frozen=True)
class Answer:
    """What is kept of a text or of bytes."""

    sha256: str
    text: str | None = None


def answer(value: Value) -> Answer:
    """What is kept of a value."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return Answer(hashlib.sha256(data).hexdigest(), value if isinstance(value, str) else None)


@dataclass
class Store:
    """Answers by kind and name."""

    scope: Scope = field(default_factory=Scope)
    answers: dict[str, dict[str, Answer]] = field(default_factory=dict)


def write(path: Path, store: Store) -> None:
    """Write a store; the same one gives the same bytes."""
    answers = {
        kind: {
            name: [own.sha256] if own.text is None else [own.sha256, own.text] for name, own in sorted(found.items())
        }
        for kind, found in sorted(store.answers.items())
    }
    data = json.dumps({"scope": asdict(store.scope), "answers": answers}).encode()
    path.write_bytes(lzma.compress(data, preset=3))


def read(path: Path) -> Store:
    """The store of a file."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    answers = {kind: {name: Answer(*kept) for name, kept in found.items()} for kind, found in data["answers"].items()}
    scope = data["scope"]
    return Store(Scope(tuple(scope["schedules"]), scope["reports"]), answers)


@dataclass(frozen=True)
class Difference:
    """What differs between the answers of one kind; new and gone: names that only one of the two has."""

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    same: int

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.changed or self.gone or self.new)


def difference(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> Difference:
    """What differs, by name."""
    both = before.keys() & after.keys()
    changed = sorted(name for name in both if before[name].sha256 != after[name].sha256)
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    return Difference(tuple(changed), tuple(gone), tuple(new), len(both) - len(changed))


def unified(name: str, before: Answer, after: Answer, most: int) -> Iterator[str]:
    """The lines of a unified diff of two texts, `most` at most; of bytes, that they differ."""
    if before.text is None or after.text is None:
        yield f"{name}: {before.sha256[:16]} became {after.sha256[:16]}"
        return
    texts = before.text.splitlines(), after.text.splitlines()
    lines = list(difflib.unified_diff(*texts, f"{name} (store)", f"{name} (now)", n=2, lineterm=""))
    yield from lines[:most]
    if len(lines) > most:
        yield f"... {len(lines) - most} more lines"
