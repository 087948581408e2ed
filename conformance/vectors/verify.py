"""Another implementation's answers against the expected bits: counts, kinds of error, the first mismatches with their operands."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.stimuli.problem import Codes, Matrices
from conformance.vectors import forms
from conformance.vectors.errors import Kind, classify, evaluated
from conformance.vectors.sets import MANIFEST, digest_of, entries_of, fields_of, little, subject_of
from conformance.vectors.subjects import Elementwise, Field, Multiply, Subject
from tcsim.core.array_files import ArrayFile
from tcsim.core.errors import OperandError, listing
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS

CLASSIFIED = 2000
"""Wrong outputs of a file whose kind of error is looked for; the others are counted only."""


@dataclass(frozen=True)
class Wrong:
    """One wrong output."""

    file: str
    number: int  # of the output in its file
    operands: dict[str, str]
    expected: str
    got: str
    kind: Kind

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "kind": self.kind.kind, "what": self.kind.what}


@dataclass
class Verdict:
    """What the check found. `kinds` counts classified outputs only."""

    files: int = 0
    outputs: int = 0
    differ: int = 0
    by_file: dict[str, tuple[int, int]] = field(default_factory=dict)  # file: outputs, wrong ones
    kinds: Counter[Kind] = field(default_factory=Counter)
    first: list[Wrong] = field(default_factory=list)

    @property
    def classified(self) -> int:
        """Wrong outputs whose kind was looked for."""
        return sum(self.kinds.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "files": self.files,
            "outputs": self.outputs,
            "differ": self.differ,
            "classified": self.classified,
            "kinds": [{"kind": kind.kind, "what": kind.what, "outputs": n} for kind, n in self.kinds.most_common()],
            "by_file": {name: {"outputs": n, "differ": wrong} for name, (n, wrong) in self.by_file.items()},
            "first": [wrong.as_dict() for wrong in self.first],
        }


def verify(vectors: Path, answers: Path, show: int = 5) -> Verdict:
    """Compare the answers with a folder of vectors, or with one of its files; `show`: mismatches of each file that are kept.

    Of a folder the answers are a folder too: for each file of vectors one of the same name, whose end may be another form's.

    Raises OperandError for a file that is missing, has changed, or has more or fewer answers than there are outputs.
    """
    found = Verdict()
    for path, entry in entries_of(vectors):
        _file(found, path, entry, answers_of(path, answers), show)
    return found


def answers_of(vectors: Path, answers: Path) -> Path:
    """The file of answers to a file of vectors."""
    if not answers.is_dir():
        return answers
    ends = (".npz", ".npy", ".jsonl", ".hex", ".txt", ".mem")
    names = [vectors.name.removesuffix(vectors.suffix) + end for end in ends]
    there = [answers / name for name in names if (answers / name).exists() and (answers / name) != vectors]
    if len(there) > 1:
        raise OperandError(
            f"vectors: {there[0]} and {there[1].name} are two files of answers to {vectors.name}; valid: one"
        )
    if there:
        return there[0]
    raise OperandError(f"vectors: {answers} has no answers to {vectors.name}; valid: {listing(names)}")


def _file(found: Verdict, path: Path, entry: dict[str, Any], answers: Path, show: int) -> None:
    own, fields, done, wrong, left = subject_of(entry), fields_of(entry), 0, 0, CLASSIFIED
    said, total = _Answers(answers, path, entry), hashlib.sha256()
    for records in _records(path, entry, own, fields):
        expected = records["d"][:, 0].astype(np.uint64)
        _check_expected(own, records, expected, path, done)
        total.update(little(records["d"].astype(own.dtype) if fields else records["d"]))
        got, known = said.take(len(expected))
        if len(got) < len(expected):
            raise OperandError(
                f"vectors: {answers} has {done + len(got):,} answers; valid: {entry['outputs']:,}, one an output of {path.name}"
            )
        at = np.flatnonzero((got != expected) | ~known)
        wrong += len(at)
        chosen = at[:left]
        left -= len(chosen)
        part = {name: array[chosen] for name, array in records.items()}
        kinds = classify(own, part, got[chosen], known[chosen]) if len(chosen) else []
        found.kinds.update(kinds)
        for index, kind in zip(chosen.tolist(), kinds, strict=True):
            if sum(one.file == entry["file"] for one in found.first) >= show:
                break
            found.first.append(_wrong(entry, fields, records, index, done + index, got, known, kind))
        done += len(expected)
    if len(said.take(1)[0]):
        raise OperandError(f"vectors: {answers} has more answers than the {done:,} outputs of {path.name}")
    if done != entry["outputs"] or total.hexdigest() != entry["expected"]:
        raise OperandError(
            f"vectors: {path} has {done:,} outputs, and expected results, that are not those of {MANIFEST}: make it again"
        )
    found.files += 1
    found.outputs += done
    found.differ += wrong
    found.by_file[entry["file"]] = done, wrong


def _records(path: Path, entry: dict[str, Any], own: Subject, fields: list[Field]) -> Iterator[Matrices]:
    if fields:
        yield from forms.records_of(path, entry["form"], fields, own)
        return
    arrays = dict(ArrayFile(path))  # a family without records: only what came out is compared
    operands, expected = next(own.blocks(entry["class"], entry["seed"], None))
    made = {**operands, "d": expected}
    if arrays.keys() != made.keys() or any(not np.array_equal(arrays[name], array) for name, array in made.items()):
        raise OperandError(
            f"vectors: {path} does not hold what the model gives: it was changed, or another version made it"
        )
    array = np.ascontiguousarray(arrays["d"])
    yield {"d": array.view(f"u{array.itemsize}").reshape(-1, 1)}


def _check_expected(own: Subject, records: Matrices, expected: Codes, path: Path, done: int) -> None:
    """Raise OperandError for expected results that the model does not give: vectors of another version, or that were changed."""
    if isinstance(own, Multiply):
        found = evaluated(own, own.steps, records)
    elif isinstance(own, Elementwise):
        found = own.results(records)
    else:
        return
    differ = np.flatnonzero(found.astype(np.uint64) != expected)
    if len(differ):
        at = differ[0]
        raise OperandError(
            f"vectors: {path}: output {done + at} is {int(expected[at]):#x}, and the model gives {int(found[at]):#x}: it was changed, or another "
            "version made it"
        )


class _Answers:
    """Answers that come in blocks of their own, taken as many as are asked for."""

    def __init__(self, path: Path, vectors: Path, entry: dict[str, Any]) -> None:
        if not path.exists():
            raise OperandError(f"vectors: there is no {path}")
        if not path.is_file() and not path.is_fifo():
            raise OperandError(f"vectors: {path} is not a file of answers")
        if path.samefile(vectors) or (path.is_file() and digest_of(path) == entry["sha256"]):
            raise OperandError(f"vectors: {path} holds the vectors themselves; valid: a file of answers")
        if path.name == MANIFEST:
            raise OperandError(f"vectors: {path} is a manifest; valid: a file of answers")
        self._blocks = forms.answers(path)
        self._codes: Codes = np.empty(0, np.uint64)
        self._known: Codes = np.empty(0, bool)

    def take(self, count: int) -> tuple[Codes, Codes]:
        """At most `count` answers."""
        while len(self._codes) < count and (block := next(self._blocks, None)) is not None:
            self._codes = np.concatenate([self._codes, block[0]])
            self._known = np.concatenate([self._known, block[1]])
        out = self._codes[:count], self._known[:count]
        self._codes, self._known = self._codes[count:], self._known[count:]
        return out


def _wrong(
    entry: dict[str, Any], fields: list[Field], records: Matrices, index: int, number: int, got: Codes, known: Codes, kind: Kind
) -> Wrong:  # fmt: skip
    texts = {one.name: _shown(one, records[one.name][index]) for one in fields[::-1] if one.name != "d"}
    d = next((one for one in fields if one.name == "d"), Field("d", 1, "", 8))
    answer = _shown(d, got[index : index + 1]) if known[index] else "x"
    return Wrong(entry["file"], number, texts, _shown(d, records["d"][index]), answer, kind)


def _shown(one: Field, codes: Codes) -> str:
    """Codes in hexadecimal, of a single one its number too; of many zeros only what is not zero, with its place."""
    texts = [f"0x{int(code):0{one.digits}x}" for code in codes]
    if len(codes) == 1:
        value = f" ({decode(codes.astype(FORMATS[one.format].dtype), one.format)[0]})" if one.format in FORMATS else ""
        return texts[0] + value
    if (codes != 0).sum() <= len(codes) // 4:
        return " ".join(f"[{at}]={text}" for at, text in enumerate(texts) if codes[at]) or "all 0"
    return " ".join(texts)
